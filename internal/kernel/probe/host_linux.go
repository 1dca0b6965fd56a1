package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
	"confine/internal/kernel/cgroup"
	"confine/internal/kernel/landlock"
	"confine/internal/kernel/netlink"
	"confine/internal/kernel/seccomp"
)

// Host tries everything on this host. It takes some tens of milliseconds.
func Host() Report { return inspect(machine{}) }

// machine is the host itself.
type machine struct{}

func (machine) landlock() int { return int(landlock.Probe()) }

func (machine) root() bool { return os.Geteuid() == 0 }

func (machine) cgroups() (string, error) {
	if _, err := cgroup.Discover(); err != nil {
		return "", err
	}
	return "memory, pids and cpu can be limited in sum", nil
}

func (machine) proc() error {
	var fs unix.Statfs_t
	if err := unix.Statfs("/proc", &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return errNoProc
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return errOtherProc
	}
	return nil
}

// filtered asks the kernel: PR_GET_SECCOMP is 2 under a filter that lets it be
// asked.
func (machine) filtered() bool {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	return err != nil || mode == unix.SECCOMP_MODE_FILTER
}

func (machine) read(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSuffix(string(b), "\n"), err
}

func (machine) release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func (m machine) privileged() bool {
	maps, err := m.read("/proc/self/uid_map")
	return err == nil && m.root() && strings.Join(strings.Fields(maps), " ") == "0 0 4294967295"
}

// stepMapIDs names the one step that the parent makes.
const stepMapIDs = "map ids"

// stepUTS is the one that uses the new user namespace.
const stepUTS = "unshare UTS namespace"

func (m machine) try(a attempt) error {
	const user = unix.CLONE_NEWUSER
	switch a {
	case emptyChild:
		return tryChild()
	case systemCalls:
		return tryCalls(0, baseCalls)
	case unshareNothing:
		return inChild(0, func(_ *kernel.Program, b *kernel.Block) {
			b.Call("unshare nothing", unix.SYS_UNSHARE, kernel.Int(0))
		})
	case userNamespace:
		return inChild(user, func(p *kernel.Program, b *kernel.Block) {
			// Where AppArmor restricts them, a namespace is made but none of
			// its capabilities work.
			b.Call(stepUTS, unix.SYS_UNSHARE, kernel.Int(unix.CLONE_NEWUTS))
			b.Call("set host name", unix.SYS_SETHOSTNAME, p.Str("probe"), kernel.Int(len("probe")))
		})
	case namespaces:
		return tryNamespaces()
	case mountCalls:
		return tryCalls(user|unix.CLONE_NEWNS, mountAPI)
	case freshProc:
		return inChild(user|unix.CLONE_NEWNS|unix.CLONE_NEWPID, func(p *kernel.Program, b *kernel.Block) {
			b.Call("make mounts private", unix.SYS_MOUNT, kernel.Int(0), p.Str("/"), kernel.Int(0), kernel.Int(unix.MS_REC|unix.MS_PRIVATE), kernel.Int(0))
			b.Call("mount /proc", unix.SYS_MOUNT, p.Str("proc"), p.Str("/proc"), p.Str("proc"), kernel.Int(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC), p.Str("hidepid=ptraceable"))
		})
	case loadFilter:
		filter, err := seccomp.Compile(seccomp.Default())
		if err != nil {
			return err
		}
		return inChild(0, func(p *kernel.Program, b *kernel.Block) { installFilter(p, b, filter) })
	case restrictFiles:
		return inChild(0, func(p *kernel.Program, b *kernel.Block) { installLandlock(p, b, landlock.Probe()) })
	case addresses:
		return inChild(user|unix.CLONE_NEWNET, addAddresses)
	case capture:
		return inChild(user|unix.CLONE_NEWNET, func(p *kernel.Program, b *kernel.Block) {
			replay(p, b, "load rules", unix.NETLINK_NETFILTER, netlink.Capture(probe4, own6(), 1))
		})
	case overlay:
		return inChild(user|unix.CLONE_NEWNS, mountOverlay)
	case idmapped:
		return mountIDMapped(os.TempDir())
	}
	return fmt.Errorf("try %q: unknown", a)
}

// Documentation addresses (RFC 5737, RFC 3849): they are only given to a
// loopback device that ends with the probe.
var (
	probe4 = netip.MustParseAddr("192.0.2.1")
	probe6 = netip.MustParseAddr("2001:db8::1")
)

// own6 is no address on a host that was booted without IPv6: a run does without
// it there.
func own6() netip.Addr {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return netip.Addr{}
	}
	if err == nil {
		unix.Close(fd)
	}
	return probe6
}

// child is a probe's process. It waits before its first step.
type child struct {
	*kernel.Child
	start *os.File // closing it ends the child before its first step
}

// fork starts a child with its ids mapped, if it has a user namespace.
func fork(flags uintptr, build func(*kernel.Program, *kernel.Block)) (*child, error) {
	wait, start, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer wait.Close()
	keep := []int{int(wait.Fd())}
	p, b := kernel.NewProgram()
	b.Call("wait for the start", unix.SYS_READ, kernel.Int(kernel.KeptFD(keep, 0)), p.Buffer(1), kernel.Int(1)).Expect(1)
	build(p, b)
	b.Call("end", unix.SYS_EXIT_GROUP, kernel.Int(0))
	k, err := p.Start(flags, keep)
	if err != nil {
		start.Close()
		return nil, err
	}
	c := &child{k, start}
	if flags&unix.CLONE_NEWUSER == 0 {
		return c, nil
	}
	if err := mapIDs(k.PID); err != nil {
		start.Close()
		_ = c.wait()
		return nil, err
	}
	return c, nil
}

// mapIDs makes this user the root of the child's namespace.
func mapIDs(pid int) error {
	for _, f := range [][2]string{
		{"setgroups", "deny"},
		{"uid_map", fmt.Sprintf("0 %d 1", os.Geteuid())},
		{"gid_map", fmt.Sprintf("0 %d 1", os.Getegid())},
	} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, f[0]), []byte(f[1]), 0); err != nil {
			return &kernel.StepError{Step: stepMapIDs, Err: err}
		}
	}
	return nil
}

// killedError is a child that a signal ended: SIGSYS is a filter's.
type killedError struct{ signal unix.Signal }

func (e *killedError) Error() string { return fmt.Sprintf("probe was killed: %v", e.signal) }

// wait collects the child. A child that ended in another way than by its last
// step is an error: a filter that kills leaves no message.
func (c *child) wait() error {
	stepErr := c.Started()
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(c.PID, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			if err != nil && stepErr == nil {
				return &kernel.StepError{Step: "wait for probe (wait4)", Err: err}
			}
			break
		}
	}
	switch {
	case stepErr != nil:
		return stepErr
	case ws.Signaled():
		return &killedError{ws.Signal()}
	case ws.ExitStatus() != 0:
		return fmt.Errorf("probe ended with status %d", ws.ExitStatus())
	}
	return nil
}

// inChild runs a list of steps in a child with namespaces of its own.
func inChild(flags uintptr, build func(*kernel.Program, *kernel.Block)) error {
	c, err := fork(flags, build)
	if err != nil {
		return err
	}
	_, err = c.start.Write([]byte{1})
	c.start.Close()
	if waitErr := c.wait(); waitErr != nil {
		return waitErr
	}
	return err
}

// seccompSetModeFilter is SECCOMP_SET_MODE_FILTER.
const seccompSetModeFilter = 1

func installFilter(p *kernel.Program, b *kernel.Block, filter []unix.SockFilter) {
	code := make([]byte, 0, 8*len(filter))
	for _, f := range filter {
		code = binary.NativeEndian.AppendUint16(code, f.Code)
		code = append(code, f.Jt, f.Jf)
		code = binary.NativeEndian.AppendUint32(code, f.K)
	}
	b.Call("forbid new privileges", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_NO_NEW_PRIVS), kernel.Int(1), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	prog := p.Words(kernel.Int(len(filter)), p.Bytes(code))
	b.Call("load filter", unix.SYS_SECCOMP, kernel.Int(seccompSetModeFilter), kernel.Int(0), prog)
}

func installLandlock(p *kernel.Program, b *kernel.Block, abi landlock.ABI) {
	// Without any version the call says why: not built, or not switched on.
	attr := max(abi, 1).Ruleset()
	b.Call("forbid new privileges", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_NO_NEW_PRIVS), kernel.Int(1), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	set := b.Call("create rules", unix.SYS_LANDLOCK_CREATE_RULESET, p.Bytes(attr), kernel.Int(len(attr)), kernel.Int(0)).Result()
	b.Call("restrict", unix.SYS_LANDLOCK_RESTRICT_SELF, set.Arg(), kernel.Int(0))
}

func addAddresses(p *kernel.Program, b *kernel.Block) {
	fd := b.Call("open socket", unix.SYS_SOCKET, kernel.Int(unix.AF_INET), kernel.Int(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), kernel.Int(0)).Result()
	req := make([]byte, 40) // struct ifreq
	copy(req, "lo")
	binary.NativeEndian.PutUint16(req[unix.IFNAMSIZ:], unix.IFF_UP)
	b.Call("loopback up", unix.SYS_IOCTL, fd.Arg(), kernel.Int(unix.SIOCSIFFLAGS), p.Bytes(req))
	replay(p, b, "set addresses and routes", unix.NETLINK_ROUTE, netlink.Loopback(probe4, own6()))
}

// replay sends a batch of netlink messages and checks each answer.
func replay(p *kernel.Program, b *kernel.Block, name string, protocol int, batch netlink.Batch) {
	s := b.Call(name+": open socket", unix.SYS_SOCKET, kernel.Int(unix.AF_NETLINK), kernel.Int(unix.SOCK_RAW|unix.SOCK_CLOEXEC), kernel.Int(protocol)).Result()
	addr := make([]byte, unix.SizeofSockaddrNetlink)
	binary.NativeEndian.PutUint16(addr, unix.AF_NETLINK)
	b.Call(name+": send", unix.SYS_SENDTO, s.Arg(), p.Bytes(batch.Bytes), kernel.Int(len(batch.Bytes)), kernel.Int(0), p.Bytes(addr), kernel.Int(len(addr)))
	answer := p.Buffer(netlink.AckBytes)
	for range batch.Acks {
		b.Call(name+": answer", unix.SYS_RECVFROM, s.Arg(), answer, kernel.Int(netlink.AckBytes), kernel.Int(0), kernel.Int(0), kernel.Int(0))
		b.CheckErrno(name, answer, netlink.AckErrno)
	}
}

// mountOverlay mounts one in memory of its own, over a directory that every
// host has; the mounts end with the child's namespace.
func mountOverlay(p *kernel.Program, b *kernel.Block) {
	const at = "/usr"
	none := kernel.Int(0)
	b.Call("make mounts private", unix.SYS_MOUNT, none, p.Str("/"), none, kernel.Int(unix.MS_REC|unix.MS_PRIVATE), none)
	b.Call("mount tmpfs", unix.SYS_MOUNT, p.Str("tmpfs"), p.Str(at), p.Str("tmpfs"), none, p.Str("mode=755,size=1m"))
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		b.Call("make directory", unix.SYS_MKDIRAT, kernel.Int(unix.AT_FDCWD), p.Str(at+"/"+d), kernel.Int(0o755))
	}
	b.Call("mount overlay", unix.SYS_MOUNT, p.Str("overlay"), p.Str(at+"/merged"), p.Str("overlay"), none,
		p.Str("lowerdir="+at+"/lower,upperdir="+at+"/upper,workdir="+at+"/work,userxattr"))
	// An overlay that can't use its work directory mounts read-only (tried).
	b.Call("write to overlay", unix.SYS_MKDIRAT, kernel.Int(unix.AT_FDCWD), p.Str(at+"/merged/d"), kernel.Int(0o755))
}

// mountIDMapped makes, and drops, a detached copy of a directory's mount that
// shows other owners.
func mountIDMapped(dir string) error {
	c, err := fork(unix.CLONE_NEWUSER, func(*kernel.Program, *kernel.Block) {})
	if err != nil {
		return err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", c.PID))
	_, _ = c.start.Write([]byte{1})
	c.start.Close()
	if waitErr := c.wait(); err == nil {
		err = waitErr
	}
	if ns != nil {
		defer ns.Close()
	}
	if err != nil {
		return fmt.Errorf("make id map: %w", err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone mount of %q: %w", dir, err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("map ids of %q: %w", dir, err)
	}
	return nil
}
