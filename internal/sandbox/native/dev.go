//go:build linux

package native

import (
	"bytes"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
)

// devices are the character devices of the view with their numbers
// (Documentation/admin-guide/devices.txt). A host whose /dev/null is another
// device gets no sandbox.
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

// checkDevices verifies the host's device files before they are bound.
func checkDevices() error {
	for _, d := range devices {
		var st unix.Stat_t
		p := "/dev/" + d.name
		if err := unix.Lstat(p, &st); err != nil {
			return fmt.Errorf("stat %s: %w", p, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != d.major || unix.Minor(st.Rdev) != d.minor {
			return fmt.Errorf("%s is not character device %d:%d", p, d.major, d.minor)
		}
	}
	return nil
}

// openDevices makes detached binds of the device files. A device can't be made
// in a user namespace.
func (pl *plan) openDevices() []kernel.Reg {
	regs := make([]kernel.Reg, len(devices))
	for i, d := range devices {
		regs[i] = pl.cloneTree("bind /dev/"+d.name, "/dev/"+d.name, attrBase|unix.MOUNT_ATTR_NOEXEC)
	}
	return regs
}

func (pl *plan) buildDev(tree *tree, bound []kernel.Reg) {
	pl.mountTmpfs("/dev", 64<<10, 0o755, attrBase|attrNoDev|unix.MOUNT_ATTR_NOEXEC)
	tree.cover("/dev", true)
	for i, d := range devices {
		pl.makeTarget(tree, "/dev/"+d.name, false)
		pl.attach("mount /dev/"+d.name, bound[i].Arg(), "/dev/"+d.name)
	}
	pl.makeDirs(tree, "/dev/shm")
	pl.mountTmpfs("/dev/shm", shmTmpfs, 0o1777, attrBase|attrNoDev)
	pl.makeDirs(tree, "/dev/pts")
	pl.mountDevpts()
	if hasQueues() {
		pl.makeDirs(tree, queueDir)
		pl.mountQueues()
	}
	for _, l := range []boundary.Link{
		{Path: "dev/fd", Target: "/proc/self/fd"}, {Path: "dev/stdin", Target: "/proc/self/fd/0"},
		{Path: "dev/stdout", Target: "/proc/self/fd/1"}, {Path: "dev/stderr", Target: "/proc/self/fd/2"},
		{Path: "dev/ptmx", Target: "pts/ptmx"},
	} {
		pl.outer.Call("link /"+l.Path, unix.SYS_SYMLINKAT, pl.p.Str(l.Target), pl.root.Arg(), pl.p.Str(l.Path))
	}
	pl.outer.Call("make /dev read-only", unix.SYS_MOUNT_SETATTR, pl.root.Arg(), pl.p.Str("dev"), kernel.Int(0),
		pl.mountAttr(unix.MOUNT_ATTR_RDONLY), kernel.Int(unix.MOUNT_ATTR_SIZE_VER0))
}

func (pl *plan) mountDevpts() {
	o, name := pl.outer, "mount /dev/pts"
	fs := o.Call(name+": open", unix.SYS_FSOPEN, pl.p.Str("devpts"), kernel.Int(unix.FSOPEN_CLOEXEC)).Result()
	// The kernel has some 3,000 terminals for all instances together: without a
	// limit of its own one run took them all (tried).
	for _, kv := range [][2]string{{"ptmxmode", "0666"}, {"mode", "0620"}, {"max", "256"}} {
		o.Call(name+": set "+kv[0], unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_SET_STRING), pl.p.Str(kv[0]), pl.p.Str(kv[1]), kernel.Int(0))
	}
	o.Call(name+": create", unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_CMD_CREATE), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	mnt := o.Call(name+": mount", unix.SYS_FSMOUNT, fs.Arg(), kernel.Int(unix.FSMOUNT_CLOEXEC), kernel.Int(attrBase|unix.MOUNT_ATTR_NOEXEC)).Result()
	o.Call(name+": close", unix.SYS_CLOSE, fs.Arg())
	pl.attach(name, mnt.Arg(), "/dev/pts")
}

// queueDir is where POSIX message queues are seen (mq_overview(7)). Programs open
// them by name and not there: but Landlock holds whatever a rule does not name, and a
// rule needs the place.
const queueDir = "/dev/mqueue"

// hasQueues reports whether this kernel has them.
var hasQueues = sync.OnceValue(func() bool {
	list, err := os.ReadFile("/proc/filesystems")
	return err == nil && bytes.Contains(list, []byte("\tmqueue\n"))
})

func (pl *plan) mountQueues() {
	o, name := pl.outer, "mount "+queueDir
	none := kernel.Int(0)
	fs := o.Call(name+": open", unix.SYS_FSOPEN, pl.p.Str("mqueue"), kernel.Int(unix.FSOPEN_CLOEXEC)).Result()
	o.Call(name+": create", unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_CMD_CREATE), none, none, none)
	mnt := o.Call(name+": mount", unix.SYS_FSMOUNT, fs.Arg(), kernel.Int(unix.FSMOUNT_CLOEXEC), kernel.Int(attrBase|attrNoDev|unix.MOUNT_ATTR_NOEXEC)).Result()
	o.Call(name+": close", unix.SYS_CLOSE, fs.Arg())
	pl.attach(name, mnt.Arg(), queueDir)
}
