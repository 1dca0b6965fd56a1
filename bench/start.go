package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"confine/internal/cli"
)

// contender runs a command in its own way.
type contender struct {
	name string
	// prepare returns what runs args once. What it does itself is not timed.
	prepare func(args ...string) (start, error)
}

// start runs a prepared command in a directory, to its end.
type start func(dir string, stdout, stderr io.Writer) error

// process is a contender that is a program: each start is a new process.
func process(name string, command func(args ...string) (*exec.Cmd, error)) contender {
	return contender{name, func(args ...string) (start, error) {
		cmd, err := command(args...)
		if err != nil {
			return nil, err
		}
		return func(dir string, stdout, stderr io.Writer) error {
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, stdout, stderr
			return cmd.Run()
		}, nil
	}}
}

// resident is everything that `confine run` does, in this process: what a start
// costs an engine or a tool server that is running already.
func resident(args ...string) (start, error) {
	return func(dir string, stdout, stderr io.Writer) error {
		back, err := os.Getwd()
		if err != nil {
			return err
		}
		if err := os.Chdir(dir); err != nil {
			return err
		}
		if stdout == nil {
			stdout, stderr = io.Discard, io.Discard
		}
		status := cli.Main(context.Background(), cli.Process{
			Args: append([]string{"run", "--live", "--"}, args...), Env: environment, Version: "bench",
			Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		})
		if err := os.Chdir(back); err != nil {
			return err
		}
		if status != 0 {
			return fmt.Errorf("exit status %d", status)
		}
		return nil
	}, nil
}

func names(all []contender) []string {
	var n []string
	for _, c := range all {
		n = append(n, c.name)
	}
	return n
}

// environment is what every contender's command gets.
var environment = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C"}

// systemPaths are the parts of the host in the view, as the host has them: a
// folder, or a symbolic link to one.
var systemPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ssl", "/etc/alternatives", "/etc/ld.so.cache"}

// workspaceIn is the directory that every contender runs in.
func workspaceIn(work string) string { return filepath.Join(work, "workspace") }

// contenders returns those that were asked for. One that is missing is an
// error: a comparison without it would read as one with it.
func contenders(o options, work string) ([]contender, error) {
	workspace := workspaceIn(work)
	if err := os.Mkdir(workspace, 0o755); err != nil {
		return nil, fmt.Errorf("make workspace: %w", err)
	}
	confine, err := filepath.Abs(o.confine)
	if err != nil {
		return nil, fmt.Errorf("find confine: %w", err)
	}
	all := []contender{
		process("exec", func(args ...string) (*exec.Cmd, error) {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = environment
			return cmd, nil
		}),
		process("bwrap", func(args ...string) (*exec.Cmd, error) { return bwrap(workspace, args), nil }),
		process("runc", runcIn(work, workspace)),
		process("confine", func(args ...string) (*exec.Cmd, error) {
			return exec.Command(confine, append([]string{"run", "--live", "--"}, args...)...), nil
		}),
		process("staged", func(args ...string) (*exec.Cmd, error) {
			return exec.Command(confine, append([]string{"run", "--stage", "--"}, args...)...), nil
		}),
		{"resident", resident},
	}
	if o.only != "" {
		wanted := strings.Split(o.only, ",")
		for _, name := range wanted {
			if !slices.Contains(names(all), name) {
				return nil, fmt.Errorf("unknown contender %q", name)
			}
		}
		all = slices.DeleteFunc(all, func(c contender) bool { return !slices.Contains(wanted, c.name) })
	}
	for _, c := range all {
		if err := c.tryOut(workspace); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// tryOut sees that the contender runs the command at all, and that it runs it
// in a namespace of its own: what failed to start would win every round.
func (c contender) tryOut(workspace string) error {
	const word = "bench-was-here"
	got, err := c.output(workspace, "/bin/echo", word)
	if err != nil {
		return err
	}
	if strings.TrimSpace(got) != word {
		return fmt.Errorf("%s: printed %q, not %q", c.name, got, word)
	}
	outside, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("read own namespace: %w", err)
	}
	inside, err := c.output(workspace, "/bin/readlink", "/proc/self/ns/net")
	if err != nil {
		return err
	}
	if own := strings.TrimSpace(inside) != outside; own != (c.name != "exec") {
		return fmt.Errorf("%s: network namespace inside %q, outside %q", c.name, strings.TrimSpace(inside), outside)
	}
	return nil
}

// output runs one command and returns its standard output.
func (c contender) output(workspace string, args ...string) (string, error) {
	run, err := c.prepare(args...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", c.name, err)
	}
	var stdout, stderr bytes.Buffer
	if err := run(workspace, &stdout, &stderr); err != nil {
		return "", fmt.Errorf("%s: run %q: %w: %s", c.name, args, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// measureStart times /bin/true. Each round begins with another contender, so
// that none always runs after the same neighbour.
func measureStart(all []contender, workspace string, rounds int) (map[string]Timings, error) {
	const warm = 3
	result := map[string]Timings{}
	for round := range warm + rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			took, err := c.timeTrue(workspace)
			if err != nil {
				return nil, err
			}
			if round >= warm {
				result[c.name] = append(result[c.name], took)
			}
		}
	}
	return result, nil
}

// timeTrue runs /bin/true once, from before the start until it is reaped.
func (c contender) timeTrue(workspace string) (time.Duration, error) {
	run, err := c.prepare("/bin/true")
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.name, err)
	}
	// Nothing listens: a pipe to read from would be timed as well.
	begin := time.Now()
	err = run(workspace, nil, nil)
	took := time.Since(begin)
	if err != nil {
		return 0, fmt.Errorf("%s: run /bin/true: %w", c.name, err)
	}
	return took, nil
}

// bwrap is bubblewrap with every namespace, a view from empty, no network.
func bwrap(workspace string, args []string) *exec.Cmd {
	line := []string{"--unshare-all", "--die-with-parent", "--new-session", "--clearenv"}
	for _, e := range environment {
		name, value, _ := strings.Cut(e, "=")
		line = append(line, "--setenv", name, value)
	}
	for _, path := range systemPaths {
		if target, err := os.Readlink(path); err == nil {
			line = append(line, "--symlink", target, path)
		} else if _, err := os.Stat(path); err == nil {
			line = append(line, "--ro-bind", path, path)
		}
	}
	line = append(line, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run",
		"--bind", workspace, "/workspace", "--chdir", "/workspace", "--")
	return exec.Command("bwrap", append(line, args...)...)
}
