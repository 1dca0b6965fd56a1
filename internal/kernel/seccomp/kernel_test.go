//go:build linux

package seccomp

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
)

// These tests load the filter in a process and make the calls. Denials carry
// an errno that no kernel function returns, so that a call which fails for
// another reason is not taken for one that was refused; a second run shows that
// the shipped filter answers EPERM and ENOSYS in the same places.
const (
	markRefuse = unix.Errno(777)
	markAbsent = unix.Errno(778)
)

// unfiltered and the others are filters a process can be started under.
const (
	unfiltered = "none"
	marked     = "marked"
	shipped    = "shipped"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "attempts" {
		if err := json.NewEncoder(os.Stdout).Encode(makeAttempts(os.Args[2])); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "x32" {
		syscall.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "i386" {
		callI386()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attempt is one call of a process under test.
type attempt struct {
	name string
	nr   uintptr
	args [6]uintptr
	// want is the answer of the marked filter; 0 where it lets the call
	// through, and then the answer must be that of no filter.
	want unix.Errno
	// control is the answer without a filter where it is known, else -1.
	control int
}

// makeAttempts makes every call of table and returns the answers.
func makeAttempts(dir string) map[string]int {
	out := map[string]int{}
	for _, a := range table(dir) {
		_, _, e := syscall.RawSyscall6(a.nr, a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
		out[a.name] = int(e)
	}
	return out
}

const any64 = ^uintptr(0)

// table is all attempts: each refused and absent call with arguments that do
// nothing, and each argument rule with what it refuses and its neighbours.
func table(dir string) []attempt {
	var out []attempt
	add := func(name string, nr uintptr, want unix.Errno, control int, args ...uintptr) {
		a := attempt{name: name, nr: nr, want: want, control: control}
		copy(a.args[:], args)
		out = append(out, a)
	}
	for _, name := range Default().Refused {
		nr, ok := native.number(name)
		// vhangup takes no arguments, so without a filter it would do it.
		if ok && name != "vhangup" {
			add(name, uintptr(nr), markRefuse, -1, any64, any64, any64, any64, any64, any64)
		}
	}
	for _, name := range []string{"clone3", "openat2", "statmount", "listmount"} {
		nr, _ := native.number(name)
		add(name, uintptr(nr), markAbsent, -1)
	}
	add("a call of the future", 600, markAbsent, int(unix.ENOSYS))
	addSockets(add)
	addFiles(add, dir)
	// With CLONE_THREAD a new user namespace is EINVAL, so nothing is made.
	add("clone: new user namespace", unix.SYS_CLONE, markRefuse, int(unix.EINVAL), unix.CLONE_NEWUSER|unix.CLONE_THREAD)
	add("clone: new network and high bits", unix.SYS_CLONE, markRefuse, int(unix.EINVAL), 1<<40|unix.CLONE_NEWNET|unix.CLONE_THREAD)
	add("clone: neighbour", unix.SYS_CLONE, 0, int(unix.EINVAL), unix.CLONE_THREAD)
	add("ioctl: TIOCSTI", unix.SYS_IOCTL, markRefuse, int(unix.EBADF), any64, unix.TIOCSTI)
	add("ioctl: TIOCSTI and high bits", unix.SYS_IOCTL, markRefuse, int(unix.EBADF), any64, 1<<32|unix.TIOCSTI)
	add("ioctl: TIOCLINUX", unix.SYS_IOCTL, markRefuse, int(unix.EBADF), any64, unix.TIOCLINUX)
	add("ioctl: TIOCSETD", unix.SYS_IOCTL, markRefuse, int(unix.EBADF), any64, unix.TIOCSETD)
	add("ioctl: neighbour", unix.SYS_IOCTL, 0, int(unix.EBADF), any64, unix.TIOCGWINSZ)
	add("setsockopt: upper layer protocol", unix.SYS_SETSOCKOPT, markRefuse, int(unix.EBADF), any64, unix.IPPROTO_TCP, 1<<32|unix.TCP_ULP)
	add("setsockopt: neighbour", unix.SYS_SETSOCKOPT, 0, int(unix.EBADF), any64, unix.IPPROTO_TCP, unix.TCP_NODELAY)
	add("setsockopt: same number, other level", unix.SYS_SETSOCKOPT, 0, int(unix.EBADF), any64, unix.SOL_SOCKET, unix.TCP_ULP)
	add("no call", any64, markAbsent, int(unix.ENOSYS))
	add("personality: readable is executable", unix.SYS_PERSONALITY, markRefuse, 0, 0x0400000)
	add("personality: neighbour", unix.SYS_PERSONALITY, 0, 0, 0xffffffff)
	addInit(add)
	for _, name := range []string{"getpid", "getuid", "sched_yield"} {
		nr, _ := native.number(name)
		add(name, uintptr(nr), 0, 0)
	}
	return out
}

// addInit tries to act on process 1, with arguments that are wrong otherwise: the
// control is made on the host's.
func addInit(add func(string, uintptr, unix.Errno, int, ...uintptr)) {
	bad, self := int(unix.EINVAL), uintptr(os.Getpid())
	for _, c := range []struct {
		name string
		nr   uintptr
		pid  int // index of the argument
		args [4]uintptr
		// neighbour is the answer to the same call on oneself.
		neighbour int
	}{
		{"prlimit64", unix.SYS_PRLIMIT64, 0, [4]uintptr{0, unix.RLIMIT_CPU, 0, 0}, 0},
		{"prlimit64: set", unix.SYS_PRLIMIT64, 0, [4]uintptr{0, any64, 0, 0}, bad},
		{"sched_setaffinity", unix.SYS_SCHED_SETAFFINITY, 0, [4]uintptr{}, bad},
		{"sched_setscheduler", unix.SYS_SCHED_SETSCHEDULER, 0, [4]uintptr{0, any64}, bad},
		{"sched_setparam", unix.SYS_SCHED_SETPARAM, 0, [4]uintptr{}, bad},
		{"sched_setattr", unix.SYS_SCHED_SETATTR, 0, [4]uintptr{}, bad},
		{"setpriority", unix.SYS_SETPRIORITY, 1, [4]uintptr{99}, bad},
		{"ioprio_set", unix.SYS_IOPRIO_SET, 1, [4]uintptr{99}, bad},
		{"move_pages", unix.SYS_MOVE_PAGES, 0, [4]uintptr{}, -1},
		{"migrate_pages", unix.SYS_MIGRATE_PAGES, 0, [4]uintptr{0, any64}, -1},
	} {
		on := func(pid uintptr) []uintptr { a := c.args; a[c.pid] = pid; return a[:] }
		add(c.name+": init", c.nr, markRefuse, -1, on(1)...)
		add(c.name+": init and high bits", c.nr, markRefuse, -1, on(1<<32|1)...)
		add(c.name+": oneself", c.nr, 0, c.neighbour, on(0)...)
		add(c.name+": oneself by number", c.nr, 0, c.neighbour, on(self)...)
	}
}

func addSockets(add func(string, uintptr, unix.Errno, int, ...uintptr)) {
	const cloexec = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	for _, s := range []struct {
		name   string
		want   unix.Errno
		ok     int
		family uintptr
		kind   uintptr
		proto  uintptr
	}{
		{"tcp", 0, 0, unix.AF_INET, unix.SOCK_STREAM | cloexec, 0},
		{"tcp by number, IPv6", 0, 0, unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP},
		{"udp", 0, 0, unix.AF_INET6, unix.SOCK_DGRAM | cloexec, unix.IPPROTO_UDP},
		{"unix stream", 0, 0, unix.AF_UNIX, unix.SOCK_STREAM, 0},
		{"unix seqpacket", 0, 0, unix.AF_UNIX, unix.SOCK_SEQPACKET | cloexec, 0},
		{"route", 0, 0, unix.AF_NETLINK, unix.SOCK_RAW | cloexec, unix.NETLINK_ROUTE},
		{"mptcp", markRefuse, -1, unix.AF_INET, unix.SOCK_STREAM, 262},
		{"udp lite", markRefuse, -1, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		{"ping", markRefuse, -1, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		{"raw", markRefuse, -1, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"sctp", markRefuse, -1, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{"sock_diag", markRefuse, 0, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
		{"netfilter", markRefuse, -1, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"kernel events", markRefuse, 0, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		{"packet", markRefuse, -1, unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"crypto", markRefuse, -1, unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"vsock", markRefuse, -1, unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"no family", markRefuse, int(unix.EAFNOSUPPORT), any64, unix.SOCK_STREAM, 0},
		// The kernel drops the high half of each argument: it must not hide
		// what the low half asks for, nor forbid what it allows.
		{"sock_diag behind high bits", markRefuse, 0, 1<<32 | unix.AF_NETLINK, 1<<32 | unix.SOCK_RAW, 1<<32 | unix.NETLINK_SOCK_DIAG},
		{"tcp behind high bits", 0, 0, 1<<32 | unix.AF_INET, 1<<32 | unix.SOCK_STREAM, 1 << 32},
	} {
		add("socket: "+s.name, unix.SYS_SOCKET, s.want, s.ok, s.family, s.kind, s.proto)
	}
	add("socketpair: inet", unix.SYS_SOCKETPAIR, markRefuse, -1, unix.AF_INET, unix.SOCK_STREAM, 0, 0)
	add("socketpair: neighbour", unix.SYS_SOCKETPAIR, 0, int(unix.EFAULT), unix.AF_UNIX, unix.SOCK_STREAM, 0, 0)
}

func addFiles(add func(string, uintptr, unix.Errno, int, ...uintptr), dir string) {
	here := cstring(dir)
	file, made := cstring(filepath.Join(dir, "file")), cstring(filepath.Join(dir, "made"))
	fifo := cstring(filepath.Join(dir, "fifo"))
	at := atCWD()
	for _, bit := range []struct {
		name string
		mode uintptr
	}{{"set-user-id", unix.S_ISUID}, {"set-group-id", unix.S_ISGID}} {
		add("fchmodat: "+bit.name, unix.SYS_FCHMODAT, markRefuse, 0, at, file, bit.mode|0o755)
		add("fchmodat2: "+bit.name, unix.SYS_FCHMODAT2, markRefuse, -1, at, file, bit.mode|0o755, 0)
		add("fchmod: "+bit.name, unix.SYS_FCHMOD, markRefuse, int(unix.EBADF), any64, bit.mode|0o755)
		add("openat: create "+bit.name, unix.SYS_OPENAT, markRefuse, 0, at, made, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, bit.mode|0o755)
		add("openat: temporary "+bit.name, unix.SYS_OPENAT, markRefuse, -1, at, here, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, bit.mode|0o755)
		add("mknodat: "+bit.name, unix.SYS_MKNODAT, markRefuse, int(unix.EEXIST), at, file, unix.S_IFREG|bit.mode|0o755, 0)
	}
	add("mknodat: character device", unix.SYS_MKNODAT, markRefuse, -1, at, cstring(filepath.Join(dir, "c")), unix.S_IFCHR|0o600, 1<<8|3)
	add("mknodat: block device", unix.SYS_MKNODAT, markRefuse, -1, at, cstring(filepath.Join(dir, "b")), unix.S_IFBLK|0o600, 7<<8)
	add("mknodat: neighbour", unix.SYS_MKNODAT, 0, 0, at, fifo, unix.S_IFIFO|0o600, 0)
	add("fchmodat: neighbour", unix.SYS_FCHMODAT, 0, 0, at, file, unix.S_ISVTX|0o755)
	// Without a flag that creates, the mode is whatever the register held.
	add("openat: garbage in the mode", unix.SYS_OPENAT, 0, 0, at, file, unix.O_RDONLY|unix.O_CLOEXEC, any64)
}

// under starts this program again under a filter and returns its output.
func under(t *testing.T, filter string, args ...string) ([]byte, unix.WaitStatus) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	keep := []int{int(w.Fd())}
	p, b := kernel.NewProgram()
	b.Call("standard output", unix.SYS_DUP3, kernel.Int(kernel.KeptFD(keep, 0)), kernel.Int(1), kernel.Int(0))
	if filter != unfiltered {
		install(t, p, b, filter == marked)
	}
	b.UnblockSignals()
	b.Exec("execute", p.Str(program), p.Vector(append([]string{program}, args...)), p.Vector([]string{"GOTRACEBACK=none"}))
	child, err := p.Start(0, keep)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	if err := child.Started(); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(child.PID, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	return out, ws
}

func install(t *testing.T, p *kernel.Program, b *kernel.Block, mark bool) {
	filter, err := Compile(Default())
	if err != nil {
		t.Fatal(err)
	}
	if mark {
		filter = slices.Clone(filter)
		for i := range filter {
			switch {
			case filter[i] == ret(Refuse):
				filter[i] = ret(0x00050000 | Action(markRefuse))
			case filter[i] == ret(Absent):
				filter[i] = ret(0x00050000 | Action(markAbsent))
			}
		}
	}
	code := make([]byte, 0, 8*len(filter))
	for _, f := range filter {
		code = append(code, byte(f.Code), byte(f.Code>>8), f.Jt, f.Jf, byte(f.K), byte(f.K>>8), byte(f.K>>16), byte(f.K>>24))
	}
	b.Call("forbid new privileges", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_NO_NEW_PRIVS), kernel.Int(1), kernel.Int(0), kernel.Int(0), kernel.Int(0))
	b.Call("load filter", unix.SYS_SECCOMP, kernel.Int(1), kernel.Int(0), p.Words(kernel.Int(len(filter)), p.Bytes(code)))
}

// answers runs all attempts in a fresh directory.
func answers(t *testing.T, filter string) map[string]int {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, ws := under(t, filter, "attempts", dir)
	if !ws.Exited() || ws.ExitStatus() != 0 {
		t.Fatalf("the process ended with %#x: %q", ws, out)
	}
	var got map[string]int
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return got
}

func TestKernelAnswersAsThePolicySays(t *testing.T) {
	without, with, exact := answers(t, unfiltered), answers(t, marked), answers(t, shipped)
	attempts := table("")
	for _, a := range attempts {
		w, m, e := without[a.name], with[a.name], exact[a.name]
		if w == int(markRefuse) || w == int(markAbsent) || a.control >= 0 && w != a.control {
			t.Errorf("%s: the control answers %v", a.name, unix.Errno(w))
		}
		final := map[unix.Errno]int{markRefuse: int(unix.EPERM), markAbsent: int(unix.ENOSYS), 0: w}[a.want]
		if a.want == 0 && m != w || a.want != 0 && m != int(a.want) {
			t.Errorf("%s: %v under the marked filter, %v without, want %d", a.name, unix.Errno(m), unix.Errno(w), int(a.want))
		}
		if e != final {
			t.Errorf("%s: %v under the filter, want %v", a.name, unix.Errno(e), unix.Errno(final))
		}
	}
	if len(attempts) < 100 || len(with) != len(attempts) {
		t.Errorf("%d attempts, %d answers", len(attempts), len(with))
	}
}

// TestForeignCallsKill: numbers of another convention mean other calls, so their
// use ends the process; without the filter it goes on. Some hosts have no int
// $0x80 at all (the instruction is a fault there, before any filter): then the
// process must end by that, and x32 alone has the whole proof.
func TestForeignCallsKill(t *testing.T) {
	for _, abi := range foreignABIs {
		_, control := under(t, unfiltered, abi)
		works := control.Exited() && control.ExitStatus() == 0
		if !works && abi != "i386" {
			t.Errorf("%s without the filter: %#x", abi, control)
		}
		_, ws := under(t, shipped, abi)
		if killed := ws.Signaled() && ws.Signal() == unix.SIGSYS; works && !killed || ws == 0 {
			t.Errorf("%s under the filter: %#x", abi, ws)
		}
	}
}

// TestUnderTheFilterFiltersStack: a program may still restrict itself further.
func TestUnderTheFilterFiltersStack(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, b := kernel.NewProgram()
	install(t, p, b, false)
	install(t, p, b, true)
	b.UnblockSignals()
	b.Exec("execute", p.Str(program), p.Vector([]string{program, "attempts", t.TempDir()}), p.Vector(nil))
	child, err := p.Start(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Started(); err != nil {
		t.Error(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(child.PID, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAttemptNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range table("") {
		if seen[a.name] || strings.TrimSpace(a.name) == "" {
			t.Errorf("%q twice", a.name)
		}
		seen[a.name] = true
	}
}
