package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// input reads keys and can be paused and ended while a read waits. A plain read
// of a terminal can't be ended: it would swallow the first key meant for the
// shell. So a read waits in poll for the terminal or for an eventfd.
type input struct {
	file *os.File
	wake int // eventfd: readable when a waiting read must look up

	mu      sync.Mutex
	changed *sync.Cond
	paused  bool
	ended   bool
	reading bool
}

func newInput(file *os.File) (*input, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	in := &input{file: file, wake: wake}
	in.changed = sync.NewCond(&in.mu)
	return in, nil
}

// Read is for one goroutine.
func (in *input) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if !in.begin() {
			return 0, io.EOF
		}
		n, again, err := in.readOnce(p)
		in.end()
		if !again {
			return n, err
		}
	}
}

// begin waits until reading is allowed; false means the input has ended.
func (in *input) begin() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.paused && !in.ended {
		in.changed.Wait()
	}
	in.reading = !in.ended
	return in.reading
}

func (in *input) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.reading = false
	in.changed.Broadcast()
}

func (in *input) readOnce(p []byte) (n int, again bool, err error) {
	fds := []unix.PollFd{
		{Fd: int32(in.file.Fd()), Events: unix.POLLIN},
		{Fd: int32(in.wake), Events: unix.POLLIN},
	}
	if _, err := poll(fds, -1); err != nil {
		return 0, false, fmt.Errorf("wait for terminal input: %w", err)
	}
	if fds[1].Revents != 0 {
		return 0, true, nil
	}
	n, err = unix.Read(int(in.file.Fd()), p)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return 0, true, nil
	case errors.Is(err, unix.EIO): // the terminal is gone
		return 0, false, io.EOF
	case err != nil:
		return 0, false, fmt.Errorf("read terminal: %w", err)
	case n == 0:
		return 0, false, io.EOF
	}
	return n, false, nil
}

// pause returns when no read is under way, and none begins until resume.
func (in *input) pause() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.paused = true
	in.stopReader()
}

func (in *input) resume() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.paused = false
	in.changed.Broadcast()
}

// close ends every read and releases the eventfd.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return
	}
	in.ended = true
	in.changed.Broadcast()
	in.stopReader()
	unix.Close(in.wake)
}

// stopReader wakes a waiting read and waits for it to leave. The lock is held.
func (in *input) stopReader() {
	one := [8]byte{7: 1, 0: 1} // not zero in either byte order
	for in.reading {
		// The write can only fail when the counter is full: readable as well.
		_, _ = unix.Write(in.wake, one[:])
		in.changed.Wait()
	}
	var drop [8]byte
	_, _ = unix.Read(in.wake, drop[:])
}
