//go:build !linux

package terminal

import (
	"io"
	"os"

	"confine/internal/kernel"
)

// Session is a terminal lent to a program. Only Linux has it.
type Session struct{ output io.Writer }

// Open refuses: confine runs programs on Linux alone.
func Open(_, _ *os.File) (*Session, error) {
	return nil, &kernel.MissingError{What: "terminals are handled on Linux only", Fix: "run confine on Linux"}
}

// Size is never reached, as Open refuses.
func (s *Session) Size() Size { return Size{} }

func (s *Session) watchSize() <-chan Size {
	sizes := make(chan Size)
	close(sizes)
	return sizes
}

// Input has nothing to read.
func (s *Session) Input() io.Reader { return eof{} }

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// Suspend does nothing.
func (s *Session) Suspend(func()) error { return nil }

// StopSelf does nothing.
func StopSelf() {}

// Close does nothing.
func (s *Session) Close() error { return nil }
