// Package cli is the command line: it turns arguments into calls of the flows
// below it and their results into text, JSON and an exit status.
//
// It promises that every error is printed once, with a hint where there is one,
// that text from outside is cleaned before it reaches a terminal, and that exit
// statuses mean what exit.go says. It has no rules of its own: what it prints
// was decided below. cmd/confine calls Main; tests call the same Main.
//
// Each command is one file with an options struct, a constructor and a run
// function, and one line in commands.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"confine/internal/plaintext"
)

// commands lists every command, in the order of the help.
func commands() []func(*frame) *cobra.Command {
	return []func(*frame) *cobra.Command{
		newWorkCommand,
		newCheckCommand,
		newRunCommand,
		newTrashCommand,
		newUndoCommand,
		newVerifyCommand,
		newDoctorCommand,
		newProbeCommand,
		newConfigCommand,
		newLocalCommand,
		newDocsCommand,
	}
}

// Process is what the program gets from its caller.
type Process struct {
	// Args are the arguments without the program's name.
	Args []string
	// Env is the environment, NAME=VALUE each.
	Env     []string
	Version string

	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Main runs one command line and returns the exit status.
func Main(ctx context.Context, process Process) int {
	// Nothing here logs by it, but net/http does where it is given no other, and
	// quotes the far side's bytes: they would reach the terminal as they came.
	log.SetOutput(io.Discard)
	f := &frame{Process: process, help: &heldWriter{to: process.Stdout}}
	root := newRoot(f)
	// A nil slice would make cobra read os.Args.
	root.SetArgs(append([]string{}, process.Args...))
	cmd, err := f.execute(ctx, root)
	if err == nil && f.help.err != nil {
		// What was asked for did not arrive.
		err, f.started = fmt.Errorf("write output: %w", f.help.err), true
	}
	if err == nil {
		return ExitDone
	}
	f.passes = cmd.Annotations[passesStatus] != ""
	if !f.started {
		// Whatever fails before a command runs is its command line.
		err = asUsage(cmd, err)
	}
	if !f.json && !f.started {
		f.json = asksJSON(process.Args)
	}
	return f.report(err)
}

// passesStatus is the annotation of a command whose exit status is that of the
// program it ran: its own failures end with ExitRunFault, so that nobody takes
// them for the program's.
const passesStatus = "confine/passes-status"

// execute runs the command. A panic is a fault like any other: Go's own status
// for it would read as wrong usage.
func (f *frame) execute(ctx context.Context, root *cobra.Command) (cmd *cobra.Command, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			// The trace is for whoever mends it; the error line stays one line.
			fmt.Fprintf(f.Stderr, "%s\n", debug.Stack())
			f.started = true
			if cmd == nil {
				cmd, _, _ = root.Find(f.Args)
			}
			err = fmt.Errorf("internal error: %v", cause)
		}
	}()
	return root.ExecuteContextC(ctx)
}

// frame is what all commands share.
type frame struct {
	Process
	// help is standard output for what cobra writes.
	help *heldWriter
	// json asks for results as JSON.
	json bool
	// started is set when a command's run function is entered.
	started bool
	// passes is set when the command has the annotation passesStatus.
	passes bool
}

// getenv returns the value of an environment variable, "" if it is not set.
func (f *frame) getenv(name string) string {
	value, _ := f.lookupEnv(name)
	return value
}

// lookupEnv also tells whether the variable is set at all.
func (f *frame) lookupEnv(name string) (value string, set bool) {
	for _, entry := range f.Env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value, set = v, true // the last one counts, as for exec
		}
	}
	return value, set
}

// colour reports whether w is a terminal that shows colours and the person did
// not ask for none (no-color.org).
func (f *frame) colour(w io.Writer) bool {
	return f.getenv("NO_COLOR") == "" && f.getenv("TERM") != "dumb" && isTerminal(w)
}

// isTerminal reports whether w writes to a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// printJSON writes a result as indented JSON.
func (f *frame) printJSON(value any) error {
	enc := json.NewEncoder(f.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// printf writes text to standard output. The caller has cleaned what came from
// outside.
func (f *frame) printf(format string, args ...any) error {
	if _, err := fmt.Fprintf(f.Stdout, format, args...); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func newRoot(f *frame) *cobra.Command {
	root := &cobra.Command{
		Use:   "confine",
		Short: "Run coding agents and repository checks behind a boundary",
		Long: `confine runs a coding agent, and the checks of the repository it changes, behind
a boundary, and lets nothing out but plain data.

Exit statuses: 0 done, 1 fault, 2 wrong usage or configuration, 3 refused by a
rule, 4 waiting for a person, 5 an ability this host lacks. "confine run" passes
the status of its command through.`,
		Example: `  confine config check tenant.yaml
  confine config explain gate`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
	}
	var version bool
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if version {
			return f.printVersion()
		}
		return group(cmd, args)
	}
	root.SetIn(f.Stdin)
	root.SetOut(f.help)
	root.SetErr(f.Stderr)
	root.SetFlagErrorFunc(flagError)
	// Not cobra's own, which knows no JSON.
	root.Flags().BoolVarP(&version, "version", "v", false, "print the version")
	root.PersistentFlags().BoolVar(&f.json, "json", false, "write results and errors as JSON")
	for _, command := range commands() {
		root.AddCommand(command(f))
	}
	addHelp(root)
	addCompletion(root)
	markStart(f, root)
	return root
}

func (f *frame) printVersion() error {
	if f.json {
		return f.printJSON(map[string]string{"version": f.Version})
	}
	return f.printf("confine %s\n", f.Version)
}

// group is the run function of a command that only holds others: naming it
// alone does nothing, and that is never a success.
func group(cmd *cobra.Command, _ []string) error {
	return usagef(cmd.CommandPath(), "no command given")
}

// noCommand is the argument check of a group: an argument is a command that
// does not exist.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", plaintext.Line(args[0], 80), cmd.CommandPath())
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(": did you mean %q?", near[0])
	}
	return usagef(cmd.CommandPath(), "%s", text)
}

// markStart notes for each command that it was entered, which tells an error of
// the command line from one of the command.
func markStart(f *frame, cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			f.started = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		markStart(f, sub)
	}
}

func asUsage(cmd *cobra.Command, err error) error {
	var usage *UsageError
	if errors.As(err, &usage) {
		return err
	}
	return &UsageError{Command: cmd.CommandPath(), Err: err}
}

// asksJSON reports whether the arguments hold --json, for a command line that
// could not be parsed as far as that.
func asksJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}
