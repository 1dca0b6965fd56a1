//go:build linux

package native

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
	"confine/internal/sandbox"
)

// startChild forks the outer process. What the kernel counts for a user it counts
// for the owner of the user's namespace too (kernel/ucount.c), and the owner is
// who made it: were that root, each sandbox would use up what root may have, of
// inotify instances and namespaces, and root's services would get none. So this
// one thread makes it as the user that the sandbox has outside.
func (r *run) startChild(prog *kernel.Program) (child *kernel.Child, err error) {
	if !r.plan.privileged {
		return prog.Start(outerNamespaces, r.plan.fds.list)
	}
	runtime.LockOSThread()
	restore, err := actAs(r.spec.Boundary.Identity.HostUID)
	if errors.Is(err, unix.EPERM) {
		// A container's root without CAP_SETPCAP: the namespaces are root's, and
		// inotifyShare is all that protects others.
		runtime.UnlockOSThread()
		return prog.Start(outerNamespaces, r.plan.fds.list)
	}
	if err != nil {
		prog.Discard()
		runtime.UnlockOSThread()
		return nil, &sandbox.StartError{Step: "act as the sandbox's user", Err: err}
	}
	child, err = prog.Start(outerNamespaces, r.plan.fds.list)
	if restoreErr := restore(); restoreErr != nil {
		// The thread stays locked: it ends with this goroutine, and nothing else
		// runs on it. The child is returned to be killed.
		return child, &sandbox.StartError{Step: "act as root again", Err: restoreErr}
	}
	runtime.UnlockOSThread()
	return child, err
}

// actAs gives the calling thread, and no other, another effective user. It keeps
// its capabilities, as a host may let nobody else make namespaces.
func actAs(uid uint32) (restore func() error, err error) {
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	set := func(bits int, euid uint32) error {
		// Package syscall's would change every thread.
		if _, _, e := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, uintptr(bits), 0); e != 0 {
			return e
		}
		const keep = ^uintptr(0)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(euid), keep); e != 0 {
			return e
		}
		return nil
	}
	back := func() error {
		const keep = ^uintptr(0)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); e != 0 {
			return e
		}
		if _, _, e := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, uintptr(bits), 0); e != 0 {
			return e
		}
		// The change hid the whole process's files in /proc from others of its
		// user; what it was before is what it is again.
		if dumpable == 1 {
			return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		}
		return nil
	}
	if err := set(bits|secNoSetuidFixup, uid); err != nil {
		if backErr := back(); backErr != nil && !errors.Is(backErr, unix.EPERM) {
			return nil, backErr
		}
		return nil, err
	}
	return back, nil
}
