//go:build linux

package landlock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
)

// domain is a rule set with everything readable and one directory writable,
// as a sandbox has it.
type domain struct{ writable string }

func (d domain) enter(p *kernel.Program, b *kernel.Block) {
	abi := Probe()
	attr := abi.Ruleset()
	b.Call("forbid new privileges", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_NO_NEW_PRIVS), kernel.Int(1), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	set := b.Call("create rules", unix.SYS_LANDLOCK_CREATE_RULESET, p.Bytes(attr), kernel.Int(len(attr)), kernel.Int(0)).Result()
	for path, rights := range map[string]Rights{"/": abi.ReadExec(), d.writable: abi.ReadWrite()} {
		fd := b.Call("open "+path, unix.SYS_OPENAT, at, p.Str(path), kernel.Int(unix.O_PATH|unix.O_CLOEXEC)).Result()
		rule := p.Bytes(Rule(rights))
		b.Store32(rule, RuleFD, fd.Arg())
		b.Call("allow "+path, unix.SYS_LANDLOCK_ADD_RULE, set.Arg(), kernel.Int(RulePathBeneath), rule, kernel.Int(0))
	}
	b.Call("restrict", unix.SYS_LANDLOCK_RESTRICT_SELF, set.Arg(), kernel.Int(0))
}

var at = kernel.Int(unix.AT_FDCWD)

// try runs one list of steps in a process, inside the domain if there is one,
// and returns the error of the step that failed.
func try(t *testing.T, d *domain, steps func(*kernel.Program, *kernel.Block)) error {
	t.Helper()
	p, b := kernel.NewProgram()
	if d != nil {
		d.enter(p, b)
	}
	steps(p, b)
	b.Call("end", unix.SYS_EXIT_GROUP, kernel.Int(0))
	child, err := p.Start(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = child.Started()
	var ws unix.WaitStatus
	if _, waitErr := unix.Wait4(child.PID, &ws, 0, nil); waitErr != nil || err == nil && ws != 0 {
		t.Fatalf("the process ended with %#x, %v", ws, waitErr)
	}
	return err
}

func TestKernelHoldsTheRules(t *testing.T) {
	if Probe() < 1 {
		t.Fatal("this kernel has no Landlock: these tests prove nothing here")
	}
	inside, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{inside, outside} {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@confine-landlock-" + filepath.Base(filepath.Dir(outside)), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	d := &domain{inside}
	open := func(path string, flags int) func(*kernel.Program, *kernel.Block) {
		return func(p *kernel.Program, b *kernel.Block) {
			b.Call("open", unix.SYS_OPENAT, at, p.Str(path), kernel.Int(flags|unix.O_CLOEXEC), kernel.Int(0o600))
		}
	}
	move := func(from, to string) func(*kernel.Program, *kernel.Block) {
		return func(p *kernel.Program, b *kernel.Block) {
			b.Call("rename", unix.SYS_RENAMEAT2, at, p.Str(from), at, p.Str(to), kernel.Int(0))
			b.Call("rename back", unix.SYS_RENAMEAT2, at, p.Str(to), at, p.Str(from), kernel.Int(0))
		}
	}
	truncate := func(path string) func(*kernel.Program, *kernel.Block) {
		return func(p *kernel.Program, b *kernel.Block) {
			b.Call("truncate", unix.SYS_TRUNCATE, p.Str(path), kernel.Int(3))
		}
	}
	connect := func(p *kernel.Program, b *kernel.Block) {
		name := listener.Addr().(*net.UnixAddr).Name
		addr := append([]byte{unix.AF_UNIX, 0, 0}, name[1:]...)
		s := b.Call("socket", unix.SYS_SOCKET, kernel.Int(unix.AF_UNIX), kernel.Int(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), kernel.Int(0)).Result()
		b.Call("connect", unix.SYS_CONNECT, s.Arg(), p.Bytes(addr), kernel.Int(len(addr)))
	}
	signal := func(_ *kernel.Program, b *kernel.Block) {
		b.Call("signal the parent", unix.SYS_KILL, kernel.Int(os.Getpid()), kernel.Int(0))
	}
	signalSelf := func(_ *kernel.Program, b *kernel.Block) {
		pid := b.Call("own id", unix.SYS_GETPID).Result()
		b.Call("signal itself", unix.SYS_KILL, pid.Arg(), kernel.Int(0))
	}
	for _, c := range []struct {
		name  string
		since ABI
		steps func(*kernel.Program, *kernel.Block)
		want  error // inside the domain; outside of it everything works
	}{
		{"read outside", 1, open(outside+"/file", unix.O_RDONLY), nil},
		{"write outside", 1, open(outside+"/file", unix.O_WRONLY), unix.EACCES},
		{"write inside", 1, open(inside+"/file", unix.O_WRONLY), nil},
		{"create outside", 1, open(outside+"/new", unix.O_WRONLY|unix.O_CREAT), unix.EACCES},
		{"create inside", 1, open(inside+"/new", unix.O_WRONLY|unix.O_CREAT), nil},
		{"move out", 2, move(inside+"/file", outside+"/moved"), unix.EACCES},
		{"move inside", 1, move(inside+"/file", inside+"/moved"), nil},
		{"truncate outside", 3, truncate(outside + "/file"), unix.EACCES},
		{"truncate inside", 3, truncate(inside + "/file"), nil},
		{"abstract socket outside", 6, connect, unix.EPERM},
		{"signal outside", 6, signal, unix.EPERM},
		{"signal itself", 6, signalSelf, nil},
	} {
		if Probe() < c.since {
			t.Errorf("%s: not proven, this kernel has version %d of Landlock and it needs %d", c.name, Probe(), c.since)
			continue
		}
		if err := try(t, nil, c.steps); err != nil {
			t.Errorf("%s: the control fails: %v", c.name, err)
		}
		if err := try(t, d, c.steps); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
