package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"confine/internal/kernel"
)

// result is what one command line did.
type result struct {
	status         int
	stdout, stderr string
}

// confine runs one command line in this process.
func confine(args ...string) result {
	var stdout, stderr bytes.Buffer
	status := Main(context.Background(), Process{
		Args: args, Version: "v1.2.3",
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
	})
	return result{status, stdout.String(), stderr.String()}
}

func TestCommandLine(t *testing.T) {
	tests := []struct {
		args   []string
		status int
		stdout string
		stderr string
	}{
		{[]string{"--version"}, ExitDone, "confine v1.2.3\n", ""},
		{nil, ExitUsage, "", "confine: error: no command given\nconfine: hint: see confine --help\n"},
		{[]string{"conifg"}, ExitUsage, "", "confine: error: unknown command \"conifg\" for \"confine\": did you mean \"config\"?\nconfine: hint: see confine --help\n"},
		{[]string{"\x1b[31mx\u202e"}, ExitUsage, "", "confine: error: unknown command \"x\" for \"confine\"\nconfine: hint: see confine --help\n"},
		{[]string{"config"}, ExitUsage, "", "confine: error: no command given\nconfine: hint: see confine config --help\n"},
		{[]string{"--nope"}, ExitUsage, "", "confine: error: unknown flag: --nope\nconfine: hint: see confine --help\n"},
		{[]string{"--json", "x"}, ExitUsage, "", `{"kind":"usage","error":"unknown command \"x\" for \"confine\"","hint":"see confine --help","exit":2}` + "\n"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			got := confine(test.args...)
			if want := (result{test.status, test.stdout, test.stderr}); got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

type ruleError struct{}

func (ruleError) Error() string                 { return "refuse path \"x\"" }
func (ruleError) Refused() (rule, field string) { return "protected_path", "protect.refuse" }
func (ruleError) Hint() string                  { return "ask a person" }

func TestFailureFamilies(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("do it: %w", err) }
	tests := []struct {
		name string
		err  error
		want failure
	}{
		{"fault", errors.New("read: broken"), failure{Kind: "fault", Error: "read: broken", Status: 1}},
		{"hostile text", errors.New("say \x1b[2J\"hi\"\u202e"), failure{Kind: "fault", Error: "say \"hi\"", Status: 1}},
		{"refusal", wrap(ruleError{}), failure{Kind: "refusal", Error: "do it: refuse path \"x\"", Hint: "ask a person", Rule: "protected_path", Field: "protect.refuse", Status: 3}},
		{"missing", wrap(&kernel.MissingError{Layer: "seccomp", What: "off", Fix: "turn it on"}), failure{Kind: "missing ability", Error: "do it: missing ability seccomp: off", Hint: "turn it on", Layer: "seccomp", Status: 5}},
		{"waiting", &ExitError{Status: ExitWaiting, Err: errors.New("2 refusals unanswered")}, failure{Kind: "waiting", Error: "2 refusals unanswered", Status: 4}},
		{"an error is never a success", &ExitError{Err: errors.New("x")}, failure{Kind: "fault", Error: "x", Status: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := failureOf(test.err); got != test.want {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	tests := []struct {
		name   string
		passes bool
		err    error
		status int
		stderr string
	}{
		{"plain", false, errors.New("x"), ExitFault, "confine: error: x\n"},
		{"status alone", false, &ExitError{Status: 7}, 7, ""},
		{"fault of a command that passes statuses", true, errors.New("x"), ExitRunFault, "confine: error: x\n"},
		{"its own status wins", true, &ExitError{Status: ExitRunNotFound, Err: errors.New("x")}, ExitRunNotFound, "confine: error: x\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			f := &frame{Process: Process{Stderr: &stderr}, passes: test.passes}
			if got := f.report(test.err); got != test.status || stderr.String() != test.stderr {
				t.Errorf("got %d %q, want %d %q", got, stderr.String(), test.status, test.stderr)
			}
		})
	}
}

// Go ends a panic with status 2, which would read as wrong usage, or as the
// status of the command that `run` ran.
func TestPanicIsAFault(t *testing.T) {
	var stderr bytes.Buffer
	f := &frame{Process: Process{Stderr: &stderr}}
	root := &cobra.Command{Use: "confine", RunE: func(*cobra.Command, []string) error { panic("boom") }}
	root.SetArgs(nil)
	cmd, err := f.execute(t.Context(), root)
	if err == nil || cmd != root {
		t.Fatalf("got command %v, error %v", cmd, err)
	}
	if got := f.report(err); got != ExitFault || !strings.HasSuffix(stderr.String(), "confine: error: internal error: boom\n") {
		t.Errorf("got %d %q", got, stderr.String())
	}
}

func TestGetenv(t *testing.T) {
	f := &frame{Process: Process{Env: []string{"A=1", "AB=2", "A=3", "C="}}}
	for name, want := range map[string]string{"A": "3", "AB": "2", "C": "", "D": ""} {
		if got := f.getenv(name); got != want {
			t.Errorf("getenv(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestColourNeedsATerminal(t *testing.T) {
	f := &frame{}
	if f.colour(&bytes.Buffer{}) {
		t.Error("a buffer is no terminal")
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if f.colour(file) {
		t.Error("a file is no terminal")
	}
}
