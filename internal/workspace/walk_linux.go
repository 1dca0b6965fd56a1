package workspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// entry is one name in a directory, as the directory says it.
type entry struct {
	name string
	kind uint8 // unix.DT_*
}

// directory is one directory of a walk: where it is below the root ("" is the
// root), open, and what is in it. Visitors leave in place and scope what the
// directories in it need to know: going up from each again would cost the square
// of the depth.
type directory struct {
	rel     string
	fd      int
	entries []entry
	place   place
	scope   scope

	// up is nil for the root.
	up *directory
	// The directories in it are opened along path from base.
	base *base
	path string
}

// base is an open directory from which others are looked up, so that a look-up
// stays short however deep the tree is. There is one for about baseBytes of a
// path, open as long as directories wait that need it: as the deepest are visited
// first, that is at most maxPath/baseBytes for each goroutine.
type base struct {
	fd, waiting int
}

const (
	// baseBytes and a name are much shorter than PATH_MAX.
	baseBytes = 2048
	// maxPath is how long a path below the root may be. The kernel takes 4096
	// bytes at once: what is deeper can only be reached step by step.
	maxPath = 32 << 10
)

// errTooDeep is a directory that is not looked into: its path is too long.
var errTooDeep = fmt.Errorf("nested too deep: its path is longer than %d bytes", maxPath)

func (d *directory) has(name string, kind uint8) bool {
	for _, e := range d.entries {
		if e.name == name {
			return kind == unix.DT_UNKNOWN || e.kind == kind
		}
	}
	return false
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// walk visits every directory below a root, several at once, each before those in
// it. It never follows a link, and never leaves what was below the root,
// whatever moves meanwhile.
type walk struct {
	root       *os.File
	maxEntries int
	// visit is called once for each directory, from several goroutines. It
	// returns the names not to descend into.
	visit func(*directory) (skip map[string]bool, err error)
	// closed is called for a directory that could not be opened or read; an
	// error ends the walk.
	closed func(rel string, err error) error

	mu      sync.Mutex
	wake    sync.Cond
	todo    []waiting
	busy    int
	entries int
	err     error
	more    func()
}

// waiting is a directory to be visited. Its path is put together when it is its
// turn: in a deep tree the paths of all would fill the memory.
type waiting struct {
	up   *directory
	name string
}

// LimitError is a tree with more entries than are looked at.
type LimitError struct{ Max int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("walk workspace: more than %d files and directories", e.Max)
}

// Hint says what to do.
func (e *LimitError) Hint() string {
	return "run in a smaller directory, or raise the number of entries that may be looked at"
}

func (w *walk) run() error {
	w.wake.L = &w.mu
	root := &directory{base: &base{fd: int(w.root.Fd()), waiting: 1}}
	w.todo = []waiting{{root, ""}}
	var group sync.WaitGroup
	// The others are started once there is more to do than one can: in a small
	// workspace that is never, and a thread costs more than its directories.
	w.more = sync.OnceFunc(func() {
		for range min(8, max(2, runtime.GOMAXPROCS(0))) - 1 {
			group.Go(w.work)
		}
	})
	w.work()
	group.Wait()
	for _, left := range w.todo { // after an error
		w.release(left.up.base)
	}
	return w.err
}

// release lets go of a base once nothing waits for it. The root is not ours to
// close.
func (w *walk) release(b *base) {
	if b.waiting--; b.waiting == 0 && b.fd != int(w.root.Fd()) {
		unix.Close(b.fd)
	}
}

// work reads directories until none is left.
func (w *walk) work() {
	buf := make([]byte, 32<<10)
	for {
		at, ok := w.next()
		if !ok {
			return
		}
		below, n, err := w.one(at, buf)
		w.done(at, below, n, err)
	}
}

// crowd is how many directories wait before others come to help.
const crowd = 16

func (w *walk) next() (waiting, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.todo) == 0 && w.busy > 0 && w.err == nil {
		w.wake.Wait()
	}
	if len(w.todo) == 0 || w.err != nil {
		return waiting{}, false
	}
	at := w.todo[len(w.todo)-1]
	w.todo = w.todo[:len(w.todo)-1]
	w.busy++
	return at, true
}

func (w *walk) done(at waiting, below []waiting, n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	w.entries += n
	if err == nil && w.entries > w.maxEntries {
		err = &LimitError{Max: w.maxEntries}
	}
	if w.err == nil {
		w.err = err
	}
	for _, b := range below {
		b.up.base.waiting++
	}
	w.release(at.up.base)
	w.todo = append(w.todo, below...)
	if len(w.todo) >= crowd {
		w.more()
	}
	w.wake.Broadcast()
}

func (w *walk) one(at waiting, buf []byte) (below []waiting, n int, err error) {
	d := &directory{rel: join(at.up.rel, at.name), base: at.up.base, path: join(at.up.path, at.name)}
	if at.name != "" {
		d.up = at.up
	}
	if len(d.rel) > maxPath {
		return nil, 0, w.closed(d.rel, errTooDeep)
	}
	d.fd, err = openAt(d.base.fd, d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, 0, w.closed(d.rel, err)
	}
	kept := false
	defer func() {
		if !kept {
			unix.Close(d.fd)
		}
	}()
	d.entries, err = readEntries(d.fd, buf, w.maxEntries)
	if errors.Is(err, errTooMany) {
		return nil, 0, &LimitError{Max: w.maxEntries}
	}
	if err != nil {
		return nil, 0, w.closed(d.rel, err)
	}
	skip, err := w.visit(d)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range d.entries {
		if e.kind == unix.DT_DIR && !skip[e.name] {
			below = append(below, waiting{d, e.name})
		}
	}
	n = len(d.entries)
	d.entries = nil // d lives as long as one in it waits
	if len(below) > 0 && len(d.path) > baseBytes {
		d.base, d.path, kept = &base{fd: d.fd}, "", true
	}
	return below, n, nil
}

// openBelow opens a path below root without following any link, also one longer
// than the kernel takes at once.
func openBelow(root *os.File, rel string, flags int) (int, error) {
	at := int(root.Fd())
	for len(rel) > baseBytes {
		cut := strings.LastIndexByte(rel[:baseBytes], '/')
		if cut <= 0 {
			break
		}
		next, err := openAt(at, rel[:cut], unix.O_PATH|unix.O_DIRECTORY)
		if at != int(root.Fd()) {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, rel = next, rel[cut+1:]
	}
	fd, err := openAt(at, rel, flags)
	if at != int(root.Fd()) {
		unix.Close(at)
	}
	return fd, err
}

func openAt(dirfd int, rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_PATH != 0 {
		how.Flags &^= unix.O_NONBLOCK
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dirfd, rel, &how)
		// A rename elsewhere on the file system during the look-up makes the
		// kernel unsure and ask for another try.
		if (err == unix.EAGAIN || err == unix.EINTR) && try < 100 {
			continue
		}
		return fd, err
	}
}

var errTooMany = errors.New("too many entries")

// readEntries reads a whole directory. The standard library's form would look a
// name up again, by path, where the file system does not say what kind it is.
func readEntries(fd int, buf []byte, limit int) ([]entry, error) {
	var out []entry
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return out, nil
		}
		if out, err = parseEntries(fd, buf[:n], out); err != nil {
			return nil, err
		}
		if len(out) > limit {
			return nil, errTooMany
		}
	}
}

// parseEntries reads struct linux_dirent64: inode 8, offset 8, length 2, kind 1,
// name ending in NUL.
func parseEntries(fd int, b []byte, out []entry) ([]entry, error) {
	for len(b) > 0 {
		if len(b) < 20 {
			return nil, errors.New("directory entry cut short")
		}
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size < 20 || size > len(b) {
			return nil, errors.New("directory entry of an impossible length")
		}
		name := b[19:size]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		kind := b[18]
		b = b[size:]
		if string(name) == "." || string(name) == ".." {
			continue
		}
		e := entry{name: string(name), kind: kind}
		if e.kind == unix.DT_UNKNOWN {
			var st unix.Stat_t
			if err := unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // gone meanwhile
			}
			e.kind = uint8(st.Mode & unix.S_IFMT >> 12)
		}
		out = append(out, e)
	}
	return out, nil
}

// readLinkAt reads a link of an open directory.
func readLinkAt(dirfd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dirfd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
