//go:build linux

package native

import (
	"encoding/binary"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
)

const (
	defaultTmpfs = 64 << 20
	rootTmpfs    = 16 << 20
	shmTmpfs     = 256 << 20
	// staging is where the new root is mounted while it is being built. The
	// sources of every bind were opened before, so what it covers is not
	// needed any more. Any directory that every system has will do.
	staging = "/usr"
	maskDir = ".confine-mask"
)

const (
	attrBase  = unix.MOUNT_ATTR_NOSUID
	attrNoDev = unix.MOUNT_ATTR_NODEV
)

// buildView mounts everything below the staging directory.
func (pl *plan) buildView() {
	o := pl.outer
	o.Call("make mounts private", unix.SYS_MOUNT, kernel.Int(0), pl.p.Str("/"), kernel.Int(0), kernel.Int(unix.MS_REC|unix.MS_PRIVATE), kernel.Int(0))
	pl.procDir = o.Call("open /proc", unix.SYS_OPENAT, kernel.Int(unix.AT_FDCWD), pl.p.Str("/proc"), kernel.Int(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).Result()
	sources, stages := make([]kernel.Arg, len(pl.mounts)), map[int]kernel.Arg{}
	for i := range pl.mounts {
		if k := pl.mounts[i].Kind; k == boundary.Bind || k == boundary.Overlay {
			sources[i] = pl.openSource(i)
		}
		if pl.mounts[i].Kind == boundary.Overlay {
			stages[i] = pl.openStage(i)
		}
	}
	devices := pl.openDevices()
	proc := kernel.Reg(0)
	if pl.weakProc {
		proc = pl.cloneTree("bind /proc", "/proc", unix.MOUNT_ATTR_RDONLY|attrBase|attrNoDev|unix.MOUNT_ATTR_NOEXEC)
	}

	o.Call("mount root", unix.SYS_MOUNT, pl.p.Str("tmpfs"), pl.p.Str(staging), pl.p.Str("tmpfs"),
		kernel.Int(unix.MS_NOSUID|unix.MS_NODEV), pl.p.Str("mode=755,size="+strconv.Itoa(rootTmpfs)))
	pl.root = o.Call("open root", unix.SYS_OPENAT, kernel.Int(unix.AT_FDCWD), pl.p.Str(staging), kernel.Int(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).Result()

	tree := newTree()
	for _, d := range []string{"/proc", "/dev"} {
		pl.makeDirs(tree, d)
	}
	for i, m := range pl.mounts {
		pl.mountOne(tree, m, sources[i], stages[i])
	}
	pl.buildDev(tree, devices)
	pl.writeFiles(tree)
	if pl.weakProc {
		pl.attach("attach /proc", proc.Arg(), "/proc")
	} else {
		o.Call("enter staging", unix.SYS_FCHDIR, pl.root.Arg())
		pl.mountProc(o, "mount outer /proc", "proc")
	}
}

// enterView makes the new root the root, and lets go of the old one.
func (pl *plan) enterView() {
	o := pl.outer
	o.Call("enter root", unix.SYS_FCHDIR, pl.root.Arg())
	o.Call("pivot root", unix.SYS_PIVOT_ROOT, pl.p.Str("."), pl.p.Str("."))
	o.Call("let go of the host's files", unix.SYS_UMOUNT2, pl.p.Str("."), kernel.Int(unix.MNT_DETACH))
	o.Call("change to root", unix.SYS_CHDIR, pl.p.Str("/"))
	if pl.maskFile {
		o.Call("remove mask file", unix.SYS_UNLINKAT, pl.root.Arg(), pl.p.Str(maskDir+"/file"), kernel.Int(0))
	}
	if pl.maskDir {
		o.Call("remove mask directory", unix.SYS_UNLINKAT, pl.root.Arg(), pl.p.Str(maskDir+"/dir"), kernel.Int(unix.AT_REMOVEDIR))
	}
	if pl.maskFile || pl.maskDir {
		o.Call("remove masks", unix.SYS_UNLINKAT, pl.root.Arg(), pl.p.Str(maskDir), kernel.Int(unix.AT_REMOVEDIR))
	}
	o.Call("make root read-only", unix.SYS_MOUNT_SETATTR, kernel.Int(unix.AT_FDCWD), pl.p.Str("/"), kernel.Int(0),
		pl.mountAttr(unix.MOUNT_ATTR_RDONLY|attrBase|attrNoDev), kernel.Int(unix.MOUNT_ATTR_SIZE_VER0))
}

func (pl *plan) mountAttr(set uint64) kernel.Arg { return pl.mountAttrs(set, 0) }

// mountAttrs is struct mount_attr: set 8, clear 8, propagation 8, user namespace 8.
func (pl *plan) mountAttrs(set, unset uint64) kernel.Arg {
	b := make([]byte, unix.MOUNT_ATTR_SIZE_VER0)
	binary.NativeEndian.PutUint64(b, set)
	binary.NativeEndian.PutUint64(b[8:], unset)
	return pl.p.Bytes(b)
}

func (pl *plan) openHow(flags, resolve uint64) (how, size kernel.Arg) {
	b := make([]byte, unix.SizeofOpenHow)
	binary.NativeEndian.PutUint64(b, flags|unix.O_CLOEXEC)
	binary.NativeEndian.PutUint64(b[16:], resolve)
	return pl.p.Bytes(b), kernel.Int(len(b))
}

// bindAttr is what a bind of the boundary is mounted with.
func bindAttr(m boundary.Mount) uint64 {
	attr := uint64(attrBase | attrNoDev)
	if !m.Writable {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	if m.NoExec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	return attr
}

// openSource is the detached tree of a bind: made by the engine already when it
// is root (see prepare.go), by ourselves otherwise.
func (pl *plan) openSource(i int) kernel.Arg {
	m := pl.mounts[i]
	if k, ok := pl.fds.mounts[i]; ok {
		return pl.fd(k)
	}
	return pl.cloneTree(step("bind %q", m.Source), m.Source, bindAttr(m.Mount)).Arg()
}

// openStage is the detached tree of an overlay's own directories.
func (pl *plan) openStage(i int) kernel.Arg {
	if k, ok := pl.fds.stages[i]; ok {
		return pl.fd(k)
	}
	return pl.cloneTree(step("open stage %q", pl.mounts[i].Stage), pl.mounts[i].Stage, attrBase|attrNoDev).Arg()
}

// cloneTree opens path without following any link and makes a detached copy of
// its mount with attr set.
func (pl *plan) cloneTree(name, path string, attr uint64) kernel.Reg {
	o := pl.outer
	how, size := pl.openHow(unix.O_PATH, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	o.Call(name+": open", unix.SYS_OPENAT2, kernel.Int(unix.AT_FDCWD), pl.p.Str(path), how, size).Into(pl.scratchA)
	tree := o.Call(name+": clone", unix.SYS_OPEN_TREE, pl.scratchA.Arg(), pl.p.Str(""),
		kernel.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)).Result()
	o.Call(name+": close", unix.SYS_CLOSE, pl.scratchA.Arg())
	o.Call(name+": set attributes", unix.SYS_MOUNT_SETATTR, tree.Arg(), pl.p.Str(""), kernel.Int(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE),
		pl.mountAttr(attr), kernel.Int(unix.MOUNT_ATTR_SIZE_VER0))
	return tree
}

// attach puts a detached tree on target, which must exist. The path is resolved
// within the new root and without links, as parts of it may be a hostile
// directory.
func (pl *plan) attach(name string, tree kernel.Arg, target string) {
	how, size := pl.openHow(unix.O_PATH, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	o := pl.outer
	o.Call(name+": open target", unix.SYS_OPENAT2, pl.root.Arg(), pl.p.Str(strings.TrimPrefix(target, "/")), how, size).Into(pl.scratchB)
	o.Call(name, unix.SYS_MOVE_MOUNT, tree, pl.p.Str(""), pl.scratchB.Arg(), pl.p.Str(""), kernel.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	o.Call(name+": close target", unix.SYS_CLOSE, pl.scratchB.Arg())
	o.Call(name+": close tree", unix.SYS_CLOSE, tree)
}

func (pl *plan) mountOne(tree *tree, m preparedMount, source, stage kernel.Arg) {
	switch m.Kind {
	case boundary.Bind:
		pl.makeTarget(tree, m.Target, m.dir)
		pl.attach(step("mount %q", m.Target), source, m.Target)
		tree.cover(m.Target, false)
	case boundary.Overlay:
		pl.mountOverlay(tree, m, source, stage)
		tree.cover(m.Target, false)
	case boundary.Pin:
		pl.pin(m, inOverlay(pl.mounts, m.Target))
	case boundary.Tmpfs:
		pl.makeTarget(tree, m.Target, true)
		size, mode := m.Size, m.Mode
		if size == 0 {
			size = defaultTmpfs
		}
		if mode == 0 {
			mode = 0o755
		}
		attr := uint64(attrBase | attrNoDev)
		if m.NoExec {
			attr |= unix.MOUNT_ATTR_NOEXEC
		}
		pl.mountTmpfs(m.Target, size, mode, attr)
		tree.cover(m.Target, true)
	case boundary.Mask:
		name := step("mask %q", m.Target)
		kind := "file"
		if m.dir {
			kind = "dir"
		}
		pl.makeMask(kind)
		// There may be thousands: they share a register.
		t := pl.scratchA
		pl.outer.Call(name+": clone", unix.SYS_OPEN_TREE, pl.root.Arg(), pl.p.Str(maskDir+"/"+kind), kernel.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)).Into(t)
		pl.outer.Call(name+": set attributes", unix.SYS_MOUNT_SETATTR, t.Arg(), pl.p.Str(""), kernel.Int(unix.AT_EMPTY_PATH),
			pl.mountAttr(attrBase|attrNoDev|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY), kernel.Int(unix.MOUNT_ATTR_SIZE_VER0))
		pl.attach(name, t.Arg(), m.Target)
		tree.cover(m.Target, false)
	}
}

// makeMask makes, once, the empty file or directory that masks are copies of.
func (pl *plan) makeMask(kind string) {
	if !pl.maskFile && !pl.maskDir {
		pl.outer.Call("make masks", unix.SYS_MKDIRAT, pl.root.Arg(), pl.p.Str(maskDir), kernel.Int(0o700))
	}
	switch {
	case kind == "file" && !pl.maskFile:
		pl.maskFile = true
		pl.createFile("make mask file", maskDir+"/file", 0o444, nil)
	case kind == "dir" && !pl.maskDir:
		pl.maskDir = true
		pl.outer.Call("make mask directory", unix.SYS_MKDIRAT, pl.root.Arg(), pl.p.Str(maskDir+"/dir"), kernel.Int(0o555))
	}
}

func (pl *plan) mountTmpfs(target string, size int64, mode uint32, attr uint64) {
	o, name := pl.outer, step("mount tmpfs %q", target)
	fs := o.Call(name+": open", unix.SYS_FSOPEN, pl.p.Str("tmpfs"), kernel.Int(unix.FSOPEN_CLOEXEC)).Result()
	for _, kv := range [][2]string{{"size", strconv.FormatInt(size, 10)}, {"mode", strconv.FormatUint(uint64(mode), 8)}, {"nr_inodes", strconv.FormatInt(tmpfsInodes(size), 10)}} {
		o.Call(name+": set "+kv[0], unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_SET_STRING), pl.p.Str(kv[0]), pl.p.Str(kv[1]), kernel.Int(0))
	}
	o.Call(name+": create", unix.SYS_FSCONFIG, fs.Arg(), kernel.Int(unix.FSCONFIG_CMD_CREATE), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	mnt := o.Call(name+": mount", unix.SYS_FSMOUNT, fs.Arg(), kernel.Int(unix.FSMOUNT_CLOEXEC), kernel.Int(attr)).Result()
	o.Call(name+": close", unix.SYS_CLOSE, fs.Arg())
	if pl.countMemory {
		pl.counted = append(pl.counted, o.Call(name+": keep", unix.SYS_FCNTL, mnt.Arg(), kernel.Int(unix.F_DUPFD_CLOEXEC), kernel.Int(3)).Result())
	}
	pl.attach(name, mnt.Arg(), target)
}

// tmpfsInodes is how many files a tmpfs of a size may have. Each takes a kibibyte
// of the kernel's memory, which the size does not count: the kernel's own default
// is half as many as the whole machine has pages, for each mount.
func tmpfsInodes(size int64) int64 { return size/4096 + 1024 }

// mountProc mounts a fresh /proc of the calling process's PID namespace on a
// directory that is ours. The older call is used as newer kernels count the
// detached mounts of the newer ones as mount namespaces, of which init has no
// more left.
func (pl *plan) mountProc(b *kernel.Block, name, target string) {
	b.Call(name, unix.SYS_MOUNT, pl.p.Str("proc"), pl.p.Str(target), pl.p.Str("proc"),
		kernel.Int(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC), pl.p.Str("hidepid=ptraceable"))
}

// createFile makes a new file in the new root and fills it.
func (pl *plan) createFile(name, path string, mode uint32, data []byte) {
	o := pl.outer
	o.Call(name, unix.SYS_OPENAT, pl.root.Arg(), pl.p.Str(path),
		kernel.Int(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC), kernel.Int(mode)).Into(pl.scratchA)
	if len(data) > 0 {
		o.Call(name+": write", unix.SYS_WRITE, pl.scratchA.Arg(), pl.p.Bytes(data), kernel.Int(len(data))).Expect(uintptr(len(data)))
	}
	o.Call(name+": close", unix.SYS_CLOSE, pl.scratchA.Arg())
}

func (pl *plan) writeFiles(tree *tree) {
	for _, f := range pl.b.View.Files {
		pl.makeDirs(tree, path.Dir(f.Path))
		if !tree.ours(f.Path) {
			pl.p.Fail(&boundary.InvalidError{Field: "view.files", Why: step("%q lies in a bind of the host", f.Path)})
			return
		}
		pl.createFile(step("write %q", f.Path), strings.TrimPrefix(f.Path, "/"), f.Mode, f.Data)
	}
	for _, l := range pl.b.View.Links {
		pl.makeDirs(tree, path.Dir(l.Path))
		if !tree.ours(l.Path) {
			pl.p.Fail(&boundary.InvalidError{Field: "view.links", Why: step("%q lies in a bind of the host", l.Path)})
			return
		}
		pl.outer.Call(step("link %q", l.Path), unix.SYS_SYMLINKAT, pl.p.Str(l.Target), pl.root.Arg(), pl.p.Str(strings.TrimPrefix(l.Path, "/")))
	}
	// A program that starts in a directory nobody made would start in none.
	pl.makeDirs(tree, pl.b.View.Workdir)
}

// makeTarget makes the place a mount goes to, if that place is ours to make.
// Inside a bind the target must exist: nothing is created on the host.
func (pl *plan) makeTarget(tree *tree, target string, dir bool) {
	if !tree.ours(target) {
		return
	}
	if dir {
		pl.makeDirs(tree, target)
		return
	}
	pl.makeDirs(tree, path.Dir(target))
	pl.createFile(step("make target %q", target), strings.TrimPrefix(target, "/"), 0o444, nil)
}

func (pl *plan) makeDirs(tree *tree, dir string) {
	if dir == "/" || tree.made[dir] || !tree.ours(dir) {
		return
	}
	pl.makeDirs(tree, path.Dir(dir))
	tree.made[dir] = true
	pl.outer.Call(step("make directory %q", dir), unix.SYS_MKDIRAT, pl.root.Arg(), pl.p.Str(strings.TrimPrefix(dir, "/")), kernel.Int(0o755)).Tolerate(uintptr(unix.EEXIST))
}

// tree remembers which parts of the view are our own memory and which are the
// host's files.
type tree struct {
	covers map[string]bool // mount point to "ours"
	made   map[string]bool
}

func newTree() *tree {
	return &tree{covers: map[string]bool{"/": true}, made: map[string]bool{}}
}

func (t *tree) cover(target string, ours bool) {
	t.covers[target] = ours
	for d := range t.made {
		if strings.HasPrefix(d, target+"/") {
			delete(t.made, d)
		}
	}
	t.made[target] = true
}

// ours reports whether the nearest mount at or above p is our own memory.
func (t *tree) ours(p string) bool {
	for ; ; p = path.Dir(p) {
		if o, ok := t.covers[p]; ok {
			return o
		}
	}
}
