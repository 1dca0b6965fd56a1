package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// workloads are what programs do all day: each runs the same inside and outside and
// times itself, so that a start is in none of them.
var workloads = []struct {
	name   string
	rounds int
	run    func(dir string) error
}{
	{"open and close a file", 9, openLoop},
	{"fork, execute, wait", 9, forkLoop},
	{"git status, 100,000 files", 5, gitStatus},
	{"go build, nothing cached", 3, goBuild},
}

func openLoop(string) error {
	for range 100_000 {
		f, err := os.Open("/usr/bin/env")
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

func forkLoop(string) error {
	for range 500 {
		if err := exec.Command("/bin/true").Run(); err != nil {
			return err
		}
	}
	return nil
}

func gitStatus(dir string) error {
	cmd := exec.Command("git", "status", "--short")
	cmd.Dir = filepath.Join(dir, "tree")
	return quietly(cmd)
}

func goBuild(dir string) error {
	cache, err := os.MkdirTemp("", "gocache-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	cmd := exec.Command("go", "build", "./...")
	cmd.Dir = filepath.Join(dir, "module")
	cmd.Env = append(os.Environ(), "GOCACHE="+cache, "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
	return quietly(cmd)
}

func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.300s", err, out)
	}
	return nil
}

// work is the program inside: it prints how long a workload took, in nanoseconds.
func work(name, dir string) error {
	for _, w := range workloads {
		if w.name == name {
			begin := time.Now()
			if err := w.run(dir); err != nil {
				return err
			}
			fmt.Println(time.Since(begin).Nanoseconds())
			return nil
		}
	}
	return fmt.Errorf("no workload %q", name)
}

// layTree makes what the workloads work on: 100,000 files in a repository, and a
// module of Go that needs a good part of the standard library.
func layTree(dir string) error {
	for d := range 200 {
		at := filepath.Join(dir, "tree", fmt.Sprintf("d%03d", d))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		for i := range 500 {
			if err := os.WriteFile(filepath.Join(at, strconv.Itoa(i)), nil, 0o644); err != nil {
				return err
			}
		}
	}
	module := filepath.Join(dir, "module")
	if err := os.MkdirAll(module, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"go.mod":  "module example.com/app\n\ngo 1.21\n",
		"main.go": "package main\n\nimport \"net/http\"\n\nfunc main() { _ = http.ListenAndServe(\"127.0.0.1:0\", nil) }\n",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "-qm", "tree"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = filepath.Join(dir, "tree")
		if err := quietly(cmd); err != nil {
			return err
		}
	}
	return nil
}

// measureInside runs each workload outside and inside in turn.
func measureInside(o options, dir string) (map[string]Timings, []string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	confine, err := filepath.Abs(o.confine)
	if err != nil {
		return nil, nil, err
	}
	result, order := map[string]Timings{}, []string(nil)
	for _, w := range workloads {
		for _, where := range []string{"outside", "inside"} {
			order = append(order, w.name+", "+where)
		}
		for range w.rounds {
			for _, where := range []string{"outside", "inside"} {
				cmd := exec.Command(self, "-workload", w.name, "-dir", dir)
				if where == "inside" {
					cmd = exec.Command(confine, "run", "--live", "--ro", filepath.Dir(self), "--", self, "-workload", w.name, "-dir", "/workspace")
				}
				cmd.Dir = dir
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Run(); err != nil {
					return nil, nil, fmt.Errorf("%s, %s: %w: %.300s", w.name, where, err, errs.String())
				}
				ns, err := strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
				if err != nil {
					return nil, nil, fmt.Errorf("%s, %s: %w", w.name, where, err)
				}
				result[w.name+", "+where] = append(result[w.name+", "+where], time.Duration(ns))
			}
		}
	}
	return result, order, nil
}

// measureDeletion times staged runs among 100,000 files: one that changes nothing
// and one that deletes a file.
func measureDeletion(o options, dir, state string, rounds int) (map[string]Timings, error) {
	confine, err := filepath.Abs(o.confine)
	if err != nil {
		return nil, err
	}
	result := map[string]Timings{}
	for i := range rounds {
		for name, args := range map[string][]string{"nothing": {"/bin/true"}, "a deletion": {"/bin/rm", fmt.Sprintf("tree/d%03d/%d", i, i)}, "live": {"/bin/true"}} {
			mode := "--stage"
			if name == "live" {
				mode = "--live"
			}
			cmd := exec.Command(confine, append([]string{"run", mode, "--"}, args...)...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_STATE_HOME="+state)
			begin := time.Now()
			if err := quietly(cmd); err != nil {
				return nil, fmt.Errorf("staged, %s: %w", name, err)
			}
			result[name] = append(result[name], time.Since(begin))
		}
	}
	return result, nil
}
