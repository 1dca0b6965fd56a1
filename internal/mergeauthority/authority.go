//go:build unix

package mergeauthority

import (
	"context"
	"errors"
	"fmt"
	"time"

	"confine/internal/codehost"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/merge"
)

// Journal keeps what was decided.
type Journal interface {
	// Record returns when the entry is on stable storage. If it can't be, there
	// is no merge.
	Record(ctx context.Context, e Entry) error
}

// Entry is one record: a decision before anything is done, or what came of it.
type Entry struct {
	Time    time.Time   `json:"time"`
	Pull    int         `json:"pull"`
	Base    gitcmd.Ref  `json:"base"`
	OnBase  gitcmd.Hash `json:"on_base"`
	Head    gitcmd.Hash `json:"head"`
	Commit  gitcmd.Hash `json:"commit"`
	Tree    gitcmd.Hash `json:"tree"`
	Outcome Outcome     `json:"outcome"`
	Reasons []Reason    `json:"reasons,omitempty"`
	// Rule is the answer of the merge rule, where it was asked.
	Rule   *merge.Result `json:"rule,omitempty"`
	Landed gitcmd.Hash   `json:"landed,omitempty"`
}

// Outcome is how a request ended. The zero value is not a merge.
type Outcome string

// The outcomes.
const (
	// Decided is in the journal only: the merge is about to be asked for.
	Decided Outcome = "decided"
	// Merged: the tested tree is in the base. Only this is a merge.
	Merged Outcome = "merged"
	// GateAgain: the base moved. The gate has to run on the new merge.
	GateAgain Outcome = "gate_again"
	// HeadMoved: somebody pushed to the head, or it is gone.
	HeadMoved Outcome = "head_moved"
	// Refused: Reasons say why.
	Refused Outcome = "refused"
	// Retry: the host gave no answer yet; ask again after RetryAfter.
	Retry Outcome = "retry"
	// Mismatch: something else than what was tested is in the base. The queue
	// of the base is frozen.
	Mismatch Outcome = "mismatch"
)

// Reason is one reason for a refusal. Detail may hold names from the host.
type Reason struct {
	Rule string `json:"rule"`
	// Field is the config field that governs it; "" if none does.
	Field  string `json:"field,omitempty"`
	Detail string `json:"detail"`
}

func (r Reason) String() string { return r.Rule + ": " + r.Detail }

// Result is the answer to a request.
type Result struct {
	Outcome Outcome
	Reasons []Reason
	// Rule is the answer of the merge rule; zero if it was not asked.
	Rule merge.Result
	// Landed is the commit that is in the base, with Merged and Mismatch.
	Landed     gitcmd.Hash
	RetryAfter time.Duration
}

// Request asks for the merge of one pull request.
type Request struct {
	Pull int
	// Verdict is the gate's, about the merge of the pull request's head.
	Verdict gate.Verdict
	// ConfigDigest and ViewDigest are those in force now.
	ConfigDigest, ViewDigest string
}

// Options are what an Authority works with.
type Options struct {
	Host codehost.Host
	// Repo is the engine's repository; it holds the candidate.
	Repo *gitcmd.Repo
	Rule merge.Rule
	// Journal records decisions.
	Journal Journal
	// Dir holds the locks and freezes of the queues: a directory of the engine
	// that every engine for this repository shares.
	Dir string
	// Now is the clock; nil means the machine's.
	Now func() time.Time
}

// Authority merges into the bases of one repository. It is safe for use by
// several goroutines.
type Authority struct{ Options }

// New checks the options. A rule that can hold without a passed gate is refused:
// it would merge what nobody tested.
func New(o Options) (*Authority, error) {
	fail := func(why string) (*Authority, error) { return nil, fmt.Errorf("make merge authority: %s", why) }
	switch {
	case o.Host == nil:
		return fail("no code host given")
	case o.Repo == nil:
		return fail("no repository given")
	case o.Journal == nil:
		return fail("no journal given")
	case o.Dir == "":
		return fail("no directory given for the queues")
	}
	if err := o.Rule.Validate(); err != nil {
		return nil, fmt.Errorf("make merge authority: merge.rule: %w", err)
	}
	if !o.Rule.NeedsGates() {
		return fail("merge.rule: it can hold without `gates: passed`")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Authority{o}, nil
}

// Merge merges the pull request if all that the package promises holds. After an
// error it is not known whether it was merged: the same request again finds out.
func (a *Authority) Merge(ctx context.Context, req Request) (Result, error) {
	fail := func(err error) (Result, error) {
		return Result{}, fmt.Errorf("merge pull request %d: %w", req.Pull, err)
	}
	pull, err := a.Host.Pull(ctx, req.Pull)
	if err != nil {
		return fail(err)
	}
	release, err := a.queue(ctx, pull.Base)
	if err != nil {
		return fail(err)
	}
	defer release()
	t := &try{Authority: a, req: req, base: pull.Base}
	result, err := t.run(ctx)
	if err != nil {
		return fail(err)
	}
	return result, nil
}

// try is one request while it holds its base's queue.
type try struct {
	*Authority
	req    Request
	base   gitcmd.Ref
	remote gitcmd.Remote
	pull   codehost.Pull
	rule   merge.Result
}

func (t *try) run(ctx context.Context) (Result, error) {
	if why, err := t.frozen(ctx, t.base); err != nil {
		return Result{}, err
	} else if why != "" {
		return t.refuse(ctx, Reason{"frozen", "", why})
	}
	var err error
	if t.pull, err = t.Host.Pull(ctx, t.req.Pull); err != nil {
		return Result{}, err
	}
	if t.pull.Base != t.base {
		return t.refuse(ctx, Reason{"base", "repo.base", "the pull request was given another base just now"})
	}
	if t.remote, err = t.Host.Remote(ctx, codehost.Read); err != nil {
		return Result{}, err
	}
	v := t.req.Verdict
	if done, err := t.mergedBefore(ctx); err != nil {
		return Result{}, err
	} else if done {
		return t.merge(ctx)
	}
	switch {
	case t.pull.State != codehost.Open:
		return t.refuse(ctx, Reason{"pull request", "", fmt.Sprintf("it is %s", t.pull.State)})
	case t.pull.HeadCommit != v.Head:
		return t.end(ctx, Result{Outcome: HeadMoved, Reasons: []Reason{{"head", "", fmt.Sprintf("the gate ran on %s, the head is %s", v.Head.Short(), short(t.pull.HeadCommit))}}})
	case t.pull.BaseCommit != v.Base:
		return t.end(ctx, Result{Outcome: GateAgain, Reasons: []Reason{{"base", "", fmt.Sprintf("the gate ran on %s, the base is %s", v.Base.Short(), short(t.pull.BaseCommit))}}})
	}
	reasons, err := t.judge(ctx)
	if err != nil {
		return Result{}, err
	}
	if len(reasons) > 0 {
		return t.refuse(ctx, reasons...)
	}
	// First the record, then the deed.
	if err := t.Journal.Record(ctx, t.entry(Result{Outcome: Decided})); err != nil {
		return Result{}, fmt.Errorf("record the decision: %w", err)
	}
	return t.merge(ctx)
}

// mergedBefore reports whether this very merge was made earlier and its answer
// or record was lost.
func (t *try) mergedBefore(ctx context.Context) (bool, error) {
	v := t.req.Verdict
	if v.Commit == "" || v.Base == "" || v.Head == "" {
		return false, nil
	}
	switch t.pull.State {
	case codehost.Merged:
		// A person's merge by hand is no answer to this request.
		about, err := t.Host.Repository(ctx)
		return err == nil && about.Account.Name == t.pull.MergedBy.Name && t.pull.HeadCommit == v.Head, err
	case codehost.Open:
	default:
		return false, nil
	}
	if t.pull.HeadCommit != v.Head || t.pull.BaseCommit == v.Base || t.pull.BaseCommit == "" {
		return false, nil
	}
	tip, err := t.fetchBase(ctx)
	if err != nil {
		return false, err
	}
	if _, _, err := t.Repo.TypeOf(ctx, v.Commit); err != nil {
		var gone *gitcmd.NotFoundError
		if errors.As(err, &gone) {
			return false, nil
		}
		return false, err
	}
	return t.Repo.IsAncestor(ctx, v.Commit, tip)
}

// merge asks the host and proves what came of it.
func (t *try) merge(ctx context.Context) (Result, error) {
	v := t.req.Verdict
	var landed gitcmd.Hash
	if t.pull.State == codehost.Merged {
		landed = t.pull.Landed
	} else {
		got, err := t.Host.Merge(ctx, codehost.MergeRequest{
			Pull: t.req.Pull, ExpectedHead: v.Head, ExpectedBase: v.Base, Commit: v.Commit, Objects: t.Repo,
		})
		if err != nil {
			return Result{}, err
		}
		if !got.OK() {
			return t.end(ctx, hostAnswer(got.Result))
		}
		landed = got.Landed
	}
	// It is done: from here on a cancelled caller does not keep us from looking.
	ctx = context.WithoutCancel(ctx)
	why, err := t.prove(ctx, landed)
	if err != nil {
		return Result{}, fmt.Errorf("it was merged as %s; prove what landed: %w", short(landed), err)
	}
	if why != "" {
		if err := t.freeze(ctx, t.base, why); err != nil {
			return Result{}, fmt.Errorf("%s; stop the queue: %w", why, err)
		}
		return t.end(ctx, Result{Outcome: Mismatch, Landed: landed, Reasons: []Reason{{"landed tree", "merge.mode", why}}})
	}
	return t.end(ctx, Result{Outcome: Merged, Landed: landed})
}

// hostAnswer turns a host's "no" into ours.
func hostAnswer(r codehost.Result) Result {
	switch {
	case r.Outcome == codehost.Moved && r.Moved == codehost.MovedBase:
		return Result{Outcome: GateAgain, Reasons: []Reason{{"base", "", "it moved while we merged"}}}
	case r.Outcome == codehost.Moved:
		return Result{Outcome: HeadMoved, Reasons: []Reason{{"head", "", "it moved while we merged"}}}
	case r.Outcome == codehost.Retry:
		return Result{Outcome: Retry, RetryAfter: r.RetryAfter}
	}
	return Result{Outcome: Refused, Reasons: []Reason{{"code host", "", r.String()}}}
}

// prove compares what landed with what was tested; "" if they are the same.
func (t *try) prove(ctx context.Context, landed gitcmd.Hash) (string, error) {
	if landed == "" {
		return "the host does not say what landed", nil
	}
	tip, err := t.fetchBase(ctx)
	if err != nil {
		return "", err
	}
	if _, _, err := t.Repo.TypeOf(ctx, landed); err != nil {
		var gone *gitcmd.NotFoundError
		if errors.As(err, &gone) {
			return fmt.Sprintf("the base does not hold %s, which the host says has landed", short(landed)), nil
		}
		return "", err
	}
	in, err := t.Repo.IsAncestor(ctx, landed, tip)
	if err != nil {
		return "", err
	}
	if !in {
		return fmt.Sprintf("the base does not hold %s, which the host says has landed", short(landed)), nil
	}
	commit, err := t.Repo.ReadCommit(ctx, landed, 0)
	if err != nil {
		return "", err
	}
	if commit.Tree != t.req.Verdict.Tree {
		return fmt.Sprintf("the tree %s landed as %s, the gate tested %s", commit.Tree.Short(), short(landed), t.req.Verdict.Tree.Short()), nil
	}
	return "", nil
}

// fetchBase brings the base of the host into our repository and returns it.
func (t *try) fetchBase(ctx context.Context) (gitcmd.Hash, error) {
	ours := gitcmd.Ref("refs/confine/merge/" + t.base.BranchName())
	if err := t.Repo.Fetch(ctx, t.remote, gitcmd.FetchRef{From: t.base, To: ours}); err != nil {
		return "", err
	}
	return t.Repo.RevParse(ctx, ours)
}

func (t *try) refuse(ctx context.Context, reasons ...Reason) (Result, error) {
	return t.end(ctx, Result{Outcome: Refused, Reasons: reasons})
}

// end records how the request ended.
func (t *try) end(ctx context.Context, r Result) (Result, error) {
	r.Rule = t.rule
	if err := t.Journal.Record(ctx, t.entry(r)); err != nil {
		return Result{}, fmt.Errorf("record that it was %s: %w", r.Outcome, err)
	}
	return r, nil
}

func (t *try) entry(r Result) Entry {
	v := t.req.Verdict
	e := Entry{
		Time: t.Now().UTC(), Pull: t.req.Pull, Base: t.base, OnBase: v.Base, Head: v.Head, Commit: v.Commit, Tree: v.Tree,
		Outcome: r.Outcome, Reasons: r.Reasons, Landed: r.Landed,
	}
	if t.rule.Predicate != "" {
		rule := t.rule
		e.Rule = &rule
	}
	return e
}

func short(h gitcmd.Hash) string {
	if h == "" {
		return "gone"
	}
	return h.Short()
}
