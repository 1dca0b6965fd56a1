//go:build linux

package boundary

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// uniqueSeconds is an argument for sleep(1) that no other process has.
func uniqueSeconds(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%d.%09d", 200+rand.IntN(100), rand.IntN(1_000_000_000))
}

// processesWith lists the processes that have a word in their command line.
func processesWith(t *testing.T, word string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && bytes.Contains(line, []byte(word)) {
			found = append(found, fmt.Sprintf("%s: %q", filepath.Dir(f), line))
		}
	}
	return found
}

// noneLeft waits a moment for the last of them to go.
func noneLeft(t *testing.T, word string) {
	t.Helper()
	var left []string
	if !eventually(func() bool { left = processesWith(t, word); return len(left) == 0 }) {
		t.Errorf("left behind: %s", strings.Join(left, "\n"))
	}
}

// TestSignalsReachTheCommand: confine passes on what asks a program to end, and
// the command may answer in its own way.
func TestSignalsReachTheCommand(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
	}{{"TERM", syscall.SIGTERM}, {"INT", syscall.SIGINT}, {"HUP", syscall.SIGHUP}, {"USR1", syscall.SIGUSR1}} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(program(t), "run", "--", "sh", "-c", "trap 'echo got; exit 7' "+c.name+"; echo ready; while :; do sleep 0.05; done")
			cmd.Dir = t.TempDir()
			out := &syncBuffer{}
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(func() bool { return strings.Contains(out.String(), "ready") })
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			_ = cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != 7 || !strings.Contains(out.String(), "got") {
				t.Errorf("status %d: %q", status, out.String())
			}
		})
	}
}

// TestKilledAtAnyMomentNothingIsLeft kills confine at random points of a start
// and of a run. What it started must be gone, and a run beside it untouched.
func TestKilledAtAnyMomentNothingIsLeft(t *testing.T) {
	confine, dir := program(t), t.TempDir()
	neighbourMark := uniqueSeconds(t)
	neighbour := exec.Command(confine, "run", "--", "sh", "-c", "read x; echo heard $x; exit 3 # "+neighbourMark)
	neighbour.Dir = t.TempDir()
	stdin, err := neighbour.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answer := &syncBuffer{}
	neighbour.Stdout = answer
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = neighbour.Process.Kill() })
	eventually(func() bool { return len(processesWith(t, neighbourMark)) > 1 })
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	mounts := ownMounts(t)
	entries := tempEntries(t)

	// The moments reach well into a run, however busy the machine is.
	begin := time.Now()
	if out, errs, status := confined(t, dir, nil, "--", "true"); status != 0 {
		t.Fatalf("%d %s%s", status, out, errs)
	}
	step := max(3*time.Millisecond, time.Since(begin)*2/40)
	var marks []string
	ran, adopted := 0, 0
	for i := range 40 {
		mark := uniqueSeconds(t)
		marks = append(marks, mark)
		cmd := exec.Command(confine, "run", "--", "sh", "-c", "echo running; sleep "+mark+" & exec setsid sleep "+mark)
		cmd.Dir = dir
		out := &syncBuffer{}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(i) * step) // any moment is meant
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		adopted += len(orphans(t, neighbour.Process.Pid))
		if strings.Contains(out.String(), "running") {
			ran++
		}
	}
	if adopted == 0 {
		t.Error("control: nothing of a killed run was ever seen")
	}
	if ran == 0 || ran == len(marks) {
		t.Errorf("%d of %d were killed while the command ran: the test has to hit both a start and a run", ran, len(marks))
	}
	for _, m := range marks {
		noneLeft(t, m)
	}
	if now := ownMounts(t); now != mounts {
		t.Errorf("mounts differ: %s", now)
	}
	var left []string
	if !eventually(func() bool { left = orphans(t, neighbour.Process.Pid); return len(left) == 0 }) {
		t.Errorf("left behind: %v", left)
	}
	// What a killed run could not remove goes at the next start.
	if _, errs, status := confined(t, dir, nil, "--", "true"); status != 0 {
		t.Errorf("next start: %d %s", status, errs)
	}
	if now := tempEntries(t); now != entries {
		t.Errorf("temporary files were %s, are %s", entries, now)
	}
	if _, err := stdin.Write([]byte("you\n")); err != nil {
		t.Fatal(err)
	}
	_ = neighbour.Wait()
	if neighbour.ProcessState.ExitCode() != 3 || !strings.Contains(answer.String(), "heard you") {
		t.Errorf("neighbour: %v %q", neighbour.ProcessState, answer.String())
	}
}

func ownMounts(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tempEntries are confine's own names in the folder for temporary files.
func tempEntries(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "confine-run*"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(found)
}

// orphans are the living children of this process, but one. With
// PR_SET_CHILD_SUBREAPER what a killed confine leaves behind becomes its child.
func orphans(t *testing.T, but int) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, f := range files {
		data, _ := os.ReadFile(f)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		// PID (NAME) STATE PPID …; a name may hold spaces and brackets.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) || pid == but {
			continue
		}
		if fields[0] == "Z" {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			continue
		}
		left = append(left, string(data))
	}
	return left
}

// TestAKilledRunIsReviewedAtTheNextStart: what it planted is not taken for what
// was always there, wherever the next run is.
func TestAKilledRunIsReviewedAtTheNextStart(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	env := []string{"XDG_STATE_HOME=" + state}
	shell(t, dir, "git init -q .")
	script := `printf '[core]\n\tfsmonitor = x\n' >.git/config.worktree; mkdir .vscode; echo '{}' >.vscode/tasks.json; echo ready; sleep 60`
	kill := func() {
		t.Helper()
		cmd := exec.Command(program(t), "run", "--live", "--", "sh", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out := &syncBuffer{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(func() bool { return strings.Contains(out.String(), "ready") })
		if other, _, _ := confined(t, t.TempDir(), env, "--json", "--", "true"); strings.Contains(other, `"earlier"`) {
			t.Errorf("a run that goes on was taken for a killed one: %s", other)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	planted := filepath.Join(dir, ".git/config.worktree")
	kill()
	if _, err := os.Stat(planted); err != nil {
		t.Fatalf("control: nothing was planted: %v", err)
	}
	_, errs, status := confined(t, t.TempDir(), env, "--", "true")
	if status != 0 || !strings.Contains(errs, "was killed before") || !strings.Contains(errs, `.git/config.worktree" (new)`) || !strings.Contains(errs, ".vscode/tasks.json") {
		t.Errorf("status %d: %s", status, errs)
	}
	if _, err := os.Stat(planted); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
	if _, errs, _ = confined(t, dir, env, "--", "true"); strings.Contains(errs, "killed") {
		t.Errorf("said twice: %s", errs)
	}
	// A record that can't be read is said, not passed over.
	bad := filepath.Join(state, "confine", "live", "x.json")
	if err := os.WriteFile(bad, []byte(`{"version":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, _ = confined(t, dir, env, "--", "true"); !strings.Contains(errs, "record can't be read") {
		t.Errorf("nothing said: %s", errs)
	}
}

// TestLentDirectoriesDontShowTheWorkspace: --ro of the workspace, of what holds
// it or of a part would show what is masked.
func TestLentDirectoriesDontShowTheWorkspace(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "w")
	shell(t, outer, "mkdir -p w/sub beside; echo secret >w/.env; echo secret >w/sub/.env; echo seen >beside/f; ln -s w link")
	for _, lent := range []string{outer, dir, filepath.Join(dir, "sub"), filepath.Join(outer, "link")} {
		out, errs, status := confined(t, dir, nil, "--ro", lent, "--", "sh", "-c", "cat "+lent+"/.env")
		if status != 125 || !strings.Contains(errs, "--ro") || strings.Contains(out, "secret") {
			t.Errorf("--ro %s: status %d: %s %s", lent, status, out, errs)
		}
	}
	beside := filepath.Join(outer, "beside")
	if out, errs, status := confined(t, dir, nil, "--ro", beside, "--", "cat", beside+"/f"); status != 0 || out != "seen\n" {
		t.Errorf("neighbour: status %d: %s %s", status, out, errs)
	}
}

// TestSecondTermEndsTheRun: the first is the command's to answer.
func TestSecondTermEndsTheRun(t *testing.T) {
	mark := uniqueSeconds(t)
	cmd := exec.Command(program(t), "run", "--", "sh", "-c", "trap 'echo heard' TERM; echo ready; while :; do sleep 0.1; : "+mark+"; done")
	cmd.Dir = t.TempDir()
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	eventually(func() bool { return strings.Contains(out.String(), "ready") })
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if !eventually(func() bool { return strings.Contains(out.String(), "heard") }) {
		t.Fatalf("the first one did not reach the command: %q", out.String())
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Error("the run goes on")
	}
	noneLeft(t, mark)
}
