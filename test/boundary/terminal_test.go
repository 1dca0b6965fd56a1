//go:build linux

package boundary

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is the far side of a terminal: what a person would see, and type.
type screen struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex
	seen   bytes.Buffer
	done   chan struct{} // the last program has closed the terminal
}

// onTerminal starts a program in a session of its own on a new terminal.
func onTerminal(t *testing.T, dir string, rows, cols uint16, name string, args ...string) (*screen, *exec.Cmd) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	var number int
	control(t, master, func(fd int) (err error) {
		if number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	s := &screen{t: t, master: master, done: make(chan struct{})}
	s.resize(rows, cols)
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		defer close(s.done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s, cmd
}

func (s *screen) resize(rows, cols uint16) {
	s.t.Helper()
	control(s.t, s.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// control calls f with the descriptor. (*os.File).Fd would make it blocking, and
// then closing it would wait for the reader.
func control(t *testing.T, file *os.File, f func(fd int) error) {
	t.Helper()
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil || inner != nil {
		t.Fatal(err, inner)
	}
}

func (s *screen) typed(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// waitFor waits until the screen shows a text.
func (s *screen) waitFor(text string) {
	s.t.Helper()
	if eventually(func() bool { return strings.Contains(s.text(), text) }) {
		return
	}
	s.t.Fatalf("never seen %q in:\n%s", text, s.text())
}

// ended waits for a program and everything it wrote.
func (s *screen) ended(cmd *exec.Cmd) int {
	s.t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	select {
	case <-s.done:
	case <-time.After(5 * time.Second):
		s.t.Error("the terminal stayed open")
	}
	return cmd.ProcessState.ExitCode()
}

func TestTerminalSizeAndKeysReachTheCommand(t *testing.T) {
	script := `stty size; trap 'stty size' WINCH; trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done`
	s, cmd := onTerminal(t, t.TempDir(), 31, 97, program(t), "run", "--", "sh", "-c", script)
	s.waitFor("ready")
	if !strings.Contains(s.text(), "31 97") {
		t.Errorf("size at the start: %q", s.text())
	}
	s.resize(44, 123)
	s.waitFor("44 123")
	s.typed("\x03")
	if status := s.ended(cmd); status != 5 || !strings.Contains(s.text(), "interrupted") {
		t.Errorf("status %d: %q", status, s.text())
	}
}

// TestTerminalJobControl: a shell inside has jobs of its own, and ends of them
// don't end the run.
func TestTerminalJobControl(t *testing.T) {
	s, cmd := onTerminal(t, t.TempDir(), 24, 80, program(t), "run", "--", "bash", "--norc", "-i")
	s.typed("PS1='> '; echo a-$((40+2))\n")
	s.waitFor("a-42")
	// A shell writes the job's line after it has given the terminal away.
	mark := uniqueSeconds(t)
	s.typed("sleep " + mark + "\n")
	eventually(func() bool { return len(processesWith(t, "sleep\x00"+mark)) > 0 })
	s.typed("\x1a")
	s.waitFor("Stopped")
	s.typed("fg\n")
	eventually(func() bool { return !stopped(t, mark) })
	s.typed("\x03")
	eventually(func() bool { return len(processesWith(t, "sleep\x00"+mark)) == 0 })
	s.typed("echo status-$?\n")
	s.waitFor("status-130")
	s.typed("exit 9\n")
	if status := s.ended(cmd); status != 9 {
		t.Errorf("status %d: %q", status, s.text())
	}
	if strings.Contains(s.text(), "no job control") {
		t.Errorf("%q", s.text())
	}
}

// TestTerminalDropsWhatReachesBeyondIt: the clipboard, answers typed by the
// terminal itself, and input that is left are no way out; colours are.
func TestTerminalDropsWhatReachesBeyondIt(t *testing.T) {
	script := `printf 'a\033]52;c;aGFyZA==\007b\033[c\033]0;title\007\033P+q544e\033\\c\033[31mred\033[0m.\n'`
	const clipboard, attributes, query = "\x1b]52;", "\x1b[c", "\x1bP+q"
	s, cmd := onTerminal(t, t.TempDir(), 24, 80, "/bin/sh", "-c", script)
	if s.ended(cmd); !strings.Contains(s.text(), clipboard) || !strings.Contains(s.text(), attributes) || !strings.Contains(s.text(), query) {
		t.Fatalf("control: %q", s.text())
	}
	s, cmd = onTerminal(t, t.TempDir(), 24, 80, program(t), "run", "--", "sh", "-c", script)
	if status := s.ended(cmd); status != 0 {
		t.Errorf("status %d", status)
	}
	for _, bad := range []string{clipboard, attributes, query} {
		if strings.Contains(s.text(), bad) {
			t.Errorf("%q came through: %q", bad, s.text())
		}
	}
	if !strings.Contains(s.text(), "\x1b[31mred") {
		t.Errorf("colour is gone: %q", s.text())
	}
}

// TestTerminalClosedEndsTheRun: when a person closes the window, nothing goes on.
func TestTerminalClosedEndsTheRun(t *testing.T) {
	mark := uniqueSeconds(t)
	s, cmd := onTerminal(t, t.TempDir(), 24, 80, program(t), "run", "--", "sh", "-c", "echo ready; sleep "+mark)
	s.waitFor("ready")
	if len(processesWith(t, mark)) == 0 {
		t.Fatal("control: the command does not run")
	}
	s.master.Close()
	waited := make(chan struct{})
	go func() { defer close(waited); _ = cmd.Wait() }()
	select {
	case <-waited:
	case <-time.After(15 * time.Second):
		t.Fatal("the run goes on without its terminal")
	}
	noneLeft(t, mark)
}

// stopped reports whether a process with that word in its command line is
// stopped.
func stopped(t *testing.T, word string) bool {
	t.Helper()
	for _, p := range processesWith(t, word) {
		dir, _, _ := strings.Cut(p, ":")
		if stat, err := os.ReadFile(dir + "/stat"); err == nil && bytes.Contains(stat, []byte(") T ")) {
			return true
		}
	}
	return false
}

// TestOutputOnATerminalIsFilteredWithoutASession: with the input from elsewhere,
// or only standard error on the terminal, as well.
func TestOutputOnATerminalIsFilteredWithoutASession(t *testing.T) {
	script := `printf 'a\033]52;c;aGFyZA==\007b\033[6n\033[31mred\033[0m.\n'`
	run := `"$0" run -- sh -c `
	for name, line := range map[string]string{
		"control":         script,
		"input from null": run + `"$1" </dev/null`,
		"input from pipe": `echo x | ` + run + `"$1"`,
		"standard error":  run + `"$1 >&2" >/dev/null`,
	} {
		s, cmd := onTerminal(t, t.TempDir(), 24, 80, "/bin/sh", "-c", line, program(t), script)
		status := s.ended(cmd)
		passed := strings.Contains(s.text(), "\x1b]52;") || strings.Contains(s.text(), "\x1b[6n")
		if status != 0 || passed != (name == "control") || !strings.Contains(s.text(), "\x1b[31mred") {
			t.Errorf("%s: status %d, %q", name, status, s.text())
		}
	}
}

// TestClosedTerminalEndsACommandThatIgnoresIt: there is nobody left to do so.
func TestClosedTerminalEndsACommandThatIgnoresIt(t *testing.T) {
	t.Parallel() // mostly waiting
	mark := uniqueSeconds(t)
	s, cmd := onTerminal(t, t.TempDir(), 24, 80, program(t), "run", "--", "sh", "-c", "trap '' HUP TERM INT; echo ready; while :; do sleep "+mark+"; done")
	s.waitFor("ready")
	s.master.Close()
	waited := make(chan struct{})
	go func() { defer close(waited); _ = cmd.Wait() }()
	select {
	case <-waited:
	case <-time.After(30 * time.Second):
		t.Fatal("the run goes on without its terminal")
	}
	noneLeft(t, mark)
}

// TestErrorsApartFromTheTerminal: what a shell redirects stays redirected.
func TestErrorsApartFromTheTerminal(t *testing.T) {
	dir := t.TempDir()
	line := `log=$1; "$0" run -- sh -c 'echo shown; echo kept >&2; test -t 0 && test -t 1 && ! test -t 2 && echo apart' 2>"$log"`
	log := filepath.Join(t.TempDir(), "log")
	s, cmd := onTerminal(t, dir, 24, 80, "/bin/sh", "-c", line, program(t), log)
	status := s.ended(cmd)
	data, err := os.ReadFile(log)
	if status != 0 || err != nil || !strings.HasSuffix(string(data), "kept\n") || strings.Contains(s.text(), "kept") || !strings.Contains(s.text(), "shown") || !strings.Contains(s.text(), "apart") {
		t.Errorf("status %d, log %q %v, screen %q", status, data, err, s.text())
	}
}
