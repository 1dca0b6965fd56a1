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

// Close does nothing.
func (l *LiveWorkspace) Close() error { return nil }

// Review needs Linux.
func (l *LiveWorkspace) Review(ReviewOptions) (Review, error) { return Review{}, errOnlyLinux }

// Record needs Linux.
func (l *LiveWorkspace) Record(string) error { return errOnlyLinux }

// Reconcile has nothing to do: no run was ever started.
func Reconcile(string, ReviewOptions) ([]Earlier, error) { return nil, nil }
