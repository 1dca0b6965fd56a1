package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"confine/internal/audit"
	"confine/internal/boundary"
	"confine/internal/codehost"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/handover"
	"confine/internal/mergeauthority"
	"confine/internal/plaintext"
	"confine/internal/workspace"
)

// take brings the agent's work out of its workspace, as bytes.
func (r *run) take(ctx context.Context) error {
	spool := filepath.Join(r.scratch.Dir, "spool")
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return fmt.Errorf("take the work out: %w", err)
	}
	b, err := r.base(boundary.NetworkOff)
	if err != nil {
		return err
	}
	var exclude []string
	if r.layer != nil {
		exclude = r.layer.Paths
	}
	r.export, err = handover.Take(ctx, handover.ExportOptions{
		Driver: r.o.Driver, Boundary: b, Workspace: r.workspace, Lent: r.lent, Base: r.rec.Base,
		// The package's own, large bound: the tenant's is for what is taken
		// over, and work beyond it must still be rescued.
		Leftovers: r.o.Config.Leftovers, Exclude: exclude, Spool: spool,
	})
	if err != nil {
		// A caller that gave up says nothing of the workspace.
		r.takeFailed = ctx.Err() == nil
		return fmt.Errorf("take the work out: %w", err)
	}
	for _, n := range r.export.Nested {
		r.rec.Nested = append(r.rec.Nested, handover.ShowPath(n))
	}
	for _, t := range r.export.Tampered {
		r.rec.Tampered = append(r.rec.Tampered, handover.ShowPath(t))
		r.event("tampered", "hand-over", "repository metadata tampered: "+handover.ShowPath(t))
	}
	return r.keepOthers()
}

// handOver turns the workspace's commits into checked commits of the engine.
func (r *run) handOver(ctx context.Context) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	// What is wrong with a head that no index can hold is found below.
	unindexed := slices.Equal(r.export.Broken, []string{"index"})
	if len(r.export.Broken) > 0 && !unindexed && r.export.Kind == handover.Bundle {
		// The files could be taken over without their history, but an agent
		// that removes it has something to hide: a person decides.
		return failed("the changed files are in the rescue bundle", "the agent's repository is broken (%s): nothing is taken over", strings.Join(r.export.Broken, ", "))
	}
	switch r.export.Kind {
	case handover.Nothing:
		return r.nothing()
	case handover.Bundle:
	default:
		return failed("the changed files are in the rescue archive", "the agent's repository can't be read (%s): nothing is taken over", strings.Join(r.export.Broken, ", "))
	}
	f, err := os.Open(r.export.Path)
	if err != nil {
		return fmt.Errorf("receive commits: %w", err)
	}
	defer f.Close()
	received, err := handover.Receive(ctx, handover.ReceiveOptions{
		Bundle: f, Lent: r.lent, Base: r.rec.Base, Dir: filepath.Join(r.scratch.Dir, "quarantine.git"),
	})
	var single *handover.Refusal
	if errors.As(err, &single) {
		r.rec.Findings = append(r.rec.Findings, *single)
		return r.refuseHandOver()
	}
	if err != nil {
		return fmt.Errorf("receive commits: %w", err)
	}
	report, err := handover.Check(ctx, handover.CheckOptions{Received: received, Rules: r.o.Config.Rules})
	if err != nil {
		return fmt.Errorf("check commits: %w", err)
	}
	r.rec.Findings, r.rec.Approvals, r.rec.Notes = report.Refusals, report.Approvals, report.Notes
	for _, c := range report.Changes {
		r.rec.Changed = append(r.rec.Changed, handover.ShowPath(c.Path))
	}
	if !report.Passed() {
		return r.refuseHandOver()
	}
	if unindexed {
		return failed("the commits are in the rescue bundle", "the agent's uncommitted changes can't be put on top of its commits: nothing is taken over")
	}
	if len(report.Approvals) > 0 {
		return waiting("a person looks at the rescue bundle and takes the commits over by hand, or the config lowers the tier",
			"a person has to approve: %s%s", report.Approvals[0].String(), andMore(len(report.Approvals)-1))
	}
	r.rewritten, err = handover.Rewrite(ctx, handover.RewriteOptions{
		Received: received, Report: report, Engine: r.identity(), Run: r.rec.Run,
	})
	if err != nil {
		return fmt.Errorf("rewrite commits: %w", err)
	}
	r.rec.Head = r.rewritten.Head()
	r.event("handed_over", "hand-over", fmt.Sprintf("commits: %d, files: %d", len(r.rewritten.Commits), len(report.Changes)))
	return nil
}

func (r *run) refuseHandOver() error {
	for _, f := range r.rec.Findings {
		r.event("handover_refused", "hand-over", f.String())
	}
	first := r.rec.Findings[0]
	return refused(string(first.Rule), first.Field, first.Hint(), "found in the agent's commits: %s%s", first.String(), andMore(len(r.rec.Findings)-1))
}

// andMore says how many there are beside the one that is named.
func andMore(n int) string {
	if n < 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n)
}

func (r *run) identity() gitcmd.Identity {
	return gitcmd.Identity{Name: engineName, Email: engineEmail, When: r.o.Now()}
}

// work is the engine's repository of this run: head, base and their merge.
func (r *run) openWork(ctx context.Context) (*gitcmd.Repo, error) {
	dir := filepath.Join(r.scratch.Dir, "work.git")
	if _, err := os.Stat(dir); err == nil {
		return gitcmd.Open(ctx, dir)
	}
	repo, err := gitcmd.Init(ctx, dir, gitcmd.InitOptions{Alternates: []*gitcmd.Repo{r.lent}})
	if err != nil {
		return nil, fmt.Errorf("make work repository: %w", err)
	}
	if err := handover.CopyTo(ctx, r.rewritten, repo, r.rec.Branch); err != nil {
		return nil, fmt.Errorf("make work repository: %w", err)
	}
	return repo, nil
}

// gateHead runs the gate on the merge of the head onto the base as it is now.
func (r *run) gateHead(ctx context.Context) error {
	repo, err := r.openWork(ctx)
	if err != nil {
		return err
	}
	base, err := r.fetch(ctx, repo)
	var missing *baseMissingError
	if errors.As(err, &missing) {
		return waiting("make the branch again on the code host, or name another in repo.base, and run it anew", "the base %s is gone: it was deleted on the code host during the run", r.baseRef.BranchName())
	}
	if err != nil {
		return err
	}
	// A merge would bring back what was taken out of the base's history.
	if in, err := repo.IsAncestor(ctx, r.rec.Base, base); err != nil {
		return fmt.Errorf("compare base: %w", err)
	} else if !in {
		return waiting("run it anew on the base as it is now; a person may take over commits of the rescue bundle",
			"the base %s was rewritten during the run: it no longer holds %s, which the work is based on", r.baseRef.BranchName(), r.rec.Base.Short())
	}
	candidate, err := gate.Merge(ctx, repo, gate.MergeOptions{
		Base: base, Head: r.rec.Head, Identity: r.identity(),
		Message: fmt.Sprintf("Merge issue %d: %s\n\nConfine-Run: %s\n", r.rec.Issue, r.rec.Title, r.rec.Run),
	})
	var conflict *gate.ConflictError
	if errors.As(err, &conflict) {
		var paths []string
		for _, p := range conflict.Paths {
			paths = append(paths, handover.ShowPath(p))
		}
		return waiting("a person resolves it, or the run starts anew on the current base", "the work conflicts with the base in %s", strings.Join(paths, ", "))
	}
	if err != nil {
		return fmt.Errorf("merge for the gate: %w", err)
	}
	verdict, err := r.runGate(ctx, repo, candidate)
	r.rec.Verdict = &verdict
	if err != nil {
		return fmt.Errorf("run the gate: %w", err)
	}
	if !verdict.Passed() {
		return failed("the end of each check's output is in the record; confine check shows whether the base itself passes", "the gate has not passed: %s", plaintext.Line(verdict.Why(), 400))
	}
	return nil
}

func (r *run) runGate(ctx context.Context, repo *gitcmd.Repo, c gate.Candidate) (gate.Verdict, error) {
	r.rec.Output = nil
	runner := gate.Runner{
		Driver: r.o.Driver, Workspaces: &gateWorkspaces{r: r, repo: repo}, Now: r.o.Now,
		Started: func(name string) { r.event("check_started", "gate", name) },
		Finished: func(x gate.CheckResult) {
			text := x.Name + ": passed"
			if !x.Passed {
				text = x.Name + ": not passed: " + plaintext.Line(x.Reason, 200)
				r.rec.Output = append(r.rec.Output, CommandOutput{Step: "gate", Name: x.Name, Lines: outputEnd(x.Output)})
			}
			r.event("check_finished", "gate", text)
		},
	}
	return runner.Run(ctx, gate.Plan{Candidate: c, ConfigDigest: r.o.Config.Digest, ViewDigest: r.rec.ViewDigest, Checks: r.o.Config.Gate})
}

// gateWorkspaces makes a fresh workspace for each check.
type gateWorkspaces struct {
	r    *run
	repo *gitcmd.Repo
	n    int
}

// Make implements gate.Workspaces.
func (g *gateWorkspaces) Make(ctx context.Context, check string, c gate.Candidate) (gate.Workspace, error) {
	g.n++
	name := fmt.Sprintf("gate-%d-%s", g.n, c.Commit.Short())
	dir := filepath.Join(g.r.scratch.Dir, name)
	lentDir := filepath.Join(g.r.scratch.Dir, "gate-lent")
	if err := os.MkdirAll(lentDir, 0o700); err != nil {
		return gate.Workspace{}, err
	}
	lent, err := workspace.Lend(ctx, workspace.LendOptions{Source: g.repo, Base: c.Commit, Branch: g.r.baseRef, Dir: lentDir})
	if err != nil {
		return gate.Workspace{}, fmt.Errorf("lend the merge: %w", err)
	}
	p, err := g.r.prepare(ctx, name, lent, c.Commit, g.r.baseRef)
	if err != nil {
		_ = workspace.Remove(dir)
		return gate.Workspace{}, err
	}
	b, err := g.r.around(p, lent, boundary.NetworkOff)
	return gate.Workspace{Boundary: b, Release: func() error { return workspace.Remove(dir) }}, err
}

// push delivers the head to the run's own branch.
func (r *run) push(ctx context.Context) error {
	remote, err := r.o.Host.Remote(ctx, codehost.Write)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	result, err := handover.Deliver(ctx, r.rewritten, handover.Target{Remote: remote, Branch: r.rec.Branch})
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	if result.Outcome != gitcmd.PushDone && result.Outcome != gitcmd.PushAlready {
		return refused("push", "", "look at the branch on the code host", "the code host took no push to %s: %s", r.rec.Branch, plaintext.Line(result.Reason, 200))
	}
	return nil
}

// gateContext is the status under which the gate's verdict is published.
const gateContext = "confine/gate"

func (r *run) openPull(ctx context.Context) error {
	pull, result, err := r.o.Host.OpenPull(ctx, codehost.NewPull{
		Key: r.rec.Run, Head: r.rec.Branch, ExpectedHead: r.rec.Head, Base: r.baseRef, Closes: r.rec.Issue,
		Title: r.rec.Title, Body: fmt.Sprintf("Work on issue %d by an agent, run %s.\n", r.rec.Issue, r.rec.Run),
	})
	if err != nil {
		return fmt.Errorf("open pull request: %w", err)
	}
	if !result.OK() {
		return refused("pull_request", "", "look at the code host", "the code host opened no pull request: %s", plaintext.Line(result.String(), 200))
	}
	r.rec.Pull = pull.Number
	r.event("pull_opened", "pull request", fmt.Sprintf("pull request %d", pull.Number))
	return r.publish(ctx)
}

// publish writes the verdict as a status of the head.
func (r *run) publish(ctx context.Context) error {
	s := codehost.Status{Commit: r.rec.Head, Context: gateContext, State: codehost.Failure, Description: "the gate has not passed"}
	if r.rec.Verdict.Passed() {
		s.State, s.Description = codehost.Success, fmt.Sprintf("the gate passed on tree %s", r.rec.Verdict.Tree.Short())
	}
	result, err := r.o.Host.SetStatus(ctx, s)
	if err == nil && !result.OK() {
		err = errors.New(plaintext.Line(result.String(), 200))
	}
	if err != nil {
		return fmt.Errorf("publish verdict: %w", err)
	}
	return nil
}

// maxGateAgain is how often a base that moves is gated again.
const maxGateAgain = 5

// merge asks the merge authority, and gates again as long as the base moves.
func (r *run) merge(ctx context.Context) error {
	if r.o.Config.MergeByPerson {
		return waiting("a person merges the pull request", "pull request %d waits for a person (merge: {mode: person})", r.rec.Pull)
	}
	repo, err := r.openWork(ctx)
	if err != nil {
		return err
	}
	authority, err := mergeauthority.New(mergeauthority.Options{
		Host: r.o.Host, Repo: repo, Rule: r.o.Config.MergeRule, Journal: journal{r}, Dir: r.dirs.queue, Now: r.o.Now,
	})
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	for range maxGateAgain {
		// The verdict that the next start would ask about.
		if err := r.save(); err != nil {
			return err
		}
		result, err := authority.Merge(ctx, mergeauthority.Request{
			Pull: r.rec.Pull, Verdict: *r.rec.Verdict, ConfigDigest: r.o.Config.Digest, ViewDigest: r.rec.ViewDigest,
		})
		if err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		r.rec.Rule, r.rec.Reasons, r.rec.Landed = &result.Rule, result.Reasons, result.Landed
		switch result.Outcome {
		case mergeauthority.Merged:
			r.event("merged", "merge", fmt.Sprintf("%s is in %s", result.Landed, r.baseRef.BranchName()))
			return nil
		case mergeauthority.GateAgain:
			r.event("gate_again", "merge", "the base moved: the gate runs again on the new merge")
			if err := r.gateHead(ctx); err != nil {
				return err
			}
			if err := r.publish(ctx); err != nil {
				return err
			}
		default:
			var why []string
			for _, x := range result.Reasons {
				why = append(why, plaintext.Line(x.String(), 200))
			}
			return waiting("the pull request stays open: a person decides", "not merged (%s): %s", result.Outcome, strings.Join(why, "; "))
		}
	}
	return waiting("run it again when the base rests", "the base moved %d times while the gate ran", maxGateAgain)
}

// journal keeps the merge authority's decisions in the run's event log.
type journal struct{ r *run }

// Record implements mergeauthority.Journal.
func (j journal) Record(_ context.Context, e mergeauthority.Entry) error {
	return j.r.log.Append(audit.Event{Time: e.Time, Kind: "merge_" + string(e.Outcome), Stage: "merge", Data: e})
}

// comment tells the people on the code host how it ended, in one comment.
func (r *run) comment(ctx context.Context) {
	if r.rec.Title == "" || r.claimed.Key == "" {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Run %s: %s.\n", r.rec.Run, r.rec.State)
	if r.rec.Reason != "" {
		fmt.Fprintf(&b, "\n%s\n", r.rec.Reason)
	}
	if r.rec.Pull > 0 {
		fmt.Fprintf(&b, "\nPull request %d.\n", r.rec.Pull)
	}
	if r.rec.Rule != nil && r.rec.Rule.Predicate != "" {
		fmt.Fprintf(&b, "\n    %s\n", strings.ReplaceAll(strings.TrimRight(r.rec.Rule.Text(), "\n"), "\n", "\n    "))
	}
	_, _, err := r.o.Host.UpsertComment(ctx, codehost.CommentEdit{
		Thread: codehost.Thread{Issue: r.rec.Issue}, Marker: "confine/run", Body: b.String(),
	})
	if err != nil {
		r.event("comment_failed", "", plaintext.Line(err.Error(), 200))
	}
}
