//go:build linux

package sandboxtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"confine/internal/kernel/seccomp"
)

// setIDForm is one way to give a file a mode. It makes or changes the file at p.
type setIDForm struct {
	name string
	do   func(p string, mode uint32) error
	// want is what holds inside; "no bit" is a call that the kernel makes without
	// these bits, everywhere.
	want string
}

// rawMode is a call by its name with the file's path and then the given arguments.
func rawMode(name string, args func(path uintptr, mode uintptr) []uintptr) func(string, uint32) error {
	return func(p string, mode uint32) error {
		nr, ok := seccomp.Number(name)
		if !ok {
			return errNoCall
		}
		var x [6]uintptr
		copy(x[:], args(strPtr(p), uintptr(mode)))
		_, _, errno := unix.Syscall6(uintptr(nr), x[0], x[1], x[2], x[3], x[4], x[5])
		return errnoErr(errno)
	}
}

// errNoCall is a call that this architecture does without.
var errNoCall = errors.New("no such call here")

// own makes the file first, for calls that change one.
func own(f func(p string, mode uint32) error) func(string, uint32) error {
	return func(p string, mode uint32) error {
		if err := os.WriteFile(p, nil, 0o755); err != nil {
			return err
		}
		return f(p, mode)
	}
}

// cwd is AT_FDCWD as an argument.
const cwd = ^uintptr(99)

var setIDForms = []setIDForm{
	{"chmod", own(rawMode("chmod", func(p, m uintptr) []uintptr { return []uintptr{p, m} })), "EPERM"},
	{"chmod with high bits", own(rawMode("chmod", func(p, m uintptr) []uintptr { return []uintptr{p, m | 1<<32} })), "EPERM"},
	{"chmod with other bits", own(rawMode("chmod", func(p, m uintptr) []uintptr { return []uintptr{p, m | 0xffff0000} })), "EPERM"},
	{"fchmodat", own(rawMode("fchmodat", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, m} })), "EPERM"},
	{"fchmodat2", own(rawMode("fchmodat2", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, m, 0} })), "EPERM"},
	{"fchmodat2 without following", own(rawMode("fchmodat2", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, m, unix.AT_SYMLINK_NOFOLLOW} })), "EPERM"},
	{"fchmod", own(onDescriptor(unix.O_RDONLY, func(fd int, mode uint32) error { return unix.Fchmod(fd, mode) })), "EPERM"},
	{"chmod by /proc", own(onDescriptor(unix.O_PATH, func(fd int, mode uint32) error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode) })), "EPERM"},
	{"fchmodat2 of a descriptor", own(onDescriptor(unix.O_PATH, func(fd int, mode uint32) error {
		return rawMode("fchmodat2", func(p, m uintptr) []uintptr { return []uintptr{uintptr(fd), p, m, unix.AT_EMPTY_PATH} })("", mode)
	})), "EPERM"},
	{"creat", rawMode("creat", func(p, m uintptr) []uintptr { return []uintptr{p, m} }), "EPERM"},
	{"open", rawMode("open", func(p, m uintptr) []uintptr { return []uintptr{p, unix.O_CREAT | unix.O_WRONLY, m} }), "EPERM"},
	{"openat", rawMode("openat", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, unix.O_CREAT | unix.O_WRONLY, m} }), "EPERM"},
	{"openat with high bits", rawMode("openat", func(p, m uintptr) []uintptr {
		return []uintptr{cwd, p, unix.O_CREAT | unix.O_WRONLY | 1<<40, m | 1<<40}
	}), "EPERM"},
	{"openat exclusively", rawMode("openat", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY, m} }), "EPERM"},
	{"openat2", openHow, "ENOSYS"},
	{"a file without a name, linked", func(p string, mode uint32) error {
		fd, err := unix.Open(filepath.Dir(p), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, mode)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
	}, "EPERM"},
	{"mknod", rawMode("mknod", func(p, m uintptr) []uintptr { return []uintptr{p, m | unix.S_IFREG, 0} }), "EPERM"},
	{"mknod without a type", rawMode("mknod", func(p, m uintptr) []uintptr { return []uintptr{p, m, 0} }), "EPERM"},
	{"mknodat", rawMode("mknodat", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, m | unix.S_IFREG, 0} }), "EPERM"},
	{"mknodat of a FIFO", rawMode("mknodat", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, m | unix.S_IFIFO, 0} }), "EPERM"},
	{"chmod of a directory", func(p string, mode uint32) error {
		if err := os.Mkdir(p, 0o755); err != nil {
			return err
		}
		return unix.Chmod(p, mode)
	}, "EPERM"},
	{"mkdir", rawMode("mkdir", func(p, m uintptr) []uintptr { return []uintptr{p, m} }), "no bit"},
	{"mkdirat", rawMode("mkdirat", func(p, m uintptr) []uintptr { return []uintptr{cwd, p, m} }), "no bit"},
}

func onDescriptor(flags int, f func(fd int, mode uint32) error) func(string, uint32) error {
	return func(p string, mode uint32) error {
		fd, err := unix.Open(p, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return f(fd, mode)
	}
}

func openHow(p string, mode uint32) error {
	how := make([]byte, 24) // struct open_how
	binary.NativeEndian.PutUint64(how, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC)
	binary.NativeEndian.PutUint64(how[8:], uint64(mode))
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, cwd, strPtr(p), bytesPtr(how), 24, 0, 0)
	if errno == 0 {
		unix.Close(int(fd))
	}
	return errnoErr(errno)
}

// trySetIDForms tries each form with each kind of bit, in each directory that args
// name, and looks at what is there afterwards.
func trySetIDForms(args []string) (a Answer) {
	unix.Umask(0)
	const set = unix.S_ISUID | unix.S_ISGID
	for _, dir := range args {
		for _, form := range setIDForms {
			for _, bits := range []uint32{unix.S_ISUID, unix.S_ISGID, set} {
				p := filepath.Join(dir, "set-id")
				if err := os.RemoveAll(p); err != nil {
					a.try("clear", err)
				}
				err := form.do(p, bits|0o755)
				if errors.Is(err, errNoCall) {
					continue
				}
				got := result(err)
				var st unix.Stat_t
				if err := unix.Lstat(p, &st); err == nil && st.Mode&set != 0 {
					got = "bit set"
				} else if got == "ok" {
					got = "no bit"
				}
				a.Tries = append(a.Tries, Try{What: fmt.Sprintf("%s %o in %s", form.name, bits, dir), Result: got, Want: form.want})
			}
		}
		_ = os.RemoveAll(filepath.Join(dir, "set-id"))
	}
	// The sticky bit is no such bit, and what is made otherwise is made.
	p := filepath.Join(args[0], "sticky")
	err := own(func(p string, mode uint32) error { return unix.Chmod(p, mode) })(p, 0o1755)
	a.neighbour(errors.Join(err, os.Remove(p)))
	return a
}
