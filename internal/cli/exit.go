package cli

import "strconv"

// The exit statuses of every command but `confine run`, which passes the status
// of its command through.
const (
	// ExitDone: what was asked is done.
	ExitDone = 0
	// ExitFault: an input or output failed, or confine has a bug.
	ExitFault = 1
	// ExitUsage: the command line or a configuration is wrong; nothing was
	// started.
	ExitUsage = 2
	// ExitRefused: a rule said no; the message names rule and field.
	ExitRefused = 3
	// ExitWaiting: a person has to answer before it goes on; also a run that
	// was stopped by refusals.
	ExitWaiting = 4
	// ExitMissing: this host lacks an ability; the message names the fix.
	ExitMissing = 5
)

// The exit statuses that `confine run` has of its own. They are those of
// timeout(1), env(1) and shells, so that scripts which know those know these.
const (
	// ExitRunTimeout: the time limit was reached.
	ExitRunTimeout = 124
	// ExitRunFault: confine failed, not the command.
	ExitRunFault = 125
	// ExitRunNotExecutable: the command was found and can't be executed.
	ExitRunNotExecutable = 126
	// ExitRunNotFound: the command is not in the view.
	ExitRunNotFound = 127
	// ExitRunMemory: the command was killed as it reached the memory limit.
	ExitRunMemory = 137
)

// exitMeaning is one line of the reference.
type exitMeaning struct {
	status  int
	meaning string
}

// exitMeanings is what the reference says; its test holds it to the constants.
func exitMeanings() (all, run []exitMeaning) {
	all = []exitMeaning{
		{ExitDone, "What was asked is done."},
		{ExitFault, "A fault: an input or output failed, or confine has a bug."},
		{ExitUsage, "Usage: the command line or a configuration is wrong. Nothing was started."},
		{ExitRefused, "Refused: a rule said no. The message names the rule and the field that governs it."},
		{ExitWaiting, "Waiting: a person has to answer before it goes on. Also a run that was stopped by refusals."},
		{ExitMissing, "A missing ability of this host. The message names it and the change that mends it; so does `confine doctor`."},
	}
	run = []exitMeaning{
		{ExitRunTimeout, "The time limit (`--timeout`) was reached."},
		{ExitRunFault, "Confine failed, not the command: a fault, wrong usage, or a missing ability."},
		{ExitRunNotExecutable, "The command was found and can't be executed."},
		{ExitRunNotFound, "The command is not in the view."},
		{ExitRunMemory, "The command was killed as it reached the memory limit (`--memory`); the reason is printed. Any other 128+N is the command's own end by signal N."},
	}
	return all, run
}

// ExitError ends a command with a status of its own.
type ExitError struct {
	// Status is the exit status; never 0.
	Status int
	// Err is printed as the error. Nil prints nothing: the command said all
	// there is to say.
	Err error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return "exit status " + strconv.Itoa(e.Status)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }
