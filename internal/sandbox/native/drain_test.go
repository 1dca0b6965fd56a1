//go:build linux

package native

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
	"confine/internal/sandbox"
)

// stuck is a writer that takes nothing until it is let go.
type stuck struct {
	once    sync.Once
	reached chan struct{} // closed at the first write
	letGo   chan struct{}
	mu      sync.Mutex
	text    string
}

func newStuck() *stuck { return &stuck{reached: make(chan struct{}), letGo: make(chan struct{})} }

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.reached) })
	<-s.letGo
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += string(p)
	return len(p), nil
}

// ended waits for a run, for a while that no run here needs.
func ended(t *testing.T, r sandbox.Running) sandbox.Exit {
	t.Helper()
	e := make(chan sandbox.Exit, 1)
	go func() { e <- r.Wait() }()
	select {
	case e := <-e:
		return e
	case <-time.After(15 * time.Second):
		t.Fatal("the run does not end")
	}
	return sandbox.Exit{}
}

// isGone waits until every process of a run is gone.
func isGone(t *testing.T, r *run) {
	t.Helper()
	for range 2000 {
		r.mu.Lock()
		gone := r.gone
		r.mu.Unlock()
		if gone {
			return
		}
		select {
		case <-r.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	t.Fatal("the processes do not end")
}

// TestOutputThatNobodyTakesHoldsNoRun: a run whose output is not read ends at its
// limit, when it is killed, and by a signal after the command's own end. One
// whose reader is slow loses nothing.
func TestOutputThatNobodyTakesHoldsNoRun(t *testing.T) {
	start := func(t *testing.T, limit time.Duration, script string) (*run, *stuck) {
		out := newStuck()
		b := base()
		b.Limits.Time = limit
		r, err := Driver{}.Start(context.Background(), sandbox.Spec{Boundary: b, Args: []string{"sh", "-c", script}, Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		<-out.reached
		return r.(*run), out
	}
	t.Run("slow reader", func(t *testing.T) {
		r, out := start(t, 0, "echo one; echo two")
		isGone(t, r)
		if err := r.Signal(syscall.SIGUSR1); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal after the end: %v", err)
		}
		close(out.letGo)
		if e := ended(t, r); !e.Success() || e.OutputErr != nil || out.text != "one\ntwo\n" {
			t.Errorf("%+v %q", e, out.text)
		}
	})
	t.Run("signal after the end", func(t *testing.T) {
		r, out := start(t, 0, "echo one")
		defer close(out.letGo)
		isGone(t, r)
		_ = r.Signal(syscall.SIGTERM)
		_ = r.Signal(syscall.SIGTERM)
		if e := ended(t, r); e.Reason != sandbox.Exited || !errors.Is(e.OutputErr, errNotTaken) {
			t.Errorf("%+v", e)
		}
	})
	t.Run("killed after the end", func(t *testing.T) {
		r, out := start(t, 0, "echo one")
		defer close(out.letGo)
		isGone(t, r)
		r.Kill()
		if e := ended(t, r); !errors.Is(e.OutputErr, errNotTaken) {
			t.Errorf("%+v", e)
		}
	})
	t.Run("time limit", func(t *testing.T) {
		r, out := start(t, 300*time.Millisecond, "echo one; exec sleep 600")
		defer close(out.letGo)
		if e := ended(t, r); e.Reason != sandbox.TimedOut || e.Status != 124 {
			t.Errorf("%+v", e)
		}
	})
}

// TestStartErrorsHaveHints: whatever call is refused, the error says which step
// it was and what to do next.
func TestStartErrorsHaveHints(t *testing.T) {
	r := &run{}
	for name, err := range map[string]error{
		"step":    &kernel.StepError{Step: "step", Err: unix.ENOSYS},
		"start":   &sandbox.StartError{Step: "start", Err: unix.ENOSYS},
		"prepare": &os.PathError{Op: "open", Path: "/proc/self/uid_map", Err: unix.ENOENT},
	} {
		var se *sandbox.StartError
		if got := r.explain(err); !errors.As(got, &se) || se.Step != name || se.Hint != doctorHint {
			t.Errorf("%s: %#v", name, got)
		}
	}
	var se *sandbox.StartError
	if got := r.explain(&sandbox.StartError{Step: "x", Hint: "own", Err: unix.EPERM}); !errors.As(got, &se) || se.Hint != "own" {
		t.Errorf("a hint of its own: %#v", got)
	}
	if got := r.explain(context.Canceled); got != context.Canceled {
		t.Errorf("no call's error: %#v", got)
	}
}
