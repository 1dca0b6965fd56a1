package probe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
)

// oldest is the oldest kernel with all calls that a sandbox is made by:
// Landlock came with 5.13, mount_setattr with 5.12.
var oldest = version{5, 13}

const (
	dockerFix   = "in Docker: --security-opt seccomp=FILE with packaging/docker/seccomp.json of confine (Docker's profile and the calls that make namespaces and mounts; confine loads a stricter filter for what it runs), or seccomp=unconfined"
	procFix     = "in Docker: --security-opt systempaths=unconfined; elsewhere take away the mounts that cover parts of /proc; or name proc in allow_missing"
	apparmorFix = "install confine in /usr/local/bin or /usr/bin and its profile: cp packaging/apparmor/confine /etc/apparmor.d/confine && apparmor_parser -r /etc/apparmor.d/confine"
	otherKernel = "run confine on a Linux kernel itself: this one, or what stands for it (gVisor, WSL 1), does not have the call"
)

// profileFix is the change when a filter around this process refuses calls.
func profileFix(calls ...string) string {
	return "let the seccomp profile around this process allow " + strings.Join(calls, " ") +
		": in Docker --security-opt seccomp=unconfined or a profile with it, in a systemd unit SystemCallFilter="
}

func kernelItem(h host) Item {
	i := Item{Name: "kernel", Needed: true, Detail: "Linux " + h.release()}
	i.Present = kernelVersion(h).atLeast(oldest)
	if !i.Present {
		i.Fix = fmt.Sprintf("use Linux %s or later", oldest)
	}
	return i
}

// kernelVersion is 0.0 for a version that can't be read.
func kernelVersion(h host) version {
	v, _ := parseRelease(h.release())
	return v
}

// parseRelease reads the two first numbers of "6.18.44-vendor".
func parseRelease(s string) (version, bool) {
	a, rest, ok := strings.Cut(s, ".")
	if !ok {
		return version{}, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, err := strconv.Atoi(a)
	if err != nil || major < 0 {
		return version{}, false
	}
	minor, err := strconv.Atoi(rest[:end])
	if err != nil {
		return version{}, false
	}
	return version{major, minor}, true
}

// explainCalls tells a kernel that is too old for a call from a filter that
// refuses it.
func explainCalls(h host, i *Item, r *refusedError) {
	at := kernelVersion(h)
	var newest version
	var names []string
	for _, c := range r.refused {
		name, _, _ := strings.Cut(c.name, " ")
		names = append(names, name)
		if unknown := errors.Is(c.err, unix.ENOSYS) || errors.Is(c.err, unix.EINVAL); unknown && !at.atLeast(c.since) && c.since.atLeast(newest) {
			newest = c.since
			i.Fix = fmt.Sprintf("use Linux %s or later, with which %s came (confine needs %s)", c.since, c.name, oldest)
		}
	}
	switch {
	case newest != version{}:
		i.Detail += ": this kernel is too old"
	case h.filtered():
		i.Detail += ": a seccomp filter around this process refuses that"
		i.Fix = profileFix(names...)
	default:
		i.Fix = otherKernel
	}
}

// childFix is for a child that could not be started or collected for a reason
// that is no refused call.
func childFix(err error) string {
	var killed *killedError
	switch {
	case errors.As(err, &killed) && killed.signal == unix.SIGSYS:
		// The first of them is the newer one and the usual reason.
		return profileFix("close_range", "dup3")
	case errors.Is(err, unix.EAGAIN):
		return "raise the limit of processes: ulimit -u, or pids.max of the control group around this process"
	case errors.Is(err, unix.ENOMEM):
		return "give this process more memory: it could not be forked"
	}
	return "look into the kernel's log (dmesg) for what ended the process: seccomp, or the memory limit of a control group"
}

// explainNamespaces names the limit that a kind of namespace meets.
func explainNamespaces(h host, i *Item, r *refusedError) {
	const enough = "15000"
	var why, set []string
	for _, k := range r.refused {
		if !errors.Is(k.err, unix.ENOSPC) {
			i.Fix = namespacesFix(h, k.err)
			return
		}
		name := "user.max_" + k.name + "_namespaces"
		text, err := h.read("/proc/sys/user/max_" + k.name + "_namespaces")
		limit, parseErr := strconv.Atoi(text)
		switch {
		case err != nil || parseErr != nil:
			why = append(why, name+" can't be read")
		case limit < needOf(k.name):
			why = append(why, fmt.Sprintf("%s is %d", name, limit))
		default:
			why = append(why, fmt.Sprintf("%s is %d here: that many exist, or a user namespace around this one has a lower limit", name, limit))
		}
		set = append(set, name+"="+enough)
	}
	i.Detail += ": " + strings.Join(why, ", ")
	i.Fix = "sysctl -w " + strings.Join(set, " ") + " (and a line in /etc/sysctl.d)"
}

// reachedLimit explains a clone that met a limit of namespaces though each kind
// could be made before: the kernel frees some later than their last process ends.
func reachedLimit(h host, i *Item, err error) bool {
	if failedStep(err) != "clone" || !errors.Is(err, unix.ENOSPC) {
		return false
	}
	r := &refusedError{}
	for _, k := range namespaceKinds {
		limit, err := h.read("/proc/sys/user/max_" + k.name + "_namespaces")
		if n, parseErr := strconv.Atoi(limit); err == nil && parseErr == nil && n <= 2*k.need {
			r.refused = append(r.refused, refusal{name: k.name, err: unix.ENOSPC})
		}
	}
	i.Fix = "raise the user.max_*_namespaces sysctls on the host"
	if len(r.refused) > 0 {
		explainNamespaces(h, i, r)
	}
	return true
}

func needOf(kind string) int {
	for _, k := range namespaceKinds {
		if k.name == kind {
			return k.need
		}
	}
	return 1
}

// userNamespaceFix finds what forbids user namespaces. The order is from causes
// that were tried to causes that are only written somewhere: a container's
// filter hides what a sysctl would have done.
func userNamespaceFix(h host, err error) (why, fix string) {
	is := func(path, value string) bool {
		v, readErr := h.read(path)
		return readErr == nil && v == value
	}
	unshareErr := h.try(unshareNothing)
	switch {
	case errors.Is(unshareErr, unix.EPERM), errors.Is(unshareErr, unix.ENOSYS) && h.filtered():
		return "a seccomp filter around this process forbids unshare", dockerFix
	case is("/proc/sys/kernel/unprivileged_userns_clone", "0") && !h.root():
		return "kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1 (and a line in /etc/sysctl.d)"
	case is("/proc/sys/user/max_user_namespaces", "0"):
		return "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000 (and a line in /etc/sysctl.d)"
	case failedStep(err) == stepUTS && errors.Is(err, unix.ENOSPC):
		return "user.max_uts_namespaces is reached", "sysctl -w user.max_uts_namespaces=15000 (and a line in /etc/sysctl.d)"
	case errors.Is(err, unix.ENOSPC):
		return "the limit of user namespaces is reached, here or in a namespace around this one", "raise user.max_user_namespaces on the host"
	case errors.Is(err, unix.EUSERS):
		return "user namespaces are nested too deeply", "run confine outside of other sandboxes"
	case failedStep(err) == stepMapIDs && h.root():
		return "root of a container lacks the capability to map itself", "run the container as an ordinary user (--user 1000), or with --cap-add SETFCAP"
	case is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		return "AppArmor restricts user namespaces to named programs", apparmorFix
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS) && !h.filtered():
		return "the kernel was built without them", "use a kernel with CONFIG_USER_NS"
	case h.filtered() && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS)):
		if step := failedStep(err); step != "clone" {
			return "a seccomp filter around this process may forbid that", dockerFix
		}
		return "a seccomp filter around this process may forbid clone with namespace flags", dockerFix
	}
	return "", "look for a denial in the kernel's log (dmesg: apparmor, selinux); in a chroot user namespaces are always refused"
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

// freshProcFix: without a cover the kernel's own rule is not what refused.
func freshProcFix(h host) string {
	if len(covers(h)) == 0 && h.filtered() {
		return profileFix("mount")
	}
	return procFix
}

// seccompCause tells a kernel without filters from one that another filter
// speaks for.
func seccompCause(h host, i *Item, err error) {
	if h.filtered() {
		i.Detail += ": a seccomp filter around this process refuses that"
		i.Fix = profileFix("seccomp", "prctl")
		return
	}
	i.Fix = "use a kernel with CONFIG_SECCOMP_FILTER"
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		i.Fix = dockerFix
	}
}

func addressesFix(h host) string {
	if h.filtered() {
		return profileFix("socket", "sendto", "recvfrom", "ioctl")
	}
	return "use a kernel with CONFIG_INET and CONFIG_NET_NS"
}

func captureFix(h host, err error) string {
	if h.filtered() && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS)) {
		return profileFix("socket", "sendto", "recvfrom")
	}
	return "load the modules on the host: modprobe -a nf_tables nft_chain_nat nft_redir"
}

func overlayFix(h host, err error) string {
	if strings.HasSuffix(failedStep(err), "overlay") || !h.filtered() {
		return "load the module on the host: modprobe overlay (5.11 or later for ordinary users)"
	}
	return profileFix("mount", "mkdirat")
}
