package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/kernel/probe"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
	"confine/internal/sandbox/native"
	"confine/internal/terminal"
	"confine/internal/workspace"
)

type runOptions struct {
	net     string
	netMap  []string
	ro      []string
	mask    []string
	env     []string
	memory  string
	pids    int64
	timeout time.Duration
	user    string
	missing []string
	stage   bool
	live    bool
	release []string
	profile string
}

func newRunCommand(f *frame) *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run one command in a fresh boundary",
		Long: `Run one command in a fresh boundary, without any configuration.

The current directory is /workspace inside. On a terminal writes to it are real at
once (--live). Without one, or with --stage, they land beside it and are committed
when the command has ended, all or nothing; what they displaced is in the trash
(confine undo). A repository's control files (.git/config, hooks and their like) are
read-only and .env files are masked. Files that a host tool would later run by
itself are listed at the end; staged, they are held back until you name them. Of the
host there is nothing else but its programs and the toolchain directories of PATH,
read-only. There is no network, unless --net lists hosts.

With a terminal the command gets one of its own, made inside. Its exit status is
passed through: 124 means the time limit, 125 that confine failed, 126 and 127
that the command can't be executed or is not in the view, 137 that it was killed
(at the memory limit the reason is printed).

A browser with its own sandbox needs --profile browser, bubblewrap and agents that
use it --profile nesting; each says in what the boundary is weaker then.

Standard input is read ahead for the command, as ssh does it: in a loop over
lines, give it </dev/null. Started in the background of a shell it needs that too.
When the terminal is closed a command has 5 s left; a second SIGTERM ends the run.

With --json the result is one JSON object on standard output, which holds what
the command wrote.`,
		Example: `  confine run -- go test ./...
  confine run --net proxy.golang.org,sum.golang.org -- go mod download
  confine run --ro ~/models --memory 4GiB --timeout 10m -- ./train.sh
  confine run --stage -- ./codemod.sh
  confine run --json -- make check`,
		Args:        cobra.MinimumNArgs(1),
		Annotations: map[string]string{passesStatus: "yes"},
		RunE:        func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), f, args) },
	}
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&o.net, "net", "", "hosts that may be reached: `host[:port],*.host[:port]`; no port means 443")
	fl.StringArrayVar(&o.netMap, "net-map", nil, "dial `name:port=address:port` for a listed name (for tests)")
	_ = fl.MarkHidden("net-map")
	fl.StringArrayVar(&o.ro, "ro", nil, "show the host `path` read-only, at the same place")
	fl.StringArrayVar(&o.mask, "mask", nil, "mask files and directories of the workspace that match the `glob`")
	fl.StringArrayVar(&o.env, "env", nil, "set `NAME=VALUE`, or pass NAME on")
	fl.StringVar(&o.memory, "memory", "", "memory limit as a `size`, such as 2GiB")
	fl.Int64Var(&o.pids, "pids", 0, "limit of processes and threads")
	fl.DurationVar(&o.timeout, "timeout", 0, "wall time after which the run is killed, such as 10m")
	fl.StringArrayVar(&o.missing, "allow-missing", nil, "run although this host lacks the `layer`: proc or landlock (cgroup always may be)")
	fl.StringVar(&o.profile, "profile", "", "open the boundary for a program with a sandbox of its own: `browser` or nesting")
	fl.BoolVar(&o.stage, "stage", false, "keep writes apart and commit them, reviewed, at the end (the default without a terminal)")
	fl.BoolVar(&o.live, "live", false, "let writes be real at once (the default on a terminal)")
	cmd.MarkFlagsMutuallyExclusive("stage", "live")
	fl.StringArrayVar(&o.release, "release", nil, "when writes are staged, commit what matches the `glob` though a host tool runs it by itself")
	fl.StringVar(&o.user, "user", "agent", "who the command is inside: `agent` or root (without any capability)")
	return cmd
}

// runReport is the result of `confine run` as JSON.
type runReport struct {
	Command  []string         `json:"command"`
	Exit     runExit          `json:"exit"`
	Stdout   string           `json:"stdout,omitempty"`
	Stderr   string           `json:"stderr,omitempty"`
	Refusals []refusalReport  `json:"refusals"`
	Missing  []boundary.Layer `json:"missing_layers"`
	Profile  boundary.Profile `json:"profile,omitempty"`
	// Weaker are the points in which the profile makes the boundary weaker.
	Weaker  []string            `json:"weaker,omitempty"`
	Lent    []lentReport        `json:"lent"`
	Masked  []string            `json:"masked"`
	Skipped []skippedReport     `json:"skipped,omitempty"`
	Review  []workspace.Finding `json:"review"`
	// Staged is what became of the writes of a staged run.
	Staged  *stagedReport   `json:"staged,omitempty"`
	Earlier []earlierReport `json:"earlier,omitempty"`
	Notes   []string        `json:"notes,omitempty"`
	Dropped int             `json:"refusals_dropped,omitempty"`
}

type runExit struct {
	Reason        sandbox.Reason `json:"reason"`
	Status        int            `json:"status"`
	Signal        int            `json:"signal,omitempty"`
	Seconds       float64        `json:"seconds"`
	OutputBytes   int64          `json:"output_bytes"`
	OutputDropped int64          `json:"output_dropped,omitempty"`
	// OOMKills counts processes that were killed at the memory limit, also when
	// the command itself was not.
	OOMKills     int64 `json:"oom_kills,omitempty"`
	RefusedForks int64 `json:"refused_forks,omitempty"`
}

type refusalReport struct {
	Target  string `json:"target"`
	Program string `json:"program,omitempty"`
	Reason  string `json:"reason"`
	Detail  string `json:"detail,omitempty"`
	Count   int    `json:"count"`
	Allow   string `json:"allow,omitempty"`
	line    string
}

// earlierReport is what a run that was killed left in its workspace, found at
// this start.
type earlierReport struct {
	Dir    string              `json:"dir"`
	Review []workspace.Finding `json:"review"`
	Note   string              `json:"note,omitempty"`
	Error  string              `json:"error,omitempty"`
}

type skippedReport struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

type lentReport struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

func (o *runOptions) run(ctx context.Context, f *frame, args []string) error {
	o.stage = o.stage || !o.live && !f.onTerminal()
	// Before this workspace is looked at: what a killed run planted is not how
	// it should be.
	earlier, err := reconcile(f)
	if err != nil {
		return err
	}
	plan, err := o.plan(ctx, f, args)
	if err != nil {
		return err
	}
	plan.earlier = earlier
	defer plan.live.Close()
	spec := sandbox.Spec{
		Boundary: plan.boundary, Args: args, Stdin: f.Stdin, Stdout: f.Stdout, Stderr: f.Stderr,
		Weakened: func(l boundary.Layer, what string) {
			if !f.json {
				fmt.Fprintf(f.Stderr, "confine: without %s: %s\n", l, plaintext.Line(what, 200))
			}
		},
	}
	if !f.json {
		for _, w := range plan.boundary.Profile.Weaker() {
			fmt.Fprintf(f.Stderr, "confine: profile %s: %s\n", plan.boundary.Profile, w)
		}
	}
	var refusals egress.Collector
	if plan.boundary.Network == boundary.NetworkCaptured {
		if spec.Egress, err = newEgress(plan.policy, plan.netMap, refusals.Add); err != nil {
			return err
		}
	}
	capture := &captured{}
	if f.json {
		spec.Stdout, spec.Stderr = &capture.out, &capture.err
		spec.Boundary.Limits.Output = maxCaptured
	}
	if plan.staged == nil {
		if err := plan.live.Record(stateDir(f)); err != nil {
			// Without it the run is as good as any, unless it is killed.
			plan.notes = append(plan.notes, fmt.Sprintf("%v: if this run is killed, nobody looks at what it left", err))
		}
	}
	exit, err := o.start(ctx, f, spec)
	if err != nil {
		return runStartError(blockers(errors.Join(err, plan.discard()), plan.boundary, probe.Host))
	}
	review, reviewErr := plan.end(f, exit)
	report := plan.report(args, exit, &refusals, review)
	if f.json {
		report.Stdout, report.Stderr = capture.out.String(), capture.err.String()
		if err := f.printJSON(report); err != nil {
			return err
		}
	} else {
		report.print(f)
	}
	if reviewErr != nil {
		return &ExitError{Status: ExitRunFault, Err: reviewErr}
	}
	return runStatus(exit)
}

// onTerminal reports whether a person sees the command at work. Without one its
// writes are staged: nobody is there to stop it halfway.
func (f *frame) onTerminal() bool {
	in, ok := f.Stdin.(*os.File)
	return ok && !f.json && term.IsTerminal(int(in.Fd())) && isTerminal(f.Stdout)
}

// start runs the command to its end, on a terminal if there is one.
func (o *runOptions) start(ctx context.Context, f *frame, spec sandbox.Spec) (sandbox.Exit, error) {
	in, inOK := f.Stdin.(*os.File)
	out, outOK := f.Stdout.(*os.File)
	// What is no part of a terminal session may still end on a terminal.
	for _, w := range []*io.Writer{&spec.Stdout, &spec.Stderr} {
		if isTerminal(*w) {
			filtered := terminal.NewOutput(*w)
			defer func() { _ = filtered.Close() }()
			*w = filtered
		}
	}
	if inOK && outOK && !f.json {
		session, err := terminal.Open(in, out)
		if err != nil && !errors.Is(err, terminal.ErrNotTerminal) {
			return sandbox.Exit{}, fmt.Errorf("open terminal: %w", err)
		}
		if err == nil {
			defer session.Close()
			size := session.Size()
			spec.Stdin, spec.Stdout = session.Input(), session.Output()
			if isTerminal(f.Stderr) {
				spec.Stderr = nil // one terminal, in the order it was written
			}
			spec.Terminal = &sandbox.Terminal{
				Rows: size.Rows, Cols: size.Cols, Resized: terminal.Resized[sandbox.WindowSize](session),
				Stopped: func() { _ = session.Suspend(terminal.StopSelf) },
			}
		}
	}
	// Caught before the start, so that none ends confine and not the command.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded()...)
	defer signal.Stop(signals)
	running, err := native.New().Start(ctx, spec)
	if err != nil {
		return sandbox.Exit{}, err
	}
	done := make(chan struct{})
	defer close(done)
	go forward(running, signals, done)
	return running.Wait(), nil
}

// hangupGrace is how long a command may go on when the terminal is gone, or the
// person's session: nobody is there any more to end it.
const hangupGrace = 5 * time.Second

// forward passes signals on to the command, which may answer them in its own way:
// but a second SIGTERM, and a hang-up after the grace, end the run.
func forward(running sandbox.Running, signals <-chan os.Signal, done <-chan struct{}) {
	var hungUp <-chan time.Time
	terminated := false
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM && terminated {
				running.Kill()
				continue
			}
			terminated = terminated || s == syscall.SIGTERM
			if s == syscall.SIGHUP && hungUp == nil {
				hungUp = time.After(hangupGrace)
			}
			_ = running.Signal(s)
		case <-hungUp:
			running.Kill()
		case <-done:
			return
		}
	}
}

// forwarded are the signals that mean the command, not confine. A hang-up that
// the caller had ignored (nohup) stays ignored.
func forwarded() []os.Signal {
	list := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// runStartError gives a command that can't be executed the status that shells
// give it.
func runStartError(err error) error {
	var se *sandbox.StartError
	if errors.As(err, &se) {
		switch {
		case se.NotFound:
			return &ExitError{Status: ExitRunNotFound, Err: err}
		case se.NotExecutable:
			return &ExitError{Status: ExitRunNotExecutable, Err: err}
		}
	}
	return err
}

// runStatus passes the command's end on as confine's.
func runStatus(e sandbox.Exit) error {
	if e.Reason == sandbox.Fault {
		return &ExitError{Status: ExitRunFault, Err: fmt.Errorf("run sandbox: %w", e.Err)}
	}
	ended := e.Reason == sandbox.Exited || e.Reason == sandbox.Signalled
	if ended && e.OutputErr != nil && !errors.Is(e.OutputErr, syscall.EPIPE) {
		// What the command said is lost, whatever it ended with.
		return &ExitError{Status: ExitRunFault, Err: fmt.Errorf("pass on the command's output: %w", e.OutputErr)}
	}
	if e.Success() {
		return nil
	}
	if e.Status == 0 {
		return &ExitError{Status: ExitRunFault, Err: fmt.Errorf("run ended: %s", e.Reason)}
	}
	return &ExitError{Status: e.Status}
}
