//go:build linux

// Package seccomp is the system call policy of a sandbox, as data, and its
// compiler to the kernel's filter language.
//
// A policy is an allow-list: what it does not name does not exist (ENOSYS), what
// it names as refused answers EPERM, and calls of a foreign ABI (32-bit, x32) end
// the process. Arguments are compared in their low 32 bits, as the kernel itself
// cuts an int argument: high bits must not hide a flag. Pointers can't be looked
// at, so calls that take their flags in memory (clone3, openat2) don't exist.
//
// It promises nothing about calls that are allowed; view, identity and network
// namespace hold those.
package seccomp

import (
	"strings"

	"golang.org/x/sys/unix"
)

// number is a system call's number on one architecture.
type number struct {
	name string
	nr   uint32
}

// Action is what the kernel does with a call.
type Action uint32

// The actions. The zero value ends the process.
const (
	Kill   Action = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	Allow  Action = 0x7fff0000
	Refuse Action = 0x00050000 | Action(unix.EPERM)
	Absent Action = 0x00050000 | Action(unix.ENOSYS)
)

// Test looks at the low 32 bits of one argument.
type Test struct {
	Arg int
	// Mask is applied first; 0 means all bits.
	Mask uint32
	// Any: some bit of the mask is set. Otherwise the masked value must be Value.
	Any   bool
	Value uint32
}

// Clause decides if all its tests hold.
type Clause struct {
	When []Test
	Then Action
}

// Rule decides one call by its arguments: the first clause that holds, else Else.
type Rule struct {
	Clauses []Clause
	Else    Action
}

// Policy is the whole decision. A call in no field is Absent.
type Policy struct {
	Allowed []string
	Refused []string
	Rules   map[string]Rule
}

// Default is the policy of every sandbox.
func Default() Policy {
	return Policy{Allowed: strings.Fields(allowed), Refused: strings.Fields(refused), Rules: rules()}
}

// allowed are calls that give nothing beyond what view, identity and namespaces
// give. Changes of ids are harmless without capabilities; ptrace and its kin
// reach the sandbox's own processes only; seccomp and landlock only tighten.
const allowed = `
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chown
clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range
dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2
execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchown fchownat fcntl fdatasync
fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat
get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername
getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
ioprio_get kcmp kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listxattr listxattrat
llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack mbind membarrier memfd_create memfd_secret mincore
mkdir mkdirat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal
msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2
pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 process_madvise process_mrelease process_vm_readv process_vm_writev
pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat
rename renameat renameat2 restart_syscall rmdir rseq rseq_slice_yield rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_yield seccomp select semctl semget semop semtimedop
sendfile sendmmsg sendmsg sendto set_mempolicy set_mempolicy_home_node set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups
setitimer setpgid setregid setresgid setresuid setreuid setrlimit setsid setuid setxattr setxattrat
shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo
tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate
umask uname unlink unlinkat uprobe uretprobe ustat utime utimensat utimes vfork vmsplice wait4 waitid write writev
`

// refused are calls that reach the host's kernel beyond the namespaces, that
// once were or easily are the way out of one, or that make another.
const refused = `
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init fanotify_mark
file_setattr finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl
kexec_file_load kexec_load keyctl lsm_set_self_attr modify_ldt mount mount_setattr move_mount name_to_handle_at open_by_handle_at
open_tree open_tree_attr perf_event_open pivot_root quotactl quotactl_fd reboot request_key setdomainname sethostname setns settimeofday
swapoff swapon syslog umount2 unshare userfaultfd vhangup
`

// Number is the number of a call on this program's architecture, if it has it.
func Number(name string) (uint32, bool) { return native.number(name) }

// Names are all calls of this program's architecture.
func Names() []string {
	out := make([]string, len(native.calls))
	for i, c := range native.calls {
		out[i] = c.name
	}
	return out
}

// newNamespaces are all CLONE_NEW* flags that clone knows; CLONE_NEWTIME is a
// signal number there and only unshare's, which is refused whole.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// initPID is the sandbox's init as its processes see it.
const initPID = 1

// setID: as root outside, a set-id file in an idmapped workspace would be a
// set-id file of its owner on the host (tried).
const setID = unix.S_ISUID | unix.S_ISGID

func rules() map[string]Rule {
	mode := func(arg int) Rule {
		return Rule{Clauses: []Clause{{When: []Test{any(arg, setID)}, Then: Refuse}}, Else: Allow}
	}
	// The mode of an open counts only when it can create: without those flags
	// programs pass garbage there.
	open := func(flags, mode int) Rule {
		const temporary = 0o20000000 // __O_TMPFILE
		return Rule{Clauses: []Clause{{When: []Test{any(flags, unix.O_CREAT|temporary), any(mode, setID)}, Then: Refuse}}, Else: Allow}
	}
	node := func(arg int) Rule {
		return Rule{Clauses: []Clause{
			{When: []Test{any(arg, setID)}, Then: Refuse},
			{When: []Test{is(arg, unix.S_IFMT, unix.S_IFCHR)}, Then: Refuse},
			{When: []Test{is(arg, unix.S_IFMT, unix.S_IFBLK)}, Then: Refuse},
		}, Else: Allow}
	}
	// init may have the command's user, and the kernel asks no more than that of
	// who changes another process's limits: a CPU limit of 0 is the end of init
	// and with it of the run (tried). Nobody inside has business with it.
	spareInit := func(pid int) Rule {
		return Rule{Clauses: []Clause{{When: []Test{is(pid, 0, initPID)}, Then: Refuse}}, Else: Allow}
	}
	return map[string]Rule{
		"prlimit64": spareInit(0), "sched_setaffinity": spareInit(0), "sched_setscheduler": spareInit(0),
		"sched_setparam": spareInit(0), "sched_setattr": spareInit(0), "move_pages": spareInit(0), "migrate_pages": spareInit(0),
		// The second argument is a process, a group (init leads group 1) or,
		// rarely, a user, as the first one says.
		"setpriority": spareInit(1), "ioprio_set": spareInit(1),
		"clone":      {Clauses: []Clause{{When: []Test{any(0, newNamespaces)}, Then: Refuse}}, Else: Allow},
		"socket":     socketRule(),
		"socketpair": {Clauses: unixClauses(), Else: Refuse},
		"ioctl": {Clauses: []Clause{
			// Input put into a terminal is typed into whatever reads it later.
			{When: []Test{is(1, 0, unix.TIOCSTI)}, Then: Refuse},
			{When: []Test{is(1, 0, unix.TIOCLINUX)}, Then: Refuse},
			{When: []Test{is(1, 0, unix.TIOCSETD)}, Then: Refuse},
			{When: []Test{is(1, 0, unix.TIOCCONS)}, Then: Refuse},
		}, Else: Allow},
		// Upper layer protocols of TCP (in-kernel TLS) are a part of the kernel
		// that is reached by nothing else, have been the way out before
		// (CVE-2023-0461), and are of no use here: TLS libraries do without.
		"setsockopt": {Clauses: []Clause{{When: []Test{is(1, 0, unix.IPPROTO_TCP), is(2, 0, unix.TCP_ULP)}, Then: Refuse}}, Else: Allow},
		"chmod":      mode(1), "fchmod": mode(1), "fchmodat": mode(2), "fchmodat2": mode(2), "creat": mode(1),
		"open": open(1, 2), "openat": open(2, 3),
		"mknod": node(1), "mknodat": node(2),
		"personality": {Clauses: []Clause{
			{When: []Test{is(0, 0, 0)}, Then: Allow},
			{When: []Test{is(0, 0, 0xffffffff)}, Then: Allow}, // asks
			{When: []Test{is(0, 0, 0x0040000)}, Then: Allow},  // ADDR_NO_RANDOMIZE, for debuggers
		}, Else: Refuse},
	}
}

func any(arg int, mask uint32) Test { return Test{Arg: arg, Mask: mask, Any: true} }

func is(arg int, mask, value uint32) Test { return Test{Arg: arg, Mask: mask, Value: value} }

// typeMask is the part of a socket's type that is not a flag.
const typeMask = 0xf

func unixClauses() []Clause {
	var out []Clause
	for _, t := range []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		out = append(out, Clause{When: []Test{is(0, 0, unix.AF_UNIX), is(1, typeMask, t)}, Then: Allow})
	}
	return out
}

func socketRule() Rule {
	clauses := unixClauses()
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, s := range [][2]uint32{
			{unix.SOCK_STREAM, 0}, {unix.SOCK_STREAM, unix.IPPROTO_TCP}, {unix.SOCK_DGRAM, 0}, {unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		} {
			clauses = append(clauses, Clause{When: []Test{is(0, 0, family), is(1, typeMask, s[0]), is(2, 0, s[1])}, Then: Allow})
		}
	}
	clauses = append(clauses, Clause{When: []Test{is(0, 0, unix.AF_NETLINK), is(2, 0, unix.NETLINK_ROUTE)}, Then: Allow})
	return Rule{Clauses: clauses, Else: Refuse}
}
