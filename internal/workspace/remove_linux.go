package workspace

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove deletes a directory that a run wrote; one that does not exist is no
// error. It follows no link, gives itself the right to empty directories that
// the run closed (they belong to this user), and takes the same memory and three
// descriptors for a tree of any depth: the standard library's way holds one for
// each level, and a run can make more levels than there are descriptors.
func Remove(dir string) error {
	parent, err := unix.Open(filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err == nil {
		defer unix.Close(parent)
		err = removeBelow(parent, filepath.Base(dir))
	}
	if err != nil {
		return fmt.Errorf("remove %q: %w", dir, err)
	}
	return nil
}

func removeBelow(parent int, name string) error {
	switch err := unix.Unlinkat(parent, name, 0); err {
	case nil, unix.ENOENT:
		return nil
	case unix.EISDIR, unix.EPERM:
	default:
		return err
	}
	top, err := openToEmpty(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	// Every directory found is moved to the top, where its own turn comes.
	f := flattener{top: top, buf: make([]byte, 64<<10)}
	for {
		entries, err := readEntries(top, f.buf, math.MaxInt)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		}
		for _, e := range entries {
			if err := f.remove(e); err != nil {
				return err
			}
		}
		if _, err := unix.Seek(top, 0, 0); err != nil {
			return err
		}
	}
}

type flattener struct {
	top  int
	buf  []byte
	next int
}

// remove deletes one entry of the top directory; the directories in it become
// entries of the top.
func (f *flattener) remove(e entry) error {
	if e.kind != unix.DT_DIR {
		return unlink(f.top, e.name, 0)
	}
	if unix.Unlinkat(f.top, e.name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	fd, err := openToEmpty(f.top, e.name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	entries, err := readEntries(fd, f.buf, math.MaxInt)
	if err != nil {
		return err
	}
	for _, inner := range entries {
		if inner.kind == unix.DT_DIR {
			err = f.lift(fd, inner.name)
		} else {
			err = unlink(fd, inner.name, 0)
		}
		if err != nil {
			return err
		}
	}
	return unlink(f.top, e.name, unix.AT_REMOVEDIR)
}

// lift moves a directory to the top under a name that is free.
func (f *flattener) lift(from int, name string) error {
	if unix.Unlinkat(from, name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	fd, err := openToEmpty(from, name) // moving a directory needs the right to write it
	if err != nil {
		return err
	}
	unix.Close(fd)
	for {
		f.next++
		err := unix.Renameat2(from, name, f.top, "confine-"+strconv.Itoa(f.next), unix.RENAME_NOREPLACE)
		if err != unix.EEXIST {
			return err
		}
	}
}

func unlink(dirfd int, name string, flags int) error {
	if err := unix.Unlinkat(dirfd, name, flags); err != unix.ENOENT {
		return err
	}
	return nil
}

// openToEmpty opens a directory and makes sure that this user may change it.
func openToEmpty(dirfd int, name string) (int, error) {
	at, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	self := "/proc/self/fd/" + strconv.Itoa(at) // the same directory, whatever its name is now
	if st.Mode&0o700 != 0o700 {
		if err := unix.Chmod(self, 0o700); err != nil {
			return -1, err
		}
	}
	return unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
