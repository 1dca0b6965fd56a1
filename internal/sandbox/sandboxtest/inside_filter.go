//go:build linux

package sandboxtest

import (
	"encoding/binary"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// letThrough is the result of a call that no filter refused.
const letThrough = "reaches the kernel"

const (
	// reached is the errno of such a call: one that no kernel function returns.
	reached = syscall.Errno(777)
	// mark is the sixth argument of the calls that are tried. Nothing else of
	// this program passes it, and the kernel never sees it.
	mark = 0x70726f62
)

// underMark tells a filter's answer from the kernel's own: most calls that a
// sandbox refuses the kernel would refuse too, with the same errno, to a process
// without capabilities, which proves nothing about the filter. On a thread of
// its own it adds a filter that hands each marked call to this program instead
// of to the kernel. Of several filters the strictest wins, and an errno is
// stricter than that: so the sandbox's filter has refused what comes back with
// its errno, and has let through what comes back with ours. Nothing is ever done,
// so that every call can be tried, with any arguments.
func underMark(f func(call func(nr uint32, args ...uintptr) error)) error {
	failed := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with its filter.
		runtime.LockOSThread()
		listener, err := addMark()
		if err != nil {
			failed <- err
			return
		}
		go answerMarked(listener)
		f(func(nr uint32, args ...uintptr) error {
			a := [6]uintptr{5: mark}
			copy(a[:5], args)
			_, _, errno := unix.Syscall6(uintptr(nr), a[0], a[1], a[2], a[3], a[4], a[5])
			return errnoErr(errno)
		})
		failed <- nil
	}()
	return <-failed
}

// addMark adds the filter to this thread.
func addMark() (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	const sixthArgument = 16 + 5*8 // in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: sixthArgument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: mark, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
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
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, bytesPtr(prog))
	return int(fd), errnoErr(errno)
}

// answerMarked answers marked calls until the process ends.
func answerMarked(listener int) {
	call, reply := make([]byte, 80), make([]byte, 24) // struct seccomp_notif, seccomp_notif_resp
	callPtr, replyPtr := bytesPtr(call), bytesPtr(reply)
	for {
		clear(call)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, callPtr)
		if errno == unix.EINTR || errno == unix.ENOENT {
			continue
		}
		if errno != 0 {
			return
		}
		clear(reply)
		copy(reply, call[:8]) // the id
		negative := -int32(reached)
		binary.NativeEndian.PutUint32(reply[16:], uint32(negative))
		// A caller that was interrupted meanwhile asks again.
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, replyPtr)
	}
}
