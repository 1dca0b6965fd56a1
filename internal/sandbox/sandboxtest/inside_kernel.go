//go:build linux

package sandboxtest

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func (a *Answer) call(what string, nr uintptr, args ...uintptr) syscall.Errno {
	var x [6]uintptr
	copy(x[:], args)
	_, _, errno := unix.RawSyscall6(nr, x[0], x[1], x[2], x[3], x[4], x[5])
	a.try(what, errnoErr(errno))
	return errno
}

func tryNamespaces([]string) (a Answer) {
	flags := map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
	}
	for _, name := range sortedKeys(flags) {
		a.call("unshare "+name, unix.SYS_UNSHARE, flags[name])
		// High bits that the kernel ignores must not hide the flag.
		a.call("unshare with high bits "+name, unix.SYS_UNSHARE, flags[name]|1<<40)
		if name != "time" { // not a flag of clone, whose low byte is a signal
			a.tryClone("clone "+name, flags[name])
		}
	}
	a.call("clone3", unix.SYS_CLONE3, 0, 88)
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

func tryInterfaces([]string) (a Answer) {
	a.call("io_uring_setup", unix.SYS_IO_URING_SETUP, 1, 0)
	a.call("io_uring_enter", unix.SYS_IO_URING_ENTER, 0)
	a.call("io_uring_register", unix.SYS_IO_URING_REGISTER, 0)
	a.call("bpf", unix.SYS_BPF, 0, 0, 0)
	a.call("perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0)
	a.call("userfaultfd", unix.SYS_USERFAULTFD, 0)
	a.call("keyctl", unix.SYS_KEYCTL, 0)
	a.call("add_key", unix.SYS_ADD_KEY, 0)
	a.call("request_key", unix.SYS_REQUEST_KEY, 0)
	a.call("init_module", unix.SYS_INIT_MODULE, 0)
	a.call("finit_module", unix.SYS_FINIT_MODULE, 0)
	a.call("delete_module", unix.SYS_DELETE_MODULE, 0)
	a.call("kexec_load", unix.SYS_KEXEC_LOAD, 0)
	a.call("reboot", unix.SYS_REBOOT, 0)
	a.call("swapon", unix.SYS_SWAPON, 0)
	a.call("settimeofday", unix.SYS_SETTIMEOFDAY, 0)
	a.call("clock_settime", unix.SYS_CLOCK_SETTIME, 0, 0)
	a.call("sethostname", unix.SYS_SETHOSTNAME, strPtr("x"), 1)
	a.call("quotactl", unix.SYS_QUOTACTL, 0)
	a.call("acct", unix.SYS_ACCT, 0)
	a.call("fanotify_init", unix.SYS_FANOTIFY_INIT, 0)
	a.call("name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, 0)
	a.call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, 0)
	a.call("syslog", unix.SYS_SYSLOG, 3, 0, 0)
	a.call("vhangup", unix.SYS_VHANGUP)
	a.neighbour(readable("/proc/self/status"))
	return a
}

func tryFamilies([]string) (a Answer) {
	for family := range 46 {
		switch family {
		case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
			continue
		}
		for _, high := range []uintptr{0, 1 << 32} {
			a.call("family", unix.SYS_SOCKET, uintptr(family)|high, unix.SOCK_DGRAM, 0)
		}
	}
	for protocol := range 23 {
		if protocol != unix.NETLINK_ROUTE {
			a.call("netlink", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, uintptr(protocol))
		}
	}
	for _, family := range []uintptr{unix.AF_INET, unix.AF_INET6} {
		a.call("raw", unix.SYS_SOCKET, family, unix.SOCK_RAW, unix.IPPROTO_TCP)
		a.call("raw with flags", unix.SYS_SOCKET, family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		a.call("icmp", unix.SYS_SOCKET, family, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		a.call("mptcp", unix.SYS_SOCKET, family, unix.SOCK_STREAM, protocolMPTCP)
		a.call("sctp", unix.SYS_SOCKET, family, unix.SOCK_SEQPACKET, protocolSCTP)
		a.call("udplite", unix.SYS_SOCKET, family, unix.SOCK_DGRAM, 136)
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

func tryTerminal([]string) (a Answer) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		a.neighbour(err)
		return a
	}
	defer master.Close()
	c := []byte("x\x00")
	a.call("TIOCSTI", unix.SYS_IOCTL, master.Fd(), unix.TIOCSTI, bytesPtr(c))
	a.call("TIOCSTI with high bits", unix.SYS_IOCTL, master.Fd(), unix.TIOCSTI|1<<32, bytesPtr(c))
	a.call("TIOCLINUX", unix.SYS_IOCTL, master.Fd(), unix.TIOCLINUX, bytesPtr(c))
	_, err = unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	a.neighbour(err)
	return a
}
