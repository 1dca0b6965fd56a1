//go:build linux

package sandboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// takers take one more of a resource with each call, until it fails.
var takers = map[string]func(n int) error{
	"processes": func(int) error {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			for {
				unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // waits for good
			}
		}
		return errnoErr(errno)
	},
	"descriptors": func(int) error { _, err := unix.Dup(1); return err },
	"memory": func(int) error {
		m, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		touched = append(touched, m)
		return err
	},
	"page tables": func(int) error {
		m, err := unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		for at := 0; err == nil && at < len(m); at += 2 << 20 {
			m[at] = 1
		}
		touched = append(touched, m)
		return err
	},
	"files in memory": func(n int) error { return fill(fmt.Sprintf("/dev/shm/fill-%d", n), 1<<20) },
	"memory files": func(int) error {
		fd, err := unix.MemfdCreate("fill", unix.MFD_CLOEXEC)
		if err == nil {
			err = unix.Fallocate(fd, 0, 0, 1<<20)
		}
		return err
	},
	"files in /tmp":  func(n int) error { return fill(fmt.Sprintf("/tmp/fill-%d", n), 1<<20) },
	"files in /run":  func(n int) error { return fill(fmt.Sprintf("/run/fill-%d", n), 1<<20) },
	"inodes of /run": func(n int) error { return fill(fmt.Sprintf("/run/empty-%d", n), 0) },
	"disk":           func(n int) error { return fill(fmt.Sprintf("/workspace/fill-%d", n), 1<<20) },
	"file size": func(int) error {
		fd, err := unix.Open("/workspace/large", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err == nil {
			err = unix.Ftruncate(fd, 1<<40)
			unix.Close(fd)
		}
		return err
	},
	"pipes": func(int) error {
		p := make([]int, 2)
		if err := unix.Pipe2(p, unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return err
		}
		_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20) // as much as it may have
		for {
			if _, err := unix.Write(p[1], block); err != nil {
				return nil
			}
		}
	},
	"socket buffers": func(int) error {
		s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		for {
			if _, err := unix.Write(s[1], block); err != nil {
				return nil
			}
		}
	},
	"descriptors under way": func(n int) error {
		if under == nil || n%64 == 0 { // as many as one socket's buffer holds
			s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			under = s[:]
		}
		many := make([]int, 100)
		if err := unix.Sendmsg(under[0], []byte("x"), unix.UnixRights(many...), nil, 0); !errors.Is(err, unix.EAGAIN) {
			return err
		}
		return nil
	},
	"inotify instances": func(int) error { _, err := unix.InotifyInit1(unix.IN_CLOEXEC); return err },
	"terminals": func(int) error {
		_, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	},
	"message queues": func(n int) error {
		_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, strPtr(fmt.Sprintf("fill-%d", n)), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600, 0, 0, 0)
		return errnoErr(errno)
	},
	"shared segments": func(int) error { _, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600); return err },
	"semaphores": func(int) error {
		_, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 250, unix.IPC_CREAT|0o600)
		return errnoErr(errno)
	},
	"System V queues": func(int) error {
		id, _, errno := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600, 0)
		if errno == 0 {
			message := make([]byte, 8+4096) // struct msgbuf
			message[0] = 1
			for errno == 0 {
				_, _, errno = unix.Syscall6(unix.SYS_MSGSND, id, bytesPtr(message), 4096, unix.IPC_NOWAIT, 0, 0)
			}
			if errno == unix.EAGAIN { // it is full
				errno = 0
			}
		}
		return errnoErr(errno)
	},
	"servers": func(int) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Listen(fd, 1) // on a port that the kernel chooses
		}
		return err
	},
	"timers": newTimer,
	"signals under way": func(int) error {
		info := make([]byte, 128) // siginfo_t: si_code is at 8
		info[8], info[9], info[10], info[11] = 0xff, 0xff, 0xff, 0xff
		info[0] = 34
		_, _, errno := unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(unix.Gettid()), 34, bytesPtr(info), 0, 0)
		return errnoErr(errno)
	},
	"locks": func(n int) error {
		// Backwards, so that the kernel finds each one's place at once.
		fd, err := unix.Open("/tmp/locked", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		return unix.FcntlFlock(uintptr(fd), 37 /* F_OFD_SETLK */, &unix.Flock_t{Type: unix.F_RDLCK, Start: int64(1<<40 - 2*n), Len: 1})
	},
}

var (
	touched [][]byte
	under   []int
	block   = make([]byte, 4096)
)

func newTimer(int) error {
	id := bytesPtr(make([]byte, 8))
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, id)
	return errnoErr(errno)
}

func fill(path string, size int64) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if size == 0 {
		return nil
	}
	return unix.Fallocate(fd, 0, 0, size)
}

// forked kinds are limited for each process, so that several take them.
var forked = map[string]bool{"terminals": true, "descriptors under way": true, "pipes": true, "socket buffers": true}

// tryExhaust takes all it can get of the resource that args name, by as many
// processes as it needs, says what stopped it, and keeps it until its input ends.
func tryExhaust(args []string) (a Answer) {
	kind, take := args[0], takers[args[0]]
	if take == nil {
		a.saw(kind, "is no resource")
		return a
	}
	if kind == "signals under way" { // to this thread, which blocks them
		runtime.LockOSThread()
		set := make([]byte, 8)
		set[4] = 2 // signal 34
		_, _, _ = unix.Syscall6(unix.SYS_RT_SIGPROCMASK, 0, bytesPtr(set), 0, 8, 0, 0)
	}
	const enough = 1 << 20
	n, err := 0, error(nil)
	for n < enough {
		if err = take(n); err != nil {
			break
		}
		n++
	}
	a.saw(kind, result(err))
	a.neighbour(nil)
	a.Tries = append(a.Tries, Try{What: "taken", Result: strconv.Itoa(n), Want: strconv.Itoa(n)})
	// Another process of it goes on where this one's own limit was.
	if depth, _ := strconv.Atoi(args[1]); forked[kind] && depth > 0 && errors.Is(err, unix.EMFILE) {
		var limit unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
		for fd := limit.Cur - 8; fd < limit.Cur; fd++ { // room to start it
			unix.Close(int(fd))
		}
		cmd := exec.Command("/proc/self/exe", ProgramArgument, "exhaust", kind, strconv.Itoa(depth-1))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if cmd.Run() == nil {
			os.Exit(0)
		}
		// It could not even start: then that was the limit.
	}
	_ = json.NewEncoder(os.Stdout).Encode(a)
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
	return a
}

// tryInnocent does a bit of everything that programs do. Its first argument is
// whether it waits for its input's end in between, and does it once more.
func tryInnocent(args []string) (a Answer) {
	rounds := 1
	if len(args) > 0 && args[0] == "waits" {
		rounds = 2
	}
	for round := range rounds {
		if round > 0 {
			fmt.Fprintln(os.Stderr, "ready")
			_, _ = os.Stdin.Read(make([]byte, 1))
		}
		a.Tries = append(a.Tries, innocentWork()...)
	}
	a.neighbour(nil)
	return a
}

func innocentWork() []Try {
	var a Answer
	ok := func(what string, err error) { a.expect(what, err, "ok") }
	ok("start a program", exec.Command("/proc/self/exe", ProgramArgument, "list", "/tmp").Run())
	for _, dir := range []string{"/tmp", "/run", "/dev/shm", "/workspace"} {
		p := filepath.Join(dir, "innocent")
		ok("write in "+dir, fill(p, 1<<16))
		_ = os.Remove(p)
	}
	m, err := unix.Mmap(-1, 0, 8<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	ok("8 MiB of memory", err)
	if err == nil {
		_ = unix.Munmap(m)
	}
	closing := func(what string, fd int, err error) {
		ok(what, err)
		if err == nil {
			unix.Close(fd)
		}
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, "/tmp", unix.IN_CREATE)
	}
	closing("watch a directory", fd, err)
	fd, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	closing("open a terminal", fd, err)
	p := make([]int, 2)
	err = unix.Pipe2(p, unix.O_CLOEXEC)
	if err == nil {
		_, err = unix.Write(p[1], block)
		unix.Close(p[0])
		unix.Close(p[1])
	}
	ok("use a pipe", err)
	ok("pass a descriptor", passOwn())
	ok("make a timer", newTimer(0))
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	ok("make a shared segment", err)
	if err == nil {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	sem, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, unix.IPC_CREAT|0o600)
	ok("make a semaphore", errnoErr(errno))
	if errno == 0 {
		_, _, _ = unix.Syscall6(unix.SYS_SEMCTL, sem, 0, unix.IPC_RMID, 0, 0, 0)
	}
	ok("serve", ownServer("127.0.0.1:8081"))
	return a.Tries
}
