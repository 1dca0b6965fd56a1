//go:build !linux

package workspace

import (
	"confine/internal/boundary"
	"confine/internal/kernel"
)

type (
	scan    struct{}
	journal struct{}
	staged  struct{}
)

var errOnlyLinux = &kernel.MissingError{Layer: boundary.LayerUserNS, What: "this system is not Linux", Fix: "run confine on Linux"}

// Live needs Linux.
func Live(Options) (*LiveWorkspace, error) { return nil, errOnlyLinux }

// Stage is not there.
type Stage struct{}

// Stage needs Linux.
func (l *LiveWorkspace) Stage(StageOptions) (*Stage, error) { return nil, errOnlyLinux }

// Commit needs Linux.
func (s *Stage) Commit() (Committed, error) { return Committed{}, errOnlyLinux }

// Discard does nothing.
func (s *Stage) Discard() error { return nil }

// RestoreTrash needs Linux.
func RestoreTrash(TrashOptions) (Committed, error) { return Committed{}, errOnlyLinux }

// Close does nothing.
func (l *LiveWorkspace) Close() error { return nil }

// Review needs Linux.
func (l *LiveWorkspace) Review(ReviewOptions) (Review, error) { return Review{}, errOnlyLinux }

// Record needs Linux.
func (l *LiveWorkspace) Record(string) error { return errOnlyLinux }

// Reconcile has nothing to do: no run was ever started.
func Reconcile(string, ReviewOptions) ([]Earlier, error) { return nil, nil }
