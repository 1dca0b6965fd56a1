//go:build linux

package native

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/sandbox"
)

// layersDir is where an overlay's layers are mounted, in our own root, while the
// overlay is being made: it holds on to them by itself then. So no name of the
// host's is looked up by the kernel's option parser, nor seen inside.
const layersDir = ".confine-layers"

// stepOverlay begins the names of steps that only an overlay needs.
const stepOverlay = "overlay"

// mountOverlay mounts an overlay on its target. It is made in the sandbox's user
// namespace, as root too: its marks are then attributes that an ordinary user may
// read (userxattr), and there is one format to commit. Nothing is synced from
// inside (volatile), as after a crash nothing of it is used.
func (pl *plan) mountOverlay(tree *tree, m preparedMount, lower, stage kernel.Arg) {
	o, name := pl.outer, step(stepOverlay+" %q", m.Target)
	pl.makeTarget(tree, m.Target, true)
	for _, d := range []string{"", "/lower", "/stage"} {
		o.Call(name+": make directory", unix.SYS_MKDIRAT, pl.root.Arg(), pl.p.Str(layersDir+d), kernel.Int(0o700))
	}
	pl.attach(name+": lower", lower, "/"+layersDir+"/lower")
	// One mount for both, or the kernel refuses to rename between them.
	pl.attach(name+": stage", stage, "/"+layersDir+"/stage")
	o.Call(name+": enter root", unix.SYS_FCHDIR, pl.root.Arg())
	fs := o.Call(name+": open", unix.SYS_FSOPEN, pl.p.Str("overlay"), kernel.Int(unix.FSOPEN_CLOEXEC)).Result()
	none := kernel.Int(0)
	for _, kv := range [][2]string{{"lowerdir", layersDir + "/lower"}, {"upperdir", layersDir + "/stage/upper"}, {"workdir", layersDir + "/stage/work"}} {
		o.Call(name+": set "+kv[0], unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_SET_STRING), pl.p.Str(kv[0]), pl.p.Str(kv[1]), none)
	}
	for _, flag := range []string{"userxattr", "volatile"} {
		o.Call(name+": set "+flag, unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_SET_FLAG), pl.p.Str(flag), none, none)
	}
	o.Call(name+": create", unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_CMD_CREATE), none, none, none)
	mnt := o.Call(name+": mount", unix.SYS_FSMOUNT, fs.Arg(), kernel.Int(unix.FSMOUNT_CLOEXEC), kernel.Int(attrBase|attrNoDev)).Result()
	o.Call(name+": close", unix.SYS_CLOSE, fs.Arg())
	pl.attach(name, mnt.Arg(), m.Target)
	for _, d := range []string{"/stage", "/lower"} {
		o.Call(name+": let go of layer", unix.SYS_UMOUNT2, pl.p.Str(layersDir+d), kernel.Int(unix.MNT_DETACH))
	}
	for _, d := range []string{"/stage", "/lower", ""} {
		o.Call(name+": remove directory", unix.SYS_UNLINKAT, pl.root.Arg(), pl.p.Str(layersDir+d), kernel.Int(unix.AT_REMOVEDIR))
	}
}

// pin mounts what is at the target on itself. A writable one in an overlay is so
// even where it lies in a read-only pin; of anything else it takes the rights that
// are there.
func (pl *plan) pin(m preparedMount, overlay bool) {
	o, name := pl.outer, step("pin %q", m.Target)
	unset := uint64(0)
	if m.Writable && overlay {
		unset = unix.MOUNT_ATTR_RDONLY
	}
	how, size := pl.openHow(unix.O_PATH, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	o.Call(name+": open", unix.SYS_OPENAT2, pl.root.Arg(), pl.p.Str(strings.TrimPrefix(m.Target, "/")), how, size).Into(pl.scratchB)
	// There may be thousands: they share a register.
	o.Call(name+": clone", unix.SYS_OPEN_TREE, pl.scratchB.Arg(), pl.p.Str(""),
		kernel.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)).Into(pl.scratchA)
	o.Call(name+": close", unix.SYS_CLOSE, pl.scratchB.Arg())
	o.Call(name+": set attributes", unix.SYS_MOUNT_SETATTR, pl.scratchA.Arg(), pl.p.Str(""), kernel.Int(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE),
		pl.mountAttrs(bindAttr(m.Mount), unset), kernel.Int(unix.MOUNT_ATTR_SIZE_VER0))
	pl.attach(name, pl.scratchA.Arg(), m.Target)
}

// inOverlay reports whether what lies at a target is an overlay's: the last mount
// at or above it that is no pin decides. A mask or a bind in between is not one.
func inOverlay(mounts []preparedMount, target string) bool {
	found := false
	for _, m := range mounts {
		if m.Kind != boundary.Pin && (target == m.Target || strings.HasPrefix(target, m.Target+"/")) {
			found = m.Kind == boundary.Overlay
		}
	}
	return found
}

// explainOverlay says what a step meant that only an overlay needs.
func explainOverlay(se *kernel.StepError) error {
	what := func(fix string) error {
		return &kernel.MissingError{Layer: boundary.LayerOverlay, What: se.Step + ": " + se.Err.Error(), Fix: fix}
	}
	switch {
	case strings.HasSuffix(se.Step, ": open") && errors.Is(se.Err, unix.ENODEV):
		return what("load the overlay module on the host (modprobe overlay); or let writes be real: --live")
	case errors.Is(se.Err, unix.EINVAL) && (strings.HasSuffix(se.Step, ": create") || strings.HasSuffix(se.Step, ": set upperdir")):
		return what("the directory where confine keeps its state must be on a file system that can hold an overlay's writes, such as ext4, xfs, btrfs or tmpfs, not on an overlay itself as a container's root is: set XDG_STATE_HOME to a directory of a volume; or let writes be real: --live")
	case strings.HasSuffix(se.Step, ": create"), strings.HasSuffix(se.Step, ": open"), strings.HasSuffix(se.Step, ": set userxattr"):
		return what("a kernel of 5.11 or later lets ordinary users mount overlays; or let writes be real: --live")
	}
	return &sandbox.StartError{Step: se.Step, Err: se.Err, Hint: doctorHint}
}
