package terminal

import (
	"io"
	"os"
	"sync"
)

// Output filters what goes to a terminal outside of a Session: standard error, or
// standard output when the input is no terminal. Streams that meet on one
// terminal need one each: a control sequence is passed on whole or not at all, so
// that two halves from two streams make none.
type Output struct{ locked lockedFilter }

// NewOutput returns a filter that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{lockedFilter{filter: NewFilter(w)}} }

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) { return o.locked.Write(p) }

// Close brings the terminal back from what passed, and lets nothing more pass.
func (o *Output) Close() error {
	o.locked.close()
	_, err := o.locked.reset()
	return err
}

// lockedFilter lets the session reset the filter while the sandbox writes.
type lockedFilter struct {
	mu     sync.Mutex
	filter *Filter
	ended  bool
}

func (l *lockedFilter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0, os.ErrClosed
	}
	return l.filter.Write(p)
}

func (l *lockedFilter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// reset reports whether the terminal may still have events under way.
func (l *lockedFilter) reset() (reported bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reported = l.filter.touched.everReport
	return reported, l.filter.Reset()
}
