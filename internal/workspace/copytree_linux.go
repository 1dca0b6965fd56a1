package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// copyTree copies a file, link or directory with all in it, with rights, times
// and the owner's attributes, to a place where nothing is, or only a part of an
// earlier copy. It follows no link.
func copyTree(from *os.File, rel string, to *os.File, toRel string) error {
	dir, name := splitRel(toRel)
	parent, err := openBelow(to, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := removeBelow(parent, name); err != nil {
		return err
	}
	var after []copied
	for todo := []string{""}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		one, below, err := copyOne(from, joinAll(rel, at), to, joinAll(toRel, at))
		if err != nil {
			return fmt.Errorf("copy %.200q: %w", joinAll(rel, at), err)
		}
		for _, b := range below {
			todo = append(todo, joinAll(at, b))
		}
		after = append(after, one)
	}
	// Directories get their times and rights when they are full, the innermost
	// first.
	for i := len(after) - 1; i >= 0; i-- {
		if err := after[i].settle(to); err != nil {
			return err
		}
	}
	return nil
}

func joinAll(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "/" + b
}

type copied struct {
	rel string
	st  unix.Stat_t
}

func (c copied) settle(root *os.File) error {
	if !isDir(&c.st) {
		return nil
	}
	fd, err := openBelow(root, c.rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return settle(fd, &c.st)
}

// settle gives a copy the owner, rights and times of what it was made of.
func settle(fd int, st *unix.Stat_t) error {
	if os.Geteuid() == 0 {
		if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	return unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
}

func copyOne(from *os.File, rel string, to *os.File, toRel string) (c copied, below []string, err error) {
	c.rel = toRel
	src, name, err := parentOf(from, []byte(rel))
	if err != nil {
		return c, nil, err
	}
	defer unix.Close(src)
	dst, toName, err := parentOf(to, []byte(toRel))
	if err != nil {
		return c, nil, err
	}
	defer unix.Close(dst)
	if err := unix.Fstatat(src, name, &c.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return c, nil, err
	}
	switch c.st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		link, err := readLinkAt(src, name)
		if err == nil {
			err = unix.Symlinkat(link, dst, toName)
		}
		if err == nil && os.Geteuid() == 0 {
			err = unix.Fchownat(dst, toName, int(c.st.Uid), int(c.st.Gid), unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil {
			err = unix.UtimesNanoAt(dst, toName, []unix.Timespec{c.st.Atim, c.st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
		}
		return c, nil, err
	case unix.S_IFDIR:
		if err := unix.Mkdirat(dst, toName, 0o700); err != nil {
			return c, nil, err
		}
		fd, err := openToEmpty(src, name)
		if err != nil {
			return c, nil, err
		}
		defer unix.Close(fd)
		entries, err := readEntries(fd, make([]byte, 32<<10), math.MaxInt)
		for _, e := range entries {
			below = append(below, e.name)
		}
		return c, below, err
	case unix.S_IFREG:
		return c, nil, copyFile(src, name, dst, toName, &c.st)
	}
	return c, nil, errors.New("not a file, link or directory")
}

func copyFile(src int, name string, dst int, toName string, st *unix.Stat_t) error {
	in, err := openFile(src, name)
	if errors.Is(err, unix.EACCES) {
		// It is its owner's to read all the same.
		if err = unix.Fchmodat(src, name, st.Mode&0o7777|0o400, 0); err == nil {
			in, err = openFile(src, name)
			err = errors.Join(err, unix.Fchmodat(src, name, st.Mode&0o7777, 0))
		}
	}
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := unix.Openat(dst, toName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), toName)
	_, err = io.Copy(out, in)
	if err == nil {
		err = copyAttributes(in, out)
	}
	if err == nil {
		err = settle(fd, st)
	}
	return errors.Join(err, out.Sync(), out.Close())
}

// copyAttributes copies the attributes that a user may set.
func copyAttributes(in, out *os.File) error {
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(in.Fd()), names)
	if err != nil || n == 0 {
		return nil
	}
	value := make([]byte, 64<<10)
	for _, name := range splitNames(names[:n]) {
		n, err := unix.Fgetxattr(int(in.Fd()), name, value)
		if err == nil {
			err = unix.Fsetxattr(int(out.Fd()), name, value[:n], 0)
		}
		if err != nil && err != unix.ENOTSUP {
			return fmt.Errorf("attribute %.100q: %w", name, err)
		}
	}
	return nil
}

// splitNames are the names in a list of attributes that a user may set.
func splitNames(list []byte) []string {
	var out []string
	for len(list) > 0 {
		i := 0
		for i < len(list) && list[i] != 0 {
			i++
		}
		if name := string(list[:i]); len(name) > 5 && name[:5] == "user." {
			out = append(out, name)
		}
		list = list[min(i+1, len(list)):]
	}
	return out
}

func randomName() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails on Linux
	return hex.EncodeToString(b[:])
}
