package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/kernel/probe"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
)

// blockedError is a start that failed on a host where more than one thing is in
// the way: to be told of one at a time is a start for each.
type blockedError struct {
	err   error
	items []probe.Item
}

func (e *blockedError) Error() string {
	var b strings.Builder
	if len(e.items) == 1 {
		fmt.Fprintf(&b, "%v; this is in the way:", e.err)
	} else {
		fmt.Fprintf(&b, "this host can't hold the boundary; %d things are in the way:", len(e.items))
	}
	for _, i := range e.items {
		fmt.Fprintf(&b, "\n  %s: %s\n    fix: %s", i.Name, plaintext.Line(i.Detail, maxDetail), plaintext.Line(i.Fix, maxDetail))
	}
	return b.String()
}

func (e *blockedError) Unwrap() error { return e.err }

// Hint says where it is told in full.
func (e *blockedError) Hint() string {
	return "confine doctor tries each part on this host; for a container docs/how-to/run-in-docker.md has the whole set of flags"
}

func hintOf(missing *kernel.MissingError, start *sandbox.StartError) string {
	if missing != nil {
		return missing.Fix
	}
	return start.Hint
}

// blockers looks for everything that is in the way of a start that failed for
// what the host lacks.
func blockers(err error, b boundary.Boundary, look func() probe.Report) error {
	var missing *kernel.MissingError
	var start *sandbox.StartError
	if !errors.As(err, &missing) && !(errors.As(err, &start) && !start.NotFound && !start.NotExecutable) {
		return err
	}
	var items []probe.Item
	for _, i := range look().Items {
		allowed := i.Layer != "" && slices.Contains(b.AllowMissing, i.Layer)
		if !i.Present && i.Needed && i.After == "" && !allowed {
			items = append(items, i)
		}
	}
	// One that names its change itself needs no more words.
	if len(items) == 0 || len(items) == 1 && !strings.Contains(hintOf(missing, start), "confine doctor") {
		return err
	}
	return &blockedError{err: err, items: items}
}
