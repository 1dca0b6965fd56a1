package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"confine/internal/gitcmd"
	"confine/internal/kernel"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
	"confine/internal/tenant"
)

// maxErrorText caps what is printed of one error.
const maxErrorText = 8 << 10

// Refusal is what an error has that is a rule's no, in any package.
type Refusal interface {
	error
	// Refused names the rule and the field that governs it.
	Refused() (rule, field string)
}

// Hinter is an error that knows what would mend it.
type Hinter interface {
	error
	Hint() string
}

// UsageError is a wrong command line.
type UsageError struct {
	// Command is the full name of the command, whose help is the hint.
	Command string
	Err     error
}

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Hint names the help.
func (e *UsageError) Hint() string { return "see " + e.Command + " --help" }

// usagef makes a wrong command line known. Commands use it for what their flags
// can't say by type.
func usagef(command, format string, args ...any) error {
	return &UsageError{Command: command, Err: fmt.Errorf(format, args...)}
}

// failure is an error as it is reported.
type failure struct {
	Kind   string `json:"kind"`
	Error  string `json:"error"`
	Hint   string `json:"hint,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Field  string `json:"field,omitempty"`
	Layer  string `json:"layer,omitempty"`
	Status int    `json:"exit"`
}

// The kinds of failure. The names are part of the JSON output.
const (
	kindFault   = "fault"
	kindUsage   = "usage"
	kindRefusal = "refusal"
	kindWaiting = "waiting"
	kindMissing = "missing ability"
)

// failureOf sorts an error into its family. What nobody claims is a fault.
func failureOf(err error) failure {
	f := failure{Kind: kindFault, Status: ExitFault, Error: plaintext.Block(err.Error(), maxErrorText)}
	var hinter Hinter
	if errors.As(err, &hinter) {
		f.Hint = plaintext.Block(hinter.Hint(), maxErrorText)
	}
	var (
		usage      *UsageError
		config     tenant.Problems
		configFile *tenant.FileError
		refusal    Refusal
		missing    *kernel.MissingError
		missingGit *gitcmd.MissingError
		start      *sandbox.StartError
		exit       *ExitError
	)
	switch {
	case errors.As(err, &usage), errors.As(err, &config), errors.As(err, &configFile):
		f.Kind, f.Status = kindUsage, ExitUsage
	case errors.As(err, &refusal):
		f.Kind, f.Status = kindRefusal, ExitRefused
		f.Rule, f.Field = refusal.Refused()
	case errors.As(err, &missing):
		f.Kind, f.Status, f.Layer = kindMissing, ExitMissing, string(missing.Layer)
	case errors.As(err, &missingGit):
		f.Kind, f.Status, f.Layer = kindMissing, ExitMissing, "git"
	case errors.Is(err, context.Canceled):
		f.Error = "interrupted"
	}
	if f.Hint == "" && errors.As(err, &start) {
		f.Hint = plaintext.Block(start.Hint, maxErrorText)
	}
	if f.Hint == "" && errors.Is(err, syscall.ENOSYS) {
		f.Hint = "this host refuses a system call that confine needs: confine doctor names it"
	}
	if errors.As(err, &exit) {
		f.Status = exit.Status
		switch exit.Status {
		case ExitUsage:
			f.Kind = kindUsage
		case ExitRefused:
			f.Kind = kindRefusal
		case ExitWaiting:
			f.Kind = kindWaiting
		case ExitMissing:
			f.Kind = kindMissing
		}
	}
	if f.Status == ExitDone {
		// An error is never a success, whatever made it says.
		f.Status = ExitFault
	}
	return f
}

// report prints an error and returns the exit status. It is the only place that
// does.
func (f *frame) report(err error) int {
	fail := failureOf(err)
	var exit *ExitError
	switch {
	case !errors.As(err, &exit):
		if f.passes {
			fail.Status = ExitRunFault
		}
	case exit.Err == nil:
		return fail.Status
	}
	if f.json {
		enc := json.NewEncoder(f.Stderr)
		enc.SetEscapeHTML(false)
		if enc.Encode(fail) != nil {
			return max(fail.Status, ExitFault)
		}
		return fail.Status
	}
	printFailure(f.Stderr, fail)
	return fail.Status
}

func printFailure(w io.Writer, fail failure) {
	fmt.Fprintf(w, "confine: error: %s\n", fail.Error)
	if fail.Hint != "" {
		fmt.Fprintf(w, "confine: hint: %s\n", fail.Hint)
	}
}
