package probe

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
)

// refusal is one call, or one kind of namespace, that this host refuses.
type refusal struct {
	name string
	// since is the first kernel that has it; the zero value is any.
	since version
	err   error
}

// refusedError is an attempt of which single parts were refused.
type refusedError struct{ refused []refusal }

func (e *refusedError) Error() string {
	parts := make([]string, len(e.refused))
	for i, r := range e.refused {
		parts[i] = r.name + ": " + r.err.Error()
	}
	return strings.Join(parts, ", ")
}

// version is the major and minor number of a kernel.
type version struct{ major, minor int }

func (v version) atLeast(w version) bool {
	return v.major > w.major || v.major == w.major && v.minor >= w.minor
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// call is a system call with arguments that its implementation refuses in a known
// way, or that do nothing: any other answer is not the implementation's.
type call struct {
	name  string
	since version
	nr    uintptr
	want  []unix.Errno
	args  []uintptr
}

const bad = ^uintptr(0)

// baseCalls are those that a run is started, watched and ended by, on both sides
// of the fork. What every program needs (read, mmap, …) is left out: this program
// would not have come so far.
var baseCalls = []call{
	{"close_range", version{5, 9}, unix.SYS_CLOSE_RANGE, []unix.Errno{unix.EINVAL}, []uintptr{1, 0, 0}},
	{"close_range with CLOSE_RANGE_CLOEXEC", version{5, 11}, unix.SYS_CLOSE_RANGE, nil, []uintptr{1<<31 - 2, 1<<31 - 1, unix.CLOSE_RANGE_CLOEXEC}},
	{"pidfd_open", version{5, 3}, unix.SYS_PIDFD_OPEN, []unix.Errno{unix.EINVAL}, []uintptr{0, bad}},
	{"pidfd_send_signal", version{5, 1}, unix.SYS_PIDFD_SEND_SIGNAL, []unix.Errno{unix.EBADF, unix.EINVAL}, []uintptr{bad, 0, 0, 0}},
	{"wait4", version{}, unix.SYS_WAIT4, []unix.Errno{unix.EINVAL}, []uintptr{bad, 0, 1 << 16, 0}},
	{"waitid", version{}, unix.SYS_WAITID, []unix.Errno{unix.EINVAL}, []uintptr{unix.P_ALL, 0, 0, 0, 0}},
	{"openat2", version{5, 6}, unix.SYS_OPENAT2, []unix.Errno{unix.EINVAL}, []uintptr{bad, 0, 0, 0}},
	{"execve", version{}, unix.SYS_EXECVE, []unix.Errno{unix.EFAULT}, []uintptr{0, 0, 0}},
	{"signalfd4", version{}, unix.SYS_SIGNALFD4, []unix.Errno{unix.EINVAL}, []uintptr{bad, 0, 0, 0}},
	{"ppoll", version{}, unix.SYS_PPOLL, []unix.Errno{unix.EINVAL, unix.EFAULT}, []uintptr{0, bad, bad, 0, 0}},
	{"kill", version{}, unix.SYS_KILL, []unix.Errno{unix.ESRCH}, []uintptr{1<<31 - 2, 0}},
	{"setsid", version{}, unix.SYS_SETSID, nil, nil},
	{"setpgid", version{}, unix.SYS_SETPGID, []unix.Errno{unix.EINVAL}, []uintptr{bad, 0}},
	{"prctl", version{}, unix.SYS_PRCTL, nil, []uintptr{unix.PR_SET_DUMPABLE, 1, 0, 0, 0}},
	{"capset", version{}, unix.SYS_CAPSET, []unix.Errno{unix.EFAULT}, []uintptr{0, 0}},
	{"prlimit64", version{}, unix.SYS_PRLIMIT64, nil, []uintptr{0, unix.RLIMIT_CORE, 0, 0}},
	{"setresuid", version{}, unix.SYS_SETRESUID, nil, []uintptr{bad, bad, bad}},
	{"setresgid", version{}, unix.SYS_SETRESGID, nil, []uintptr{bad, bad, bad}},
	{"fcntl", version{}, unix.SYS_FCNTL, []unix.Errno{unix.EBADF}, []uintptr{bad, unix.F_DUPFD_CLOEXEC, 3}},
	{"ioctl", version{}, unix.SYS_IOCTL, []unix.Errno{unix.EBADF}, []uintptr{bad, unix.TIOCSCTTY, 0}},
	{"socketpair", version{}, unix.SYS_SOCKETPAIR, []unix.Errno{unix.EAFNOSUPPORT, unix.EFAULT}, []uintptr{1 << 20, unix.SOCK_STREAM, 0, 0}},
	{"socket", version{}, unix.SYS_SOCKET, []unix.Errno{unix.EAFNOSUPPORT}, []uintptr{1 << 20, unix.SOCK_STREAM, 0}},
	{"sendmsg", version{}, unix.SYS_SENDMSG, []unix.Errno{unix.EBADF}, []uintptr{bad, 0, 0}},
	{"recvmsg", version{}, unix.SYS_RECVMSG, []unix.Errno{unix.EBADF}, []uintptr{bad, 0, 0}},
	{"mkdirat", version{}, unix.SYS_MKDIRAT, []unix.Errno{unix.EFAULT}, []uintptr{bad, 0, 0}},
	{"unlinkat", version{}, unix.SYS_UNLINKAT, []unix.Errno{unix.EFAULT}, []uintptr{bad, 0, 0}},
	{"symlinkat", version{}, unix.SYS_SYMLINKAT, []unix.Errno{unix.EFAULT}, []uintptr{0, bad, 0}},
	{"chdir", version{}, unix.SYS_CHDIR, []unix.Errno{unix.EFAULT}, []uintptr{0}},
	{"fchdir", version{}, unix.SYS_FCHDIR, []unix.Errno{unix.EBADF}, []uintptr{bad}},
}

// mountAPI are the calls that a view is made by. Some look at the caller's
// capabilities first, so they are tried in a namespace of the child's own.
var mountAPI = []call{
	{"mount", version{}, unix.SYS_MOUNT, []unix.Errno{unix.EFAULT}, []uintptr{0, 0, 0, 0, 0}},
	{"open_tree", version{5, 2}, unix.SYS_OPEN_TREE, []unix.Errno{unix.EFAULT, unix.EBADF}, []uintptr{bad, 0, 0}},
	{"move_mount", version{5, 2}, unix.SYS_MOVE_MOUNT, []unix.Errno{unix.EFAULT, unix.EBADF}, []uintptr{bad, 0, bad, 0, 0}},
	{"fsopen", version{5, 2}, unix.SYS_FSOPEN, []unix.Errno{unix.EFAULT}, []uintptr{0, 0}},
	{"fsconfig", version{5, 2}, unix.SYS_FSCONFIG, []unix.Errno{unix.EINVAL, unix.EBADF}, []uintptr{bad, unix.FSCONFIG_CMD_CREATE, 0, 0, 0}},
	{"fsmount", version{5, 2}, unix.SYS_FSMOUNT, []unix.Errno{unix.EBADF}, []uintptr{bad, 0, 0}},
	{"mount_setattr", version{5, 12}, unix.SYS_MOUNT_SETATTR, []unix.Errno{unix.EINVAL}, []uintptr{bad, 0, 0, 0, 0}},
	{"pivot_root", version{}, unix.SYS_PIVOT_ROOT, []unix.Errno{unix.EFAULT}, []uintptr{0, 0}},
	{"umount2", version{}, unix.SYS_UMOUNT2, []unix.Errno{unix.EFAULT}, []uintptr{0, 0}},
}

// tryCalls makes all calls in one child. Where that fails, or a filter killed the
// child, each is made in a child of its own, so that all are named.
func tryCalls(flags uintptr, calls []call) error {
	all := inChild(flags, func(_ *kernel.Program, b *kernel.Block) {
		for _, c := range calls {
			c.add(b)
		}
	})
	if all == nil {
		return nil
	}
	e := &refusedError{}
	for _, c := range calls {
		if err := inChild(flags, func(_ *kernel.Program, b *kernel.Block) { c.add(b) }); err != nil {
			e.refused = append(e.refused, refusal{c.name, c.since, cause(err)})
		}
	}
	if len(e.refused) == 0 {
		return all
	}
	return e
}

func (c call) add(b *kernel.Block) {
	args := make([]kernel.Arg, len(c.args))
	for i, a := range c.args {
		args[i] = kernel.Int(a)
	}
	errnos := make([]uintptr, len(c.want))
	for i, e := range c.want {
		errnos[i] = uintptr(e)
	}
	b.Call(c.name, c.nr, args...).Tolerate(errnos...)
}

// cause is what a step failed with, without the step's name.
func cause(err error) error {
	var step *kernel.StepError
	if errors.As(err, &step) {
		return step.Err
	}
	return err
}

// tryChild starts and collects a child that does nothing: without that nothing
// else can be tried.
func tryChild() error {
	err := inChild(0, func(*kernel.Program, *kernel.Block) {})
	if err == nil {
		return nil
	}
	name := failedStep(err)
	if _, call, ok := strings.Cut(name, "("); ok {
		name = strings.TrimSuffix(call, ")")
	}
	if name == "" {
		return err
	}
	r := refusal{name: name, err: cause(err)}
	if name == "close_range" {
		r.since = version{5, 9}
	}
	return &refusedError{[]refusal{r}}
}

// namespaceKind is one of the namespaces that a run is made of.
type namespaceKind struct {
	name string // as in user.max_NAME_namespaces
	flag uintptr
	// need is how many of one run exist at the same time, one in the other.
	need int
}

var namespaceKinds = []namespaceKind{
	{"user", 0, 2}, // every child has one
	{"mnt", unix.CLONE_NEWNS, 2},
	{"pid", unix.CLONE_NEWPID, 2},
	{"net", unix.CLONE_NEWNET, 1},
	{"ipc", unix.CLONE_NEWIPC, 1},
	{"uts", unix.CLONE_NEWUTS, 1},
	{"cgroup", unix.CLONE_NEWCGROUP, 1},
}

// tryNamespaces makes what a run is made of: all namespaces, and in them a
// second user, mount and PID namespace.
func tryNamespaces() error {
	all := inNamespaces(namespaceKinds)
	if all == nil {
		return nil
	}
	e := &refusedError{}
	for _, k := range namespaceKinds {
		if err := inNamespaces([]namespaceKind{k}); err != nil {
			e.refused = append(e.refused, refusal{name: k.name, err: cause(err)})
			if k.flag == 0 {
				break // the others have one of these around them
			}
		}
	}
	if len(e.refused) == 0 {
		return all
	}
	return e
}

func inNamespaces(kinds []namespaceKind) error {
	outer, inner := uintptr(unix.CLONE_NEWUSER), uintptr(0)
	for _, k := range kinds {
		outer |= k.flag
		if k.need > 1 {
			inner |= unix.CLONE_NEWUSER | k.flag
		}
	}
	return inChild(outer, func(p *kernel.Program, b *kernel.Block) {
		if inner == 0 {
			return
		}
		in := p.NewBlock()
		in.Call("end", unix.SYS_EXIT_GROUP, kernel.Int(0))
		b.Fork("clone", inner, in)
		b.WaitAll()
	})
}
