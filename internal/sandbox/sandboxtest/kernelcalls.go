//go:build linux

package sandboxtest

import (
	"os"

	"golang.org/x/sys/unix"
)

func kernelProbes() []Probe {
	return []Probe{
		{Name: "namespaces", Group: "kernel", Expected: "no namespace can be made or entered", run: attempt("namespaces", made("namespaces"), "EPERM", "ENOSYS", "ENOSPC")},
		{Name: "mounts", Group: "kernel", Expected: "no mount can be made, moved, changed or undone", run: attempt("mounts", made("mounts"), "EPERM", "ENOSYS")},
		{Name: "kernel-interfaces", Group: "kernel", Expected: "io_uring, bpf, perf, userfaultfd, keyrings, modules, kexec, clocks and their like are refused", run: attempt("interfaces", controlInterfaces, "EPERM", "ENOSYS")},
		{Name: "socket-families", Group: "kernel", Expected: "only INET, INET6, UNIX and route netlink, only TCP and UDP", run: attempt("families", controlFamilies, "EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")},
		{Name: "terminal-input", Group: "kernel", Expected: "no input can be put into a terminal", run: attempt("terminal", controlTerminal, "EPERM")},
	}
}

// made is the control of what a driver itself does to make a sandbox: that the
// probe runs at all shows it.
func made(what string) func() (string, bool) {
	return func() (string, bool) { return "outside, the driver made its own " + what + " to run this", true }
}

// controlInterfaces asks some of the interfaces outside, with arguments that do
// nothing: a kernel that answers "bad argument" has them.
func controlInterfaces() (string, bool) {
	for _, c := range [][2]uintptr{{unix.SYS_IO_URING_SETUP, 1}, {unix.SYS_KEYCTL, 9999}, {unix.SYS_NAME_TO_HANDLE_AT, 0}} {
		_, _, errno := unix.Syscall6(c[0], c[1], 0, 0, 0, 0, 0)
		if errno != unix.EPERM && errno != unix.ENOSYS {
			return "outside, the kernel answers such calls", true
		}
	}
	return "outside, none is answered either", false
}

func controlFamilies() (string, bool) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err == nil {
		unix.Close(fd)
	}
	return "outside, a netfilter netlink socket can be made", err == nil
}

func controlTerminal() (string, bool) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "outside, no terminal can be opened", false
	}
	defer master.Close()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCLINUX, bytesPtr([]byte{0}))
	return "outside, the terminal itself answers TIOCLINUX (" + result(errnoErr(errno)) + ")", errno != unix.EPERM
}
