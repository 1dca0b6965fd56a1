//go:build linux

package sandboxtest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/kernel/landlock"
)

// attempts are run inside by Inside.
var attempts = map[string]func(args []string) Answer{
	"parent": tryParent, "find-key": tryFindKey, "init-cmdline": tryInitCommandLine, "signals": trySignals, "init-limits": tryInitLimits, "posture": tryPosture,
	"paths": tryPaths, "list": tryList, "masked": tryMasked, "descriptors": tryDescriptors, "set-id": trySetID, "devices": tryDevices, "read-only": tryReadOnly, "read-only-fifo": tryFIFO, "mount-flags": tryMountFlags,
	"network": tryNetwork, "unix": tryUnix, "metadata": tryMetadata, "unlisted": tryUnlisted, "protocols": tryProtocols,
	"namespaces": tryNamespaces, "mounts": tryMounts, "families": tryFamilies, "calls": tryCalls, "foreign": tryForeign, "terminal": tryTerminal,
	"sockets": trySockets, "foreign-sockets": tryForeignSockets, "socket-options": tryOptions, "capable": tryCapable, "tighten": tryTighten, "unix-verbs": tryUnixVerbs, "credentials": tryCredentials, "verbs": tryVerbs, "search": trySearch, "leaks": tryLeaks, "exhaust": tryExhaust, "innocent": tryInnocent, "swap": trySwap, "set-id-forms": trySetIDForms, "numbers": tryNumbers,
}

// Inside is the probe program's main function: it makes the attempt that args
// name and prints what it saw. It is of no use outside a sandbox.
func Inside(args []string, out io.Writer) int {
	if len(args) == 0 || attempts[args[0]] == nil {
		return 2
	}
	if err := json.NewEncoder(out).Encode(attempts[args[0]](args[1:])); err != nil {
		return 1
	}
	return 0
}

func parseAnswer(s string) (a Answer, err error) {
	if err = json.Unmarshal([]byte(s), &a); err != nil {
		err = fmt.Errorf("read answer %.200q: %w", s, err)
	}
	return a, err
}

// result is the name of what a call returned.
func result(err error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	switch {
	case errors.Is(err, reached):
		return letThrough
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.As(err, &dns):
		return "no such host"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	}
	return err.Error()
}

func (a *Answer) try(what string, err error) { a.expect(what, err, "") }

// expect is a try of which only one result holds.
func (a *Answer) expect(what string, err error, want string) {
	a.Tries = append(a.Tries, Try{What: what, Result: result(err), Want: want})
}

func (a *Answer) saw(what, res string) { a.Tries = append(a.Tries, Try{What: what, Result: res}) }

func (a *Answer) neighbour(err error) { a.Neighbour = result(err) }

// readable tries to read a little of a file, or to list a directory.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_, err = f.Readdirnames(1)
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	if _, err = f.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func tryParent([]string) (a Answer) {
	pids := []string{"1", strconv.Itoa(os.Getppid())}
	for _, pid := range pids {
		for _, f := range []string{"environ", "mem", "root/", "cwd/", "fd/", "maps", "exe", "ns/mnt", "task/1/environ"} {
			// Not there, as nothing above can be traced: a refusal would mean
			// that /proc shows it.
			a.expect("/proc/"+pid+"/"+f, readable("/proc/"+pid+"/"+f), "ENOENT")
		}
	}
	a.expect("attach to init", unix.PtraceAttach(1), "EPERM")
	var state unix.Stat_t
	a.expect("/proc/1", unix.Stat("/proc/1", &state), "ENOENT")
	a.neighbour(readable("/proc/self/environ"))
	return a
}

func tryFindKey(args []string) (a Answer) {
	key, err := hex.DecodeString(args[0])
	if err != nil || len(key) == 0 {
		a.saw("key", "none given")
		return a
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	more, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	tasks, _ := filepath.Glob("/proc/[0-9]*/task/*/environ")
	for _, f := range append(append(files, more...), tasks...) {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if bytes.Contains(b, key) {
			a.saw(f, "found the key")
			return a
		}
	}
	a.saw("search", "no match")
	own, err := os.ReadFile("/proc/self/cmdline")
	if err == nil && !bytes.Contains(own, []byte(args[0])) {
		err = errors.New("own command line not found")
	}
	a.neighbour(err)
	return a
}

func tryInitCommandLine([]string) (a Answer) {
	b, err := os.ReadFile("/proc/1/cmdline")
	switch {
	case err != nil:
		a.try("read", err)
	case len(bytes.Trim(b, "\x00")) == 0:
		a.saw("read", "empty")
	default:
		a.saw("read", fmt.Sprintf("%.60q", b))
	}
	a.neighbour(readable("/proc/self/cmdline"))
	return a
}

func trySignals([]string) (a Answer) {
	// Init ignores what it has no handler for, whoever may send it. Where
	// Landlock knows of signals, sending is refused before that.
	want := "ok"
	if landlock.Probe().Scopes()&unix.LANDLOCK_SCOPE_SIGNAL != 0 {
		want = "EPERM"
	}
	for _, s := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGSTOP, syscall.SIGKILL} {
		a.expect("kill 1", syscall.Kill(1, s), want)
	}
	a.expect("kill what is not there", syscall.Kill(2000000000, syscall.SIGKILL), "ESRCH")
	a.neighbour(syscall.Kill(os.Getpid(), 0))
	return a
}

// tryInitLimits asks for changes of init that are none. The kernel itself would
// allow them all, as init has the command's user.
func tryInitLimits([]string) (a Answer) {
	// What holds for this process already: init had the same from confine.
	limit, all, normal, size := bytesPtr(make([]byte, 16)), bytesPtr(bytes.Repeat([]byte{0xff}, 128)), bytesPtr(make([]byte, 48)), uintptr(128)
	_, _, errno := unix.Syscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CPU, 0, limit, 0, 0)
	a.Neighbour = result(errnoErr(errno))
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, 0) // as the raw call has it: 20 less the priority
	scheduler, _, _ := unix.Syscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	changes := func(pid uintptr, each func(string, error)) {
		do := func(what string, nr uintptr, args ...uintptr) {
			var x [6]uintptr
			copy(x[:], args)
			_, _, errno := unix.Syscall6(nr, x[0], x[1], x[2], x[3], x[4], x[5])
			each(what, errnoErr(errno))
		}
		do("set CPU limit", unix.SYS_PRLIMIT64, pid, unix.RLIMIT_CPU, limit, 0)
		do("read limit", unix.SYS_PRLIMIT64, pid, unix.RLIMIT_NOFILE, 0, bytesPtr(make([]byte, 16)))
		do("set priority", unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, pid, uintptr(20-nice))
		do("set processors", unix.SYS_SCHED_SETAFFINITY, pid, size, all)
		do("set scheduler", unix.SYS_SCHED_SETSCHEDULER, pid, scheduler, normal)
		do("set scheduling", unix.SYS_SCHED_SETPARAM, pid, normal)
		do("set I/O priority", unix.SYS_IOPRIO_SET, 1, pid, 0)
	}
	for _, pid := range []uintptr{1, 1 | highBits} {
		changes(pid, func(what string, err error) { a.expect(what+" of 1", err, "EPERM") })
	}
	for _, pid := range []uintptr{0, uintptr(os.Getpid())} {
		changes(pid, func(what string, err error) {
			if err != nil {
				a.Neighbour = what + " of itself: " + result(err)
			}
		})
	}
	return a
}

// tryPosture is given the number of filters there should be.
func tryPosture(args []string) (a Answer) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		a.try("read status", err)
		return a
	}
	want := map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": args[0],
	}
	for _, line := range strings.Split(string(b), "\n") {
		k, v, _ := strings.Cut(line, ":")
		w, ok := want[k]
		if !ok {
			continue
		}
		delete(want, k)
		if v = strings.TrimSpace(v); v == w {
			a.saw(k, "as expected")
		} else {
			a.saw(k, v)
		}
	}
	for k := range want {
		a.saw(k, "missing")
	}
	a.neighbour(nil)
	return a
}

func tryPaths(args []string) (a Answer) {
	for _, p := range args {
		for _, prefix := range []string{"", "/proc/1/root", "/proc/self/root", "/proc/thread-self/root", "/proc/self/cwd/../..", "/proc/self/fd/0/../..", "/../../.."} {
			a.try(prefix+p, readable(prefix+p))
		}
	}
	a.neighbour(readable("/workspace"))
	return a
}

func tryList(args []string) (a Answer) {
	entries, err := os.ReadDir(args[0])
	if err != nil {
		a.try("list", err)
	}
	for _, e := range entries {
		a.saw("list", e.Name())
	}
	a.neighbour(os.WriteFile(filepath.Join(args[0], ".probe"), nil, 0o600))
	os.Remove(filepath.Join(args[0], ".probe"))
	return a
}

func tryMasked(args []string) (a Answer) {
	os.Remove("linked")
	os.Remove("moved")
	for _, p := range args {
		b, err := os.ReadFile(p)
		if err != nil {
			a.try("read "+p, err)
		} else {
			a.saw("read "+p, fmt.Sprintf("read %d bytes", len(b)))
		}
		a.try("write "+p, os.WriteFile(p, []byte("x"), 0o600))
		a.try("link "+p, os.Link(p, "linked"))
		a.try("rename "+p, os.Rename(p, "moved"))
		a.try("rename over "+p, renameOver(p))
		a.try("remove "+p, os.Remove(p))
	}
	a.neighbour(readable("own.txt"))
	return a
}

func renameOver(p string) error {
	if err := os.WriteFile("own-new", []byte("x"), 0o600); err != nil {
		return nil
	}
	defer os.Remove("own-new")
	return os.Rename("own-new", p)
}

func tryDescriptors([]string) (a Answer) {
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			a.try("stat", err)
		} else if st.Mode&unix.S_IFMT == unix.S_IFIFO {
			a.saw("kind", "pipe")
		} else {
			a.saw("kind", fmt.Sprintf("mode %o", st.Mode))
		}
		_, err := unix.Openat(fd, "etc/passwd", unix.O_RDONLY, 0)
		a.try("open beneath", err)
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		// Go's own runtime holds an epoll and an event descriptor, and the
		// listing itself is one.
		l, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if !strings.HasPrefix(l, "pipe:") && !strings.HasPrefix(l, "anon_inode:") && l != "" {
			a.saw("descriptor "+e.Name(), l)
		}
	}
	a.neighbour(readable("/workspace"))
	return a
}

func trySetID(args []string) (a Answer) {
	f := args[0]
	for _, bits := range []uint32{unix.S_ISUID, unix.S_ISGID, unix.S_ISUID | unix.S_ISGID} {
		mode := 0o755 | bits
		a.try("chmod", unix.Chmod(f, mode))
		a.try("fchmodat", unix.Fchmodat(unix.AT_FDCWD, f, mode, 0))
		_, _, errno := unix.Syscall6(unix.SYS_FCHMODAT2, ^uintptr(99), strPtr(f), uintptr(mode), 0, 0, 0)
		a.try("fchmodat2", errnoErr(errno))
		fd, err := unix.Open(f, unix.O_RDONLY, 0)
		if err == nil {
			a.try("fchmod", unix.Fchmod(fd, mode))
			unix.Close(fd)
		}
		fd, err = unix.Open("created-"+strconv.Itoa(int(bits)), unix.O_CREAT|unix.O_WRONLY, mode)
		a.try("open", err)
		if err == nil {
			unix.Close(fd)
		}
		a.try("mknod", unix.Mknod("node-"+strconv.Itoa(int(bits)), unix.S_IFREG|mode, 0))
	}
	a.neighbour(unix.Chmod(f, 0o755))
	return a
}

func tryDevices([]string) (a Answer) {
	a.try("mknod character", unix.Mknod("dev", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	a.try("mknod block", unix.Mknod("blk", unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
	a.try("mknodat", unix.Mknodat(unix.AT_FDCWD, "dev2", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))))
	a.try("remove /dev/null", os.Remove("/dev/null"))
	a.try("link in /dev", os.Symlink("/proc/sys/kernel/core_pattern", "/dev/other"))
	a.neighbour(unix.Mknod("fifo", unix.S_IFIFO|0o600, 0))
	return a
}

func errnoErr(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

const dialTime = 3 * time.Second

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
