//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/kernel/cgroup"
	"confine/internal/sandbox"
)

// Driver is the native driver. The zero value is ready.
type Driver struct {
	// noCgroup makes the driver do as if the host had no control groups.
	noCgroup bool
	// noIPv6 makes it do as if the host had no IPv6.
	noIPv6 bool
}

// New returns the driver.
func New() Driver { return Driver{} }

// discover looks for control groups once in the life of the process.
var discover = sync.OnceValues(cgroup.Discover)

// Name is the driver's name.
func (Driver) Name() string { return "native" }

// run is one sandbox from Start to Wait.
type run struct {
	spec    sandbox.Spec
	plan    plan
	started time.Time

	owned   []int      // descriptors of ours to close once the child is started
	files   []*os.File // the same, as files
	control *os.File
	status  *os.File
	handout *net.UnixConn
	child   *kernel.Child
	pidfd   int
	group   *cgroup.Group
	missing []boundary.Layer
	memory  *memoryWatch // nil: none, or a control group's
	disk    *diskWatch

	io      sync.WaitGroup
	stdin   *os.File // our end of the command's standard input
	out     *meter
	master  *os.File
	stopNet func()

	mu     sync.Mutex
	reason sandbox.Reason // set by the first of ours that killed it
	gone   bool           // every process is gone

	hurry     chan struct{} // closed when output is not to be waited for any more
	hurryOnce sync.Once
	done      chan struct{}
	exit      sandbox.Exit
}

// Start implements sandbox.Driver.
func (d Driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Running, error) {
	if err := spec.Boundary.Validate(); err != nil {
		return nil, err
	}
	if len(spec.Args) == 0 || spec.Args[0] == "" {
		return nil, &boundary.InvalidError{Field: "command", Why: "is empty"}
	}
	if (spec.Boundary.Network == boundary.NetworkCaptured) != (spec.Egress != nil) {
		return nil, &boundary.InvalidError{Field: "network", Why: "a captured network and an egress server go together"}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &run{spec: spec, started: time.Now(), pidfd: -1, hurry: make(chan struct{}), done: make(chan struct{})}
	if err := r.start(ctx, d); err != nil {
		r.abandon()
		return nil, r.explain(err)
	}
	go r.supervise(ctx)
	return r, nil
}

func (r *run) own(fd int) { r.owned = append(r.owned, fd) }

func (r *run) start(ctx context.Context, d Driver) error {
	b := r.spec.Boundary
	privileged, err := privileged()
	if err != nil {
		return err
	}
	if privileged && b.Identity.HostUID == 0 || privileged && b.Identity.HostGID == 0 {
		return &boundary.InvalidError{Field: "identity.host_uid", Why: "root's driver needs an unprivileged id outside"}
	}
	r.plan = plan{b: b, args: r.spec.Args, tty: r.spec.Terminal, errorsApart: r.spec.Terminal != nil && r.spec.Stderr != nil, privileged: privileged, noIPv6: d.noIPv6 || !hasIPv6(), fds: descriptors{mounts: map[int]int{}, stages: map[int]int{}}}
	if err := checkDevices(); err != nil {
		return &sandbox.StartError{Step: "check devices", Err: err, Hint: "the host's /dev is not the kernel's usual one"}
	}
	if r.plan.mounts, err = prepareMounts(b.View); err != nil {
		return err
	}
	if err := r.plan.findShares(); err != nil {
		return &sandbox.StartError{Step: "read inotify limits", Err: err}
	}
	if err := checkFileSize(b.View.Files); err != nil {
		return err
	}
	if err := r.probe(); err != nil {
		return err
	}
	if err := r.makeCgroup(d); err != nil {
		return err
	}
	r.plan.countMemory = r.group == nil && b.Limits.Memory > 0
	if err := r.openPipes(); err != nil {
		return err
	}
	if privileged {
		if err := r.openPrivileged(); err != nil {
			return err
		}
	}
	return r.launch(ctx, r.plan.build())
}

// startLimit ends a start that does not end by itself. A PID 1 is not killed by a
// fault of its own: it would fault for ever.
const startLimit = time.Minute

// launch forks, maps the child's ids, and waits until the command runs.
func (r *run) launch(ctx context.Context, prog *kernel.Program) error {
	goWrite := r.files[1]
	var err error
	if r.child, err = r.startChild(prog); err != nil {
		return err
	}
	if err := r.hold(); err != nil {
		return err
	}
	kill := func() { _ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0) }
	cancelled := context.AfterFunc(ctx, kill)
	defer cancelled()
	limit := time.AfterFunc(startLimit, kill)
	defer limit.Stop()
	id := r.spec.Boundary.Identity
	outside := owner{uint32(os.Geteuid()), uint32(os.Getegid())}
	if r.plan.privileged {
		outside = owner{id.HostUID, id.HostGID}
	}
	if err := writeMaps(r.child.PID, owner{id.UID, id.GID}, outside, r.plan.privileged); err != nil {
		return r.childsOwn(&sandbox.StartError{Step: "map ids", Err: err})
	}
	if r.group != nil {
		if err := r.group.Join(r.child.PID); err != nil {
			return r.childsOwn(&sandbox.StartError{Step: "join cgroup", Err: err})
		}
	}
	if _, err := goWrite.Write([]byte{1}); err != nil {
		return r.childsOwn(&sandbox.StartError{Step: "let the sandbox start", Err: err})
	}
	r.closeOwned()
	if l := r.spec.Boundary.Limits.Disk; l > 0 {
		r.disk = newDiskWatch(r.child.PID, l, r.plan.mounts)
	}
	if err := r.receive(); err != nil {
		// The child's own report says more, if there is one.
		if stepErr := r.child.Started(); stepErr != nil {
			return stepErr
		}
		return err
	}
	if err := r.child.Started(); err != nil {
		return err
	}
	r.startCopying()
	return nil
}

// childsOwn ends the child and returns its own report of a failed step instead of
// err, if there is one: a child that is gone is a reason for any error here.
func (r *run) childsOwn(err error) error {
	_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
	var step *kernel.StepError
	if own := r.child.Started(); errors.As(own, &step) {
		return own
	}
	return err
}

// hold opens the child, and makes sure that it can be killed and waited for: a
// filter around this process that refuses one of the calls would let a run go on
// for ever.
func (r *run) hold() (err error) {
	if r.pidfd, err = unix.PidfdOpen(r.child.PID, 0); err != nil {
		return &sandbox.StartError{Step: "open process (pidfd_open)", Err: err}
	}
	if err := unix.PidfdSendSignal(r.pidfd, 0, nil, 0); err != nil {
		return &sandbox.StartError{Step: "signal process (pidfd_send_signal)", Err: err}
	}
	// An option that no kernel has: the call is refused and nothing reaped.
	const noOption = 1 << 16
	if _, err := unix.Wait4(r.child.PID, nil, noOption, nil); err != nil && !errors.Is(err, unix.EINVAL) {
		return &sandbox.StartError{Step: "wait for process (wait4)", Err: err}
	}
	return nil
}

// privileged reports whether this is root of the initial user namespace, who
// gives each tenant ids of its own.
func privileged() (bool, error) {
	if os.Geteuid() != 0 {
		return false, nil
	}
	m, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, err
	}
	return strings.Join(strings.Fields(string(m)), " ") == "0 0 4294967295", nil
}

// weaken records a layer that is missing, or refuses.
func (r *run) weaken(m *kernel.MissingError) error {
	if !r.spec.Boundary.MayLack(m.Layer) {
		return m
	}
	r.missing = append(r.missing, m.Layer)
	if r.spec.Weakened != nil {
		r.spec.Weakened(m.Layer, m.What)
	}
	return nil
}

// probe finds out what can't be found out by trying in the child, where it
// would be too late to go on without.
func (r *run) probe() error {
	r.plan.landlock = landlockPresent()
	if !r.plan.landlock {
		if err := r.weaken(&kernel.MissingError{Layer: boundary.LayerLandlock, What: "the kernel has no Landlock, or it is not in its lsm= list", Fix: "boot with landlock in lsm=, or a kernel of 5.13 or later; or let it be missing: --allow-missing landlock, or allow_missing in a config"}); err != nil {
			return err
		}
	}
	masked, err := maskedProc()
	if err != nil {
		return err
	}
	if masked != "" && r.spec.Boundary.Profile != boundary.ProfileNone {
		return &kernel.MissingError{Layer: boundary.LayerProc, What: "parts of /proc are covered (" + masked + "), so the number of namespaces inside can't be bounded, which the profile " + string(r.spec.Boundary.Profile) + " needs", Fix: "in Docker: --security-opt systempaths=unconfined"}
	}
	if masked != "" {
		r.plan.weakProc = true
		return r.weaken(&kernel.MissingError{Layer: boundary.LayerProc, What: "parts of /proc are covered (" + masked + "), so a fresh one can't be mounted", Fix: "in Docker: --security-opt systempaths=unconfined; or let it be missing: --allow-missing proc, or allow_missing in a config"})
	}
	return nil
}

// emptyByItself are directories of /proc that exist to be mounted on: a mount
// there covers nothing, and the kernel does not count it.
var emptyByItself = []string{"/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd", "/proc/openprom"}

// maskedProc names a mount below /proc. The kernel refuses a fresh /proc to a
// user namespace that sees only a partly covered one (mount_too_revealing).
func maskedProc() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 4 && strings.HasPrefix(f[4], "/proc/") && !slices.Contains(emptyByItself, f[4]) {
			return f[4], nil
		}
	}
	return "", nil
}

func (r *run) makeCgroup(d Driver) error {
	host, err := discover()
	if d.noCgroup {
		err = &kernel.MissingError{Layer: boundary.LayerCgroup, What: "switched off", Fix: "none"}
	}
	var missing *kernel.MissingError
	if errors.As(err, &missing) {
		return r.weaken(missing)
	}
	if err == nil {
		r.group, err = host.Make(r.spec.Boundary.Tenant, r.spec.Boundary.Limits)
	}
	if err != nil {
		return &sandbox.StartError{Step: "make control group", Err: err}
	}
	return nil
}

// abandon undoes a start that failed.
func (r *run) abandon() {
	// Its pipe's end ends a child that was not told to start, should no signal.
	r.closeOwned()
	if r.child != nil {
		if r.pidfd < 0 || unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0) != nil {
			_ = unix.Kill(r.child.PID, unix.SIGKILL)
		}
		var ws unix.WaitStatus
		for {
			if _, err := unix.Wait4(r.child.PID, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	if r.stopNet != nil {
		r.stopNet()
	}
	for _, f := range []*os.File{r.control, r.status, r.stdin, r.master} {
		if f != nil {
			f.Close()
		}
	}
	if r.out != nil {
		r.out.closeReaders()
	}
	r.releaseRest()
}

func (r *run) releaseRest() {
	if r.memory != nil {
		r.memory.close()
	}
	if r.handout != nil {
		r.handout.Close()
	}
	if r.pidfd >= 0 {
		unix.Close(r.pidfd)
		r.pidfd = -1
	}
	if r.group != nil {
		r.group.Kill()
		_ = r.group.Remove()
	}
}

func (r *run) closeOwned() {
	for _, fd := range r.owned {
		unix.Close(fd)
	}
	r.owned = nil
	for _, f := range r.files {
		f.Close()
	}
	r.files = nil
}

// explain gives a failed step the words a person needs.
func (r *run) explain(err error) error {
	var (
		se      *kernel.StepError
		start   *sandbox.StartError
		missing *kernel.MissingError
		errno   unix.Errno
	)
	switch {
	case errors.As(err, &missing):
		return err
	case errors.As(err, &start):
		if start.Hint == "" {
			start.Hint = doctorHint
		}
		return err
	case errors.As(err, &se):
	case errors.As(err, &errno):
		return &sandbox.StartError{Step: "prepare", Err: err, Hint: doctorHint}
	default:
		return err
	}
	out := &sandbox.StartError{Step: se.Step, Err: se.Err}
	switch {
	case se.Step == execStep:
		name := r.spec.Args[0]
		out.Step = fmt.Sprintf("execute %q", name)
		out.NotFound = errors.Is(se.Err, unix.ENOENT) || errors.Is(se.Err, unix.ENOTDIR)
		out.NotExecutable = !out.NotFound
		if out.NotFound {
			out.Hint = notFoundHint(name)
		}
	case se.Step == "clone" && (errors.Is(se.Err, unix.EPERM) || errors.Is(se.Err, unix.ENOSPC) || errors.Is(se.Err, unix.EACCES)):
		return &kernel.MissingError{Layer: boundary.LayerUserNS, What: "make user namespace: " + se.Err.Error(), Fix: "run confine doctor: it names what forbids user namespaces here and the one change that allows them"}
	case strings.HasPrefix(se.Step, "nf_tables"):
		return &kernel.MissingError{Layer: boundary.LayerNFTables, What: se.Step + ": " + se.Err.Error(), Fix: "load the nf_tables, nft_chain_nat and nft_redir modules on the host (modprobe nft_redir)"}
	case strings.HasPrefix(se.Step, stepOverlay+" "):
		return explainOverlay(se)
	case strings.HasPrefix(se.Step, "change to working directory"):
		out.Hint = "the directory must exist in the view and be open to the sandbox's user"
	default:
		out.Hint = doctorHint
	}
	return out
}

const doctorHint = "run confine doctor: it tries each part on this host and names what is missing"

// notFoundHint says where the host has the program that the view lacks.
func notFoundHint(name string) string {
	p, err := exec.LookPath(name)
	if err != nil {
		return fmt.Sprintf("%s is not on this host's PATH either", quoted(name))
	}
	dir := p[:strings.LastIndexByte(p, '/')+1]
	if strings.Contains(name, "/") {
		return fmt.Sprintf("the path exists on the host but not in the view; --ro %s brings its directory in", dir)
	}
	return fmt.Sprintf("the host has it at %s; --ro %s brings that directory in", p, strings.TrimSuffix(dir, "/"))
}

func quoted(s string) string { return fmt.Sprintf("%.120q", s) }
