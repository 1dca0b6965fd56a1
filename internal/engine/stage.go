package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"confine/internal/agent"
	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/gitcmd"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
	"confine/internal/workspace"
)

// readOnly is a host path shown at the same place.
func readOnly(p string) (boundary.Mount, error) {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return boundary.Mount{}, fmt.Errorf("show %q: %w", p, err)
	}
	return boundary.Mount{Kind: boundary.Bind, Source: real, Target: p}, nil
}

// sandboxBase is what steps of package workspace run with.
func (r *run) sandboxBase() (workspace.Base, error) {
	b, err := r.base(boundary.NetworkOff, workspace.Inside, workspace.LentTarget)
	return workspace.Base{Driver: r.o.Driver, Boundary: b, Weakened: r.weakened}, err
}

func (r *run) weakened(l boundary.Layer, what string) {
	for _, m := range r.rec.Missing {
		if m == l {
			return
		}
	}
	r.rec.Missing = append(r.rec.Missing, l)
	if r.o.Weakened != nil {
		r.o.Weakened(l, what)
	}
}

// egress makes the server of a captured network, nil if the policy is empty: a
// policy without a rule is no network at all.
func (r *run) egress(p egress.Policy, c *egress.Collector) (sandbox.EgressServer, error) {
	return r.o.NewEgress(p, c.Add)
}

// setup makes or finds the setup layer.
func (r *run) setup(ctx context.Context) error {
	s := r.o.Config.Setup
	if len(s.Commands) == 0 {
		return nil
	}
	base, err := r.sandboxBase()
	if err != nil {
		return err
	}
	var (
		refusedHosts egress.Collector
		server       sandbox.EgressServer
		rules        []string
	)
	for _, rule := range s.Egress.Allow {
		rules = append(rules, fmt.Sprintf("%s %s private=%t", rule, rule.Proto, rule.Private))
	}
	if len(rules) > 0 {
		if server, err = r.egress(s.Egress, &refusedHosts); err != nil {
			return err
		}
	}
	base.Boundary.Limits.Time = s.Time
	said := &output{r: r, stage: "setup", keep: true}
	r.layer, err = workspace.Setup(ctx, workspace.SetupOptions{
		Base: base, Dir: r.dirs.layers, Lent: r.lent, LentBranch: r.baseRef, Commit: r.rec.Base,
		Commands: s.Commands, Egress: server, Output: said,
		Key: workspace.LayerKey{
			Tenant: r.o.Config.Tenant, Repository: r.o.Config.Repository, View: r.rec.ViewDigest,
			Egress: strings.Join(rules, ","), Files: s.Files,
		},
	})
	var stepErr *workspace.StepError
	if errors.As(err, &stepErr) {
		hint := "the command runs on the base commit, without the agent: try it with confine check"
		if r.rec.Issue == 0 {
			hint = "the command runs on the base commit, with no network but setup.egress: correct setup.run, or bring what it lacks with view.ro"
		}
		r.rec.Output = append(r.rec.Output, CommandOutput{Step: "setup", Name: plaintext.Line(stepErr.Step, 200), Lines: lastLines(said.tail())})
		for _, x := range refusals(&refusedHosts) {
			if x.Allow != "" {
				hint = "setup was refused " + x.Target + "; " + strings.Replace(x.Allow, "egress:", "setup: egress:", 1) + " would allow it"
			}
		}
		return failed(hint, "%v", err)
	}
	if err != nil {
		return fmt.Errorf("run setup: %w", err)
	}
	return nil
}

// place is a fresh workspace and home on disk.
type place struct{ workspace, home string }

// prepare makes a workspace at a commit of lent, with the setup layer in it.
func (r *run) prepare(ctx context.Context, name string, lent *gitcmd.Repo, commit gitcmd.Hash, branch gitcmd.Ref) (place, error) {
	p := place{filepath.Join(r.scratch.Dir, name, "workspace"), filepath.Join(r.scratch.Dir, name, "home")}
	for _, d := range []string{p.workspace, p.home} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return p, fmt.Errorf("make workspace: %w", err)
		}
	}
	base, err := r.sandboxBase()
	if err != nil {
		return p, err
	}
	if err := workspace.Prepare(ctx, workspace.PrepareOptions{Base: base, Lent: lent, Commit: commit, LentBranch: r.baseRef, Branch: branch, Dir: p.workspace}); err != nil {
		return p, fmt.Errorf("prepare workspace: %w", err)
	}
	if r.layer != nil {
		if err := workspace.Restore(ctx, workspace.RestoreOptions{Base: base, Layer: r.layer, Lent: lent, Workspace: p.workspace, Home: p.home}); err != nil {
			return p, fmt.Errorf("restore setup: %w", err)
		}
	}
	return p, nil
}

// around is the boundary around a prepared place.
func (r *run) around(p place, lent *gitcmd.Repo, network boundary.Network) (boundary.Boundary, error) {
	b, err := r.base(network, workspace.Inside, workspace.LentTarget)
	if err != nil {
		return b, err
	}
	home := "/home/agent"
	for i, m := range b.View.Mounts {
		if m.Target == home {
			b.View.Mounts[i] = boundary.Mount{Kind: boundary.Bind, Target: home, Source: p.home, Writable: true}
		}
	}
	b.View.Mounts = append(b.View.Mounts,
		boundary.Mount{Kind: boundary.Bind, Target: workspace.LentTarget, Source: lent.Dir(), Owned: true},
		boundary.Mount{Kind: boundary.Bind, Target: workspace.Inside, Source: p.workspace, Writable: true})
	b.View.Workdir = workspace.Inside
	return b, nil
}

func stageNamed(c Config, name string) (Stage, bool) {
	for _, s := range c.Stages {
		if s.Name == name {
			return s, true
		}
	}
	return Stage{}, false
}

// planStage lets the agent read and plan. What it changes is thrown away.
func (r *run) planStage(ctx context.Context) error {
	s, ok := stageNamed(r.o.Config, "plan")
	if !ok {
		return nil
	}
	p, err := r.prepare(ctx, "plan", r.lent, r.rec.Base, r.branch())
	if err != nil {
		return err
	}
	defer workspace.Remove(filepath.Dir(p.workspace))
	rec, err := r.call(ctx, s, p)
	r.plan = rec.Result.Text
	return err
}

// implementStage lets the agent work. Its workspace stays for the hand-over,
// whatever the end was.
func (r *run) implementStage(ctx context.Context) error {
	s, ok := stageNamed(r.o.Config, "implement")
	if !ok {
		return refused("stages", "stages.implement", "add the stage", "the config has no stage \"implement\"")
	}
	p, err := r.prepare(ctx, "implement", r.lent, r.rec.Base, r.branch())
	if err != nil {
		return err
	}
	r.workspace = p.workspace
	if err := r.writeSalvage(); err != nil {
		return fmt.Errorf("prepare for a restart: %w", err)
	}
	_, err = r.call(ctx, s, p)
	return err
}

// branch is where the run's work goes: the engine's choice, never the agent's.
func (r *run) branch() gitcmd.Ref {
	if r.rec.Branch == "" {
		r.rec.Branch = gitcmd.Ref(fmt.Sprintf("refs/heads/confine/issue-%d-%s", r.rec.Issue, strings.ReplaceAll(r.rec.Run, ".", "-")))
	}
	return r.rec.Branch
}

// call runs the agent once.
func (r *run) call(ctx context.Context, s Stage, p place) (StageRecord, error) {
	rec := StageRecord{Name: s.Name}
	c, err := r.o.Config.Agent.Call(agent.Task{
		Version: 1, Run: r.rec.Run, Stage: s.Stage, Issue: r.issue, Branch: r.branch().BranchName(), Instructions: r.instructions(ctx), Plan: r.plan,
	})
	if err != nil {
		return rec, err
	}
	network := boundary.NetworkCaptured
	b, err := r.around(p, r.lent, network)
	if err != nil {
		return rec, err
	}
	b.Env = append(b.Env, c.Env...)
	b.View.Files = append(b.View.Files, boundary.File{Path: agent.TaskFile, Mode: 0o444, Data: c.File})
	if s.Time > 0 {
		b.Limits.Time = s.Time
	}
	if s.Output > 0 {
		b.Limits.Output = s.Output
	}
	var refusedHosts egress.Collector
	server, err := r.egress(r.o.Config.Egress, &refusedHosts)
	if err != nil {
		return rec, err
	}
	said := &output{r: r, stage: s.Name, keep: true}
	running, err := r.o.Driver.Start(ctx, sandbox.Spec{
		Boundary: b, Args: c.Args, Stdin: bytes.NewReader(c.Stdin), Stdout: said, Stderr: &output{r: r, stage: s.Name},
		Egress: server, Weakened: r.weakened,
	})
	var start *sandbox.StartError
	if errors.As(err, &start) && (start.NotFound || start.NotExecutable) {
		hint := agentHint(b.View, r.o.Config.View.Path, c.Args[0], start)
		return rec, refused("agent_command", "agent.command", hint, "start the agent: %v", start)
	}
	if err != nil {
		return rec, fmt.Errorf("start the agent: %w", err)
	}
	e := running.Wait()
	rec.Ended, rec.Status, rec.Duration, rec.Output, rec.Dropped = string(e.Reason), e.Status, e.Duration, e.OutputBytes, e.OutputDropped
	rec.Result, rec.Refusals = r.o.Config.Agent.Result(said.tail()), refusals(&refusedHosts)
	r.rec.Stages = append(r.rec.Stages, rec)
	for _, x := range rec.Refusals {
		quiet := ""
		if x.Quiet {
			quiet = " (quiet)"
		}
		r.event("egress_refused", s.Name, fmt.Sprintf("refused: %s by %q: %s%s", x.Target, x.Program, x.Reason, quiet))
	}
	if err := ctx.Err(); err != nil {
		return rec, err
	}
	return rec, stageEnd(s, e, rec, refusedHosts.Loud())
}

// stageEnd is what the end of an agent's call means for the run.
func stageEnd(s Stage, e sandbox.Exit, rec StageRecord, loud bool) error {
	switch e.Reason {
	case sandbox.TimedOut:
		return failed("raise stages."+s.Name+".limits.time", "stage %s: the time limit of %v was reached", s.Name, s.Time)
	case sandbox.OutOfMemory:
		return failed("raise view.limits.memory", "stage %s: the memory limit was reached", s.Name)
	case sandbox.DiskFull:
		return failed("raise view.limits.disk", "stage %s: the disk limit was reached", s.Name)
	case sandbox.Fault:
		return fmt.Errorf("stage %s: %w", s.Name, e.Err)
	}
	if loud {
		var lines []string
		for _, x := range rec.Refusals {
			if !x.Quiet {
				lines = append(lines, fmt.Sprintf("%s by %q (%s)", x.Target, x.Program, x.Reason))
			}
		}
		hint := "answer each: allow it in the config, or make it quiet (egress: {quiet: [...]})"
		for _, x := range rec.Refusals {
			if !x.Quiet && x.Allow != "" {
				hint += "; allow: " + x.Allow
			}
		}
		return waiting(hint, "stage %s: refused connections stop the run: %s", s.Name, strings.Join(lines, ", "))
	}
	if !e.Success() {
		return failed("the end of what it wrote is in the record", "stage %s: the agent ended with status %d (%s)", s.Name, e.Status, e.Reason)
	}
	return nil
}

// instructions are the repository's own, from the base and never the head.
func (r *run) instructions(ctx context.Context) string {
	if !r.o.Config.Instructions {
		return ""
	}
	c, err := r.mirror.ReadCommit(ctx, r.rec.Base, 1<<20)
	if err != nil {
		return ""
	}
	for _, name := range []string{"AGENTS.md", "CLAUDE.md"} {
		if b, err := r.mirror.FileAt(ctx, c.Tree, name, 64<<10); err == nil {
			return plaintext.Block(string(b), 64<<10)
		}
	}
	return ""
}

// output passes an agent's output on and keeps its end.
type output struct {
	r     *run
	stage string
	keep  bool
	mu    sync.Mutex
	kept  []byte
}

const keptOutput = 256 << 10

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keep {
		o.kept = append(o.kept, p...)
		if n := len(o.kept); n > 2*keptOutput {
			o.kept = append(o.kept[:0], o.kept[n-keptOutput:]...)
		}
	}
	if o.r.o.Output != nil {
		o.r.o.Output(o.stage, p)
	}
	return len(p), nil
}

func (o *output) tail() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept[max(0, len(o.kept)-keptOutput):]
}

var _ io.Writer = (*output)(nil)
