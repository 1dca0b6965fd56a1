package probe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
)

// attempt is one use of an ability, made in a child process.
type attempt string

const (
	unshareNothing attempt = "unshare nothing"
	userNamespace  attempt = "user namespace"
	namespaces     attempt = "namespaces"
	mountCalls     attempt = "mount calls"
	freshProc      attempt = "fresh /proc"
	loadFilter     attempt = "load filter"
	restrictFiles  attempt = "restrict files"
	addresses      attempt = "addresses and routes"
	capture        attempt = "capture"
	overlay        attempt = "overlay"
	idmapped       attempt = "idmapped mount"
)

// host is what a report is made from. Tests put another in its place to take
// abilities away.
type host interface {
	// try makes an attempt; nil means that the ability is there.
	try(attempt) error
	// cgroups looks for control groups that this process may use.
	cgroups() (string, error)
	// landlock is the version of Landlock, 0 for none.
	landlock() int
	// read is the content of a small file without its last newline.
	read(path string) (string, error)
	// release is the kernel's version.
	release() string
	// privileged: root of the initial user namespace.
	privileged() bool
	// root: effective user 0 of whatever namespace.
	root() bool
}

// Oldest is the oldest kernel with all calls that a sandbox is made by:
// Landlock came with 5.13, mount_setattr with 5.12.
const oldestMajor, oldestMinor = 5, 13

const (
	dockerFix = "in Docker: --security-opt seccomp=unconfined, or the default profile plus clone unshare mount umount2 pivot_root open_tree " +
		"move_mount fsopen fsconfig fsmount mount_setattr setns sethostname (confine loads a stricter filter for what it runs)"
	procFix     = "in Docker: --security-opt systempaths=unconfined; elsewhere take away the mounts that cover parts of /proc; or name proc in allow_missing"
	apparmorFix = "install confine in /usr/local/bin or /usr/bin and its profile: cp packaging/apparmor/confine /etc/apparmor.d/confine && apparmor_parser -r /etc/apparmor.d/confine"
)

// inspect asks h for everything.
func inspect(h host) Report {
	var r Report
	add := func(i Item) { r.Items = append(r.Items, i) }
	add(kernelItem(h))
	ns, err := userNamespaceItem(h)
	add(ns)
	// What is tried inside a user namespace can't be without one.
	inside := func(i Item, a attempt, fix func(error) string) {
		if err != nil {
			i.Detail, i.Fix = "not tried: it needs user namespaces", "mend user namespaces first"
		} else if tryErr := h.try(a); tryErr != nil {
			i.Detail, i.Fix = tryErr.Error(), fix(tryErr)
			if a == freshProc {
				i.Detail += coveredProc(h)
			}
		} else {
			i.Present = true
			i.Detail = "tried in a namespace of its own"
		}
		add(i)
	}
	inside(Item{Name: "namespaces", Needed: true}, namespaces, func(err error) string { return namespacesFix(h, err) })
	inside(Item{Name: "mounts by descriptor", Needed: true}, mountCalls, callFix)
	inside(Item{Name: "fresh /proc", Layer: boundary.LayerProc, Needed: true, Without: "the weaker form is a read-only bind of the outer /proc, which shows the command lines of other processes"},
		freshProc, func(error) string { return procFix })
	add(seccompItem(h))
	add(landlockItem(h))
	add(cgroupItem(h))
	inside(Item{Name: "addresses and routes", Needed: true, Without: "confine run works without --net"}, addresses, addressesFix)
	inside(Item{Name: "nf_tables", Layer: boundary.LayerNFTables, Needed: true, Without: "confine run works without --net"}, capture, func(err error) string {
		if errors.Is(err, unix.EPERM) {
			return dockerFix
		}
		return "load the modules on the host: modprobe -a nf_tables nft_chain_nat nft_redir"
	})
	inside(Item{Name: "overlay", Without: "no staged workspaces and no setup layers"}, overlay, func(error) string {
		return "load the module on the host: modprobe overlay (5.11 or later for ordinary users)"
	})
	add(idmapItem(h, err))
	return r
}

// coveredProc names the mounts below /proc: to a user namespace that sees only a
// partly covered one the kernel refuses a fresh one (mount_too_revealing).
func coveredProc(h host) string {
	mounts, err := h.read("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	var covered []string
	for _, line := range strings.Split(mounts, "\n") {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/proc/") {
			covered = append(covered, f[4])
		}
	}
	const most = 6
	if len(covered) > most {
		covered = append(covered[:most], fmt.Sprintf("and %d more", len(covered)-most))
	}
	if len(covered) == 0 {
		return ""
	}
	return "; covered: " + strings.Join(covered, " ")
}

func kernelItem(h host) Item {
	i := Item{Name: "kernel", Needed: true, Detail: "Linux " + h.release()}
	major, minor, ok := parseRelease(h.release())
	i.Present = ok && (major > oldestMajor || major == oldestMajor && minor >= oldestMinor)
	if !i.Present {
		i.Fix = fmt.Sprintf("use Linux %d.%d or later", oldestMajor, oldestMinor)
	}
	return i
}

// parseRelease reads the two first numbers of "6.18.44-vendor".
func parseRelease(s string) (major, minor int, ok bool) {
	a, rest, ok := strings.Cut(s, ".")
	if !ok {
		return 0, 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, err := strconv.Atoi(a)
	if err != nil || major < 0 {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(rest[:end])
	return major, minor, err == nil
}

// userNamespaceItem also returns the error, on which the items after it depend.
func userNamespaceItem(h host) (Item, error) {
	i := Item{Name: "user namespaces", Layer: boundary.LayerUserNS, Needed: true}
	err := h.try(userNamespace)
	if err == nil {
		i.Present, i.Detail = true, "one was made, its ids mapped, and its capabilities used"
		return i, nil
	}
	i.Detail = err.Error()
	why, fix := userNamespaceFix(h, err)
	if why != "" {
		i.Detail += ": " + why
	}
	i.Fix = fix
	return i, err
}

// userNamespaceFix finds what forbids user namespaces. The order is from causes
// that were tried to causes that are only written somewhere: a container's
// filter hides what a sysctl would have done.
func userNamespaceFix(h host, err error) (why, fix string) {
	is := func(path, value string) bool {
		v, readErr := h.read(path)
		return readErr == nil && v == value
	}
	switch {
	case errors.Is(h.try(unshareNothing), unix.EPERM):
		return "a seccomp filter around this process forbids unshare", dockerFix
	case is("/proc/sys/kernel/unprivileged_userns_clone", "0") && !h.root():
		return "kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1 (and a line in /etc/sysctl.d)"
	case is("/proc/sys/user/max_user_namespaces", "0"):
		return "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000 (and a line in /etc/sysctl.d)"
	case errors.Is(err, unix.ENOSPC):
		return "the limit of user namespaces is reached, here or in a namespace around this one", "raise user.max_user_namespaces on the host"
	case errors.Is(err, unix.EUSERS):
		return "user namespaces are nested too deeply", "run confine outside of other sandboxes"
	case failedStep(err) == stepMapIDs && h.root():
		return "root of a container lacks the capability to map itself", "run the container as an ordinary user (--user 1000), or with --cap-add SETFCAP"
	case is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		return "AppArmor restricts user namespaces to named programs", apparmorFix
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return "the kernel was built without them", "use a kernel with CONFIG_USER_NS"
	case errors.Is(err, unix.EPERM) && filtered(h):
		return "a seccomp filter around this process may forbid clone with namespace flags", dockerFix
	}
	return "", "look for a denial in the kernel's log (dmesg: apparmor, selinux); in a chroot user namespaces are always refused"
}

// filtered reports whether this process runs under a seccomp filter.
func filtered(h host) bool {
	status, err := h.read("/proc/self/status")
	if err != nil {
		return false
	}
	for _, line := range strings.Split(status, "\n") {
		if v, ok := strings.CutPrefix(line, "Seccomp:"); ok {
			return strings.TrimSpace(v) == "2"
		}
	}
	return false
}

func failedStep(err error) string {
	var step *kernel.StepError
	if errors.As(err, &step) {
		return step.Step
	}
	return ""
}

func namespacesFix(h host, err error) string {
	if errors.Is(err, unix.ENOSPC) {
		return "raise the user.max_*_namespaces sysctls on the host"
	}
	if errors.Is(err, unix.EINVAL) {
		return "use a kernel with CONFIG_NET_NS, CONFIG_PID_NS, CONFIG_IPC_NS, CONFIG_UTS_NS and CONFIG_CGROUPS"
	}
	if v, readErr := h.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); readErr == nil && v == "1" {
		return apparmorFix
	}
	return dockerFix
}

func callFix(err error) string {
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Sprintf("use Linux %d.%d or later; in a container of an older runtime also: %s", oldestMajor, oldestMinor, dockerFix)
	}
	return dockerFix
}

func addressesFix(err error) string {
	if strings.Contains(failedStep(err), "IPv6") {
		return "boot without ipv6.disable=1: the sandbox's own network has an IPv6 address, or IPv6 programs would leave uncaught"
	}
	return dockerFix
}

func seccompItem(h host) Item {
	i := Item{Name: "seccomp", Layer: boundary.LayerSeccomp, Needed: true}
	err := h.try(loadFilter)
	if err == nil {
		i.Present, i.Detail = true, "the filter was loaded in a process of its own"
		return i
	}
	i.Detail = err.Error()
	i.Fix = "use a kernel with CONFIG_SECCOMP_FILTER"
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		i.Fix = dockerFix
	}
	return i
}

func landlockItem(h host) Item {
	i := Item{Name: "Landlock", Layer: boundary.LayerLandlock, Needed: true}
	err := h.try(restrictFiles)
	if err == nil && h.landlock() > 0 {
		i.Present, i.Detail = true, fmt.Sprintf("version %d", h.landlock())
		if h.landlock() < 6 {
			i.Detail += " (6 and later also scope signals and abstract sockets)"
		}
		return i
	}
	if err == nil {
		err = unix.ENOSYS
	}
	i.Detail = err.Error()
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		i.Detail, i.Fix = "built in but not switched on", "boot with landlock in the kernel's lsm= list"
	case errors.Is(err, unix.ENOSYS):
		i.Detail, i.Fix = "the kernel does not have it", "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK"
	case errors.Is(err, unix.E2BIG):
		i.Fix = "run confine outside of other sandboxes: 16 layers of Landlock are the most"
	default:
		i.Fix = dockerFix
	}
	i.Fix += "; or name landlock in allow_missing"
	return i
}

func cgroupItem(h host) Item {
	i := Item{Name: "control groups", Layer: boundary.LayerCgroup,
		Without: "confine run goes on with a watchdog instead and says so; confine work and engine refuse unless allow_missing names cgroup"}
	detail, err := h.cgroups()
	if err == nil {
		i.Present, i.Detail = true, detail
		return i
	}
	i.Detail, i.Fix = err.Error(), "run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes confine …"
	var missing *kernel.MissingError
	if errors.As(err, &missing) {
		i.Detail, i.Fix = missing.What, missing.Fix
	}
	return i
}

func idmapItem(h host, noUserNS error) Item {
	i := Item{Name: "idmapped mounts", Layer: boundary.LayerIDMap, Needed: h.privileged()}
	switch {
	case !h.privileged():
		i.Detail = "used only as root of the host"
		i.Without = "as an ordinary user tenants are apart by what they see, not by user id"
		i.Fix = "run as root of the host, where each tenant gets ids of its own"
	case noUserNS != nil:
		i.Detail, i.Fix = "not tried: it needs user namespaces", "mend user namespaces first"
	default:
		if err := h.try(idmapped); err != nil {
			i.Detail, i.Fix = err.Error(), "keep workspaces on ext4, xfs, btrfs or tmpfs with Linux 5.12 or later (tmpfs: 6.3)"
		} else {
			i.Present, i.Detail = true, "tried on the directory for temporary files"
		}
	}
	return i
}
