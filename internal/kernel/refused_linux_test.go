package kernel

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// refusing is the struct sock_fprog of a filter that answers one call with
// ENOSYS. The second value keeps its memory.
func refusing(nr uintptr) (prog, code []byte) {
	for _, i := range []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	} {
		code = binary.NativeEndian.AppendUint16(code, i.Code)
		code = append(code, i.Jt, i.Jf)
		code = binary.NativeEndian.AppendUint32(code, i.K)
	}
	prog = make([]byte, 16)
	binary.NativeEndian.PutUint16(prog, uint16(len(code)/8))
	binary.NativeEndian.PutUint64(prog[8:], uint64(AddressOf(code)))
	return prog, code
}

// onRefusingThread runs f on a thread that is refused one call and ends after it.
func onRefusingThread(t *testing.T, nr uintptr, f func()) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		prog, code := refusing(nr)
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			failed <- err
			return
		}
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, AddressOf(prog))
		runtime.KeepAlive(code)
		if errno != 0 {
			failed <- errno
			return
		}
		f()
		failed <- nil
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// TestRefusedFirstStepsAreNamed: what a child does before its program is named
// like any other step.
func TestRefusedFirstStepsAreNamed(t *testing.T) {
	start := func() error {
		p, b := NewProgram()
		b.Call("end", unix.SYS_EXIT_GROUP, Int(0))
		c, err := p.Start(0, nil)
		if err != nil {
			return err
		}
		err = c.Started()
		var ws syscall.WaitStatus
		if _, waitErr := syscall.Wait4(c.PID, &ws, 0, nil); waitErr != nil {
			t.Error(waitErr)
		}
		return err
	}
	if err := start(); err != nil {
		t.Fatalf("control: %v", err)
	}
	for nr, name := range map[uintptr]string{unix.SYS_DUP3: "dup3", unix.SYS_CLOSE_RANGE: "close_range"} {
		onRefusingThread(t, nr, func() {
			err := start()
			var se *StepError
			if !errors.As(err, &se) || !strings.Contains(se.Step, name) || !errors.Is(err, unix.ENOSYS) {
				t.Errorf("%s refused: %v", name, err)
			}
		})
	}
}

// TestInitThatCanNotWaitEnds: a PID 1 that is refused what it waits with ends,
// and with it everything, instead of waiting for ever.
func TestInitThatCanNotWaitEnds(t *testing.T) {
	for name, nr := range map[string]uintptr{"control": unix.SYS_ACCT, "wait4": unix.SYS_WAIT4, "ppoll": unix.SYS_PPOLL, "signalfd4": unix.SYS_SIGNALFD4} {
		t.Run(name, func(t *testing.T) {
			ctlR, ctlW, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer ctlW.Close()
			stR, stW, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stR.Close()
			keep := []int{int(ctlR.Fd()), int(stW.Fd())}
			p, b := NewProgram()
			cmd, ini := p.NewBlock(), p.NewBlock()
			cmd.UnblockSignals()
			cmd.Exec("exec", p.Str("/bin/true"), p.Vector([]string{"true"}), p.Vector(nil))
			child := ini.Fork("fork command", 0, cmd)
			ini.Call("close errors", unix.SYS_CLOSE_RANGE, Int(KeptFD(keep, 2)), Int(uint32(1<<32-1)), Int(0))
			ini.Init(InitFDs{Control: Int(KeptFD(keep, 0)), Status: Int(KeptFD(keep, 1)), Child: child})
			b.Call("forbid new privileges", unix.SYS_PRCTL, Int(unix.PR_SET_NO_NEW_PRIVS), Int(1), Int(0), Int(0), Int(0))
			_, code := refusing(nr)
			b.Call("load filter", unix.SYS_SECCOMP, Int(unix.SECCOMP_SET_MODE_FILTER), Int(0), p.Words(Int(len(code)/8), p.Bytes(code)))
			b.Fork("fork init", unix.CLONE_NEWUSER|unix.CLONE_NEWPID, ini)
			b.Call("close all", unix.SYS_CLOSE_RANGE, Int(0), Int(uint32(1<<32-1)), Int(0))
			b.WaitAll()
			c, err := p.Start(0, keep)
			ctlR.Close()
			stW.Close()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Started(); err != nil {
				t.Fatal(err)
			}
			if err := stR.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			st, err := ReadStatus(stR)
			switch {
			case name == "control" && (err != nil || st.Wait.ExitStatus() != 0):
				t.Errorf("nothing needed is refused: %+v %v", st, err)
			case name != "control" && !errors.Is(err, io.EOF):
				t.Errorf("init goes on: %+v %v", st, err)
				_ = syscall.Kill(c.PID, syscall.SIGKILL)
			}
			var ws syscall.WaitStatus
			if _, err := syscall.Wait4(c.PID, &ws, 0, nil); err != nil || name == "control" && ws.ExitStatus() != 0 {
				t.Errorf("outer process: %v %v", ws, err)
			}
		})
	}
}
