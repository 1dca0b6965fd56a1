//go:build linux

package sandboxtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"confine/internal/kernel/landlock"
	"confine/internal/kernel/seccomp"
)

// onThread runs f on a thread that ends with it, as do the restrictions that f
// sets.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// restrict sets a Landlock rule set on this thread: what it handles is refused
// but beneath the paths, where all of it is allowed.
func restrict(abi landlock.ABI, beneath ...string) error {
	attr := abi.Ruleset()
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, bytesPtr(attr), uintptr(len(attr)), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	for _, path := range beneath {
		dir, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		rule := landlock.Rule(abi.Handled())
		binary.NativeEndian.PutUint32(rule[landlock.RuleFD:], uint32(dir))
		_, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, landlock.RulePathBeneath, bytesPtr(rule), 0, 0, 0)
		unix.Close(dir)
		if errno != 0 {
			return errno
		}
	}
	_, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	return errnoErr(errno)
}

// answerAll adds a filter to this thread that gives every call of a number the
// action, and allows the rest. Number any32 is every call.
func answerAll(nr, action uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: action},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	var code []byte
	for _, i := range filter {
		code = binary.NativeEndian.AppendUint16(code, i.Code)
		code = append(code, i.Jt, i.Jf)
		code = binary.NativeEndian.AppendUint32(code, i.K)
	}
	prog := make([]byte, 16) // struct sock_fprog
	binary.NativeEndian.PutUint16(prog, uint16(len(filter)))
	binary.NativeEndian.PutUint64(prog[8:], uint64(bytesPtr(code)))
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, bytesPtr(prog))
	return errnoErr(errno)
}

const errnoAction = unix.SECCOMP_RET_ERRNO

// filterAnswers are actions by which a process could wish to take a refusal back.
var filterAnswers = map[string]uint32{
	"allow": unix.SECCOMP_RET_ALLOW, "log": unix.SECCOMP_RET_LOG, "notify": unix.SECCOMP_RET_USER_NOTIF, "trace": unix.SECCOMP_RET_TRACE,
}

// tryTighten sets rule sets and filters from inside. That is allowed, and changes
// what is refused by adding to it only. Arguments are a writable directory and a
// file of the host's system.
func tryTighten(args []string) (a Answer) {
	dir, system := args[0], args[1]
	abi := landlock.Probe()
	file := filepath.Join(dir, "tightened")
	write := func() error { return os.WriteFile(file, nil, 0o600) }
	defer os.Remove(file)

	// Landlock tightens.
	if abi > 0 {
		a.expect("a write beneath, before", write(), "ok")
		var under, beside error
		set := onThread(func() error {
			err := restrict(abi)
			under = write()
			return err
		})
		beside = write()
		a.expect("a rule set without rules", set, "ok")
		a.expect("a write under it", under, "EACCES")
		a.expect("a write by a thread beside it", beside, "ok")
		// It gives nothing: rules for all of / change no refusal.
		openSystem := func() error {
			fd, err := unix.Open(system, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
		var own, sys error
		sysBefore := "EROFS"
		if err := openSystem(); err != nil {
			sysBefore = result(err)
		}
		set = onThread(func() error {
			err := restrict(abi, "/")
			own, sys = write(), openSystem()
			return err
		})
		a.expect("a rule set that allows all", set, "ok")
		a.expect("a write under it", own, "ok")
		a.expect("a write to the system under it", sys, sysBefore)
		// Layers run out for who adds them, and for nobody else.
		var layers int
		full := onThread(func() error {
			for ; layers < 20; layers++ {
				if err := restrict(abi, "/"); err != nil {
					return err
				}
			}
			return nil
		})
		a.expect("layers until there are no more", full, "E2BIG")
		if layers < 8 {
			a.saw("layers for a program's own", fmt.Sprint(layers))
		}
		a.expect("a write by a thread beside it", write(), "ok")
	}

	// Filters tighten.
	var made error
	name := filepath.Join(dir, "made")
	set := onThread(func() error {
		nr, _ := seccomp.Number("mkdirat")
		err := answerAll(nr, errnoAction|uint32(unix.ENOTTY))
		made = unix.Mkdirat(unix.AT_FDCWD, name, 0o700)
		return err
	})
	a.expect("a filter", set, "ok")
	a.expect("a directory under it", made, "ENOTTY")
	a.expect("a directory beside it", unix.Mkdirat(unix.AT_FDCWD, name, 0o700), "ok")
	_ = unix.Rmdir(name)
	// A filter that answers "done" deceives its own process, and does nothing.
	_ = onThread(func() error {
		nr, _ := seccomp.Number("mkdirat")
		set = answerAll(nr, errnoAction)
		made = unix.Mkdirat(unix.AT_FDCWD, name, 0o700)
		return nil
	})
	a.expect("a filter that says done", set, "ok")
	a.expect("a directory under it", made, "ok")
	a.expect("that directory", unix.Access(name, unix.F_OK), "ENOENT")
	// They give nothing: the sandbox's answer stays, whatever theirs is. The
	// calls are marked, so that outside none of them is made.
	for _, word := range sortedKeys(filterAnswers) {
		for _, c := range []struct{ name, want string }{{"mount", "EPERM"}, {"unshare", "EPERM"}, {"keyctl", "EPERM"}, {"openat2", "ENOSYS"}, {"clone3", "ENOSYS"}} {
			nr, ok := seccomp.Number(c.name)
			if !ok {
				continue
			}
			err := underMark(func(call func(uint32, ...uintptr) error) {
				if err := answerAll(nr, filterAnswers[word]); err != nil {
					a.expect("add "+word, err, "ok")
				}
				a.expect(c.name+" under "+word, call(nr), c.want)
			})
			if err != nil && !(word == "notify" && errors.Is(err, unix.EBUSY)) {
				a.expect("add a filter", err, "ok")
			}
		}
	}
	a.neighbour(write())
	return a
}
