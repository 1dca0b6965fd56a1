package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProgramRunsCommandUnderInit(t *testing.T) {
	outR, outW, _ := os.Pipe()
	ctlR, ctlW, _ := os.Pipe()
	stR, stW, _ := os.Pipe()
	defer ctlW.Close()
	keep := []int{int(outW.Fd()), int(ctlR.Fd()), int(stW.Fd())}
	p, b := NewProgram()
	cmd := p.NewBlock()
	cmd.Call("setsid", unix.SYS_SETSID)
	cmd.Call("dup2", unix.SYS_DUP3, Int(KeptFD(keep, 0)), Int(1), Int(0))
	cmd.UnblockSignals()
	cmd.Exec("exec", p.Str("/bin/sh"), p.Vector([]string{"sh", "-c", "echo hello; exit 7"}), p.Vector(nil))
	ini := p.NewBlock()
	pid := ini.Fork("fork command", 0, cmd)
	ini.Call("close", unix.SYS_CLOSE_RANGE, Int(0), Int(KeptFD(keep, 0)), Int(0))
	ini.Call("close errors", unix.SYS_CLOSE_RANGE, Int(KeptFD(keep, 3)), Int(uint32(1<<32-1)), Int(0))
	ini.Init(InitFDs{Control: Int(KeptFD(keep, 1)), Status: Int(KeptFD(keep, 2)), Child: pid})
	b.Fork("fork init", unix.CLONE_NEWUSER|unix.CLONE_NEWPID, ini)
	b.Call("close all", unix.SYS_CLOSE_RANGE, Int(0), Int(uint32(1<<32-1)), Int(0))
	b.WaitAll()
	c, err := p.Start(0, keep)
	if err != nil {
		t.Fatal(err)
	}
	outW.Close()
	ctlR.Close()
	stW.Close()
	if err := c.Started(); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(outR)
	if string(out) != "hello\n" {
		t.Errorf("output %q", out)
	}
	st, err := ReadStatus(stR)
	if err != nil || st.Stopped || st.Wait.ExitStatus() != 7 {
		t.Errorf("status %+v, %v", st, err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(c.PID, &ws, 0, nil); err != nil || ws.ExitStatus() != 0 {
		t.Errorf("outer process: %v %v", ws, err)
	}
}

func TestProgramNamesFailedStep(t *testing.T) {
	p, b := NewProgram()
	b.Call("open nowhere, tolerated", unix.SYS_OPENAT, Int(uint32(0)), p.Str("/nowhere"), Int(0)).Tolerate(uintptr(unix.ENOENT))
	b.Call("open nowhere", unix.SYS_OPENAT, Int(0), p.Str("/nowhere"), Int(0))
	c, err := p.Start(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Started()
	var se *StepError
	if !errors.As(err, &se) || se.Step != "open nowhere" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}
	syscall.Wait4(c.PID, nil, 0, nil)
}

func TestProgramRefusesNUL(t *testing.T) {
	p, _ := NewProgram()
	p.Str("a\x00b")
	if _, err := p.Start(0, nil); err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("got %v", err)
	}
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]struct {
		start, end uintptr
		writable   bool
	}{
		"c000000000-c000400000 rw-p 00000000 00:00 0 \n":            {0xc000000000, 0xc000400000, true},
		"00400000-00500000 r-xp 00000000 fe:00 12   /a b (deleted)": {0x400000, 0x500000, false},
	} {
		s, e, w, err := parseMapping([]byte(line))
		if err != nil || s != want.start || e != want.end || w != want.writable {
			t.Errorf("%q: %x %x %v %v", line, s, e, w, err)
		}
	}
	for _, bad := range []string{"", "x", "1-0 rw-p", "zz-ff rw-p 0"} {
		if _, _, _, err := parseMapping([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestChildHasNoMemoryOfOurs looks into the child while it waits: its command
// line is gone, and of our writable memory it has the program's region alone.
func TestChildHasNoMemoryOfOurs(t *testing.T) {
	r, w, _ := os.Pipe()
	defer r.Close()
	keep := []int{int(r.Fd())}
	p, b := NewProgram()
	b.Call("wait", unix.SYS_READ, Int(KeptFD(keep, 0)), p.Buffer(1), Int(1))
	b.Call("end", unix.SYS_EXIT_GROUP, Int(0))
	c, err := p.Start(0, keep)
	if err != nil {
		t.Fatal(err)
	}
	if !keepMemoryFromChild {
		t.Log("built with cgo: the child has a copy of everything")
		w.Close()
		_ = c.Started()
		syscall.Wait4(c.PID, nil, 0, nil)
		return
	}
	for _, f := range []string{"cmdline", "environ"} {
		own, _ := os.ReadFile("/proc/self/" + f)
		got, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.PID, f))
		if len(own) == 0 || err != nil || len(got) != 0 {
			t.Errorf("%s: %d bytes of ours, child shows %q, %v", f, len(own), got, err)
		}
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.PID))
	if n := strings.Count(string(maps), " rw"); n != 1 || strings.Contains(string(maps), "[stack]") {
		t.Errorf("child has %d writable mappings:\n%s", n, maps)
	}
	w.Close()
	if err := c.Started(); err != nil {
		t.Error(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(c.PID, &ws, 0, nil); err != nil || ws.ExitStatus() != 0 {
		t.Errorf("child ended %v %v", ws, err)
	}
}
