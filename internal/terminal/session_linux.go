package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Session is a terminal lent to a program: in raw mode, so that every key,
// Ctrl-C included, goes to the program's own terminal and not to confine.
//
// Close must be called on every way out; a process that is killed leaves the
// terminal raw, as any full-screen program does.
type Session struct {
	in, out *os.File
	output  *lockedFilter
	input   *input

	// mode guards who sets the terminal's mode: a session that was closed
	// while it was suspended must not make it raw again.
	mode   sync.Mutex
	before unix.Termios

	closeOnce sync.Once
	closed    chan struct{}
	closeErr  error
}

// How long the terminal gets to deliver events that were under way when it was
// told to send none.
const (
	drainQuiet = 20 * time.Millisecond
	drainTotal = 200 * time.Millisecond
)

// Open puts the terminal of in into raw mode. Both files must be terminals; if
// not, the error is ErrNotTerminal and nothing was changed.
func Open(in, out *os.File) (*Session, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("open terminal %q: %w", in.Name(), terminalError(err))
	}
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return nil, fmt.Errorf("open terminal %q: %w", out.Name(), terminalError(err))
	}
	keys, err := newInput(in)
	if err != nil {
		return nil, err
	}
	s := &Session{
		in: in, out: out, before: *before, input: keys, closed: make(chan struct{}),
		output: &lockedFilter{filter: NewFilter(out)},
	}
	if err := s.makeRaw(); err != nil {
		keys.close()
		return nil, err
	}
	return s, nil
}

func terminalError(err error) error {
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return ErrNotTerminal
	}
	return err
}

// makeRaw sets what cfmakeraw(3) sets.
func (s *Session) makeRaw() error {
	raw := s.before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag &^= unix.CSIZE | unix.PARENB
	raw.Cflag |= unix.CS8
	raw.Cc[unix.VMIN] = 1
	raw.Cc[unix.VTIME] = 0
	return s.setMode(&raw)
}

// setMode does not wait for output to drain: a terminal that stopped reading
// would hold confine forever.
func (s *Session) setMode(mode *unix.Termios) error {
	if err := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, mode); err != nil {
		return fmt.Errorf("set terminal mode: %w", err)
	}
	return nil
}

// Size returns the terminal's present size, 24 by 80 if it has none.
func (s *Session) Size() Size {
	w, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Row == 0 || w.Col == 0 {
		return Size{Rows: 24, Cols: 80}
	}
	return Size{Rows: w.Row, Cols: w.Col}
}

// watchSize delivers the size after each change until the session is closed.
func (s *Session) watchSize() <-chan Size {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGWINCH)
	sizes := make(chan Size)
	go func() {
		defer close(sizes)
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
			case <-s.closed:
				return
			}
			select {
			case sizes <- s.Size():
			case <-s.closed:
				return
			}
		}
	}()
	return sizes
}

// Input is what the person types. Reading ends with io.EOF when the session is
// closed, also a read that is waiting; nothing is taken from the terminal after
// that. While the session is suspended a read waits.
func (s *Session) Input() io.Reader { return s.input }

// Suspend gives the terminal back as it was, calls stop, and takes it again. It
// is for Ctrl-Z: stop is normally StopSelf. The program must be told to draw
// itself anew afterwards (a SIGWINCH or SIGCONT does it).
func (s *Session) Suspend(stop func()) error {
	s.input.pause()
	defer s.input.resume()
	if err := s.giveBack(); err != nil {
		return err
	}
	stop()
	s.mode.Lock()
	defer s.mode.Unlock()
	select {
	case <-s.closed:
		return nil
	default:
	}
	// What the shell set meanwhile is what the person wants at the end.
	now, err := unix.IoctlGetTermios(int(s.in.Fd()), unix.TCGETS)
	if err != nil {
		return fmt.Errorf("read terminal mode: %w", err)
	}
	s.before = *now
	return s.makeRaw()
}

// StopSelf stops this process group as Ctrl-Z does without confine, and returns
// when it is continued. Without a shell that could continue it (an orphaned
// process group) the kernel does not stop it, and StopSelf returns soon.
func StopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	if unix.Kill(0, unix.SIGTSTP) != nil {
		return
	}
	// The stop may take effect a moment after kill returns. Time that passes
	// while stopped counts too, so the timer never delays what was continued.
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-continued:
	case <-timer.C:
	}
}

// Close ends input, brings the terminal back to what it was, and throws away
// input that nobody typed. It may be called more than once.
func (s *Session) Close() error {
	s.closeOnce.Do(func() {
		close(s.closed)
		s.input.close()
		s.output.close()
		s.closeErr = s.giveBack()
	})
	return s.closeErr
}

// giveBack undoes what the program did to the terminal, drops pending input and
// restores the mode.
func (s *Session) giveBack() error {
	s.mode.Lock()
	defer s.mode.Unlock()
	reported, err := s.output.reset()
	if reported {
		// Still raw: what arrives now is not echoed.
		s.drain()
	}
	flushErr := unix.IoctlSetInt(int(s.in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	// Whatever failed before, the mode is restored.
	if modeErr := s.setMode(&s.before); modeErr != nil {
		return modeErr
	}
	if err != nil {
		return fmt.Errorf("reset terminal: %w", err)
	}
	if flushErr != nil {
		return fmt.Errorf("flush terminal input: %w", flushErr)
	}
	return nil
}

// drain reads until the terminal has been quiet for a moment.
func (s *Session) drain() {
	var buf [1024]byte
	fd := int(s.in.Fd())
	for end := time.Now().Add(drainTotal); time.Now().Before(end); {
		ready, err := poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, drainQuiet)
		if err != nil || ready == 0 {
			return
		}
		if n, err := unix.Read(fd, buf[:]); n <= 0 || err != nil {
			return
		}
	}
}

// poll is poll(2) without EINTR; a negative timeout waits without end.
func poll(fds []unix.PollFd, timeout time.Duration) (int, error) {
	ms := -1
	if timeout >= 0 {
		ms = int(timeout.Milliseconds())
	}
	for {
		n, err := unix.Poll(fds, ms)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
