package workspace

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// under is what lies below an overlay's upper directory, for a look at both as
// one.
type under struct {
	lower *os.File
	// opaque are directories that hide those below them.
	opaque map[string]bool
}

// whiteout reports whether a device is the mark of a deletion.
func whiteout(dirfd int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isWhiteout(&st)
}

// open opens a path without following links, where s looks at an overlay's upper
// directory in either layer.
func (s *scan) open(rel string, flags int) (int, error) {
	if s.over == nil {
		return openBelow(s.root, rel, flags)
	}
	return s.over.open(s.root, rel, flags)
}

func (u *under) open(upper *os.File, rel string, flags int) (int, error) {
	fd, err := openBelow(upper, rel, flags)
	if err == nil {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && isWhiteout(&st) {
			unix.Close(fd)
			return -1, unix.ENOENT
		}
		return fd, nil
	}
	if err != unix.ENOENT || u.hidden(upper, rel) {
		return -1, err
	}
	return openBelow(u.lower, rel, flags)
}

// hidden reports whether something above a path takes the place of what is below.
func (u *under) hidden(upper *os.File, rel string) bool {
	for i := range len(rel) {
		if rel[i] != '/' {
			continue
		}
		if u.opaque[rel[:i]] {
			return true
		}
		fd, err := openBelow(upper, rel[:i], unix.O_PATH)
		if err == unix.ENOENT {
			return false // all from here on is below
		}
		if err != nil {
			return true
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil || !isDir(&st) {
			return true
		}
	}
	return false
}

func (u *under) exists(upper *os.File, rel string) bool {
	fd, err := u.open(upper, rel, unix.O_PATH)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
}

// has is directory.has over both layers.
func (u *under) has(upper *os.File, d *directory, name string) bool {
	if d.has(name, unix.DT_UNKNOWN) {
		return !whiteout(d.fd, name)
	}
	return !u.opaque[d.rel] && !strings.Contains(name, "/") && u.exists(upper, join(d.rel, name))
}
