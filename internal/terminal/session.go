package terminal

import (
	"errors"
	"io"
)

// ErrNotTerminal says that a file given to Open is no terminal.
var ErrNotTerminal = errors.New("not a terminal")

// Size is the size of a terminal in characters.
type Size struct{ Rows, Cols uint16 }

// sized is any type of that form: package sandbox has its own name for it, and
// neither knows the other.
type sized interface {
	~struct{ Rows, Cols uint16 }
}

// Resized returns a channel with each later size of the session's terminal, in
// the caller's type. A size that nobody took is replaced by the next. The
// channel is closed when the session is.
func Resized[S sized](s *Session) <-chan S {
	sizes := make(chan S, 1)
	changes := s.watchSize()
	go func() {
		defer close(sizes)
		for size := range changes {
			select {
			case <-sizes: // stale
			default:
			}
			sizes <- S(size)
		}
	}()
	return sizes
}

// Output is where the program's output goes: filtered, to the terminal.
func (s *Session) Output() io.Writer { return s.output }
