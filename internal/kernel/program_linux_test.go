package kernel

import (
	"errors"
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

func TestArgumentRangeSkipsHostileNames(t *testing.T) {
	fields := make([]string, 49)
	for i := range fields {
		fields[i] = "0"
	}
	fields[0], fields[45], fields[48] = "S", "4096", "8192"
	a, e, err := argumentRange("1 (a) b) " + strings.Join(fields, " "))
	if err != nil || a != 4096 || e != 8192 {
		t.Errorf("got %d %d %v", a, e, err)
	}
}
