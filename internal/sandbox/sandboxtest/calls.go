//go:build linux

package sandboxtest

import (
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/kernel/seccomp"
)

// This file is what the probes expect of every system call. It repeats the
// policy of package seccomp on purpose: a call that is let through there by
// mistake must not vanish from what is tried here.

// refusedCalls must be refused with EPERM, whatever their arguments.
const refusedCalls = `
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init fanotify_mark
file_setattr finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl
kexec_file_load kexec_load keyctl lsm_set_self_attr modify_ldt mount mount_setattr move_mount name_to_handle_at open_by_handle_at
open_tree open_tree_attr perf_event_open pivot_root quotactl quotactl_fd reboot request_key setdomainname sethostname setns settimeofday
swapoff swapon syslog umount2 unshare userfaultfd vhangup
`

// absentCalls must not exist (ENOSYS): programs then do without them.
const absentCalls = `
_sysctl afs_syscall arch_specific_syscall clone3 epoll_ctl_old epoll_wait_old file_getattr get_kernel_syms getpmsg listmount listns
lookup_dcookie lsm_get_self_attr lsm_list_modules nfsservctl openat2 putpmsg query_module security statmount sysfs tuxcall uselib vserver
`

// ruledCall is a call that is refused or let through by its arguments. The
// neighbour is the same call with arguments that are let through.
type ruledCall struct {
	name      string
	refused   [][]uintptr
	neighbour []uintptr
}

const (
	any32    = math.MaxUint32
	highBits = 1 << 32 // the kernel ignores them, so they must hide nothing
)

// ruledCalls are all calls with rules.
func ruledCalls() []ruledCall {
	self := uintptr(os.Getpid())
	first, second := []uintptr{1}, []uintptr{0, 1}
	init := func(name string, args []uintptr, neighbour ...uintptr) ruledCall {
		hidden := append([]uintptr{}, args...)
		hidden[len(hidden)-1] |= highBits
		return ruledCall{name, [][]uintptr{args, hidden}, neighbour}
	}
	setID := func(name string, before ...uintptr) ruledCall {
		c := ruledCall{name: name, neighbour: append(append([]uintptr{}, before...), 0o1755)}
		for _, mode := range []uintptr{unix.S_ISUID, unix.S_ISGID, unix.S_ISUID | unix.S_ISGID | 0o755, unix.S_ISUID | highBits} {
			c.refused = append(c.refused, append(append([]uintptr{}, before...), mode))
		}
		return c
	}
	node := func(name string, before ...uintptr) ruledCall {
		c := setID(name, before...)
		c.neighbour = append(append([]uintptr{}, before...), unix.S_IFIFO|0o600)
		for _, kind := range []uintptr{unix.S_IFCHR, unix.S_IFBLK, unix.S_IFCHR | highBits, unix.S_IFREG | unix.S_ISUID} {
			c.refused = append(c.refused, append(append([]uintptr{}, before...), kind|0o600))
		}
		return c
	}
	create := func(name string, before ...uintptr) ruledCall {
		c := ruledCall{name: name, neighbour: append(append([]uintptr{}, before...), 0, 0, unix.S_ISUID)}
		for _, flags := range []uintptr{unix.O_CREAT, unix.O_TMPFILE, unix.O_CREAT | highBits} {
			c.refused = append(c.refused, append(append([]uintptr{}, before...), 0, flags, unix.S_ISUID), append(append([]uintptr{}, before...), 0, flags, unix.S_ISGID))
		}
		return c
	}
	clone := ruledCall{name: "clone", neighbour: []uintptr{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}}
	for _, ns := range []uintptr{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		clone.refused = append(clone.refused, []uintptr{ns}, []uintptr{ns | highBits | uintptr(unix.SIGCHLD)})
	}
	ioctl := ruledCall{name: "ioctl", neighbour: []uintptr{0, unix.TIOCGWINSZ}}
	for _, request := range []uintptr{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, unix.TIOCCONS} {
		ioctl.refused = append(ioctl.refused, []uintptr{0, request}, []uintptr{0, request | highBits})
	}
	personality := ruledCall{name: "personality", neighbour: []uintptr{any32}}
	for _, p := range []uintptr{0x0400000 /* READ_IMPLIES_EXEC */, 0x0100000 /* MMAP_PAGE_ZERO */, 0x0008 /* PER_LINUX32 */, 0x0440000} {
		personality.refused = append(personality.refused, []uintptr{p})
	}
	return []ruledCall{
		clone, ioctl, personality, sockets(), socketPairs(),
		{"setsockopt", [][]uintptr{{0, unix.IPPROTO_TCP, unix.TCP_ULP}, {0, unix.IPPROTO_TCP | highBits, unix.TCP_ULP | highBits}}, []uintptr{0, unix.IPPROTO_TCP, unix.TCP_NODELAY}},
		setID("chmod", 0), setID("fchmod", 0), setID("fchmodat", 0, 0), setID("fchmodat2", 0, 0), setID("creat", 0),
		create("open"), create("openat", 0), node("mknod", 0), node("mknodat", 0, 0),
		init("prlimit64", first, self), init("sched_setaffinity", first, self), init("sched_setscheduler", first, self),
		init("sched_setparam", first, self), init("sched_setattr", first, self), init("move_pages", first, self), init("migrate_pages", first, self),
		init("setpriority", second, 0, self), init("ioprio_set", second, 1, self),
	}
}

func sockets() ruledCall {
	c := ruledCall{name: "socket", neighbour: []uintptr{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.IPPROTO_TCP}}
	add := func(args ...uintptr) { c.refused = append(c.refused, args) }
	for family := range uintptr(46) {
		switch family {
		case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
			continue
		}
		add(family, unix.SOCK_DGRAM, 0)
		add(family|highBits, unix.SOCK_DGRAM, 0)
	}
	for protocol := range uintptr(23) {
		if protocol != unix.NETLINK_ROUTE {
			add(unix.AF_NETLINK, unix.SOCK_RAW, protocol)
		}
	}
	for _, family := range []uintptr{unix.AF_INET, unix.AF_INET6} {
		add(family, unix.SOCK_RAW, unix.IPPROTO_TCP)
		add(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		add(family, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		add(family, unix.SOCK_STREAM, protocolMPTCP)
		add(family, unix.SOCK_SEQPACKET, protocolSCTP)
		add(family, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE)
	}
	add(unix.AF_UNIX, unix.SOCK_RAW, 0)
	return c
}

func socketPairs() ruledCall {
	return ruledCall{
		"socketpair", [][]uintptr{{unix.AF_INET, unix.SOCK_STREAM, 0}, {unix.AF_NETLINK, unix.SOCK_RAW, 0}, {unix.AF_TIPC, unix.SOCK_DGRAM, 0}},
		[]uintptr{unix.AF_UNIX, unix.SOCK_STREAM, 0},
	}
}

// allowedCalls are a few of those that every program needs.
const allowedCalls = `brk close execve exit_group fcntl futex getpid kill mmap openat read rt_sigaction seccomp wait4 write`

// tryCalls tries every call that is not simply allowed.
func tryCalls([]string) (a Answer) {
	var missed []string
	err := underMark(func(call func(uint32, ...uintptr) error) {
		allowed := func(name string, args ...uintptr) {
			if nr, ok := seccomp.Number(name); ok {
				if r := result(call(nr, args...)); r != letThrough {
					missed = append(missed, name+": "+r)
				}
			}
		}
		refused := func(name, want string, args ...uintptr) {
			if nr, ok := seccomp.Number(name); ok {
				a.expect(describe(name, args), call(nr, args...), want)
			}
		}
		for _, name := range strings.Fields(allowedCalls) {
			allowed(name)
		}
		for _, name := range strings.Fields(refusedCalls) {
			refused(name, "EPERM")
		}
		for _, name := range strings.Fields(absentCalls) {
			refused(name, "ENOSYS")
		}
		const future = 600
		a.expect("a call of the future", call(future), "ENOSYS")
		for _, r := range ruledCalls() {
			allowed(r.name, r.neighbour...)
			for _, args := range r.refused {
				refused(r.name, "EPERM", args...)
			}
		}
	})
	if err != nil {
		a.try("add a filter", err)
	}
	if a.Neighbour = "ok"; len(missed) > 0 {
		a.Neighbour = strings.Join(missed, ", ")
	}
	return a
}

func describe(name string, args []uintptr) string {
	if len(args) == 0 {
		return name
	}
	words := make([]string, len(args))
	for i, v := range args {
		words[i] = fmt.Sprintf("%#x", v)
	}
	return name + "(" + strings.Join(words, ", ") + ")"
}
