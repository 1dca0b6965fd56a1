package probe

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
)

// attempt is one use of an ability, made in a child process.
type attempt string

const (
	emptyChild     attempt = "empty child"
	systemCalls    attempt = "system calls"
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
	// try makes an attempt; nil means that the ability is there. It is a
	// *refusedError where an attempt has several parts.
	try(attempt) error
	// proc is errNoProc, errOtherProc or nil.
	proc() error
	// cgroups looks for control groups that this process may use.
	cgroups() (string, error)
	// landlock is the version of Landlock, 0 for none.
	landlock() int
	// read is the content of a small file without its last newline.
	read(path string) (string, error)
	// release is the kernel's version.
	release() string
	// filtered: this process runs under a seccomp filter.
	filtered() bool
	// privileged: root of the initial user namespace.
	privileged() bool
	// root: effective user 0 of whatever namespace.
	root() bool
}

var (
	errNoProc    = errors.New("/proc is not mounted")
	errOtherProc = errors.New("what is mounted at /proc is of another PID namespace")
)

// The names of items that others depend on.
const (
	itemProc       = "/proc"
	itemCalls      = "system calls"
	itemUser       = "user namespaces"
	itemNamespaces = "namespaces"
	itemMounts     = "mount calls"
)

// inspection is a report in the making.
type inspection struct {
	h     host
	items []Item
	// lacks are the things that were found missing and the item that says so.
	// What needs one of them is not looked at: its failure would have a cause
	// that is not its own.
	lacks map[string]string
}

// inspect asks h for everything.
func inspect(h host) Report {
	in := &inspection{h: h, lacks: map[string]string{}}
	in.add(kernelItem(h))
	in.proc()
	in.systemCalls()
	in.userNamespaces()
	in.namespaces()
	in.mountCalls()
	in.look(Item{Name: "fresh /proc", Layer: boundary.LayerProc, Needed: true, Without: "the weaker form is a read-only bind of the outer /proc, which shows the command lines of other processes"},
		freshProc, func(i *Item, err error) { i.Detail, i.Fix = err.Error()+coveredProc(h), freshProcFix(h) },
		needChild, "user namespaces", "mnt namespaces", "pid namespaces", "mount")
	if last := &in.items[len(in.items)-1]; last.After != "" && len(covers(h)) > 0 {
		// Whatever else is mended, this stays: a container's owner is told at once.
		last.Detail, last.Fix, last.After = "parts of /proc are covered, which keeps a fresh one from being mounted"+coveredProc(h), procFix, ""
	}
	in.look(Item{Name: "seccomp", Layer: boundary.LayerSeccomp, Needed: true}, loadFilter, func(i *Item, err error) { seccompCause(h, i, err) }, needChild, "prctl")
	in.landlock()
	in.controlGroups()
	in.look(Item{Name: "addresses and routes", Needed: true, Without: "confine run works without --net"},
		addresses, func(i *Item, _ error) { i.Fix = addressesFix(h) }, needChild, "user namespaces", "net namespaces")
	in.look(Item{Name: "nf_tables", Layer: boundary.LayerNFTables, Needed: true, Without: "confine run works without --net"},
		capture, func(i *Item, err error) { i.Fix = captureFix(h, err) }, needChild, "user namespaces", "net namespaces")
	in.look(Item{Name: "overlay", Without: "no staged writes: confine run needs --live where there is no terminal"},
		overlay, func(i *Item, err error) { i.Fix = overlayFix(h, err) }, needChild, "user namespaces", "mnt namespaces", "mount")
	if last := &in.items[len(in.items)-1]; last.Present {
		last.Detail += overlayShows
	}
	in.idmapped()
	return Report{Items: in.items}
}

// overlayShows is where staged writes differ from real ones, in the words that a
// program which meets it prints.
const overlayShows = "; in staged runs a rename of a directory that was there before is EXDEV (Invalid cross-device link), and a file of another owner can't be written: EOVERFLOW"

// needChild is lacking when no child can be started at all.
const needChild = "child processes"

func (in *inspection) add(i Item) { in.items = append(in.items, i) }

// lack notes that each thing is missing, for the reason that an item names.
func (in *inspection) lack(item string, things ...string) {
	for _, t := range things {
		if in.lacks[t] == "" {
			in.lacks[t] = item
		}
	}
}

func (in *inspection) lackCalls(item string, r *refusedError) {
	for _, c := range r.refused {
		in.lack(item, c.name)
	}
}

// blocked fills in an item that can't be looked at.
func (in *inspection) blocked(i *Item, needs []string) bool {
	for _, n := range needs {
		item := in.lacks[n]
		if item == "" {
			continue
		}
		i.Detail = "not looked at: it needs " + n
		if n != item {
			i.Detail += " (see " + item + ")"
		}
		i.Fix, i.After = "mend "+item+" first", item
		return true
	}
	return false
}

// look makes an attempt, unless something it needs is missing. A failure is
// explained by why, which finds the error's text in Detail.
func (in *inspection) look(i Item, a attempt, why func(*Item, error), needs ...string) {
	if !in.blocked(&i, needs) {
		if err := in.h.try(a); err != nil {
			if i.Detail = err.Error(); !reachedLimit(in.h, &i, err) {
				why(&i, err)
			}
		} else {
			i.Present, i.Detail = true, "tried in a process of its own"
		}
	}
	in.add(i)
}

func (in *inspection) proc() {
	i := Item{Name: itemProc, Needed: true}
	switch err := in.h.proc(); {
	case err == nil:
		i.Present, i.Detail = true, "mounted, of this PID namespace"
	default:
		i.Detail, i.Fix = err.Error(), "mount -t proc proc /proc"
		in.lack(itemProc, itemProc, needChild, "user namespaces")
	}
	in.add(i)
}

// systemCalls finds refused calls. When a child can't even start, nothing that
// is tried in one has a cause of its own.
func (in *inspection) systemCalls() {
	i := Item{Name: itemCalls, Needed: true}
	if !in.blocked(&i, []string{itemProc}) {
		err := in.h.try(emptyChild)
		if err != nil {
			in.lack(itemCalls, needChild, "user namespaces")
		} else {
			err = in.h.try(systemCalls)
		}
		if err == nil {
			i.Present, i.Detail = true, "those that a run needs were made"
		} else {
			i.Detail, i.Fix = err.Error(), childFix(err)
			var r *refusedError
			if errors.As(err, &r) {
				explainCalls(in.h, &i, r)
				in.lackCalls(itemCalls, r)
			}
		}
	}
	in.add(i)
}

func (in *inspection) userNamespaces() {
	i := Item{Name: itemUser, Layer: boundary.LayerUserNS, Needed: true}
	if !in.blocked(&i, []string{needChild}) {
		if err := in.h.try(userNamespace); err != nil {
			i.Detail = err.Error()
			why, fix := userNamespaceFix(in.h, err)
			if why != "" {
				i.Detail += ": " + why
			}
			i.Fix = fix
		} else {
			i.Present, i.Detail = true, "one was made, its ids mapped, and its capabilities used"
		}
	}
	if !i.Present {
		in.lack(itemUser, "user namespaces")
	}
	in.add(i)
}

func (in *inspection) namespaces() {
	in.look(Item{Name: itemNamespaces, Needed: true}, namespaces, func(i *Item, err error) {
		var r *refusedError
		if !errors.As(err, &r) {
			i.Fix = namespacesFix(in.h, err)
			return
		}
		explainNamespaces(in.h, i, r)
		for _, k := range r.refused {
			in.lack(itemNamespaces, k.name+" namespaces")
		}
	}, needChild, "user namespaces")
}

func (in *inspection) mountCalls() {
	in.look(Item{Name: itemMounts, Needed: true}, mountCalls, func(i *Item, err error) {
		var r *refusedError
		if !errors.As(err, &r) {
			i.Fix = dockerFix
			return
		}
		explainCalls(in.h, i, r)
		in.lackCalls(itemMounts, r)
	}, needChild, "user namespaces", "mnt namespaces")
}

func (in *inspection) landlock() {
	h := in.h
	i := Item{Name: "Landlock", Layer: boundary.LayerLandlock, Needed: true}
	if in.blocked(&i, []string{needChild, "prctl"}) {
		in.add(i)
		return
	}
	err := h.try(restrictFiles)
	if err == nil && h.landlock() > 0 {
		i.Present, i.Detail = true, fmt.Sprintf("version %d", h.landlock())
		if h.landlock() < 6 {
			i.Detail += " (6 and later also scope signals and abstract sockets)"
		}
		in.add(i)
		return
	}
	if err == nil {
		err = unix.ENOSYS
	}
	i.Detail = err.Error()
	old := !kernelVersion(h).atLeast(oldest)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		i.Detail, i.Fix = "built in but not switched on", "boot with landlock in the kernel's lsm= list"
	case errors.Is(err, unix.ENOSYS) && !old && h.filtered():
		i.Detail += ": a seccomp filter around this process may answer so"
		i.Fix = profileFix("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
	case errors.Is(err, unix.ENOSYS):
		i.Detail, i.Fix = "the kernel does not have it", "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK"
	case errors.Is(err, unix.E2BIG):
		i.Fix = "run confine outside of other sandboxes: 16 layers of Landlock are the most"
	default:
		i.Fix = profileFix("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
	}
	i.Fix += "; or name landlock in allow_missing"
	in.add(i)
}

func (in *inspection) controlGroups() {
	i := Item{Name: "control groups", Layer: boundary.LayerCgroup,
		Without: "confine run goes on with a watchdog instead and says so; confine work and engine refuse unless allow_missing names cgroup"}
	if !in.blocked(&i, []string{itemProc}) {
		detail, err := in.h.cgroups()
		if err == nil {
			i.Present, i.Detail = true, detail
		} else {
			i.Detail, i.Fix = err.Error(), "mend what the error names"
			var missing *kernel.MissingError
			if errors.As(err, &missing) {
				i.Detail, i.Fix = missing.What, missing.Fix
			}
		}
	}
	in.add(i)
}

func (in *inspection) idmapped() {
	i := Item{Name: "idmapped mounts", Layer: boundary.LayerIDMap, Needed: in.h.privileged()}
	if in.lacks[itemProc] == "" && !i.Needed {
		i.Detail = "used only as root of the host"
		i.Without = "as an ordinary user tenants are apart by what they see, not by user id"
		i.Fix = "run as root of the host, where each tenant gets ids of its own"
		in.add(i)
		return
	}
	in.look(i, idmapped, func(i *Item, err error) {
		i.Fix = "keep workspaces on ext4, xfs, btrfs or tmpfs with Linux 5.12 or later (tmpfs: 6.3)"
	}, itemProc, needChild, "user namespaces", "open_tree", "mount_setattr")
	if last := &in.items[len(in.items)-1]; last.Present {
		last.Detail = "tried on the directory for temporary files"
	}
}

// coveredProc names the mounts below /proc: to a user namespace that sees only a
// partly covered one the kernel refuses a fresh one (mount_too_revealing).
func coveredProc(h host) string {
	covered := covers(h)
	const most = 6
	if len(covered) > most {
		covered = append(covered[:most], fmt.Sprintf("and %d more", len(covered)-most))
	}
	if len(covered) == 0 {
		return ""
	}
	return "; covered: " + strings.Join(covered, " ")
}

func covers(h host) []string {
	mounts, err := h.read("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var covered []string
	for _, line := range strings.Split(mounts, "\n") {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/proc/") {
			covered = append(covered, f[4])
		}
	}
	return covered
}
