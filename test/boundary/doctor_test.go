//go:build linux

package boundary

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// startRefusing starts cmd under a filter that answers each call with an errno.
// It is loaded on a thread of its own, which ends.
func startRefusing(t *testing.T, calls map[uintptr]unix.Errno, cmd *exec.Cmd) {
	t.Helper()
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for nr, errno := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	startFiltered(t, filter, cmd)
}

// startFiltered starts cmd under a filter, to which "allowed" is added at the end.
func startFiltered(t *testing.T, filter []unix.SockFilter, cmd *exec.Cmd) {
	t.Helper()
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	code := make([]byte, 0, 8*len(filter))
	for _, i := range filter {
		code = binary.NativeEndian.AppendUint16(code, i.Code)
		code = append(code, i.Jt, i.Jf)
		code = binary.NativeEndian.AppendUint32(code, i.K)
	}
	prog := make([]byte, 16) // struct sock_fprog
	binary.NativeEndian.PutUint16(prog, uint16(len(filter)))
	binary.NativeEndian.PutUint64(prog[8:], uint64(uintptr(unsafe.Pointer(&code[0]))))
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog[0]))); errno != 0 {
				err = errno
			}
		}
		runtime.KeepAlive(code)
		if err == nil {
			err = cmd.Start()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// finish waits for a command, for a while that none here needs.
func finish(t *testing.T, cmd *exec.Cmd, limit time.Duration) (status int) {
	t.Helper()
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("%v does not end", cmd.Args[1:])
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

type ability struct {
	Name, Detail, Fix, After string
	Present, Needed          bool
}

func readAbilities(t *testing.T, out []byte) map[string]ability {
	t.Helper()
	var report struct{ Abilities []ability }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %.500s", err, out)
	}
	abilities := map[string]ability{}
	for _, a := range report.Abilities {
		abilities[a.Name] = a
	}
	return abilities
}

// expectCause: exactly one needed item is missing of itself, and it says what.
func expectCause(t *testing.T, abilities map[string]ability, name, detail, fix string) {
	t.Helper()
	a := abilities[name]
	if a.Present || a.After != "" || !strings.Contains(a.Detail, detail) || !strings.Contains(a.Fix, fix) {
		t.Errorf("%s: %+v", name, a)
	}
	for _, other := range abilities {
		if other.Name != name && other.Needed && !other.Present && other.After != name {
			t.Errorf("blamed too: %+v", other)
		}
	}
}

// TestRefusedCallsAreNamed: whatever single call that a run can't do without is
// refused, doctor names exactly that call, and a run fails at once with a hint.
func TestRefusedCallsAreNamed(t *testing.T) {
	confine, dir := program(t), t.TempDir()
	for name, c := range map[string]struct {
		nr    uintptr
		errno unix.Errno
		item  string
		says  string // in the error of a run
	}{
		"pidfd_open":        {unix.SYS_PIDFD_OPEN, unix.ENOSYS, "system calls", "pidfd_open"},
		"pidfd_send_signal": {unix.SYS_PIDFD_SEND_SIGNAL, unix.EPERM, "system calls", "pidfd_send_signal"},
		"close_range":       {unix.SYS_CLOSE_RANGE, unix.ENOSYS, "system calls", "close_range"},
		"wait4":             {unix.SYS_WAIT4, unix.ENOSYS, "system calls", "wait4"},
		"signalfd4":         {unix.SYS_SIGNALFD4, unix.ENOSYS, "system calls", "ended without a status"},
		"ppoll":             {unix.SYS_PPOLL, unix.ENOSYS, "system calls", "ended without a status"},
		"capset":            {unix.SYS_CAPSET, unix.EPERM, "system calls", "capabilities"},
		"openat2":           {unix.SYS_OPENAT2, unix.ENOSYS, "system calls", "function not implemented"},
		"mount":             {unix.SYS_MOUNT, unix.EPERM, "mount calls", "make mounts private"},
		"open_tree":         {unix.SYS_OPEN_TREE, unix.ENOSYS, "mount calls", "clone: function not implemented"},
		"mount_setattr":     {unix.SYS_MOUNT_SETATTR, unix.ENOSYS, "mount calls", "set attributes: function not implemented"},
		"pivot_root":        {unix.SYS_PIVOT_ROOT, unix.EPERM, "mount calls", "pivot root"},
		"seccomp":           {unix.SYS_SECCOMP, unix.EPERM, "seccomp", "seccomp filter"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			doctor := exec.Command(confine, "doctor", "--json")
			doctor.Stdout = &out
			startRefusing(t, map[uintptr]unix.Errno{c.nr: c.errno}, doctor)
			if status := finish(t, doctor, 20*time.Second); status != 5 {
				t.Errorf("doctor ended with %d", status)
			}
			call := name
			if name == "seccomp" {
				call = "load filter"
			}
			expectCause(t, readAbilities(t, out.Bytes()), c.item, call+": "+c.errno.Error()+": a seccomp filter", "allow "+name)

			var errs bytes.Buffer
			run := exec.Command(confine, "run", "--", "true")
			run.Dir, run.Stderr = dir, &errs
			startRefusing(t, map[uintptr]unix.Errno{c.nr: c.errno}, run)
			if status := finish(t, run, 20*time.Second); status != 125 || !strings.Contains(errs.String(), c.says) || !strings.Contains(errs.String(), "hint: ") || !strings.Contains(errs.String(), "confine doctor") {
				t.Errorf("run ended with %d: %s", status, errs.String())
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		var out bytes.Buffer
		doctor := exec.Command(confine, "doctor", "--json")
		doctor.Stdout = &out
		startRefusing(t, map[uintptr]unix.Errno{unix.SYS_ACCT: unix.ENOSYS}, doctor)
		if status := finish(t, doctor, 20*time.Second); status != 0 {
			t.Errorf("doctor under a filter that does not matter: %d %s", status, out.String())
		}
	})
}

// inNamespace runs a script as root of a user and mount namespace of its own,
// then confine. Nothing of the host is changed.
func inNamespace(t *testing.T, script string) map[string]ability {
	t.Helper()
	cmd := exec.Command("unshare", "-Urm", "sh", "-ec", script+` && exec "$0" doctor --json`, program(t))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	finish(t, cmd, 30*time.Second)
	if out.Len() == 0 {
		t.Fatalf("%s: %s", script, errs.String())
	}
	return readAbilities(t, out.Bytes())
}

// TestLimitsOfNamespacesAreNamed: the one sysctl that forbids a run is named.
func TestLimitsOfNamespacesAreNamed(t *testing.T) {
	for kind, n := range map[string]string{"user": "1", "mnt": "1", "pid": "1", "net": "0", "ipc": "0", "cgroup": "0"} {
		name := "user.max_" + kind + "_namespaces"
		a := inNamespace(t, "echo "+n+" > /proc/sys/user/max_"+kind+"_namespaces")
		expectCause(t, a, "namespaces", name+" is "+n, "sysctl -w "+name+"=15000 (and")
	}
	for kind, name := range map[string]string{"user": "user.max_user_namespaces", "uts": "user.max_uts_namespaces"} {
		a := inNamespace(t, "echo 0 > /proc/sys/user/max_"+kind+"_namespaces")
		expectCause(t, a, "user namespaces", name, "sysctl -w "+name+"=15000")
	}
}

// TestWhatIsNotMountedIsNamed: /proc, and the control groups.
func TestWhatIsNotMountedIsNamed(t *testing.T) {
	if a := inNamespace(t, "true"); !a["/proc"].Present || !a["namespaces"].Present {
		t.Errorf("control: %+v", a)
	}
	expectCause(t, inNamespace(t, "mount -t tmpfs none /proc"), "/proc", "/proc is not mounted", "mount -t proc proc /proc")
	if os.Geteuid() != 0 {
		return // only root may take the host's mounts away, and use what is there
	}
	cmd := exec.Command("unshare", "-m", "sh", "-ec", `umount -R /sys/fs/cgroup && exec "$0" doctor --json`, program(t))
	out, err := cmd.Output()
	if a := readAbilities(t, out)["control groups"]; a.Present || !strings.HasPrefix(a.Fix, "mount the control groups") || strings.Contains(a.Fix, "run as root") {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestSlowGitIsNotWaitedFor: a git that does not answer is one that does not work.
func TestSlowGitIsNotWaitedFor(t *testing.T) {
	t.Parallel() // mostly waiting
	dir := t.TempDir()
	slow := filepath.Join(dir, "git")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nsleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	a := inNamespace(t, `for d in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin; do test ! -e $d/git || mount --bind `+slow+` $d/git; done`)["git"]
	if took := time.Since(begin); a.Present || !strings.Contains(a.Detail, "did not answer within 5s") || !strings.Contains(a.Fix, "/git") || took > 15*time.Second {
		t.Errorf("%+v after %v", a, took)
	}
}

// TestSignalsEndARun: one that comes while the command runs is the command's;
// after its end the next one ends a run whose output nobody reads.
func TestSignalsEndARun(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command(program(t), "run", "--", "sh", "-c", `trap "echo told >&2" TERM; echo ready >&2; read x; yes`)
	cmd.Dir, cmd.Stdout = t.TempDir(), write
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	lines := bufio.NewScanner(errs)
	expect := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("it never says %q", want)
	}
	expect("ready")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	expect("told")
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	// The pipe fills. One SIGHUP, which it does not trap, ends the command; what
	// it wrote last is stuck until the next.
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	tick, late := time.NewTicker(200*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			if cmd.ProcessState.ExitCode() == 0 {
				t.Error("lost output is no success")
			}
			return
		case <-tick.C:
			_ = cmd.Process.Signal(syscall.SIGHUP)
		case <-late:
			_ = cmd.Process.Kill()
			t.Fatal("the run does not end")
		}
	}
}
