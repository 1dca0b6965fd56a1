package codehost

import (
	"fmt"
	"time"
)

// Outcome is what a host decided. The zero value is not a success.
type Outcome string

// The outcomes.
const (
	Done       Outcome = "done"
	Already    Outcome = "already"     // it was so before: the same call was made earlier
	Moved      Outcome = "moved"       // the state that the call was decided on has changed: read again
	NotAllowed Outcome = "not_allowed" // the host's rules refuse it
	Conflict   Outcome = "conflict"    // the branches can't be merged
	Retry      Outcome = "retry"       // nothing was decided: ask later
)

// What names the part of the state that moved.
type What string

// The parts that move.
const (
	MovedHead  What = "head"
	MovedBase  What = "base"
	MovedIssue What = "issue"
)

// Result is the answer to a call that changes something.
type Result struct {
	Outcome Outcome
	// Moved says what has moved, with the outcome Moved.
	Moved What
	// Reason is for a person: untrusted where the host wrote it.
	Reason string
	// RetryAfter is how long the host asked to be left alone, with Retry.
	RetryAfter time.Duration
}

// OK reports whether what was asked for is so now.
func (r Result) OK() bool { return r.Outcome == Done || r.Outcome == Already }

func (r Result) String() string {
	s := string(r.Outcome)
	if s == "" {
		s = "no outcome"
	}
	if r.Moved != "" {
		s += " " + string(r.Moved)
	}
	if r.Reason != "" {
		s += fmt.Sprintf(": %.400q", r.Reason)
	}
	return s
}

// NotFoundError is an issue, pull request, branch or commit that is not there.
type NotFoundError struct {
	Kind string // "issue", "pull request", "branch", "commit"
	Name string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("find %s %.200q on the code host: not there", e.Kind, e.Name)
}

// InvalidError is an argument that no host is asked to take.
type InvalidError struct {
	Field string
	Why   string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("use %s: %s", e.Field, e.Why) }
