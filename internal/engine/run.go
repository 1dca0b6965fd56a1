package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"confine/internal/agent"
	"confine/internal/audit"
	"confine/internal/boundary"
	"confine/internal/codehost"
	"confine/internal/codehost/filelock"
	"confine/internal/gitcmd"
	"confine/internal/handover"
	"confine/internal/hostview"
	"confine/internal/merge"
	"confine/internal/plaintext"
	"confine/internal/store"
	"confine/internal/workspace"
)

// run is one run of the engine.
type run struct {
	o       Options
	rec     Record
	runs    *store.Runs
	store   *store.Run
	log     *audit.Log
	dirs    dirs
	hostID  uint32
	scratch *workspace.Scratch

	baseRef   gitcmd.Ref
	claimed   codehost.Claim
	issue     agent.Issue
	mirror    *gitcmd.Repo // our copy of the base branch
	lent      *gitcmd.Repo // what runs are shown of it
	layer     *workspace.Layer
	plan      string
	workspace string // the agent's, after its stage
	export    handover.Export
	// takeFailed: a sandbox tried to take the work out, and will not be able to.
	takeFailed bool
	rewritten  handover.Rewritten
}

// step is one transition. Its name is on record before it begins.
type step struct {
	name string
	does func(context.Context) error
	// last is the end for which this is the last step.
	last Until
	then State
}

// Work takes one issue as far as until says. The record is returned in any case;
// the error is a *RefusedError, *WaitingError, *FailedError or a fault.
func Work(ctx context.Context, o Options, issue int, until Until) (Record, error) {
	if issue <= 0 {
		return Record{}, fmt.Errorf("work on issue %d: not an issue's number", issue)
	}
	if _, ok := stageNamed(o.Config, "plan"); until == UntilPlan && !ok {
		return Record{}, refused("stages", "stages.plan", "add the stage, or go further", "the config has no stage \"plan\": there is nothing to do until then")
	}
	r, settled, err := open(ctx, o, issue, until)
	if err != nil || settled != nil {
		return orZero(settled), err
	}
	defer r.close()
	steps := []step{
		{name: "read repository", does: r.readRepository},
		{name: "read issue", does: r.readIssue},
		{name: "fetch base", does: r.fetchBase},
		{name: "setup", does: r.setup},
		{name: "plan", does: r.planStage, last: UntilPlan, then: Planned},
		{name: "implement", does: r.implementStage},
		{name: "hand-over", does: r.handOver},
		{name: "gate", does: r.gateHead, last: UntilCommits, then: Committed},
		{name: "push", does: r.push},
		{name: "pull request", does: r.openPull, last: UntilPR, then: Opened},
		{name: "merge", does: r.merge, last: UntilMerge, then: Merged},
	}
	err = r.walk(ctx, steps, until)
	return r.finish(err)
}

func (r *run) walk(ctx context.Context, steps []step, until Until) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.rec.Step = s.name
		if err := r.save(); err != nil {
			return err
		}
		r.event("step", s.name, "")
		if err := s.does(ctx); err != nil {
			return err
		}
		if s.last == until {
			r.rec.State = s.then
			return nil
		}
	}
	return fmt.Errorf("go on until %q: no such end", until)
}

func orZero(r *Record) Record {
	if r == nil {
		return Record{}
	}
	return *r
}

// open brings to an end what killed engines left, and makes the run's directory.
// If an earlier run turns out to have merged the issue, that is its record and
// there is no new run.
func open(ctx context.Context, o Options, issue int, until Until) (*run, *Record, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &run{o: o}
	var err error
	if r.dirs, err = openDirs(o.StateDir, o.Config); err != nil {
		return nil, nil, err
	}
	if r.runs, err = store.OpenRuns(filepath.Join(o.StateDir, "runs")); err != nil {
		return nil, nil, err
	}
	ended, err := restart(ctx, o, r.dirs, r.runs)
	if err != nil {
		return nil, nil, err
	}
	for _, rec := range ended {
		if issue > 0 && rec.Issue == issue && rec.State == Merged {
			return nil, &rec, nil
		}
	}
	if r.hostID, err = hostID(o.StateDir, o.Config.Tenant); err != nil {
		return nil, nil, err
	}
	release, err := r.dirs.lockStart(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("start a run: %w", err)
	}
	defer release()
	if r.store, err = newRun(r.runs, o.Now(), issue); err != nil {
		return nil, nil, err
	}
	r.rec = Record{
		Version: 1, Run: r.store.ID, Tenant: string(o.Config.Tenant), Repository: o.Config.Repository, Issue: issue, Until: until, State: Running,
		Started: o.Now(), ConfigDigest: o.Config.Digest, Profile: o.Config.View.Profile, Weaker: o.Config.View.Profile.Weaker(), Stages: []StageRecord{},
	}
	if r.log, err = audit.Open(filepath.Join(r.store.Dir, "events.jsonl")); err != nil {
		r.store.Close()
		return nil, nil, err
	}
	if r.scratch, err = workspace.NewScratch(r.dirs.scratch); err != nil {
		r.log.Close()
		r.store.Close()
		return nil, nil, err
	}
	return r, nil, nil
}

// newRun gives a run the first free id of its time.
func newRun(runs *store.Runs, now time.Time, issue int) (*store.Run, error) {
	for {
		id := now.UTC().Format("20060102-150405.000") + "-" + strconv.Itoa(issue)
		if issue == 0 {
			id = strings.TrimSuffix(id, "-0") + "-check"
		}
		s, err := runs.Create(id)
		if !errors.Is(err, fs.ErrExist) {
			return s, err
		}
		now = now.Add(time.Millisecond)
	}
}

func (r *run) close() {
	_ = r.scratch.Remove()
	_ = r.log.Close()
	_ = r.store.Close()
}

func (r *run) save() error { return r.store.Save(r.rec) }

// event tells the log and the watcher. The text must be clean.
func (r *run) event(kind, stage, text string) {
	_ = r.log.Append(audit.Event{Time: r.o.Now(), Kind: kind, Stage: stage, Text: text})
	if r.o.Progress != nil {
		r.o.Progress(Event{Stage: stage, Text: text})
	}
}

// finish gives the run its end, keeps the work, and writes the last record.
func (r *run) finish(err error) (Record, error) {
	// The end must be written although the caller gave up.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err != nil {
		r.rec.State = stateOf(err)
		r.rec.Reason = plaintext.Block(err.Error(), 4000)
		if errors.Is(err, context.Canceled) {
			r.rec.Reason = "interrupted by a person"
		}
	}
	if keepErr := r.keepWork(context.Background()); keepErr != nil {
		err = errors.Join(err, keepErr)
	}
	if r.claimed.Key != "" && r.rec.State != Merged && r.rec.State != Opened {
		if _, releaseErr := r.o.Host.Release(ctx, r.claimed); releaseErr != nil {
			err = errors.Join(err, fmt.Errorf("release issue: %w", releaseErr))
		}
	}
	r.comment(ctx)
	r.rec.Ended = r.o.Now()
	r.event("end", string(r.rec.State), plaintext.Line(r.rec.Reason, 400))
	r.rec.AuditHead = r.log.Head()
	if saveErr := r.save(); saveErr != nil {
		err = errors.Join(err, saveErr)
	}
	return r.rec, err
}

func (r *run) readRepository(ctx context.Context) error {
	repo, err := r.o.Host.Repository(ctx)
	if err != nil {
		return fmt.Errorf("read repository: %w", err)
	}
	if r.baseRef = r.o.Config.Base; r.baseRef == "" {
		r.baseRef = repo.DefaultBranch
	}
	r.rec.BaseBranch = r.baseRef
	return nil
}

// readProtection says now, and not after an hour of work, what would keep the
// merge away. The merge reads it again.
func (r *run) readProtection(ctx context.Context) error {
	if r.rec.Until != UntilMerge {
		return nil
	}
	p, err := r.o.Host.Protection(ctx, r.baseRef)
	if err != nil {
		return fmt.Errorf("read protection of %s: %w", r.baseRef, err)
	}
	if !p.Exists || len(p.Unknown) > 0 {
		return refused("protection", "merge", "protect the branch on the code host, or use --until pr",
			"%s is not protected from direct pushes, so nothing may be merged into it by itself", r.baseRef)
	}
	return nil
}

// readIssue takes the texts that people with write access vouch for, as of now.
func (r *run) readIssue(ctx context.Context) error {
	issue, err := r.o.Host.Issue(ctx, r.rec.Issue)
	var absent *codehost.NotFoundError
	if errors.As(err, &absent) {
		return refused("issue", "", "name an issue of the code host with --issue", "the code host has no issue %d", r.rec.Issue)
	}
	if err != nil {
		return fmt.Errorf("read issue: %w", err)
	}
	r.rec.Title = plaintext.Line(issue.Title, 200)
	if issue.State != codehost.Open {
		return refused("issue_state", "repo.trigger", "open it again, or name another", "issue %d is %s", issue.Number, plaintext.Line(string(issue.State), 20))
	}
	label, labelled := r.triggerLabel(issue)
	if r.o.Config.Trigger.Label != "" && !labelled {
		return refused("trigger", "repo.trigger.label", "somebody whom repo.trigger.by names puts the label on the issue",
			"issue %d has no label %q from somebody with write access whom repo.trigger.by names", issue.Number, r.o.Config.Trigger.Label)
	}
	vouched := func(t codehost.Text) bool {
		return t.Author.Permission.AtLeast(codehost.PermissionWrite) || labelled && t.VouchedAt(label.At)
	}
	r.issue = agent.Issue{Number: issue.Number, Title: issue.Title, Comments: []agent.Comment{}}
	if vouched(issue.Text) {
		r.issue.Body = issue.Body
	} else {
		return refused("vouched_text", "repo.trigger", "somebody with write access labels the issue after reading it, or writes it anew",
			"issue %d was written by somebody without write access, and nobody with it has vouched for its text", issue.Number)
	}
	for _, c := range issue.Comments {
		if vouched(c.Text) {
			r.issue.Comments = append(r.issue.Comments, agent.Comment{Author: c.Author.Name, Body: c.Body})
		} else {
			r.issue.LeftOut++
		}
	}
	r.rec.LeftOut = r.issue.LeftOut
	claim := codehost.Claim{Issue: issue.Number, Key: r.rec.Run, Revision: issue.Revision}
	got, err := r.o.Host.Claim(ctx, claim)
	if err == nil && !got.OK() && r.ended(got.Holder) {
		// A run of ours that was killed before it could give the issue back.
		if _, err = r.o.Host.Release(ctx, codehost.Claim{Issue: issue.Number, Key: got.Holder}); err == nil {
			got, err = r.o.Host.Claim(ctx, claim)
		}
	}
	if err != nil {
		return fmt.Errorf("claim issue: %w", err)
	}
	if !got.OK() {
		return refused("claim", "", "wait for that run, or release the issue", "issue %d is taken by run %s", issue.Number, plaintext.Line(got.Holder, 100))
	}
	r.claimed = claim
	return nil
}

// ended reports whether a run is one of this engine's and over. Reconciling has
// given the killed ones their end.
func (r *run) ended(id string) bool {
	var rec Record
	return r.runs.Load(id, &rec) == nil && rec.State != Running
}

// triggerLabel finds the trigger's label if somebody set it who may: with write
// access, and among those the config names.
func (r *run) triggerLabel(i codehost.Issue) (codehost.Label, bool) {
	t := r.o.Config.Trigger
	for _, l := range i.Labels {
		by := merge.Person{Name: l.By.Name, Permission: merge.Permission(l.By.Permission)}
		if l.Name == t.Label && l.Name != "" && l.By.Permission.AtLeast(codehost.PermissionWrite) && t.By.Include(by) {
			return l, true
		}
	}
	return codehost.Label{}, false
}

// fetchBase brings the base branch into our mirror and makes the repository that
// runs are shown.
func (r *run) fetchBase(ctx context.Context) error {
	var err error
	r.rec.Base, err = r.fetchMirror(ctx)
	var missing *baseMissingError
	if errors.As(err, &missing) {
		return refused("base", "repo.base", "name a branch that is there in repo.base, or leave it out for the default branch", "%v", missing)
	}
	if err != nil {
		return err
	}
	if err := r.readProtection(ctx); err != nil {
		return err
	}
	if r.lent, err = workspace.Lend(ctx, workspace.LendOptions{Source: r.mirror, Base: r.rec.Base, Branch: r.baseRef, Dir: r.dirs.lent}); err != nil {
		return fmt.Errorf("lend the base: %w", err)
	}
	b, err := r.base(boundary.NetworkOff)
	if err != nil {
		return err
	}
	r.rec.ViewDigest = hostview.Digest(b.View)
	return nil
}

// fetchMirror brings the base branch into our mirror, which is made where there
// is none. One at a time: two would be in each other's way.
func (r *run) fetchMirror(ctx context.Context) (gitcmd.Hash, error) {
	release, err := filelock.Acquire(ctx, filepath.Join(r.dirs.repository, "mirror.lock"))
	if err != nil {
		return "", fmt.Errorf("open mirror: %w", err)
	}
	defer release()
	dir := filepath.Join(r.dirs.repository, "mirror.git")
	if !whole(dir) {
		if err := r.makeMirror(ctx, dir); err != nil {
			return "", fmt.Errorf("make mirror: %w", err)
		}
	}
	if r.mirror, err = gitcmd.Open(ctx, dir); err != nil {
		return "", fmt.Errorf("open mirror: %w", err)
	}
	return r.fetch(ctx, r.mirror)
}

// whole reports whether a repository has all its parts. One that lacks some was
// made by an engine that was killed; all in it comes from the code host.
func whole(dir string) bool {
	for _, name := range []string{"HEAD", "config", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func (r *run) makeMirror(ctx context.Context, dir string) error {
	fresh := dir + ".new"
	for _, old := range []string{fresh, dir} {
		if err := workspace.Remove(old); err != nil {
			return err
		}
	}
	if _, err := gitcmd.Init(ctx, fresh, gitcmd.InitOptions{Head: r.baseRef}); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// fetch brings the base branch of the code host into repo. A *baseMissingError
// says that there is none.
func (r *run) fetch(ctx context.Context, repo *gitcmd.Repo) (gitcmd.Hash, error) {
	remote, err := r.o.Host.Remote(ctx, codehost.Read)
	if err != nil {
		return "", fmt.Errorf("fetch base: %w", err)
	}
	if err := repo.Fetch(ctx, remote, gitcmd.FetchRef{From: r.baseRef, To: r.baseRef}); err != nil {
		if there, listErr := repo.LsRemote(ctx, remote, r.baseRef); listErr == nil && len(there) == 0 {
			return "", &baseMissingError{r.baseRef}
		}
		return "", fmt.Errorf("fetch base: %w", err)
	}
	h, err := repo.RevParse(ctx, r.baseRef)
	if err != nil {
		return "", fmt.Errorf("fetch base: %w", err)
	}
	return h, nil
}
