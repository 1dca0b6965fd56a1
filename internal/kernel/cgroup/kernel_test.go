//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
)

// discover returns nil where this user may use no group, which only an ordinary
// user may be told.
func discover(t *testing.T) *Host {
	t.Helper()
	h, err := Discover()
	var missing *kernel.MissingError
	if errors.As(err, &missing) && os.Geteuid() != 0 {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// started is a process that waits, in a group or in none, to run its steps.
type started struct {
	t     *testing.T
	child *kernel.Child
	start *os.File
}

func start(t *testing.T, steps func(*kernel.Program, *kernel.Block)) *started {
	t.Helper()
	wait, start, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer wait.Close()
	keep := []int{int(wait.Fd())}
	p, b := kernel.NewProgram()
	b.Call("wait for the start", unix.SYS_READ, kernel.Int(kernel.KeptFD(keep, 0)), p.Buffer(1), kernel.Int(1)).Expect(1)
	steps(p, b)
	b.Call("end", unix.SYS_EXIT_GROUP, kernel.Int(0))
	// The end of the first process of a PID namespace is the end of all others.
	child, err := p.Start(unix.CLONE_NEWUSER|unix.CLONE_NEWPID, keep)
	if err != nil {
		t.Fatal(err)
	}
	return &started{t, child, start}
}

// finish lets it run and returns how it ended.
func (s *started) finish() (error, unix.WaitStatus) {
	s.t.Helper()
	if _, err := s.start.Write([]byte{1}); err != nil {
		s.t.Fatal(err)
	}
	s.start.Close()
	return s.end()
}

func (s *started) end() (error, unix.WaitStatus) {
	s.t.Helper()
	err := s.child.Started()
	var ws unix.WaitStatus
	if _, waitErr := unix.Wait4(s.child.PID, &ws, 0, nil); waitErr != nil {
		s.t.Fatal(waitErr)
	}
	return err, ws
}

// in runs the steps in a group with limits, and in none.
func in(t *testing.T, h *Host, limits boundary.Limits, steps func(*kernel.Program, *kernel.Block), check func(g *Group, err error, ws unix.WaitStatus)) {
	t.Helper()
	if err, ws := start(t, steps).finish(); err != nil || ws != 0 {
		t.Errorf("the control fails: %v, %#x", err, ws)
	}
	g, err := h.Make("t", limits)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, steps)
	if err := g.Join(s.child.PID); err != nil {
		t.Error(err)
	}
	stepErr, ws := s.finish()
	check(g, stepErr, ws)
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func TestMemoryLimitKills(t *testing.T) {
	h := discover(t)
	if h == nil {
		return
	}
	const limit, more = 8 << 20, 24 << 20
	take := func(_ *kernel.Program, b *kernel.Block) {
		mem := b.Call("take memory", unix.SYS_MMAP, kernel.Int(0), kernel.Int(more), kernel.Int(unix.PROT_READ|unix.PROT_WRITE),
			kernel.Int(unix.MAP_PRIVATE|unix.MAP_ANONYMOUS), kernel.Int(^uintptr(0)), kernel.Int(0)).Result()
		b.Call("fill it", unix.SYS_GETRANDOM, mem.Arg(), kernel.Int(more), kernel.Int(0))
	}
	in(t, h, boundary.Limits{Memory: limit}, take, func(g *Group, err error, ws unix.WaitStatus) {
		if !ws.Signaled() || ws.Signal() != unix.SIGKILL || g.OOMKills() == 0 {
			t.Errorf("over the limit: %v, %#x, %d kills counted", err, ws, g.OOMKills())
		}
	})
	in(t, h, boundary.Limits{Memory: 2 * more}, take, func(g *Group, err error, ws unix.WaitStatus) {
		if err != nil || ws != 0 || g.OOMKills() != 0 {
			t.Errorf("within the limit: %v, %#x, %d kills counted", err, ws, g.OOMKills())
		}
	})
}

func TestPidsLimitRefusesForks(t *testing.T) {
	h := discover(t)
	if h == nil {
		return
	}
	// Two more than the limit are confine's own, so three forks beside the
	// first process are the last that work.
	forks := func(n int) func(*kernel.Program, *kernel.Block) {
		return func(p *kernel.Program, b *kernel.Block) {
			for range n {
				child := p.NewBlock()
				child.Call("end", unix.SYS_EXIT_GROUP, kernel.Int(0))
				// Not yet waited for, a process still counts.
				b.Fork("fork", 0, child)
			}
		}
	}
	limits := boundary.Limits{Pids: 2}
	in(t, h, limits, forks(4), func(g *Group, err error, _ unix.WaitStatus) {
		if !errors.Is(err, unix.EAGAIN) || g.PidsHit() != 1 {
			t.Errorf("over the limit: %v, %d refusals counted", err, g.PidsHit())
		}
	})
	in(t, h, limits, forks(3), func(g *Group, err error, ws unix.WaitStatus) {
		if err != nil || ws != 0 || g.PidsHit() != 0 {
			t.Errorf("within the limit: %v, %#x, %d refusals counted", err, ws, g.PidsHit())
		}
	})
}

func TestCPULimitIsWritten(t *testing.T) {
	h := discover(t)
	if h == nil {
		return
	}
	g, err := h.Make("t", boundary.Limits{MilliCPU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	file, want := "cpu.cfs_quota_us", "150000\n"
	if g.v2 {
		file, want = "cpu.max", "150000 100000\n"
	}
	if b, err := os.ReadFile(filepath.Join(g.dir("cpu"), file)); err != nil || string(b) != want {
		t.Errorf("%s holds %q, %v", file, b, err)
	}
}

// TestKillEndsTheGroup: a process that waits for ever ends by Kill alone, and a
// neighbour outside of the group lives on.
func TestKillEndsTheGroup(t *testing.T) {
	h := discover(t)
	if h == nil {
		return
	}
	g, err := h.Make("t", boundary.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(*kernel.Program, *kernel.Block) {}
	inside, outside := start(t, nothing), start(t, nothing)
	if err := g.Join(inside.child.PID); err != nil {
		t.Fatal(err)
	}
	for _, dir := range g.dirs {
		if err := os.Remove(dir); !errors.Is(err, unix.EBUSY) {
			t.Errorf("remove a group with a process in it: %v", err)
		}
	}
	removed := make(chan error, 1)
	go func() { removed <- g.Remove() }() // waits for the end of the process
	g.Kill()
	if _, ws := inside.end(); !ws.Signaled() || ws.Signal() != unix.SIGKILL {
		t.Errorf("inside: %#x", ws)
	}
	inside.start.Close()
	if err, ws := outside.finish(); err != nil || ws != 0 {
		t.Errorf("outside: %v, %#x", err, ws)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
}

// TestHostsShareNames: two hosts of one process make different groups.
func TestHostsShareNames(t *testing.T) {
	a, b := discover(t), discover(t)
	if a == nil || b == nil {
		return
	}
	for _, h := range []*Host{a, b} {
		g, err := h.Make("t", boundary.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Remove()
	}
}

// TestMakeFailsWhole: a limit that the kernel refuses leaves no group behind.
func TestMakeFailsWhole(t *testing.T) {
	h := discover(t)
	if h == nil {
		return
	}
	before := groups(t, h)
	if _, err := h.Make("t", boundary.Limits{Pids: 1 << 62}); err == nil {
		t.Error("an impossible limit was taken")
	}
	if after := groups(t, h); after != before {
		t.Errorf("%d groups before, %d after", before, after)
	}
}

func groups(t *testing.T, h *Host) int {
	t.Helper()
	n := 0
	for _, parent := range h.parents {
		found, err := filepath.Glob(filepath.Join(parent, prefix+"t-"+h.maker+"-*"))
		if err != nil {
			t.Fatal(err)
		}
		n += len(found)
	}
	return n
}
