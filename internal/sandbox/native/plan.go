//go:build linux

package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/sandbox"
)

// Every namespace that the outer process gets at its birth. The cgroup namespace
// comes later, when the process is in the cgroup that shall be its root.
const outerNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

const innerNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID

// plan turns one boundary into one program.
type plan struct {
	b    boundary.Boundary
	args []string
	tty  *sandbox.Terminal // nil: pipes
	// errorsApart gives the command a pipe for its errors beside the terminal.
	errorsApart bool
	privileged  bool
	weakProc    bool // /proc is a read-only bind of the outer one
	landlock    bool
	noIPv6      bool // the host has none
	// countMemory: the engine does, as there is no control group.
	countMemory bool
	shares      []namespaceLimit
	fds         descriptors
	mounts      []preparedMount

	p                  *kernel.Program
	outer, inner, cmd  *kernel.Block
	procDir            kernel.Reg // the outer /proc, as O_PATH
	root               kernel.Reg // the new root, as O_PATH
	scratchA, scratchB kernel.Reg
	slave              kernel.Reg // the command's end of the PTY
	maskFile, maskDir  bool
	handed             []kernel.Reg // descriptors sent out to the engine, in order
	counted            []kernel.Reg // those of them that memory is counted by, the first
}

// descriptors are what the child keeps of this process, by purpose. An index is
// -1 where there is none.
type descriptors struct {
	list                                                   []int
	start, control, status, stdin, stdout, stderr, handout int
	mounts, stages                                         map[int]int // mount index to descriptor index
}

func (d *descriptors) add(fd int) int {
	d.list = append(d.list, fd)
	return len(d.list) - 1
}

func (pl *plan) fd(i int) kernel.Arg { return kernel.Int(kernel.KeptFD(pl.fds.list, i)) }

// build writes the whole program. Reading it from top to bottom is reading what
// the sandbox is.
func (pl *plan) build() *kernel.Program {
	pl.p, pl.outer = kernel.NewProgram()
	pl.inner, pl.cmd = pl.p.NewBlock(), pl.p.NewBlock()
	pl.scratchA, pl.scratchB = pl.p.NewReg(), pl.p.NewReg()

	// The engine maps our ids and moves us into the cgroup, then says go. Its
	// death instead of a byte ends us here.
	pl.outer.Call("wait for the engine", unix.SYS_READ, pl.fd(pl.fds.start), pl.p.Buffer(1), kernel.Int(1)).Expect(1)
	pl.becomeTenant()
	pl.outer.Call("name process", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_NAME), pl.p.Str("confine-outer"))
	pl.outer.Call("set umask", unix.SYS_UMASK, kernel.Int(0))
	pl.outer.Call("unshare cgroup namespace", unix.SYS_UNSHARE, kernel.Int(unix.CLONE_NEWCGROUP))
	pl.buildView()
	pl.openLists()
	pl.limitNamespaces()
	pl.enterView()
	pl.outer.Call("set host name", unix.SYS_SETHOSTNAME, pl.p.Str(pl.hostname()), kernel.Int(len(pl.hostname())))
	pl.buildNetwork()
	pl.openTerminal()
	pl.handOut()
	pl.outer.Fork("fork init", innerNamespaces, pl.inner)
	pl.restPrivileges(pl.outer)
	pl.outer.Call("close descriptors", unix.SYS_CLOSE_RANGE, kernel.Int(0), kernel.Int(uint32(1<<32-1)), kernel.Int(0))
	pl.outer.WaitAll()

	pl.buildInner()
	pl.buildCommand()
	return pl.p
}

func (pl *plan) hostname() string {
	if pl.b.View.Hostname != "" {
		return pl.b.View.Hostname
	}
	return "sandbox"
}

// becomeTenant gives up root's ids for the tenant's. As an ordinary user the ids
// are the caller's already.
func (pl *plan) becomeTenant() {
	if !pl.privileged {
		return
	}
	id := pl.b.Identity
	// Root outside has no number inside, so the kernel's own rule does not
	// drop capabilities on this change; it must not start to on another kernel.
	pl.outer.Call("keep capabilities", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_SECUREBITS), kernel.Int(secNoSetuidFixup))
	pl.outer.Call("drop groups", unix.SYS_SETGROUPS, kernel.Int(0), kernel.Int(0))
	pl.outer.Call("set group", unix.SYS_SETRESGID, kernel.Int(id.GID), kernel.Int(id.GID), kernel.Int(id.GID))
	pl.outer.Call("set user", unix.SYS_SETRESUID, kernel.Int(id.UID), kernel.Int(id.UID), kernel.Int(id.UID))
	// The change of ids hid /proc/self from ourselves; init must still write
	// its id maps there, and hides itself after that.
	pl.outer.Call("open own proc files", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_DUMPABLE), kernel.Int(1))
}

const (
	secNoSetuidFixup = 1 << 2
	// SECBIT_NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each locked.
	secLocked = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7
)

// namespaceLimits are the numbers of namespaces that exist once init runs:
// with them as the limit nobody inside can make another, whatever a filter
// lets through. They are set in the outer namespace, so that no capability in
// the inner one can raise them.
var namespaceLimits = []namespaceLimit{
	{"max_user_namespaces", "1"}, {"max_mnt_namespaces", "2"}, {"max_pid_namespaces", "2"},
	{"max_net_namespaces", "1"}, {"max_ipc_namespaces", "1"}, {"max_uts_namespaces", "1"},
	{"max_cgroup_namespaces", "1"}, {"max_time_namespaces", "0"},
}

// namespaceLimit is a file below /proc/sys/user and what goes into it.
type namespaceLimit struct{ file, count string }

// profileLimits are how many namespaces of a kind a run may have at once beside
// the sandbox's own. Chromium makes two user namespaces and a process id namespace
// for each renderer.
var profileLimits = map[boundary.Profile]map[string]int{
	boundary.ProfileBrowser: {"max_user_namespaces": 32, "max_pid_namespaces": 128, "max_net_namespaces": 16},
	boundary.ProfileNesting: {
		"max_user_namespaces": 64, "max_mnt_namespaces": 64, "max_pid_namespaces": 64, "max_net_namespaces": 64,
		"max_ipc_namespaces": 64, "max_uts_namespaces": 64, "max_cgroup_namespaces": 64,
	},
}

// with is the limit of a run with a profile.
func (l namespaceLimit) with(p boundary.Profile) string {
	more := profileLimits[p][l.file]
	own, err := strconv.Atoi(l.count)
	if more == 0 || err != nil {
		return l.count
	}
	return strconv.Itoa(own + more)
}

// sharedCounts are what a sandbox would use up for its user outside, as the
// kernel counts them for the namespace's owner too, and where an old name of the
// whole host's limit is: in a namespace of its own /proc/sys/user may hold more.
var sharedCounts = []struct{ file, host string }{
	{"max_inotify_instances", "/proc/sys/fs/inotify/max_user_instances"},
	{"max_inotify_watches", "/proc/sys/fs/inotify/max_user_watches"},
}

// inotifyShare is what part of its user's inotify instances and watches one
// sandbox may have.
const inotifyShare = 2

// findShares reads the host's limits. A host without inotify has no such files.
func (pl *plan) findShares() error {
	for _, c := range sharedCounts {
		least := int64(-1)
		for _, path := range []string{"/proc/sys/user/" + c.file, c.host} {
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			if err != nil {
				return fmt.Errorf("read %s: %w", path, err)
			}
			if least < 0 || n < least {
				least = n
			}
		}
		if least >= 0 {
			pl.shares = append(pl.shares, namespaceLimit{c.file, strconv.FormatInt(min(least/inotifyShare, math.MaxInt32), 10)})
		}
	}
	return nil
}

func (pl *plan) limitNamespaces() {
	if pl.weakProc {
		return // its /proc/sys is read-only; seccomp stands alone
	}
	for _, l := range namespaceLimits {
		pl.writeFile(pl.outer, pl.root.Arg(), "proc/sys/user/"+l.file, l.with(pl.b.Profile))
	}
	for _, l := range pl.shares {
		pl.writeFile(pl.outer, pl.root.Arg(), "proc/sys/user/"+l.file, l.count)
	}
	// Servers inside may bind any port without a capability.
	pl.writeFile(pl.outer, pl.root.Arg(), "proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
}

// ipcLists are the last of the counted descriptors. A kernel without System V IPC
// has none of them, and nothing to count.
var ipcLists = sync.OnceValue(func() []string {
	if _, err := os.Stat("/proc/sysvipc/shm"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []string{"shm", "msg", "sem"}
})

// openLists opens the lists of this IPC namespace's segments, queues and semaphores: an open
// one goes on to show this namespace, whoever reads it.
func (pl *plan) openLists() {
	if !pl.countMemory {
		return
	}
	for _, l := range ipcLists() {
		fd := pl.outer.Call("open list of "+l, unix.SYS_OPENAT, pl.root.Arg(), pl.p.Str("proc/sysvipc/"+l), kernel.Int(unix.O_RDONLY|unix.O_CLOEXEC)).Result()
		pl.counted = append(pl.counted, fd)
	}
	// SCM_MAX_FD of the kernel, less what a network and a terminal need.
	if len(pl.counted) > 200 {
		pl.p.Fail(&boundary.InvalidError{Field: "view.mounts", Why: "more tmpfs mounts than can be counted without a control group"})
	}
	pl.handed = append(pl.handed, pl.counted...)
}

// writeFile writes a short existing file, in one write.
func (pl *plan) writeFile(b *kernel.Block, dir kernel.Arg, path, data string) {
	b.Call("open "+path, unix.SYS_OPENAT, dir, pl.p.Str(path), kernel.Int(unix.O_WRONLY|unix.O_CLOEXEC)).Into(pl.scratchA)
	b.Call("write "+path, unix.SYS_WRITE, pl.scratchA.Arg(), pl.p.Bytes([]byte(data)), kernel.Int(len(data))).Expect(uintptr(len(data)))
	b.Call("close "+path, unix.SYS_CLOSE, pl.scratchA.Arg())
}

// restPrivileges is for a process that will only wait: invisible and without
// any capability. It executes nothing, so its bounding set does not matter.
func (pl *plan) restPrivileges(b *kernel.Block) {
	b.Call("hide process", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_DUMPABLE), kernel.Int(0))
	pl.clearCapabilities(b)
}

// dropCapabilities leaves nothing that an exec could give back.
func (pl *plan) dropCapabilities(b *kernel.Block) {
	b.Call("forbid new privileges", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_NO_NEW_PRIVS), kernel.Int(1), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	b.Call("lock securebits", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_SECUREBITS), kernel.Int(secLocked))
	b.Repeat("drop bounding capability", 1, capabilities(), unix.SYS_PRCTL, kernel.Int(unix.PR_CAPBSET_DROP))
	b.Call("clear ambient capabilities", unix.SYS_PRCTL, kernel.Int(unix.PR_CAP_AMBIENT), kernel.Int(unix.PR_CAP_AMBIENT_CLEAR_ALL), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	pl.clearCapabilities(b)
}

func (pl *plan) clearCapabilities(b *kernel.Block) {
	header := make([]byte, 8)
	binary.NativeEndian.PutUint32(header, unix.LINUX_CAPABILITY_VERSION_3)
	b.Call("drop capabilities", unix.SYS_CAPSET, pl.p.Bytes(header), pl.p.Buffer(24))
}

// capabilities is how many capabilities this kernel knows.
var capabilities = sync.OnceValue(func() int {
	for c := 0; ; c++ {
		if _, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, uintptr(c), 0); errno != 0 {
			return c
		}
	}
})

// openTerminal makes the PTY in the sandbox's own devpts.
func (pl *plan) openTerminal() {
	if pl.tty == nil {
		return
	}
	master := pl.outer.Call("open terminal", unix.SYS_OPENAT, kernel.Int(unix.AT_FDCWD), pl.p.Str("/dev/pts/ptmx"), kernel.Int(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).Result()
	pl.outer.Call("unlock terminal", unix.SYS_IOCTL, master.Arg(), kernel.Int(unix.TIOCSPTLCK), pl.p.Buffer(4))
	// The command asks for the size once, at its start.
	size := make([]byte, 8) // struct winsize
	binary.NativeEndian.PutUint16(size, pl.tty.Rows)
	binary.NativeEndian.PutUint16(size[2:], pl.tty.Cols)
	pl.outer.Call("set terminal size", unix.SYS_IOCTL, master.Arg(), kernel.Int(unix.TIOCSWINSZ), pl.p.Bytes(size))
	pl.slave = pl.outer.Call("open terminal peer", unix.SYS_IOCTL, master.Arg(), kernel.Int(unix.TIOCGPTPEER), kernel.Int(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).Result()
	pl.handed = append(pl.handed, master)
}

// handOut sends the descriptors made inside to the engine, in one message.
func (pl *plan) handOut() {
	if len(pl.handed) == 0 {
		return
	}
	control := make([]byte, unix.CmsgSpace(4*len(pl.handed)))
	binary.NativeEndian.PutUint64(control, uint64(unix.CmsgLen(4*len(pl.handed))))
	binary.NativeEndian.PutUint32(control[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(control[12:], unix.SCM_RIGHTS)
	controlAddr := pl.p.Bytes(control)
	for i, r := range pl.handed {
		pl.outer.Store32(controlAddr, unix.CmsgLen(0)+4*i, r.Arg())
	}
	iov := pl.p.Words(pl.p.Bytes([]byte{1}), kernel.Int(1))
	// struct msghdr: name, namelen, iov, iovlen, control, controllen, flags.
	msg := pl.p.Words(kernel.Int(0), kernel.Int(0), iov, kernel.Int(1), controlAddr, kernel.Int(len(control)), kernel.Int(0))
	pl.outer.Call("hand out descriptors", unix.SYS_SENDMSG, pl.fd(pl.fds.handout), msg, kernel.Int(0)).Expect(1)
}

func step(format string, args ...any) string { return fmt.Sprintf(format, args...) }
