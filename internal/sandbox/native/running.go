//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
	"confine/internal/sandbox"
)

// openPipes makes every descriptor that the child keeps. The command gets pipes
// of ours or a PTY made inside, never a descriptor of the caller's: a directory
// as descriptor 0 would be a way out of any view.
func (r *run) openPipes() error {
	fds := &r.plan.fds
	pipe := func() (rd, wr *os.File, err error) {
		if rd, wr, err = os.Pipe(); err != nil {
			err = &sandbox.StartError{Step: "make pipe", Err: err}
		}
		return rd, wr, err
	}
	goRead, goWrite, err := pipe()
	if err != nil {
		return err
	}
	r.files = append(r.files, goRead, goWrite)
	fds.start = fds.add(int(goRead.Fd()))
	controlRead, controlWrite, err := pipe()
	if err != nil {
		return err
	}
	r.files, r.control = append(r.files, controlRead), controlWrite
	fds.control = fds.add(int(controlRead.Fd()))
	statusRead, statusWrite, err := pipe()
	if err != nil {
		return err
	}
	r.files, r.status = append(r.files, statusWrite), statusRead
	fds.status = fds.add(int(statusWrite.Fd()))
	if err := r.openHandout(); err != nil {
		return err
	}
	r.out = &meter{limit: r.spec.Boundary.Limits.Output}
	if r.plan.tty == nil {
		inRead, inWrite, err := pipe()
		if err != nil {
			return err
		}
		r.files, r.stdin = append(r.files, inRead), inWrite
		fds.stdin = fds.add(int(inRead.Fd()))
	}
	for i := range r.out.streams {
		// On a terminal both are the PTY, unless errors are wanted apart.
		if r.plan.tty != nil && (i == 0 || r.spec.Stderr == nil) {
			continue
		}
		rd, wr, err := pipe()
		if err != nil {
			return err
		}
		r.files = append(r.files, wr)
		r.out.streams[i].reader = rd
		k := fds.add(int(wr.Fd()))
		if i == 0 {
			fds.stdout = k
		} else {
			fds.stderr = k
		}
	}
	r.out.streams[0].writer, r.out.streams[1].writer = r.spec.Stdout, r.spec.Stderr
	r.out.shared = sameWriter(r.spec.Stdout, r.spec.Stderr)
	return nil
}

func (r *run) openHandout() error {
	if r.plan.tty == nil && r.spec.Egress == nil && !r.plan.countMemory {
		return nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return &sandbox.StartError{Step: "make socket pair", Err: err}
	}
	r.own(pair[1])
	r.plan.fds.handout = r.plan.fds.add(pair[1])
	f := os.NewFile(uintptr(pair[0]), "handout")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return &sandbox.StartError{Step: "make socket pair", Err: err}
	}
	r.handout = c.(*net.UnixConn)
	return nil
}

// receive takes the descriptors that the sandbox made inside and starts the
// proxy on them.
func (r *run) receive() error {
	if r.handout == nil {
		return nil
	}
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*len(r.plan.handed)))
	n, oobn, _, _, err := r.handout.ReadMsgUnix(buf, oob)
	if err != nil || n != 1 {
		return &sandbox.StartError{Step: "receive descriptors", Err: errors.Join(err, io.ErrUnexpectedEOF)}
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		return &sandbox.StartError{Step: "receive descriptors", Err: fmt.Errorf("%d messages: %w", len(msgs), errors.Join(err, io.ErrUnexpectedEOF))}
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return &sandbox.StartError{Step: "receive descriptors", Err: err}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if want := len(r.plan.handed); len(fds) != want {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return &sandbox.StartError{Step: "receive descriptors", Err: fmt.Errorf("got %d, want %d", len(fds), want)}
	}
	if n := len(r.plan.counted); n > 0 {
		var counted []*os.File
		for _, fd := range fds[:n] {
			counted = append(counted, os.NewFile(uintptr(fd), "counted"))
		}
		r.memory, fds = newMemoryWatch(r.child.PID, r.spec.Boundary.Limits.Memory, counted), fds[n:]
	}
	if r.plan.tty != nil {
		// The last one; non-blocking, so that closing it ends a read of it.
		last := fds[len(fds)-1]
		if err := unix.SetNonblock(last, true); err != nil {
			return err
		}
		r.master, fds = os.NewFile(uintptr(last), "terminal"), fds[:len(fds)-1]
	}
	if r.spec.Egress != nil {
		r.stopNet, err = r.serveNetwork(fds)
	}
	return err
}

// meter copies the command's output, counts it, and stops keeping it at a limit.
type meter struct {
	limit          int64
	total, dropped atomic.Int64
	streams        [2]struct {
		reader *os.File
		writer io.Writer
	}
	// shared: both streams go to one writer, which need not be safe for two.
	shared bool
	mu     sync.Mutex
	err    atomic.Pointer[error] // the first failed write
	closed atomic.Bool           // nothing is passed on any more
}

// failure is the first write that failed.
func (m *meter) failure() error {
	if p := m.err.Load(); p != nil {
		return *p
	}
	return nil
}

func sameWriter(a, b io.Writer) bool {
	return a != nil && b != nil && reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

func (m *meter) closeReaders() {
	for _, s := range m.streams {
		if s.reader != nil {
			s.reader.Close()
		}
	}
}

// copy moves one stream until its end. When nobody takes the output any more the
// pipe is closed, so that the command gets SIGPIPE as it would outside.
func (m *meter) copy(w io.Writer, rd *os.File) {
	defer rd.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := rd.Read(buf)
		if n > 0 {
			total := m.total.Add(int64(n))
			keep := n
			if m.limit > 0 && total > m.limit {
				keep = int(max(0, int64(n)-(total-m.limit)))
			}
			m.dropped.Add(int64(n - keep))
			if m.closed.Load() {
				return
			}
			if keep > 0 && w != nil {
				if m.shared {
					m.mu.Lock()
				}
				_, werr := w.Write(buf[:keep])
				if m.shared {
					m.mu.Unlock()
				}
				if werr != nil {
					m.err.CompareAndSwap(nil, &werr)
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *run) startCopying() {
	for _, s := range r.out.streams {
		if s.reader == nil {
			continue
		}
		r.io.Add(1)
		go func() { defer r.io.Done(); r.out.copy(s.writer, s.reader) }()
	}
	if r.plan.tty != nil {
		r.io.Add(1)
		go func() { defer r.io.Done(); r.out.copy(r.spec.Stdout, r.master) }()
		go copyInput(r.master, r.spec.Stdin)
		if ch := r.spec.Terminal.Resized; ch != nil {
			go func() {
				for {
					select {
					case s, ok := <-ch:
						if !ok {
							return
						}
						r.resize(s)
					case <-r.done:
						return
					}
				}
			}()
		}
		return
	}
	go func() {
		copyInput(r.stdin, r.spec.Stdin)
		r.stdin.Close()
	}()
}

// copyInput may outlive the sandbox, when its source never ends; Wait does not
// wait for it.
func copyInput(dst *os.File, src io.Reader) {
	if src != nil {
		_, _ = io.Copy(dst, src)
	}
}

func (r *run) resize(s sandbox.WindowSize) {
	if s.Rows == 0 || s.Cols == 0 {
		return
	}
	if c, err := r.master.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
		})
	}
}

// Signal implements sandbox.Running. When every process is gone, one that ends
// programs ends the wait for whoever does not take the output.
func (r *run) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok || s <= 0 || s > 64 {
		return fmt.Errorf("send signal %v: not a signal of this system", sig)
	}
	r.mu.Lock()
	gone := r.gone
	r.mu.Unlock()
	if gone {
		switch s {
		case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGKILL:
			r.stopDraining()
		}
		return fmt.Errorf("send signal %v: %w", sig, os.ErrProcessDone)
	}
	_, err := r.control.Write([]byte{byte(s)})
	return err
}

// Kill implements sandbox.Running.
func (r *run) Kill() { r.kill(sandbox.Cancelled) }

// kill ends the sandbox; the first reason given is the one reported. The end of
// the outer namespace's PID 1 is the end of every process in it.
func (r *run) kill(why sandbox.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == "" {
		r.reason = why
	}
	if r.gone {
		r.stopDraining()
	}
	if r.pidfd >= 0 {
		_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
	}
}

// Wait implements sandbox.Running.
func (r *run) Wait() sandbox.Exit {
	<-r.done
	return r.exit
}

// supervise lives as long as the sandbox.
func (r *run) supervise(ctx context.Context) {
	stopCtx := context.AfterFunc(ctx, func() { r.kill(sandbox.Cancelled) })
	defer stopCtx()
	if t := r.spec.Boundary.Limits.Time; t > 0 {
		timer := time.AfterFunc(t, func() { r.kill(sandbox.TimedOut) })
		defer timer.Stop()
	}
	stopWatch := r.watch()
	last, reported := r.readStatus()
	var ws unix.WaitStatus
	var err error
	for {
		if _, err = unix.Wait4(r.child.PID, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		// Nobody saw it end, so it must.
		r.mu.Lock()
		_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
		r.mu.Unlock()
	}
	stopWatch()
	r.drain()
	if r.stopNet != nil {
		r.stopNet()
	}
	r.control.Close()
	r.status.Close()
	if r.stdin != nil {
		r.stdin.Close()
	}
	r.exit = r.result(last, reported, err)
	r.mu.Lock()
	r.releaseRest()
	r.mu.Unlock()
	close(r.done)
}

// drainLimit is how long a run that was killed waits for its output to be taken.
const drainLimit = 2 * time.Second

// errNotTaken is output that nobody took until the wait for it ended.
var errNotTaken = errors.New("nobody takes it")

// drain passes on what the command wrote before its end. A reader may take its
// time, but a limit or a signal ends the run also when nobody reads.
func (r *run) drain() {
	r.mu.Lock()
	r.gone = true
	killed := r.reason != ""
	r.mu.Unlock()
	taken := make(chan struct{})
	go func() { r.io.Wait(); close(taken) }()
	var late <-chan time.Time
	if killed {
		t := time.NewTimer(drainLimit)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-taken:
		return
	case <-r.hurry:
	case <-late:
	}
	// A write that blocks can't be ended; it is the last one.
	r.out.closed.Store(true)
	r.out.err.CompareAndSwap(nil, &errNotTaken)
}

func (r *run) stopDraining() { r.hurryOnce.Do(func() { close(r.hurry) }) }

// readStatus reads what init says until it is gone.
func (r *run) readStatus() (last kernel.StatusRecord, reported bool) {
	for {
		rec, err := kernel.ReadStatus(r.status)
		if err != nil {
			return last, reported
		}
		if !rec.Stopped {
			last, reported = rec, true
			continue
		}
		if t := r.spec.Terminal; t != nil && t.Stopped != nil {
			t.Stopped()
		}
		if r.plan.tty != nil {
			_ = r.Signal(syscall.SIGCONT)
		}
	}
}

func (r *run) result(last kernel.StatusRecord, reported bool, waitErr error) sandbox.Exit {
	r.mu.Lock()
	why := r.reason
	r.mu.Unlock()
	e := sandbox.Exit{
		Reason: why, Missing: r.missing, Duration: time.Since(r.started),
		OutputBytes: r.out.total.Load(), OutputDropped: r.out.dropped.Load(), OutputErr: r.out.failure(),
	}
	if r.group != nil {
		e.OOMKills, e.PidsHit = r.group.OOMKills(), r.group.PidsHit()
	}
	oom := e.OOMKills
	switch {
	case reported && last.Wait.Exited():
		e.Status = last.Wait.ExitStatus()
		if e.Reason == "" {
			e.Reason = sandbox.Exited
		}
	case reported && last.Wait.Signaled():
		e.Signal = int(last.Wait.Signal())
		e.Status = 128 + e.Signal
		if e.Reason == "" {
			e.Reason = sandbox.Signalled
		}
	default:
		e.Status = 128 + int(unix.SIGKILL)
		if e.Reason == "" {
			e.Reason, e.Err = sandbox.Fault, &noStatusError{waitErr}
		}
	}
	if oom > 0 && e.Signal == int(unix.SIGKILL) && (e.Reason == sandbox.Signalled) || oom > 0 && e.Reason == sandbox.Fault {
		e.Reason, e.Err = sandbox.OutOfMemory, nil
	}
	switch e.Reason {
	case sandbox.TimedOut:
		e.Status = 124
	case sandbox.OutOfMemory, sandbox.DiskFull, sandbox.Cancelled:
		e.Status = 128 + int(unix.SIGKILL)
	}
	return e
}

// noStatusError is a sandbox whose first process ended and did not say how the
// command did.
type noStatusError struct{ cause error }

func (e *noStatusError) Error() string {
	if e.cause != nil {
		return "the sandbox ended without a status: " + e.cause.Error()
	}
	return "the sandbox ended without a status"
}

func (e *noStatusError) Unwrap() error { return e.cause }

// Hint says where to look.
func (e *noStatusError) Hint() string {
	return "something killed its first process, or a call that this needs is refused here: confine doctor tries each"
}
