//go:build linux && !race

package workspace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A commit is killed, and made to fail, at every system call of it that changes
// something: strace does it to a real process. Between two of them the disk does
// not change, so these are all states that a crash can leave.

const (
	crashEnv  = "CONFINE_TEST_CRASH"
	crashMode = "CONFINE_TEST_CRASH_MODE"
)

// TestCrashHelper is the process that it is done to.
func TestCrashHelper(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		return
	}
	// strace counts the calls of each thread apart.
	runtime.LockOSThread()
	state, err := os.Readlink(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(crashMode) == "reconcile" {
		for _, e := range reconcileStages(state, nil) {
			fmt.Println("reconcile:", e.Note, e.Err)
		}
		return
	}
	l, err := Live(Options{Dir: filepath.Join(dir, "w"), StateDir: state, Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Stage(StageOptions{StateDir: state, HostUID: uint32(os.Geteuid()), HostGID: uint32(os.Getegid())})
	if err != nil {
		t.Fatal(err)
	}
	// What a run would have written was made before.
	upper := filepath.Join(s.scratch.Dir, "0/upper")
	if err := os.Remove(upper); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(state, "upper"), upper); err != nil {
		t.Fatal(err)
	}
	_, err = s.Commit()
	fmt.Println("commit:", err)
}

// changing are the system calls that change something on a disk.
var changing = []string{"renameat", "renameat2", "mkdirat", "unlinkat", "write", "pwrite64", "fsync", "syncfs", "fchmodat", "fchmod", "fchownat", "fchown", "symlinkat", "linkat", "openat", "copy_file_range", "ftruncate", "utimensat", "removexattr", "lremovexattr", "fsetxattr", "sendfile", "flock"}

// crashSite is a directory in which one commit is tried.
type crashSite struct{ dir, w, state string }

func newCrashSite(t *testing.T, elsewhere bool) crashSite {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := crashSite{dir: dir, w: filepath.Join(dir, "w"), state: filepath.Join(dir, "s")}
	if elsewhere {
		if c.state, err = os.MkdirTemp("/dev/shm", "confine-test-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = Remove(c.state) })
	}
	write(t, c.w, "changed", "gone", "dir/a", "dir/b", "closed/in", "kind", ".env", "kept")
	upper := filepath.Join(c.state, "upper")
	put(t, upper, "changed", "changed by the run")
	write(t, upper, "fresh/deep/file", "dir/c", "kind/now", "AGENTS.md", "closed/out")
	deleted(t, upper, "gone", "dir/b")
	for name, mode := range map[string]os.FileMode{filepath.Join(c.w, "closed"): 0o555, filepath.Join(upper, "closed"): 0o511, filepath.Join(upper, "dir"): 0o700} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	// It may hold directories that are closed.
	t.Cleanup(func() { _, _ = Remove(c.w), Remove(c.state) })
	if err := os.Symlink(c.state, filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs the helper under strace.
func (c crashSite) run(t *testing.T, mode string, options ...string) string {
	t.Helper()
	args := append([]string{"-f", "-qq", "-o", filepath.Join(c.dir, "log")}, options...)
	cmd := exec.Command("strace", append(args, os.Args[0], "-test.run", "^TestCrashHelper$", "-test.count=1")...)
	cmd.Env = append(os.Environ(), crashEnv+"="+c.dir, crashMode+"="+mode, "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // killed, as a rule
	return out.String()
}

// calls counts those of the helper's own thread that change something, by a run
// that is left alone.
func (c crashSite) calls(t *testing.T, mode string) map[string]int {
	t.Helper()
	out := c.run(t, mode, "-e", "trace="+strings.Join(changing, ","))
	log, err := os.ReadFile(filepath.Join(c.dir, "log"))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The thread is the one that locks.
	thread := regexp.MustCompile(`(?m)^(\d+) +flock\(`).FindStringSubmatch(string(log))
	if thread == nil {
		t.Fatalf("no thread locked anything: %s\n%s", out, log)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(log)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == thread[1] {
			if name, _, ok := strings.Cut(f[1], "("); ok {
				counts[name]++
			}
		}
	}
	return counts
}

// held is the state of the site when nobody works on it: "before" or "after".
func (c crashSite) held(t *testing.T, before, after string) (string, error) {
	t.Helper()
	now := tree(t, c.w)
	entries, err := ListTrash(c.state)
	if err != nil {
		return "", err
	}
	switch {
	case now == before && len(entries) == 0:
		names, _ := os.ReadDir(filepath.Join(c.state, trashDirName))
		if len(names) != 0 {
			return "", fmt.Errorf("left in the trash: %v", names)
		}
		return "before", nil
	case now == after && len(entries) == 1:
		for i, item := range entries[0].Items {
			if at := entries[0].Dir(c.state, i); at != "" {
				if _, err := os.Lstat(at); err != nil {
					return "", fmt.Errorf("the trash has lost %q: %w", item.Path, err)
				}
			}
		}
		return "after", nil
	}
	return "", fmt.Errorf("with %d entries in the trash:\n%s", len(entries), now)
}

// oneCrash makes one site, does something to a commit in it, and holds what the
// next start makes of it against before and after.
func oneCrash(t *testing.T, elsewhere bool, before, after, inject string) (string, error) {
	c := newCrashSite(t, elsewhere)
	out := c.run(t, "commit", "-e", "trace="+changingOf(inject), "-e", "inject="+inject)
	if strings.Contains(inject, "SIGKILL") && strings.Contains(out, "PASS") {
		return "", fmt.Errorf("it was not killed: %s", out)
	}
	return c.settle(t, out, before, after)
}

func (c crashSite) settle(t *testing.T, out, before, after string) (string, error) {
	for _, e := range reconcileStages(c.state, nil) {
		if e.Err != nil {
			return "", fmt.Errorf("reconcile: %w\n%s", e.Err, out)
		}
	}
	left, err := os.ReadDir(filepath.Join(c.state, stagedDirName))
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	for _, l := range left {
		if !strings.HasPrefix(l.Name(), "kept-") {
			return "", fmt.Errorf("left: %q\n%s", l.Name(), out)
		}
	}
	is, err := c.held(t, before, after)
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return is, nil
}

// changingOf is the call of an injection.
func changingOf(inject string) string {
	call, _, _ := strings.Cut(inject, ":")
	return call
}

// images are the two states that are allowed.
func images(t *testing.T, elsewhere bool) (before, after string, counts map[string]int) {
	t.Helper()
	c := newCrashSite(t, elsewhere)
	before = tree(t, c.w)
	counts = c.calls(t, "commit")
	after = tree(t, c.w)
	if before == after {
		t.Fatal("the commit changed nothing")
	}
	return before, after, counts
}

func TestCommitKilledOrFailingAtEverySystemCall(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		before, after, counts := images(t, elsewhere)
		var points []string
		for _, call := range changing {
			for n := range counts[call] {
				points = append(points, fmt.Sprintf("%s:signal=SIGKILL:when=%d", call, n+1))
				if call != "flock" && call != "openat" {
					points = append(points, fmt.Sprintf("%s:error=EIO:when=%d", call, n+1))
				}
			}
		}
		if len(points) < 50 {
			t.Fatalf("only %d points: %v", len(points), counts)
		}
		seen := map[string]int{}
		var mu sync.Mutex
		inParallel(points, func(p string) {
			is, err := oneCrash(t, elsewhere, before, after, p)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s, trash elsewhere %v: %v", p, elsewhere, err)
			}
			seen[is]++
		})
		if seen["before"] == 0 || seen["after"] == 0 {
			t.Errorf("the points prove nothing: %v", seen)
		}
		t.Logf("trash elsewhere %v: %d points, then %v", elsewhere, len(points), seen)
	}
}

// TestReconcileKilledAtEverySystemCall: the start that makes up for a killed
// commit may be killed itself.
func TestReconcileKilledAtEverySystemCall(t *testing.T) {
	before, after, _ := images(t, false)
	for _, first := range []string{"renameat2:signal=SIGKILL:when=5", "renameat2:error=EIO:when=5+1"} {
		c := newCrashSite(t, false)
		out := c.run(t, "commit", "-e", "trace="+changingOf(first), "-e", "inject="+first)
		if e, _ := filepath.Glob(filepath.Join(c.state, stagedDirName, scratchPrefix+"*", commitName)); len(e) != 1 {
			t.Fatalf("%s left no commit to go on with: %s", first, out)

		}
		counts := c.calls(t, "reconcile")
		var points []string
		for _, call := range changing {
			for n := range counts[call] {
				points = append(points, fmt.Sprintf("%s:signal=SIGKILL:when=%d", call, n+1))
			}
		}
		inParallel(points, func(p string) {
			c := newCrashSite(t, false)
			c.run(t, "commit", "-e", "trace="+changingOf(first), "-e", "inject="+first)
			out := c.run(t, "reconcile", "-e", "trace="+changingOf(p), "-e", "inject="+p)
			if _, err := c.settle(t, out, before, after); err != nil {
				t.Errorf("%s, then %s: %v", first, p, err)
			}
		})
	}
}

func inParallel(points []string, do func(string)) {
	next := make(chan string)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for p := range next {
				do(p)
			}
		})
	}
	for _, p := range points {
		next <- p
	}
	close(next)
	group.Wait()
}
