package hostview

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// host is the file system that is read. Paths are the host's, absolute and
// clean; root is put before them, so that a test can build a host of its own.
type host struct{ root string }

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
		next := path.Join(at, name)
		info, err := h.lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
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

// readFile reads a regular file of at most limit bytes.
func (h host) readFile(p string, limit int64) ([]byte, error) {
	f, err := os.Open(h.real(p))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %q: more than %d bytes", p, limit)
	}
	return data, nil
}

// glob lists the paths that match, sorted. A pattern that matches nothing, or
// can't be read, is no path.
func (h host) glob(pattern string) []string {
	found, err := filepath.Glob(h.real(pattern))
	if err != nil {
		return nil
	}
	for i := range found {
		found[i] = strings.TrimPrefix(found[i], h.root)
	}
	return found
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
