//go:build linux

package sandboxtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// secretText is in each protected file. It is in no answer but as "the secret".
const secretText = "#!/bin/sh\necho protected-content\n"

// verb is one way to reach a file by name. It says what it read, or an error.
type verb struct {
	name string
	do   func(p string) (content string, err error)
}

// changing is a verb that reads nothing.
func changing(name string, f func(p string) error) verb {
	return verb{name, func(p string) (string, error) { return "", f(p) }}
}

// reading is a verb that reads from a descriptor of the file.
func reading(name string, open func(p string) (int, error)) verb {
	return verb{name, func(p string) (string, error) {
		fd, err := open(p)
		if err != nil {
			return "", err
		}
		f := os.NewFile(uintptr(fd), p)
		defer f.Close()
		b, err := io.ReadAll(f)
		return string(b), err
	}}
}

// opening is a verb that opens for writing and writes.
func opening(name string, flags int) verb {
	return changing(name, func(p string) error {
		fd, err := unix.Open(p, flags|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Write(fd, []byte("x"))
		return err
	})
}

// viaPath opens a file that was only named before (O_PATH) again through /proc.
func viaPath(p string, flags int) (int, error) {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags|unix.O_CLOEXEC, 0)
}

func withPath(p string, f func(fd int) error) error {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

const spare, taken = "verb-own", "verb-new"

// movedVerb is the one that an overlay lets nobody make: there a directory of the
// lower layer is copied by programs, not moved.
const movedVerb = "read after its directory moved"

// verbs are all of them. Each is made with spare, a file of its own, and without
// taken.
var verbs = []verb{
	reading("read", func(p string) (int, error) { return unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0) }),
	reading("read by O_PATH and /proc", func(p string) (int, error) { return viaPath(p, unix.O_RDONLY) }),
	reading("read by an absolute path through /proc", func(p string) (int, error) {
		abs, err := filepath.Abs(p)
		if err != nil {
			return -1, err
		}
		return unix.Open("/proc/self/root"+abs, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}),
	reading("read by another spelling", func(p string) (int, error) {
		return unix.Open(".//./"+filepath.Dir(p)+"/../"+filepath.Dir(p)+"//"+filepath.Base(p), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}),
	reading("read by a symbolic link", func(p string) (int, error) {
		abs, err := filepath.Abs(p)
		if err == nil {
			err = os.Symlink(abs, taken)
		}
		if err != nil {
			return -1, err
		}
		return unix.Open(taken, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}),
	reading("read by a descriptor of its directory", func(p string) (int, error) {
		dir, err := unix.Open(filepath.Dir(p), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(dir)
		return unix.Openat(dir, filepath.Base(p), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}),
	reading("read by copy_file_range", func(p string) (int, error) {
		in, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(in)
		out, err := unix.Open(taken, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return -1, err
		}
		if _, err = unix.CopyFileRange(in, nil, out, nil, 1000, 0); errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) {
			_, err = unix.Sendfile(out, in, nil, 1000) // as programs do
		}
		if err == nil {
			_, err = unix.Seek(out, 0, io.SeekStart)
		}
		return out, err
	}),
	{"run", func(p string) (string, error) {
		abs, err := filepath.Abs(p)
		if err != nil {
			return "", err
		}
		out, err := exec.Command(abs).Output()
		return string(out), err
	}},
	{movedVerb, func(p string) (string, error) {
		dir := filepath.Dir(p)
		if err := unix.Rename(dir, taken); err != nil {
			return "", err
		}
		b, err := os.ReadFile(filepath.Join(taken, filepath.Base(p)))
		if back := unix.Rename(taken, dir); back != nil && err == nil {
			err = back
		}
		return string(b), err
	}},
	opening("write", unix.O_WRONLY), opening("write and read", unix.O_RDWR), opening("append", unix.O_WRONLY|unix.O_APPEND),
	opening("open to truncate", unix.O_WRONLY|unix.O_TRUNC), opening("create", unix.O_WRONLY|unix.O_CREAT),
	changing("write by O_PATH and /proc", func(p string) error {
		fd, err := viaPath(p, unix.O_WRONLY)
		if err == nil {
			_, err = unix.Write(fd, []byte("x"))
			unix.Close(fd)
		}
		return err
	}),
	changing("truncate", func(p string) error { return unix.Truncate(p, 0) }),
	changing("link", func(p string) error { return unix.Link(p, taken) }),
	changing("link by /proc", func(p string) error {
		return withPath(p, func(fd int) error {
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, taken, unix.AT_SYMLINK_FOLLOW)
		})
	}),
	changing("rename", func(p string) error { return unix.Rename(p, taken) }),
	changing("rename without replacing", func(p string) error {
		return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, taken, unix.RENAME_NOREPLACE)
	}),
	changing("rename over", func(p string) error { return unix.Rename(spare, p) }),
	changing("exchange", func(p string) error {
		return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, spare, unix.RENAME_EXCHANGE)
	}),
	changing("unlink", func(p string) error { return unix.Unlink(p) }),
	changing("chmod", func(p string) error { return unix.Chmod(p, 0o777) }),
	changing("chmod by /proc", func(p string) error {
		return withPath(p, func(fd int) error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o777) })
	}),
	changing("chown to itself", func(p string) error { return unix.Chown(p, os.Getuid(), os.Getgid()) }),
	changing("set times", func(p string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0)
	}),
	changing("set attribute", func(p string) error { return unix.Setxattr(p, "user.confine", []byte("x"), 0) }),
	changing("set attribute without following", func(p string) error { return unix.Lsetxattr(p, "user.confine", []byte("x"), 0) }),
	changing("map shared and write", func(p string) error {
		fd, err := unix.Open(p, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if _, err := unix.Pwrite(fd, []byte("xxxx"), 0); err != nil { // there must be something to map
			return err
		}
		m, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			m[0] = 'y'
			err = unix.Munmap(m)
		}
		return err
	}),
	changing("allocate", func(p string) error {
		fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Fallocate(fd, 0, 0, 8192)
			unix.Close(fd)
		}
		return err
	}),
}

// tryVerbs makes each verb on each path. The first argument is the name of the
// table of results that hold; "control" is that of paths which nothing protects,
// and which are made anew before each verb. The second says whether the workspace
// is live or staged.
func tryVerbs(args []string) (a Answer) {
	table, control, staged := verbResults[args[0]], args[0] == "control", args[1] == "staged"
	for _, p := range args[2:] {
		for _, v := range verbs {
			_ = os.RemoveAll(taken)
			err := os.WriteFile(spare, []byte("own"), 0o600)
			if control && err == nil {
				_ = os.RemoveAll(p)
				err = errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(secretText), 0o755))
			}
			if err != nil {
				a.try("prepare "+v.name, err)
				continue
			}
			content, err := v.do(p)
			got, reads := result(err), strings.HasPrefix(v.name, "read") || v.name == "run"
			switch {
			case strings.Contains(content, "protected-content"):
				got = "the secret"
			case err == nil && reads:
				got = "empty"
			}
			want, ok := table[v.name]
			if !ok {
				want = table[""]
			}
			if control && reads {
				want = "the secret"
			}
			if staged && v.name == movedVerb && want != "EBUSY" {
				want = "EXDEV"
			}
			a.Tries = append(a.Tries, Try{What: v.name + " " + p, Result: got, Want: want})
		}
	}
	_ = os.RemoveAll(taken)
	_ = os.Remove(spare)
	a.neighbour(os.WriteFile("neighbour", nil, 0o600))
	return a
}
