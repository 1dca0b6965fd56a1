package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what should happen at once.
const patience = 10 * time.Second

// openPTY returns both ends of a new pseudo-terminal: the person's, and the one
// that confine is given.
func openPTY(t *testing.T) (person, tty *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return person, tty
}

func termios(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// isRaw reports whether keys arrive at once, without echo and without signals.
func isRaw(m unix.Termios) bool {
	return m.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0 && m.Oflag&unix.OPOST == 0
}

// pending says how many bytes of input wait to be read.
func pending(t *testing.T, tty *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func open(t *testing.T, tty *os.File) *Session {
	t.Helper()
	s, err := Open(tty, tty)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// within runs f and fails when it does not return.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: did not return", what)
	}
}

func TestOpenMakesRawAndCloseRestores(t *testing.T) {
	_, tty := openPTY(t)
	before := termios(t, tty)
	if isRaw(before) {
		t.Fatal("control: a new terminal is raw already")
	}
	s := open(t, tty)
	if !isRaw(termios(t, tty)) {
		t.Error("open left the terminal cooked")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := termios(t, tty); after != before {
		t.Errorf("mode after close %+v, before %+v", after, before)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestOpenRefusesWhatIsNoTerminal(t *testing.T) {
	_, tty := openPTY(t)
	before := termios(t, tty)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, pair := range [][2]*os.File{{file, tty}, {tty, file}} {
		if _, err := Open(pair[0], pair[1]); !errors.Is(err, ErrNotTerminal) {
			t.Errorf("open %s, %s: %v", pair[0].Name(), pair[1].Name(), err)
		}
	}
	if termios(t, tty) != before {
		t.Error("a refused open changed the terminal")
	}
}

func TestOutputIsFilteredAndResetAtTheEnd(t *testing.T) {
	person, tty := openPTY(t)
	s := open(t, tty)
	if _, err := io.WriteString(s.Output(), "a\x1b]52;c;eA==\ab\x1b[?25l\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := "ab\x1b[?25l\r\n\x1b[?25h\x1b[0m"
	got := make([]byte, len(want))
	within(t, "read of the terminal", func() {
		if _, err := io.ReadFull(person, got); err != nil {
			t.Error(err)
		}
	})
	if string(got) != want {
		t.Errorf("terminal saw %q, want %q", got, want)
	}
	if _, err := s.Output().Write([]byte("late")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func TestInputEndsWithTheSession(t *testing.T) {
	person, tty := openPTY(t)
	s := open(t, tty)
	if _, err := person.Write([]byte("k\x03")); err != nil {
		t.Fatal(err)
	}
	var buf [16]byte
	within(t, "read of a key", func() {
		if n, err := s.Input().Read(buf[:]); err != nil || !bytes.HasPrefix([]byte("k\x03"), buf[:n]) {
			t.Errorf("read %q, %v", buf[:n], err)
		}
	})
	read := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		_, err := io.Copy(io.Discard, s.Input())
		read <- err
	}()
	<-started
	within(t, "close", func() { s.Close() })
	select {
	case err := <-read:
		if err != nil {
			t.Errorf("input ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("a waiting read did not end")
	}
	if n, err := s.Input().Read(buf[:]); n != 0 || err != io.EOF {
		t.Errorf("read after close: %d, %v", n, err)
	}
}

// TestNoInputIsLeft: what the program made the terminal say, or planted as keys,
// must not be typed into the shell.
func TestNoInputIsLeft(t *testing.T) {
	person, tty := openPTY(t)
	s := open(t, tty)
	if _, err := io.WriteString(s.Output(), "\x1b[?1003h"); err != nil {
		t.Fatal(err)
	}
	if _, err := person.Write([]byte("\x1b[M !!rm -rf /\r")); err != nil {
		t.Fatal(err)
	}
	ready, err := poll([]unix.PollFd{{Fd: int32(tty.Fd()), Events: unix.POLLIN}}, patience)
	if err != nil || ready == 0 || pending(t, tty) == 0 {
		t.Fatal("control: nothing was pending")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := pending(t, tty); n != 0 {
		t.Errorf("%d bytes of input left for the shell", n)
	}
	if _, err := person.Write([]byte("ls\n")); err != nil {
		t.Fatal(err)
	}
	within(t, "read after close", func() {
		var buf [16]byte
		if n, err := tty.Read(buf[:]); err != nil || string(buf[:n]) != "ls\n" {
			t.Errorf("the shell read %q, %v", buf[:n], err)
		}
	})
}

func TestSuspendGivesTheTerminalBack(t *testing.T) {
	person, tty := openPTY(t)
	before := termios(t, tty)
	s := open(t, tty)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for {
			var buf [64]byte
			n, err := s.Input().Read(buf[:])
			if err != nil {
				return
			}
			lines <- string(buf[:n])
		}
	}()
	if _, err := person.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; got != "a" {
		t.Fatalf("program read %q", got)
	}
	within(t, "suspend", func() {
		err := s.Suspend(func() {
			if termios(t, tty) != before {
				t.Error("not restored while suspended")
			}
			// A key for the shell must not go to the program.
			s.input.mu.Lock()
			reading := s.input.reading
			s.input.mu.Unlock()
			if reading {
				t.Error("the program's input is being read while suspended")
			}
			if _, err := person.Write([]byte("fg\n")); err != nil {
				t.Error(err)
			}
			var buf [16]byte
			if n, err := tty.Read(buf[:]); err != nil || string(buf[:n]) != "fg\n" {
				t.Errorf("the shell read %q, %v", buf[:n], err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	if !isRaw(termios(t, tty)) {
		t.Error("not raw after suspend")
	}
	if _, err := person.Write([]byte("k")); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-lines:
		if got != "k" {
			t.Errorf("program read %q", got)
		}
	case <-time.After(patience):
		t.Fatal("no input after suspend")
	}
	s.Close()
	if termios(t, tty) != before {
		t.Error("not restored at the end")
	}
}

func TestClosedWhileSuspendedStaysCooked(t *testing.T) {
	_, tty := openPTY(t)
	before := termios(t, tty)
	s := open(t, tty)
	within(t, "suspend", func() {
		if err := s.Suspend(func() { s.Close() }); err != nil {
			t.Error(err)
		}
	})
	if termios(t, tty) != before {
		t.Error("the terminal is raw after close")
	}
}

func TestSizeFollowsTheTerminal(t *testing.T) {
	person, tty := openPTY(t)
	s := open(t, tty)
	if got := s.Size(); got != (Size{Rows: 24, Cols: 80}) {
		t.Errorf("size of a terminal without one: %+v", got)
	}
	type windowSize struct{ Rows, Cols uint16 }
	sizes := Resized[windowSize](s)
	if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132}); err != nil {
		t.Fatal(err)
	}
	// The kernel sends it only to a foreground process group of this terminal,
	// which the test is not.
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-sizes:
		if got != (windowSize{50, 132}) {
			t.Errorf("size %+v", got)
		}
	case <-time.After(patience):
		t.Fatal("no size")
	}
	s.Close()
	select {
	case _, open := <-sizes:
		if open {
			t.Error("a size after close")
		}
	case <-time.After(patience):
		t.Fatal("sizes were not closed")
	}
}

// TestMain runs StopSelf instead of the tests where a test asks for it: it
// signals the whole process group, so it needs one of its own.
func TestMain(m *testing.M) {
	if os.Getenv("TERMINAL_TEST_STOP_SELF") != "" {
		StopSelf()
		os.Exit(7)
	}
	os.Exit(m.Run())
}

// stopSelf starts StopSelf in a process of its own.
func stopSelf(t *testing.T, attr *syscall.SysProcAttr) int {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{
		Env: []string{"TERMINAL_TEST_STOP_SELF=1"},
		Sys: attr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return process.Pid
}

func wait(t *testing.T, pid int) (status unix.WaitStatus) {
	t.Helper()
	within(t, "wait", func() {
		for {
			_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				t.Error(err)
			}
			return
		}
	})
	return status
}

func TestStopSelfStopsUntilContinued(t *testing.T) {
	pid := stopSelf(t, &syscall.SysProcAttr{Setpgid: true})
	if status := wait(t, pid); !status.Stopped() {
		t.Fatalf("status %#x, want stopped", status)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status := wait(t, pid); !status.Exited() || status.ExitStatus() != 7 {
		t.Errorf("status %#x, want a return from StopSelf", status)
	}
}

// TestStopSelfWithoutAShell: where nobody could continue it, it is not stopped.
func TestStopSelfWithoutAShell(t *testing.T) {
	pid := stopSelf(t, &syscall.SysProcAttr{Setsid: true})
	if status := wait(t, pid); !status.Exited() || status.ExitStatus() != 7 {
		t.Errorf("status %#x, want a return from StopSelf", status)
	}
}
