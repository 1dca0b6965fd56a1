//go:build linux

package toolchains

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// row is one kind of work.
type row struct {
	// name and what say to a reader what was run.
	name, what string
	// files are the project, script what is run in it by a shell.
	files  map[string]string
	script string
	// before runs outside, as a person would have set things up.
	before string
	// wants must be in the output.
	wants []string
	// leaves are the names that the workspace has afterwards beside the project's
	// own; nil means any.
	leaves []string
	// flags are given to confine run.
	flags []string
	// home are files of the person's home, path those of its directories that are
	// in PATH.
	home map[string]string
	path []string
	// stagedShows is what a reader should know of a staged run, and liveOnly why
	// there is none.
	stagedShows, liveOnly string
}

const limit = 4 * time.Minute

// program is the confine binary under test.
func program(t *testing.T) string {
	t.Helper()
	p := os.Getenv("CONFINE_TEST_BINARY")
	if p == "" {
		t.Fatal("CONFINE_TEST_BINARY names no program: run scripts/test, or build one")
	}
	return p
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// site is a person's machine for one row: a home, a project, and nothing of this
// process's environment but PATH.
type site struct {
	dir, home string
	env       []string
}

func newSite(t *testing.T, r row) site {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := site{dir: filepath.Join(top, "project"), home: filepath.Join(top, "home")}
	for _, d := range []string{s.dir, s.home, filepath.Join(top, "state")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Tools make read-only directories.
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", top).Run() })
	writeFiles(t, s.dir, r.files)
	writeFiles(t, s.home, r.home)
	path := hostPath()
	for _, p := range r.path {
		path = filepath.Join(s.home, p) + ":" + path
	}
	s.env = []string{"PATH=" + path, "HOME=" + s.home, "XDG_STATE_HOME=" + filepath.Join(top, "state"), "LANG=C.UTF-8", "TERM=xterm"}
	if r.before != "" {
		if out, err := s.outside(t, r.before); err != nil {
			t.Fatalf("before: %v\n%s", err, out)
		}
	}
	return s
}

// hostPath is this process's PATH without directories of a home, whose tools the
// next machine doesn't have.
func hostPath() string {
	var keep []string
	for _, p := range filepath.SplitList(os.Getenv("PATH")) {
		if !strings.HasPrefix(p, "/root/") && !strings.HasPrefix(p, "/home/") && p != "" {
			keep = append(keep, p)
		}
	}
	for _, p := range []string{"/usr/local/go/bin", "/usr/sbin", "/sbin"} {
		if !slices.Contains(keep, p) {
			keep = append(keep, p)
		}
	}
	return strings.Join(keep, ":")
}

func (s site) run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("not done after %v", limit))
	}
	return out.String(), err
}

func (s site) outside(t *testing.T, script string) (string, error) {
	s.env = append(s.env, "NPM="+npm())
	return s.run(t, "bash", "-euc", script)
}

// npm is the directory of the packages that scripts/setup fetches.
func npm() string { return os.Getenv("CONFINE_TEST_NPM") }

func (s site) inside(t *testing.T, r row, mode string) (string, error) {
	args := []string{"run", mode, "--env", "NPM=" + npm()}
	for _, f := range r.flags {
		args = append(args, strings.ReplaceAll(f, "$NPM", npm()))
	}
	return s.run(t, program(t), append(args, "--", "bash", "-euc", r.script)...)
}

// names are what is in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestEverydayWork(t *testing.T) {
	for _, r := range rows {
		modes := []string{"--live", "--stage"}
		if r.liveOnly != "" {
			modes = modes[:1]
		}
		for _, mode := range modes {
			t.Run(r.name+"/"+strings.TrimPrefix(mode, "--"), func(t *testing.T) {
				t.Parallel()
				work(t, r, mode)
			})
		}
	}
}

func work(t *testing.T, r row, mode string) {
	s := newSite(t, r)
	project, home := names(t, s.dir), names(t, s.home)
	out, err := s.inside(t, r, mode)
	missing := slices.DeleteFunc(slices.Clone(r.wants), func(w string) bool { return strings.Contains(out, w) })
	if err != nil || len(missing) > 0 {
		control := newSite(t, r)
		outside, outsideErr := control.outside(t, r.script)
		t.Errorf("inside: %v, missing %q\n%s\nthe same outside: %v\n%s", err, missing, tail(out), outsideErr, tail(outside))
		return
	}
	if now := names(t, s.home); !slices.Equal(now, home) {
		t.Errorf("in the person's home were %q, are %q", home, now)
	}
	if r.leaves == nil {
		return
	}
	want := append(slices.Clone(project), r.leaves...)
	slices.Sort(want)
	want = slices.Compact(want)
	if now := names(t, s.dir); !slices.Equal(now, want) {
		t.Errorf("the project has %q, want %q", now, want)
	}
}

func tail(s string) string { return s[max(0, len(s)-3000):] }
