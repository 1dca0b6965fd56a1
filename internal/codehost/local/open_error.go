//go:build unix

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"confine/internal/gitcmd"
)

// OpenKind is the way in which a directory can't be used as a host.
type OpenKind string

// The kinds.
const (
	// NoHost: nothing is there, or something that Init has not made.
	NoHost OpenKind = "no_host"
	// NotPermitted: this user may not read it.
	NotPermitted OpenKind = "not_permitted"
	// BadHost: it was a host, and a part of it can't be used.
	BadHost OpenKind = "bad_host"
)

// OpenError is a directory that can't be used as a host.
type OpenError struct {
	Dir  string
	Kind OpenKind
	Err  error
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("open local code host %q: %v", e.Dir, e.Err)
}

// Unwrap gives the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// Hint says what would mend it.
func (e *OpenError) Hint() string {
	switch e.Kind {
	case NoHost:
		return "make one with confine local init " + e.Dir + " --from DIRECTORY, or name another directory"
	case NotPermitted:
		return notPermittedHint
	}
	var inner interface{ Hint() string }
	if errors.As(e.Err, &inner) {
		return inner.Hint()
	}
	return "put the directory back from a backup, or name another; nothing was changed"
}

const notPermittedHint = "run confine as the user who owns the directory: a local code host is its owner's alone"

// errNoHost is a directory that is there and not a host.
var errNoHost = errors.New("there is no host.yaml: it was not made by confine local init, or only in part")

// openError sorts what went wrong. What is no fault of the directory stays as it
// is.
func openError(dir string, err error) error {
	var git *gitcmd.MissingError
	if errors.As(err, &git) {
		return fmt.Errorf("open local code host %q: %w", dir, err)
	}
	kind := BadHost
	var part *FileError
	switch {
	case errors.Is(err, fs.ErrPermission):
		kind = NotPermitted
	case errors.As(err, &part): // also one that is missing
	case errors.Is(err, errNoHost), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		kind = NoHost
	}
	return &OpenError{Dir: dir, Kind: kind, Err: err}
}
