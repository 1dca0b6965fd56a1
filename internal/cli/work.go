package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"confine/internal/engine"
	"confine/internal/plaintext"
	"confine/internal/tenant"
)

type workOptions struct {
	config, until, state string
	issue                int
}

func newWorkCommand(f *frame) *cobra.Command {
	o := &workOptions{}
	cmd := &cobra.Command{
		Use:   "work --config FILE --issue N",
		Short: "Take one issue to a merged change",
		Long: `Take one issue to a merged change: let the agent plan and implement it, each time
in a fresh sandbox, take its commits out as data and check them, run the gate on
the merge with the base, push, open the pull request and merge it by rule.

Whatever the end, it is one clear state with a reason, and the agent's work is
kept: on the code host, or as a rescue file.

Exit statuses: 0 as far as asked, 1 the agent, the gate or confine failed, 2 the
configuration is wrong, 3 a rule refused it, 4 it waits for a person (also after
refused connections), 5 this host lacks an ability.`,
		Example: `  confine work --config tenant.yaml --issue 12
  confine work --config tenant.yaml --issue 12 --until commits
  confine work --config tenant.yaml --issue 12 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.config, "config", "", "the tenant's config `file`")
	fl.IntVar(&o.issue, "issue", 0, "the issue's `number`")
	fl.StringVar(&o.until, "until", "", "how far: `plan`, commits, pr or merge (default: repo.until of the config)")
	fl.StringVar(&o.state, "state", "", "directory for what confine keeps (default: /var/lib/confine as root, else $XDG_STATE_HOME/confine)")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagRequired("issue")
	return cmd
}

func (o *workOptions) run(ctx context.Context, f *frame) error {
	if o.issue < 1 {
		return usagef("confine work", "--issue %d: is the number of an issue, from 1", o.issue)
	}
	c, err := loadConfig(o.config)
	if err != nil {
		return err
	}
	until := engine.Until(c.Repo.Until)
	if o.until != "" {
		until = engine.Until(o.until)
	}
	switch until {
	case engine.UntilPlan, engine.UntilCommits, engine.UntilPR, engine.UntilMerge:
	default:
		return usagef("confine work", "--until %q: is plan, commits, pr or merge", o.until)
	}
	if len(c.Gate) == 0 && until != engine.UntilPlan {
		return usagef("confine work", "the config has no gate: nothing can be taken over unchecked (field gate)")
	}
	if c.Stages.Plan == nil && until == engine.UntilPlan {
		return usagef("confine work", "the config has no stage \"plan\": there is nothing to do until then (field stages.plan)")
	}
	options, err := openEngine(ctx, f, c, o.state)
	if err != nil {
		return err
	}
	ctx, stop := untilSignalled(ctx)
	defer stop()
	rec, err := engine.Work(ctx, options, o.issue, until)
	return f.reportRun(rec, err)
}

// untilSignalled ends the context at each signal by which a person, a closed
// terminal or a service manager ends a program, so that a run keeps its work. A
// hang-up that the caller had ignored (nohup) stays ignored, and a reader of our
// output that is gone ends nothing.
func untilSignalled(ctx context.Context) (context.Context, func()) {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	// Caught, not ignored: what is ignored would be so in every child too.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, ends...)
	return ctx, func() {
		stop()
		signal.Stop(pipes)
	}
}

// loadConfig reads a config; what is wrong with it is wrong usage.
func loadConfig(name string) (*tenant.Config, error) {
	c, err := tenant.Load(name)
	if err != nil {
		return nil, &ExitError{Status: ExitUsage, Err: err}
	}
	return c, nil
}

// reportRun prints the end of a run and gives it its exit status.
func (f *frame) reportRun(rec engine.Record, err error) error {
	if rec.Run != "" {
		if f.json {
			if printErr := f.printJSON(rec); printErr != nil {
				return printErr
			}
		} else if printErr := f.printf("%s", runText(rec)); printErr != nil {
			return printErr
		}
	}
	var (
		waiting *engine.WaitingError
		refused *engine.RefusedError
	)
	switch {
	case errors.As(err, &waiting):
		return &ExitError{Status: ExitWaiting, Err: err}
	case errors.As(err, &refused):
		return &ExitError{Status: ExitRefused, Err: err}
	}
	return err
}

// runText is the last screen: what came of it, and what was refused by what.
func runText(r engine.Record) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	line("run %s: %s", r.Run, r.State)
	if r.Reason != "" {
		line("  reason   %s", plaintext.Line(r.Reason, 500))
	}
	if r.Title != "" {
		line("  issue    %d: %s", r.Issue, r.Title)
	}
	if r.Landed != "" {
		line("  merged   %s", r.Landed)
	}
	if r.Pull > 0 {
		line("  pull     request %d, branch %s, head %s", r.Pull, r.Branch.BranchName(), r.Head.Short())
	}
	if v := r.Verdict; v != nil {
		verdict := "passed"
		if !v.Passed() {
			verdict = "not passed"
		}
		line("  gate     %s, on tree %s", verdict, v.Tree.Short())
		for _, c := range v.Checks {
			text := "passed"
			if !c.Passed {
				text = "not passed: " + plaintext.Line(c.Reason, 200)
			}
			if c.Tests != nil {
				text += fmt.Sprintf(" (tests: %d passed, %d failed)", c.Tests.Passed, c.Tests.Failed)
			}
			line("             %s: %s", c.Name, text)
		}
	}
	for _, o := range r.Output {
		line("  wrote    %s %s, at its end:", o.Step, plaintext.Line(o.Name, 200))
		for _, l := range o.Lines {
			line("  | %s", plaintext.Line(l, 400))
		}
	}
	for _, s := range r.Stages {
		for _, x := range s.Refusals {
			text := x.Reason
			if x.Quiet {
				text += " (quiet)"
			}
			line("  refused  %s by %q: %s: egress policy, stage %s", x.Target, x.Program, text, s.Name)
			if x.Allow != "" && !x.Quiet {
				line("             allow it with %s", x.Allow)
			}
		}
	}
	for _, x := range r.Findings {
		line("  %s: hand-over", plaintext.Line(x.String(), 300))
	}
	for _, x := range r.Approvals {
		line("  approval %s", plaintext.Line(x.String(), 300))
	}
	for _, x := range r.Tampered {
		line("  tampered %s: never read by the engine's git", x)
	}
	for _, x := range r.Nested {
		line("  left out repository inside the workspace: %s", x)
	}
	for _, x := range r.Others {
		line("  not handed over, as it is not on the branch checked out at the end: %s", plaintext.Line(x.String(), 400))
	}
	for _, x := range r.OthersLost {
		line("  not kept  other commits of the agent (%s)", plaintext.Line(x, 40))
	}
	if r.LeftOut > 0 {
		line("  left out texts of people without write access: %d", r.LeftOut)
	}
	if len(r.Missing) > 0 {
		line("  without  %v (allow_missing)", r.Missing)
	}
	for _, w := range r.Weaker {
		line("  profile  %s: %s", r.Profile, w)
	}
	if r.Rescue != "" {
		line("  rescue   %s", r.Rescue)
	}
	if r.RescueOthers != "" {
		line("  rescue   %s (commits that were not handed over)", r.RescueOthers)
	}
	line("  record   %s (event log head %.12s)", r.Run, r.AuditHead)
	return b.String()
}

// progress shows where a run stands.
func (f *frame) progress(e engine.Event) {
	if f.json {
		return
	}
	text := strings.Trim(e.Stage+": "+e.Text, ": ")
	fmt.Fprintf(f.Stderr, "confine: %s\n", text)
}

// stageOutput shows what an agent writes, cleaned and marked as its words.
func (f *frame) stageOutput(_ string, p []byte) {
	if f.json {
		return
	}
	for _, l := range strings.Split(strings.TrimRight(plaintext.Block(string(p), 4096), "\n"), "\n") {
		fmt.Fprintf(f.Stderr, "  | %s\n", l)
	}
}
