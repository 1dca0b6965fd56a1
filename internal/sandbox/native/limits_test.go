//go:build linux

package native

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// glutton is where the view shows this test binary, which then runs gluttony.
const glutton = "/usr-glutton"

func TestMain(m *testing.M) {
	if os.Args[0] == glutton {
		gluttony(os.Args[1], os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// gluttony takes what its name says, says "took", and keeps it for a while.
func gluttony(what string, args []string) {
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		must(err)
		return n
	}
	touch := func(b []byte) {
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	mapped := func(fd, size, prot, flags int) []byte {
		b, err := unix.Mmap(fd, 0, size, prot, flags)
		must(err)
		return b
	}
	const rw = unix.PROT_READ | unix.PROT_WRITE
	switch what {
	case "shared":
		touch(mapped(-1, number(0)<<20, rw, unix.MAP_SHARED|unix.MAP_ANONYMOUS))
	case "shared, out of sight": // not in any page table any more
		b := mapped(-1, number(0)<<20, rw, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		touch(b)
		must(unix.Madvise(b, unix.MADV_DONTNEED))
	case "memfd":
		fd, err := unix.MemfdCreate("x", 0)
		must(err)
		fill(fd, number(0))
	case "memfd, mapped": // once, whatever the ways to see it
		fd, err := unix.MemfdCreate("x", 0)
		must(err)
		fill(fd, number(0))
		touch(mapped(fd, number(0)<<20, rw, unix.MAP_SHARED))
		_, err = unix.Dup(fd)
		must(err)
	case "secret":
		fd, err := unix.MemfdSecret(0)
		must(err)
		must(unix.Ftruncate(fd, int64(number(0))<<20))
		const window = 4 << 20
		for off := 0; off < number(0)<<20; off += window {
			b, err := unix.Mmap(fd, int64(off), window, rw, unix.MAP_SHARED)
			must(err)
			touch(b)
			must(unix.Munmap(b))
		}
	case "segment": // System V, detached
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, number(0)<<20, unix.IPC_CREAT|0o600)
		must(err)
		b, err := unix.SysvShmAttach(id, 0, 0)
		must(err)
		touch(b)
		must(unix.SysvShmDetach(b))
	case "segment, attached":
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, number(0)<<20, unix.IPC_CREAT|0o600)
		must(err)
		b, err := unix.SysvShmAttach(id, 0, 0)
		must(err)
		touch(b)
	case "queues": // System V messages: the kernel's memory
		msg := make([]byte, 8+8192)
		msg[0] = 1
		for left := number(0) << 20; left > 0; {
			id, _, e := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600, 0)
			if e != 0 {
				must(e)
			}
			for range 2 {
				if _, _, e := unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&msg[0])), 8192, unix.IPC_NOWAIT, 0, 0); e != 0 {
					must(e)
				}
				left -= 8192
			}
		}
	case "page tables": // of memory that is only read
		const span = 2 << 20
		size := number(0) << 20 / 4096 * span
		b := mapped(-1, size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		must(unix.Madvise(b, unix.MADV_NOHUGEPAGE))
		sum := byte(0)
		for i := 0; i < size; i += span {
			sum += b[i]
		}
		fmt.Fprint(os.Stderr, strings.Repeat(" ", int(sum)))
	case "file", "file, mapped", "unlinked", "unlinked, mapped alone", "reserved", "hidden directory":
		greedyFile(what, args[1], number(0), mapped)
	case "empty files":
		for i := range number(0) {
			f, err := os.Create(filepath.Join(args[1], strconv.Itoa(i)))
			if err != nil {
				fmt.Println("created", i, err)
				return
			}
			f.Close()
		}
	case "watches":
		n := 0
		for ; n < 1<<16; n++ {
			if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
				break
			}
		}
		fmt.Println("instances", n)
	default:
		must(fmt.Errorf("no such thing: %q", what))
	}
	fmt.Println("took")
	rest := os.Getenv("REST")
	if rest == "" {
		rest = "0s"
	}
	d, err := time.ParseDuration(rest)
	must(err)
	<-time.After(d) // nothing tells it that it was looked at
}

func greedyFile(what, path string, size int, mapped func(fd, size, prot, flags int) []byte) {
	if what == "hidden directory" {
		must(os.MkdirAll(filepath.Dir(path), 0o700))
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT, 0o600)
	must(err)
	if what == "reserved" { // blocks, and no size
		must(unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, int64(size)<<20))
		return
	}
	if what == "unlinked" {
		must(unix.Unlink(path))
	}
	fill(fd, size)
	switch what {
	case "file, mapped", "unlinked, mapped alone":
		for i, b := 0, mapped(fd, size<<20, unix.PROT_READ, unix.MAP_SHARED); i < len(b); i += 4096 {
			if b[i] != 1 {
				panic("not what was written")
			}
		}
	case "hidden directory":
		must(os.Chmod(filepath.Dir(path), 0))
	}
	if what == "unlinked, mapped alone" {
		must(unix.Unlink(path))
		must(unix.Close(fd))
	}
}

func fill(fd, mib int) {
	chunk := bytes.Repeat([]byte{1}, 1<<20)
	for range mib {
		_, err := unix.Write(fd, chunk)
		must(err)
	}
}

func must(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(9)
	}
}

// gluttonBase is a boundary with the glutton in it and a /tmp of 400 MiB.
func gluttonBase(t *testing.T) boundary.Boundary {
	t.Helper()
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := base()
	b.View.Mounts[1].Size = 400 << 20
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: exe, Target: glutton, Owned: true})
	b.Env = append(b.Env, "REST=0s", "GOGC=off")
	return b
}

func resting(b boundary.Boundary, d time.Duration) boundary.Boundary {
	b.Env = append(b.Env[:len(b.Env):len(b.Env)], "REST="+d.String())
	for i, e := range b.Env[:len(b.Env)-1] {
		if strings.HasPrefix(e, "REST=") {
			b.Env = append(b.Env[:i:i], b.Env[i+1:]...)
			break
		}
	}
	return b
}

func gorge(t *testing.T, b boundary.Boundary, args ...string) (string, sandbox.Exit) {
	t.Helper()
	var out bytes.Buffer
	r, err := Driver{noCgroup: true}.Start(context.Background(), sandbox.Spec{Boundary: b, Args: append([]string{glutton}, args...), Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	e := r.Wait()
	return out.String(), e
}

// TestMemoryLimitCountsEveryKind: without a control group the watchdog finds
// memory that no process has to itself, and counts none of it twice.
func TestMemoryLimitCountsEveryKind(t *testing.T) {
	for _, what := range [][]string{
		{"shared", "300"}, {"shared, out of sight", "300"}, {"memfd", "300"}, {"memfd, mapped", "300"}, {"secret", "200"}, {"segment", "300"}, {"segment, attached", "300"},
		{"queues", "200"}, {"page tables", "200"}, {"file", "300", "/tmp/f"}, {"file, mapped", "300", "/tmp/f"}, {"unlinked", "200", "/dev/shm/f"},
		{"empty files", "60000", "/tmp"},
	} {
		t.Run(what[0], func(t *testing.T) {
			t.Parallel() // mostly waiting; the controls run before
			b := gluttonBase(t)
			b.Limits.Memory = 128 << 20
			if what[0] == "empty files" {
				b.Limits.Memory = 32 << 20
			}
			if out, e := gorge(t, resting(b, 4*time.Second), what...); e.Reason != sandbox.OutOfMemory || e.Status != 137 {
				t.Errorf("%q, %+v", out, e)
			}
		})
	}
	for _, what := range [][]string{
		{"shared", "80"}, {"memfd", "80"}, {"memfd, mapped", "80"}, {"segment, attached", "80"}, {"file, mapped", "80", "/tmp/f"}, {"page tables", "40"},
		{"empty files", "20000", "/tmp"},
	} {
		b := gluttonBase(t)
		b.Limits.Memory = 128 << 20
		if out, e := gorge(t, resting(b, 1500*time.Millisecond), what...); !e.Success() || !strings.Contains(out, "took") {
			t.Errorf("control: %s: %q, %+v", what[0], out, e)
		}
	}
}

// TestForksAreCountedOnce: children that share their parent's memory do not
// multiply it.
func TestForksAreCountedOnce(t *testing.T) {
	b := gluttonBase(t)
	b.Limits.Memory = 150 << 20
	const script = `x=$(head -c 30000000 /dev/zero | tr "\0" a); for i in 1 2 3 4 5 6; do (sleep 1; true) & done; wait; echo all`
	var out bytes.Buffer
	r, err := Driver{noCgroup: true}.Start(context.Background(), sandbox.Spec{Boundary: b, Args: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if e := r.Wait(); !e.Success() || out.String() != "all\n" {
		t.Errorf("%q, %+v", out.String(), e)
	}
}

// TestEmptyFilesHaveALimit: files without content take the kernel's memory.
func TestEmptyFilesHaveALimit(t *testing.T) {
	b := gluttonBase(t)
	b.View.Mounts[1].Size = 16 << 20
	out, e := gorge(t, b, "empty files", "20000", "/tmp")
	if !e.Success() || !strings.Contains(out, "created") || !strings.Contains(out, "no space left") {
		t.Errorf("%q, %+v", out, e)
	}
	if out, e := gorge(t, b, "empty files", "4000", "/tmp"); !e.Success() || !strings.Contains(out, "took") {
		t.Errorf("control: %q, %+v", out, e)
	}
}

// TestDiskLimitCountsWhatHasNoName: files that were unlinked, or reserved, or
// that only a mapping holds.
func TestDiskLimitCountsWhatHasNoName(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"file", "unlinked", "unlinked, mapped alone", "reserved", "hidden directory"} {
		for _, size := range []string{"300", "50"} {
			t.Run(what+" "+size, func(t *testing.T) {
				if what != "hidden directory" {
					t.Parallel() // for that one the whole file system's growth counts
				}
				work := filepath.Join(dir, what+size)
				if err := os.Mkdir(work, 0o755); err != nil {
					t.Fatal(err)
				}
				b := gluttonBase(t)
				b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: work, Target: "/workspace", Writable: true})
				b.Limits.Disk = 100 << 20
				rest := 5 * time.Second
				if size == "50" {
					rest = 2500 * time.Millisecond
				}
				path := "/workspace/f"
				if what == "hidden directory" {
					path = "/workspace/d/f"
				}
				out, e := gorge(t, resting(b, rest), what, size, path)
				if what == "hidden directory" {
					if err := os.Chmod(filepath.Join(work, "d"), 0o700); err != nil {
						t.Error(err)
					}
				}
				if size == "300" && (e.Reason != sandbox.DiskFull || e.Status != 137) {
					t.Errorf("%s: %q, %+v", what, out, e)
				}
				if size == "50" && (!e.Success() || !strings.Contains(out, "took")) {
					t.Errorf("control: %s: %q, %+v", what, out, e)
				}
				os.RemoveAll(work)
			})
		}
	}
}

// TestInotifyIsLeftForOthers: a sandbox that takes all the inotify instances it
// gets leaves some to its user, and to the next sandbox.
func TestInotifyIsLeftForOthers(t *testing.T) {
	b := gluttonBase(t)
	before := inotifyInstances()
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	r, err := Driver{}.Start(context.Background(), sandbox.Spec{Boundary: resting(b, 20*time.Second), Args: []string{glutton, "watches"}, Stdout: pw})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Wait()
	defer r.Kill()
	buf := make([]byte, 100)
	n, err := pr.Read(buf)
	var took int
	if _, scanErr := fmt.Sscanf(string(buf[:n]), "instances %d", &took); err != nil || scanErr != nil || took < 1 {
		t.Fatalf("%q: %v, %v", buf[:n], err, scanErr)
	}
	left := inotifyInstances()
	if left == 0 || os.Geteuid() == 0 && left <= before-took/2 {
		// Root's sandbox has a user of its own, so root has as many as before.
		t.Errorf("outside %d, after %d inside %d", before, took, left)
	}
	if out, e := gorge(t, b, "watches"); !e.Success() || strings.Contains(out, "instances 0\n") {
		t.Errorf("the next sandbox: %q, %+v", out, e)
	}
}

// inotifyInstances is how many this user can still make.
func inotifyInstances() int {
	var fds []int
	for len(fds) < 1<<16 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return len(fds)
}

// TestSandboxOwnerIsPutBack: no thread of the engine stays the sandbox's user.
func TestSandboxOwnerIsPutBack(t *testing.T) {
	for range 3 {
		if _, e := runIn(t, base(), "true"); !e.Success() {
			t.Fatalf("%+v", e)
		}
	}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatal(tasks, err)
	}
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that ended
		}
		_, rest, _ := strings.Cut(string(b), "\nUid:")
		ids := strings.Fields(rest)[:4]
		if want := strconv.Itoa(os.Geteuid()); strings.Join(ids, " ") != strings.Join([]string{want, want, want, want}, " ") {
			t.Errorf("%s: %v", f, ids)
		}
	}
}

// TestOOMKillIsCounted: with a control group, the end of a process that was not
// the command is no secret either.
func TestOOMKillIsCounted(t *testing.T) {
	if _, err := discover(); err != nil {
		return // no group here: the watchdog ends the whole sandbox
	}
	b := base()
	b.Limits.Memory = 64 << 20
	out, e := runIn(t, b, "sh", "-c", "sh -c '"+hungry+"'; s=$?; echo status $s; exit $s")
	if e.Reason == sandbox.OutOfMemory && e.OOMKills > 0 {
		return // version 2 ends all of them together
	}
	if e.Reason != sandbox.Exited || e.Status != 137 || e.OOMKills < 1 || !strings.Contains(out, "status 137") {
		t.Errorf("%q, %+v", out, e)
	}
	if _, e := runIn(t, b, "sh", "-c", "kill -KILL $$"); e.OOMKills != 0 || e.Reason != sandbox.Signalled {
		t.Errorf("control: %+v", e)
	}
}

// TestFileSizeLimitOfTheCaller: what the view has to write does not fit, and the
// error says whose limit that is.
func TestFileSizeLimitOfTheCaller(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1024, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &old)
	b := base()
	b.View.Files = []boundary.File{{Path: "/etc/small", Mode: 0o644, Data: make([]byte, 1000)}}
	if _, err := (Driver{}).Start(context.Background(), sandbox.Spec{Boundary: b, Args: []string{"true"}}); err != nil {
		t.Errorf("control: %v", err)
	}
	b.View.Files = append(b.View.Files, boundary.File{Path: "/etc/large", Mode: 0o644, Data: make([]byte, 2000)})
	_, err := Driver{}.Start(context.Background(), sandbox.Spec{Boundary: b, Args: []string{"true"}})
	se, ok := err.(*sandbox.StartError)
	if !ok || se.Err != syscall.EFBIG || !strings.Contains(se.Step, `"/etc/large"`) || !strings.Contains(se.Hint, "ulimit -f") {
		t.Errorf("%#v", err)
	}
}
