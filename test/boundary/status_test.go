//go:build linux

package boundary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// confined runs `confine run` in dir and returns what it wrote and its status.
func confined(t *testing.T, dir string, env []string, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := exec.Command(program(t), append([]string{"run"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// TestExitStatuses: those of the command pass through, those of confine are the
// ones that shells and timeout(1) use.
func TestExitStatuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"success":            {[]string{"--", "true"}, 0, ""},
		"status":             {[]string{"--", "sh", "-c", "exit 42"}, 42, ""},
		"signal":             {[]string{"--", "sh", "-c", "kill -TERM $$"}, 143, ""},
		"time limit":         {[]string{"--timeout", "300ms", "--", "sleep", "60"}, 124, "time limit"},
		"not found":          {[]string{"--", "no-such-program"}, 127, "not on this host's PATH"},
		"not executable":     {[]string{"--", "/usr/share"}, 126, ""},
		"memory":             {[]string{"--memory", "48MiB", "--", "sh", "-c", `x=$(head -c 300000000 /dev/zero | tr "\0" a); sleep 20`}, 137, "memory limit"},
		"wrong flag":         {[]string{"--no-such-flag", "--", "true"}, 125, "unknown flag"},
		"wrong rule":         {[]string{"--net", "*", "--", "true"}, 125, "--net"},
		"empty --ro":         {[]string{"--ro", "", "--", "true"}, 125, "--ro"},
		"the view's own":     {[]string{"--ro", "/etc", "--", "true"}, 125, "--ro \"/etc\": would cover"},
		"all of /proc":       {[]string{"--ro", "/proc", "--", "true"}, 125, "--ro \"/proc\": would cover"},
		"the sandbox's home": {[]string{"--ro", "/home", "--", "true"}, 125, "--ro \"/home\": would cover"},
		"too many pids":      {[]string{"--pids", "99999999999", "--", "true"}, 125, "--pids"},
		"wrong mask":         {[]string{"--mask", "../x", "--", "true"}, 125, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, status := confined(t, dir, nil, c.args...)
			if status != c.status || !strings.Contains(errs, c.says) {
				t.Errorf("status %d, want %d: %s", status, c.status, errs)
			}
		})
	}
}

// TestMemoryLimitIsNamed: also when the process that was killed is not the
// command, which then ends with a status that does not say why.
func TestMemoryLimitIsNamed(t *testing.T) {
	script := `sh -c 'x=$(head -c 300000000 /dev/zero | tr "\0" a); sleep 20'; s=$?; exit $s`
	_, errs, status := confined(t, t.TempDir(), nil, "--memory", "48MiB", "--", "sh", "-c", script)
	if status != 137 || !strings.Contains(errs, "memory limit") || !strings.Contains(errs, "--memory") {
		t.Errorf("status %d: %s", status, errs)
	}
	out, _, _ := confined(t, t.TempDir(), nil, "--json", "--memory", "48MiB", "--", "sh", "-c", script)
	var r struct {
		Exit struct {
			Reason   string
			OOMKills int64 `json:"oom_kills"`
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Exit.Reason != "memory limit" && r.Exit.OOMKills < 1 {
		t.Errorf("%v: %s", err, out)
	}
	if _, errs, _ := confined(t, t.TempDir(), nil, "--memory", "48MiB", "--", "sh", "-c", "exit 137"); strings.Contains(errs, "memory limit") {
		t.Errorf("control: %s", errs)
	}
}

// TestRunsAsRootHaveIDsOfTheirOwn: what the kernel counts for a user, such as the
// pages of pipes, is not one for two runs; and their files are still the caller's.
func TestRunsAsRootHaveIDsOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	var ids []int
	for range 2 {
		cmd := exec.Command(program(t), "run", "--live", "--", "sh", "-c", "echo x > made; echo ready; sleep 30")
		cmd.Dir = dir
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Signal(os.Interrupt)
		line := make([]byte, 6)
		if _, err := io.ReadFull(out, line); err != nil || string(line) != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		ids = append(ids, idBelow(t, cmd.Process.Pid))
		st, err := os.Stat(filepath.Join(dir, "made"))
		if err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("what it made: %+v, %v", st, err)
		}
	}
	if os.Geteuid() != 0 {
		if ids[0] != os.Geteuid() || ids[1] != os.Geteuid() {
			t.Errorf("ids %v", ids)
		}
		return
	}
	if ids[0] == ids[1] || min(ids[0], ids[1]) < 0x7fff0000 || max(ids[0], ids[1]) >= 0x7fffffff {
		t.Errorf("ids %v", ids)
	}
}

// idBelow is the user id of the process that is deepest below pid.
func idBelow(t *testing.T, pid int) int {
	t.Helper()
	for {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			if fields := strings.Fields(string(b)); len(fields) > 0 {
				next, _ = strconv.Atoi(fields[0])
			}
		}
		if next == 0 {
			break
		}
		pid = next
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nUid:")
	id, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestEnvironmentIsMadeFromEmpty: nothing of the caller's comes in but what is
// named.
func TestEnvironmentIsMadeFromEmpty(t *testing.T) {
	env := []string{"SECRET_TOKEN=hunter2", "NAMED=given"}
	if out, err := exec.Command("env", env...).Output(); err != nil || !strings.Contains(string(out), "hunter2") {
		t.Fatalf("control: %v", err)
	}
	out, _, _ := confined(t, t.TempDir(), env, "--env", "NAMED", "--env", "SET=value", "--", "env")
	if strings.Contains(out, "hunter2") || !strings.Contains(out, "NAMED=given") || !strings.Contains(out, "SET=value") {
		t.Errorf("environment inside:\n%s", out)
	}
}

// TestReportIsJSON: with --json standard output is one object that holds what
// the command wrote.
func TestReportIsJSON(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".env"), []byte("S=1"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, status := confined(t, dir, nil, "--json", "--", "sh", "-c", "echo out; echo err >&2; cat .env; mkdir .vscode; echo '{}' > .vscode/tasks.json; exit 3")
	var r struct {
		Exit           struct{ Status int }
		Stdout, Stderr string
		Masked         []string
		Review         []struct{ Path string }
		Refusals       []any
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if status != 3 || r.Exit.Status != 3 || r.Stdout != "out\n" || r.Stderr != "err\n" || len(r.Masked) != 1 || r.Refusals == nil {
		t.Errorf("status %d, %+v", status, r)
	}
	if len(r.Review) != 1 || r.Review[0].Path != ".vscode/tasks.json" {
		t.Errorf("review %+v", r.Review)
	}
}

// TestRootInsideIsNobodyOutside: --user root is id 0 without a capability, and
// its files belong to the caller.
func TestRootInsideIsNobodyOutside(t *testing.T) {
	dir := t.TempDir()
	out, _, _ := confined(t, dir, nil, "--user", "root", "--", "sh", "-c", "id -u; grep CapEff /proc/self/status; echo x > made; chown 1:1 made || echo refused")
	if !strings.HasPrefix(out, "0\n") || !strings.Contains(out, "CapEff:\t0000000000000000") || !strings.Contains(out, "refused") {
		t.Errorf("inside: %s", out)
	}
	if err := os.Remove(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
}

// TestHostOnlyWhatIsNamed: a host directory is there with --ro and not without.
func TestHostOnlyWhatIsNamed(t *testing.T) {
	lent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(lent, "f")
	if err := os.WriteFile(file, []byte("lent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, status := confined(t, t.TempDir(), nil, "--", "cat", file); status == 0 || out != "" {
		t.Errorf("without --ro: %q", out)
	}
	out, errs, status := confined(t, t.TempDir(), nil, "--ro", lent, "--", "sh", "-c", "cat "+file+"; echo x > "+file)
	if out != "lent" || status == 0 || !strings.Contains(errs, "Read-only file system") {
		t.Errorf("with --ro: %q %q", out, errs)
	}
}

// syncBuffer is a buffer that one side reads while the other writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestLostOutputIsNoSuccess: a command whose output could not be kept did not do
// what it was run for.
func TestLostOutputIsNoSuccess(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, c := range []struct {
		out    *os.File
		status int
	}{{full, 125}, {nil, 0}} {
		cmd := exec.Command(program(t), "run", "--", "echo", "hi")
		cmd.Dir = t.TempDir()
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if c.out != nil {
			cmd.Stdout = c.out
		}
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != c.status || (got == 125) != strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("status %d, want %d: %s", got, c.status, errs.String())
		}
	}
}

// TestUnsetVariableIsNotSetInside and is said, as empty is something else.
func TestUnsetVariableIsNotSetInside(t *testing.T) {
	out, errs, status := confined(t, t.TempDir(), []string{"EMPTY="}, "--env", "NOT_SET_ANYWHERE", "--env", "EMPTY", "--", "env")
	if status != 0 || strings.Contains(out, "NOT_SET_ANYWHERE") || !strings.Contains(out, "EMPTY=\n") || !strings.Contains(errs, "NOT_SET_ANYWHERE: is not set here") {
		t.Errorf("status %d: %s %s", status, out, errs)
	}
}

// eventually waits for a condition of another process, and reports whether it
// came.
func eventually(done func() bool) bool {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); <-tick.C {
		if done() {
			return true
		}
	}
	return false
}

// TestLowerLimitsOfTheCallerHold and keep nothing from starting.
func TestLowerLimitsOfTheCallerHold(t *testing.T) {
	for limits, want := range map[string]string{"ulimit -n 512": "512", "ulimit -n 4096": "4096", "ulimit -n 1024; ulimit -u 4000": "1024"} {
		cmd := exec.Command("bash", "-c", limits+`; exec "$0" run -- sh -c 'ulimit -n'`, program(t))
		cmd.Dir = t.TempDir()
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), want+"\n") {
			t.Errorf("%s: %v %q, want %s", limits, err, out, want)
		}
	}
}
