//go:build linux

package sandboxtest

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func (a *Answer) call(what string, nr uintptr, args ...uintptr) {
	var x [6]uintptr
	copy(x[:], args)
	_, _, errno := unix.RawSyscall6(nr, x[0], x[1], x[2], x[3], x[4], x[5])
	a.try(what, errnoErr(errno))
}

func tryNamespaces([]string) (a Answer) {
	flags := map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
	}
	for _, name := range sortedKeys(flags) {
		// The kernel has limits of its own here (ENOSPC), which are not what is tried.
		a.call("unshare "+name, unix.SYS_UNSHARE, flags[name])
		// High bits that the kernel ignores must not hide the flag.
		a.call("unshare with high bits "+name, unix.SYS_UNSHARE, flags[name]|1<<40)
		if name != "time" { // not a flag of clone, whose low byte is a signal
			a.tryClone("clone "+name, flags[name])
		}
	}
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 88, 0)
	a.expect("clone3", errnoErr(errno), "ENOSYS")
	for _, ns := range []string{"mnt", "user", "net", "pid"} {
		fd, err := unix.Open("/proc/self/ns/"+ns, unix.O_RDONLY, 0)
		if err != nil {
			a.try("open namespace", err)
			continue
		}
		a.call("setns "+ns, unix.SYS_SETNS, uintptr(fd), 0)
	}
	a.neighbour(ownThread())
	return a
}

// tryClone must not let a child of a wrongly allowed clone run on.
func (a *Answer) tryClone(what string, flags uintptr) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	a.try(what, errnoErr(errno))
}

// ownThread shows that threads can be made.
func ownThread() error {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(done)
	}()
	<-done
	return nil
}

func tryMounts([]string) (a Answer) {
	root := strPtr("/")
	tmp, tmpfs := strPtr("/tmp"), strPtr("tmpfs")
	a.call("mount tmpfs", unix.SYS_MOUNT, tmpfs, tmp, tmpfs)
	a.call("bind", unix.SYS_MOUNT, root, tmp, 0, unix.MS_BIND)
	a.call("remount writable", unix.SYS_MOUNT, 0, root, 0, unix.MS_REMOUNT|unix.MS_BIND)
	a.call("change propagation", unix.SYS_MOUNT, 0, root, 0, unix.MS_SHARED|unix.MS_REC)
	a.call("move", unix.SYS_MOUNT, tmp, root, 0, unix.MS_MOVE)
	a.call("unmount", unix.SYS_UMOUNT2, strPtr("/proc"), unix.MNT_DETACH)
	a.call("pivot root", unix.SYS_PIVOT_ROOT, root, root)
	a.call("chroot", unix.SYS_CHROOT, root)
	a.call("open tree", unix.SYS_OPEN_TREE, 0, root, unix.OPEN_TREE_CLONE)
	a.call("move mount", unix.SYS_MOVE_MOUNT, 0, root, 0, tmp, 0)
	a.call("fsopen", unix.SYS_FSOPEN, tmpfs, 0)
	a.call("fspick", unix.SYS_FSPICK, 0, root, 0)
	a.call("fsmount", unix.SYS_FSMOUNT, 0, 0, 0)
	a.call("mount setattr", unix.SYS_MOUNT_SETATTR, 0, root, 0, 0, 0)
	a.neighbour(readable("/proc/self/mountinfo"))
	return a
}

// tryFamilies makes for real what tryCalls asks only the filter about.
func tryFamilies([]string) (a Answer) {
	c := sockets()
	for _, args := range c.refused {
		a.call(describe("socket", args), unix.SYS_SOCKET, args...)
	}
	for _, s := range [][3]int{
		{unix.AF_INET, unix.SOCK_STREAM, 0}, {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
	} {
		fd, err := unix.Socket(s[0], s[1], s[2])
		if err != nil {
			a.neighbour(err)
			return a
		}
		unix.Close(fd)
	}
	a.neighbour(nil)
	return a
}

// tryForeign makes a call by the number of another ABI, in a process of its own
// as it ends the process.
func tryForeign(args []string) (a Answer) {
	if len(args) > 0 {
		const x32 = 0x40000000
		unix.RawSyscall(x32|unix.SYS_GETPID, 0, 0, 0)
		return a
	}
	a.neighbour(exec.Command("/proc/self/exe", ProgramArgument, "list", ".").Run())
	if runtime.GOARCH != "amd64" {
		a.saw("foreign call", "none exists") // see package seccomp
		return a
	}
	var ended *exec.ExitError
	err := exec.Command("/proc/self/exe", ProgramArgument, "foreign", "call").Run()
	if errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS {
		a.saw("foreign call", "killed")
		return a
	}
	a.try("foreign call", err)
	return a
}

// tryTerminal puts input into this process's own controlling terminal: into any
// other the kernel lets only root put it.
func tryTerminal([]string) (a Answer) {
	c := bytesPtr([]byte("x\x00"))
	state, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		a.neighbour(err)
		return a
	}
	raw := *state
	raw.Lflag &^= unix.ICANON | unix.ECHO
	if err = unix.IoctlSetTermios(0, unix.TCSETS, &raw); err != nil {
		a.neighbour(err)
		return a
	}
	for _, high := range []uintptr{0, highBits} {
		a.call("TIOCSTI", unix.SYS_IOCTL, high, unix.TIOCSTI|high, c)
	}
	n, err := unix.IoctlGetInt(0, unix.TIOCINQ)
	if err != nil {
		a.neighbour(err)
		return a
	}
	a.saw("input", strconv.Itoa(n)+" bytes typed")
	if n > 0 { // or the shell outside reads it
		_, _ = unix.Read(0, make([]byte, n))
	}
	session, err := unix.IoctlGetInt(0, unix.TIOCGSID)
	if own, _ := unix.Getsid(0); err == nil && session != own {
		err = fmt.Errorf("the terminal of session %d, not %d", session, own)
	}
	if err == nil {
		err = unix.IoctlSetTermios(0, unix.TCSETS, state)
	}
	a.neighbour(err)
	return a
}
