package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// What an overlay leaves in its upper directory is read by an allow-list: a
// device 0:0 is a deletion, an attribute marks a directory that hides the one
// below. Any other mark of the kernel's means something that a commit would get
// wrong, and ends it.

// markPrefix begins the attributes that an overlay keeps for itself.
const markPrefix = "user.overlay."

// knownMarks are those that say nothing about what is seen: where a file was
// copied from, that a directory holds such, an identity.
var knownMarks = map[string]bool{"origin": true, "impure": true, "uuid": true}

var errMark = errors.New("the overlay's own mark is not known")

// upper is the directory that took an overlay's writes, beside what lies under it.
type upper struct {
	root, lower *os.File
	// since is the file system's time when the run began.
	since fileTime
	// chown says whether what from wrote becomes that of to.
	chown    bool
	from, to owner

	mu     sync.Mutex
	opaque map[string]bool
	// modes are the rights of directories that had to be opened to be read.
	modes map[string]uint32

	changes []difference
	// modeChanges are directories on both sides that got other rights.
	modeChanges []dirMode
}

type owner struct{ uid, gid int }

// difference is one path that differs, by what it is in the upper directory.
type difference struct {
	rel     string
	removed bool
	// old is what it displaces, and new what comes, where they are.
	old, new unix.Stat_t
	fresh    bool // there is no old
	conflict bool // old was changed by somebody else since
}

func isDir(st *unix.Stat_t) bool      { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// survey looks at every entry once: it opens directories that the run closed,
// gives files their owner, notes and takes off the overlay's marks.
func (u *upper) survey() error {
	u.opaque, u.modes = map[string]bool{}, map[string]uint32{}
	var st unix.Stat_t
	if err := unix.Fstat(int(u.root.Fd()), &st); err != nil {
		return err
	}
	if err := u.one("", fmt.Sprintf("/proc/self/fd/%d", u.root.Fd()), &st); err != nil {
		return err
	}
	if u.chown {
		if err := u.root.Chown(u.to.uid, u.to.gid); err != nil {
			return err
		}
	}
	w := &walk{root: u.root, maxEntries: math.MaxInt, closed: func(rel string, err error) error {
		return fmt.Errorf("look into %.200q: %w", rel, err)
	}, visit: func(d *directory) (map[string]bool, error) {
		at := "/proc/self/fd/" + strconv.Itoa(d.fd) + "/"
		for _, e := range d.entries {
			var st unix.Stat_t
			if err := unix.Fstatat(d.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return nil, err
			}
			rel := join(d.rel, e.name)
			if err := u.one(rel, at+e.name, &st); err != nil {
				return nil, fmt.Errorf("%.200q: %w", rel, err)
			}
			if u.chown && int(st.Uid) == u.from.uid {
				if err := unix.Fchownat(d.fd, e.name, u.to.uid, u.to.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
					return nil, fmt.Errorf("%.200q: give it its owner: %w", rel, err)
				}
			}
		}
		return nil, nil
	}}
	return w.run()
}

// one reads the marks of an entry at a path that leads nowhere else.
func (u *upper) one(rel, at string, st *unix.Stat_t) error {
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return nil // the kernel keeps no such attributes on others
	}
	if kind == unix.S_IFDIR && st.Mode&0o700 != 0o700 {
		if err := unix.Chmod(at, st.Mode&0o7777|0o700); err != nil {
			return err
		}
		u.mu.Lock()
		u.modes[rel] = st.Mode & 0o7777
		u.mu.Unlock()
	}
	list := unix.Llistxattr
	if rel == "" {
		list = unix.Listxattr // the link to the directory itself
	}
	buf := make([]byte, 256)
	n, err := list(at, buf)
	if err == unix.ERANGE {
		buf = make([]byte, 64<<10)
		n, err = list(at, buf)
	}
	if err == unix.ENOTSUP {
		return nil
	}
	if err == unix.EACCES && kind == unix.S_IFREG {
		err = nil // the names may always be listed; kept for file systems that say no
	}
	if err != nil {
		return fmt.Errorf("list attributes: %w", err)
	}
	for _, name := range strings.Split(string(buf[:n]), "\x00") {
		mark, ok := strings.CutPrefix(name, markPrefix)
		if !ok {
			continue
		}
		if err := u.mark(rel, at, mark, kind == unix.S_IFDIR); err != nil {
			return err
		}
		if err := u.unmark(at, name, st, rel == ""); err != nil {
			return fmt.Errorf("take off %s: %w", name, err)
		}
	}
	return nil
}

func (u *upper) mark(rel, at, mark string, dir bool) error {
	if knownMarks[mark] || strings.HasPrefix(mark, "overlay.") {
		return nil // the second is one that the run set, made harmless by the kernel
	}
	if mark != "opaque" || !dir {
		return fmt.Errorf("%w: %s%s", errMark, markPrefix, mark)
	}
	get := unix.Lgetxattr
	if rel == "" {
		get = unix.Getxattr
	}
	buf := make([]byte, 8)
	n, err := get(at, markPrefix+mark, buf)
	if err != nil {
		return err
	}
	if string(buf[:n]) != "y" || rel == "" {
		return fmt.Errorf("%w: %s%s=%.8q", errMark, markPrefix, mark, buf[:n])
	}
	u.mu.Lock()
	u.opaque[rel] = true
	u.mu.Unlock()
	return nil
}

// unmark takes an attribute off. A file must be writable for that, for its owner
// too.
func (u *upper) unmark(at, name string, st *unix.Stat_t, top bool) error {
	remove := unix.Lremovexattr
	if top {
		remove = unix.Removexattr
	}
	err := remove(at, name)
	if err != unix.EACCES {
		return err
	}
	mode := st.Mode & 0o7777
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= 0o700 // as it was opened above
	}
	if err := unix.Chmod(at, mode|0o200); err != nil {
		return err
	}
	return errors.Join(remove(at, name), unix.Chmod(at, mode))
}

// modeOf is what the rights of a directory of the upper one were.
func (u *upper) modeOf(rel string, st *unix.Stat_t) uint32 {
	if m, ok := u.modes[rel]; ok {
		return m
	}
	return st.Mode & 0o7777
}

// compare finds what differs, going down only where a directory is on both sides.
func (u *upper) compare() error {
	for todo := []string{""}; len(todo) > 0; {
		rel := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		below, err := u.compareDir(rel)
		if err != nil {
			return fmt.Errorf("compare %.200q: %w", rel, err)
		}
		todo = append(todo, below...)
	}
	slices.SortFunc(u.changes, func(a, b difference) int { return strings.Compare(a.rel, b.rel) })
	slices.SortFunc(u.modeChanges, func(a, b dirMode) int { return bytes.Compare(a.Path, b.Path) })
	return nil
}

func (u *upper) compareDir(rel string) (below []string, err error) {
	up, err := openBelow(u.root, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(up)
	low, err := openBelow(u.lower, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(low)
	var us, ls unix.Stat_t
	if err := errors.Join(unix.Fstat(up, &us), unix.Fstat(low, &ls)); err != nil {
		return nil, err
	}
	if mode := u.modeOf(rel, &us); mode != ls.Mode&0o7777 {
		u.modeChanges = append(u.modeChanges, dirMode{Path: []byte(rel), Old: ls.Mode & 0o7777, New: mode})
	}
	entries, err := readEntries(up, make([]byte, 32<<10), math.MaxInt)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		c := difference{rel: join(rel, e.name)}
		if err := unix.Fstatat(up, e.name, &c.new, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, err
		}
		switch err := unix.Fstatat(low, e.name, &c.old, unix.AT_SYMLINK_NOFOLLOW); err {
		case nil:
		case unix.ENOENT:
			c.fresh = true
		default:
			return nil, err
		}
		kind := c.new.Mode & unix.S_IFMT
		switch {
		case isWhiteout(&c.new):
			if c.fresh {
				continue
			}
			c.removed = true
		case kind == unix.S_IFDIR && !c.fresh && isDir(&c.old) && !u.opaque[c.rel]:
			below = append(below, c.rel)
			continue
		case kind == unix.S_IFDIR, kind == unix.S_IFREG, kind == unix.S_IFLNK:
			if !c.fresh {
				same, err := sameEntry(low, up, e.name, &c.old, &c.new)
				if err != nil {
					return nil, err
				}
				if same {
					continue
				}
			}
		default:
			continue // a socket, FIFO or device: the review names it
		}
		if !c.fresh {
			c.conflict, err = changedSince(u.lower, c.rel, &c.old, u.since)
			if err != nil && !errors.Is(err, unix.EACCES) {
				return nil, err
			}
			c.conflict = c.conflict || err != nil
		}
		u.changes = append(u.changes, c)
	}
	return below, nil
}

// sameEntry reports whether a file or link that was copied up is still what it
// was: a program may have opened it for writing and written nothing.
func sameEntry(low, up int, name string, a, b *unix.Stat_t) (bool, error) {
	if a.Mode != b.Mode || a.Size != b.Size || a.Mtim != b.Mtim {
		return false, nil
	}
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		x, err := readLinkAt(low, name)
		if err != nil {
			return false, err
		}
		y, err := readLinkAt(up, name)
		return x == y, err
	case unix.S_IFREG:
	default:
		return false, nil
	}
	x, err := openFile(low, name)
	if err != nil {
		return false, nil // not readable for us: what was written counts
	}
	defer x.Close()
	y, err := openFile(up, name)
	if err != nil {
		return false, nil
	}
	defer y.Close()
	if attributes(x) != attributes(y) {
		return false, nil
	}
	return sameContent(x, y)
}

func openFile(dirfd int, name string) (*os.File, error) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// attributes are the names and values of a file's own attributes.
func attributes(f *os.File) string {
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(f.Fd()), names)
	if err != nil || n == 0 {
		return ""
	}
	list := strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00")
	slices.Sort(list)
	var out strings.Builder
	value := make([]byte, 64<<10)
	for _, name := range list {
		if n, err := unix.Fgetxattr(int(f.Fd()), name, value); err == nil {
			fmt.Fprintf(&out, "%q=%q\n", name, value[:n])
		}
	}
	return out.String()
}

func sameContent(x, y io.Reader) (bool, error) {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(x, a)
		m, err2 := io.ReadFull(y, b)
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return err2 == io.EOF || err2 == io.ErrUnexpectedEOF, nil
		case err != nil || err2 != nil:
			return false, errors.Join(err, err2)
		}
	}
}

// changedSince reports whether a file, or anything in a directory, was changed
// after a time. The error is EACCES when not all could be looked at.
func changedSince(root *os.File, rel string, st *unix.Stat_t, since fileTime) (bool, error) {
	if since.before(ctimeOf(st)) {
		return true, nil
	}
	if !isDir(st) {
		return false, nil
	}
	fd, err := openBelow(root, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	top := os.NewFile(uintptr(fd), rel)
	defer top.Close()
	w := &walk{root: top, maxEntries: math.MaxInt, closed: func(_ string, err error) error { return err },
		visit: func(d *directory) (map[string]bool, error) {
			for _, e := range d.entries {
				var st unix.Stat_t
				if err := unix.Fstatat(d.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || since.before(ctimeOf(&st)) {
					return nil, errChanged
				}
			}
			return nil, nil
		}}
	err = w.run()
	if errors.Is(err, errChanged) {
		return true, nil
	}
	return false, err
}

var errChanged = errors.New("it was changed meanwhile")

func ctimeOf(st *unix.Stat_t) fileTime { return fileTime{int64(st.Ctim.Sec), int64(st.Ctim.Nsec)} }

func mtimeOf(st *unix.Stat_t) fileTime { return fileTime{int64(st.Mtim.Sec), int64(st.Mtim.Nsec)} }

// splitRel is a path's directory and its last name.
func splitRel(rel string) (dir, name string) {
	dir, name = path.Split(rel)
	return strings.TrimSuffix(dir, "/"), name
}
