package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
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
		{[]string{"--version", "--json"}, ExitDone, "{\n  \"version\": \"v1.2.3\"\n}\n", ""},
		{[]string{"--version", "x"}, ExitUsage, "", "confine: error: unknown command \"x\" for \"confine\"\nconfine: hint: see confine --help\n"},
		{[]string{"help", "bogus"}, ExitUsage, "", "confine: error: unknown command \"bogus\" for \"confine\"\nconfine: hint: see confine --help\n"},
		{[]string{"help", "config", "chekc"}, ExitUsage, "", "confine: error: unknown command \"chekc\" for \"confine config\": did you mean \"check\"?\nconfine: hint: see confine config --help\n"},
		{[]string{"completion", "tcsh"}, ExitUsage, "", "confine: error: unknown command \"tcsh\" for \"confine completion\": did you mean \"bash\"?\nconfine: hint: see confine completion --help\n"},
		{[]string{"completion"}, ExitUsage, "", "confine: error: no command given\nconfine: hint: see confine completion --help\n"},
		{[]string{"work", "--config", "c", "--issue", "x"}, ExitUsage, "", "confine: error: --issue \"x\": is a whole number, such as 12\nconfine: hint: see confine work --help\n"},
		{[]string{"work", "--config", "c", "--issue", "99999999999999999999"}, ExitUsage, "", "confine: error: --issue \"99999999999999999999\": is too large or too small a number\nconfine: hint: see confine work --help\n"},
		{[]string{"run", "--timeout", "soon", "--", "true"}, ExitRunFault, "", "confine: error: --timeout \"soon\": is a time, such as 90s, 10m or 1h30m\nconfine: hint: see confine run --help\n"},
		{[]string{"--json=maybe"}, ExitUsage, "", "confine: error: --json \"maybe\": is true or false\nconfine: hint: see confine --help\n"},
		{[]string{"verify", "--group", "x"}, ExitUsage, "", "confine: error: --group \"x\": is processes, files, network, kernel, exhaustion or workspace\nconfine: hint: see confine verify --help\n"},
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

// full is an output without room.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
}

// What was asked for and could not be written is a fault, whoever writes it.
func TestOutputWithoutRoomIsAFault(t *testing.T) {
	const line = "confine: error: write output: write /dev/stdout: no space left on device\n"
	for _, test := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"--version"}, ExitFault, line},
		{[]string{"--version", "--json"}, ExitFault, `{"kind":"fault","error":"write result: write /dev/stdout: no space left on device","exit":1}` + "\n"},
		{[]string{"--help"}, ExitFault, line},
		{[]string{"help"}, ExitFault, line},
		{[]string{"help", "config"}, ExitFault, line},
		{[]string{"config", "check", "--help"}, ExitFault, line},
		{[]string{"completion", "bash"}, ExitFault, line},
		{[]string{"completion", "zsh"}, ExitFault, line},
		{[]string{"config", "schema"}, ExitFault, line},
		{[]string{"run", "--help"}, ExitRunFault, line},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var stderr bytes.Buffer
			status := Main(t.Context(), Process{Args: test.args, Version: "v1", Stdin: strings.NewReader(""), Stdout: full{}, Stderr: &stderr})
			if status != test.status || stderr.String() != test.stderr {
				t.Errorf("got %d %q, want %d %q", status, stderr.String(), test.status, test.stderr)
			}
			if control := confine(test.args...); control.status != ExitDone || control.stdout == "" {
				t.Errorf("control, with room: %+v", control)
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	const noFiles = ":4\n" // cobra.ShellCompDirectiveNoFileComp
	for _, test := range []struct{ args, want string }{
		{"verify --group |", "processes\nfiles\nnetwork\nkernel\nexhaustion\nworkspace\n" + noFiles},
		{"verify --group ne|", "network\n" + noFiles},
		{"work --until |", "plan\ncommits\npr\nmerge\n" + noFiles},
		{"run --user |", "agent\nroot\n" + noFiles},
		{"run --allow-missing p|", "proc\n" + noFiles},
		{"config explain gate.NAME.t|", "gate.NAME.timeout\n" + noFiles},
		{"config explain repo x|", noFiles},
	} {
		t.Run(test.args, func(t *testing.T) {
			words := strings.Fields(strings.TrimSuffix(test.args, "|"))
			if strings.HasSuffix(test.args, " |") {
				words = append(words, "")
			}
			got := confine(append([]string{"__completeNoDesc"}, words...)...)
			if got.status != ExitDone || got.stdout != test.want {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}

// Each field that is offered is one that can be explained, and none is missing.
func TestCompletedFieldsAreExplained(t *testing.T) {
	got := confine("__completeNoDesc", "config", "explain", "")
	names := strings.Split(strings.TrimSuffix(got.stdout, "\n:4\n"), "\n")
	if len(names) < 40 {
		t.Fatalf("only %d fields: %q", len(names), got.stdout)
	}
	for _, name := range names {
		if r := confine("config", "explain", name); r.status != ExitDone {
			t.Errorf("explain %s: %+v", name, r)
		}
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
