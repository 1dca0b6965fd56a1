package hostview

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// host is the file system that is read. Paths are the host's, absolute and
// clean; root is put before them, so that a test can build a host of its own.
type host struct {
	root string
	// plain remembers directories that are no links, and lists the entries of
	// directories read: a start asks for the same few again and again.
	plain map[string]bool
	lists map[string][]string
}

func newHost(root string) host {
	return host{root: root, plain: map[string]bool{}, lists: map[string][]string{}}
}

func (h host) real(p string) string { return h.root + p }

func (h host) lstat(p string) (os.FileInfo, error) { return os.Lstat(h.real(p)) }

func (h host) isDir(p string) bool {
	info, err := h.lstat(p)
	return err == nil && info.IsDir()
}

func (h host) exists(p string) bool {
	_, err := h.lstat(p)
	return err == nil
}

func (h host) readLink(p string) (string, error) {
	target, err := os.Readlink(h.real(p))
	if err != nil {
		return "", err
	}
	if target == "" || strings.ContainsRune(target, 0) {
		return "", fmt.Errorf("read link %q: not a path", p)
	}
	return target, nil
}

// maxLinks is the number of links the kernel follows in one path.
const maxLinks = 40

// resolve follows every symbolic link of p. filepath.EvalSymlinks does the same
// but knows no root other than "/".
func (h host) resolve(p string) (string, error) {
	rest := strings.Split(strings.TrimPrefix(p, "/"), "/")
	at, links := "/", 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := strings.TrimSuffix(at, "/") + "/" + name
		if h.plain[next] {
			at = next
			continue
		}
		info, err := h.lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			h.plain[next] = info.IsDir()
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("resolve %q: too many symbolic links", p)
		}
		target, err := h.readLink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// readFile reads a regular file of at most limit bytes. It asks the kernel
// directly: os.File registers each file with the poller, in vain for a regular
// one, and a start reads thirty of them.
func (h host) readFile(p string, limit int64) ([]byte, error) {
	// Neither a named pipe nor a terminal that took the file's place may hold
	// the start up.
	fd, err := openRetrying(h.real(p), syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Size > limit {
		return nil, fmt.Errorf("read %q: not a file of at most %d bytes", p, limit)
	}
	data := make([]byte, st.Size+1)
	n := 0
	for n < len(data) {
		got, err := syscall.Read(fd, data[n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: p, Err: err}
		}
		if n += got; got == 0 || int64(n) == st.Size {
			return data[:n:n], nil
		}
	}
	return nil, fmt.Errorf("read %q: it grows", p)
}

func openRetrying(p string, flags int) (int, error) {
	for {
		fd, err := syscall.Open(p, flags, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// list is the names in a directory; none when it can't be read.
func (h host) list(dir string) []string {
	names, ok := h.lists[dir]
	if !ok {
		entries, _ := os.ReadDir(h.real(dir))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		h.lists[dir] = names
	}
	return names
}

// match lists the paths that a pattern means, sorted. Only its last component
// may hold wildcards; a directory that can't be read holds nothing.
func (h host) match(pattern string) []string {
	dir, want := path.Split(pattern)
	dir = path.Clean(dir)
	if !strings.ContainsAny(want, `*?[\\`) {
		if slices.Contains(h.list(dir), want) {
			return []string{path.Join(dir, want)}
		}
		return nil
	}
	var found []string
	for _, name := range h.list(dir) {
		if ok, err := path.Match(want, name); err == nil && ok {
			found = append(found, path.Join(dir, name))
		}
	}
	return found
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
