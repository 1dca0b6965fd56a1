//go:build unix

package mergeauthority

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"confine/internal/codehost"
	"confine/internal/codehost/codehosttest"
	"confine/internal/codehost/local"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/merge"
)

// ledger is a journal in memory.
type ledger struct {
	mu      sync.Mutex
	entries []Entry
	fail    func(Entry) error
}

func (l *ledger) Record(_ context.Context, e Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		if err := l.fail(e); err != nil {
			return err
		}
	}
	l.entries = append(l.entries, e)
	return nil
}

func (l *ledger) outcomes() string {
	var words []string
	for _, e := range l.entries {
		words = append(words, string(e.Outcome))
	}
	return strings.Join(words, " ")
}

// between is a host with something in between.
type between struct {
	codehost.Host
	merge      func(context.Context, codehost.MergeRequest) (codehost.MergeResult, error)
	protection func(codehost.Protection) codehost.Protection
}

func (b between) Merge(ctx context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
	if b.merge != nil {
		return b.merge(ctx, m)
	}
	return b.Host.Merge(ctx, m)
}

func (b between) Protection(ctx context.Context, ref gitcmd.Ref) (codehost.Protection, error) {
	p, err := b.Host.Protection(ctx, ref)
	if b.protection != nil {
		p = b.protection(p)
	}
	return p, err
}

// scene is a local host with a pull request that the gate passed.
type scene struct {
	*testing.T
	ctx     context.Context
	host    *local.Host
	repo    *gitcmd.Repo
	remote  gitcmd.Remote
	base    gitcmd.Ref
	first   gitcmd.Hash
	pull    codehost.Pull
	req     Request
	journal *ledger
	options Options
}

const gatesPassed = `{"gates":"passed"}`

func rule(t *testing.T, text string) merge.Rule {
	t.Helper()
	r, err := merge.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newScene(t *testing.T, ruleText string) *scene {
	t.Helper()
	s := &scene{T: t, ctx: t.Context(), base: "refs/heads/main", journal: &ledger{}}
	var err error
	s.host, err = local.Init(s.ctx, t.TempDir()+"/host", local.InitOptions{
		People: map[string]codehost.Permission{"mia": codehost.PermissionWrite, "noa": codehost.PermissionAdmin, "sam": codehost.PermissionRead},
		First: func(_ context.Context, repo *gitcmd.Repo) (gitcmd.Hash, error) {
			return codehosttest.Commit(t, repo, "first"), nil
		},
	})
	s.ok(err)
	s.remote, err = s.host.Remote(s.ctx, codehost.Write)
	s.ok(err)
	s.repo, err = gitcmd.Init(s.ctx, t.TempDir()+"/engine.git", gitcmd.InitOptions{})
	s.ok(err)
	s.ok(s.repo.Fetch(s.ctx, s.remote, gitcmd.FetchRef{From: s.base, To: "refs/confine/base"}))
	s.first, err = s.repo.RevParse(s.ctx, "refs/confine/base")
	s.ok(err)
	issue, err := s.host.AddIssue(s.ctx, local.NewIssue{Title: "Sum is wrong", Author: "mia"})
	s.ok(err)
	s.pull, s.req = s.open("work", issue)
	s.options = Options{Host: s.host, Repo: s.repo, Rule: rule(t, ruleText), Journal: s.journal, Dir: t.TempDir()}
	return s
}

func (s *scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// open makes a pull request and the verdict that it passed on the first base.
func (s *scene) open(name string, closes int) (codehost.Pull, Request) {
	s.Helper()
	head := codehosttest.Commit(s.T, s.repo, name, s.first)
	branch := gitcmd.Ref("refs/heads/" + name)
	s.push(branch, head, "")
	pull, result, err := s.host.OpenPull(s.ctx, codehost.NewPull{Key: name, Head: branch, ExpectedHead: head, Base: s.base, Title: "t", Closes: closes})
	if s.ok(err); !result.OK() {
		s.Fatal(result)
	}
	return pull, s.gated(pull.Number, s.first, head)
}

func (s *scene) push(ref gitcmd.Ref, new, old gitcmd.Hash) {
	s.Helper()
	got, err := s.repo.Push(s.ctx, gitcmd.Push{To: s.remote, Ref: ref, New: new, Old: old})
	if s.ok(err); got.Outcome != gitcmd.PushDone {
		s.Fatal(got)
	}
}

// gated is the request for a head that passed the gate on a base.
func (s *scene) gated(pull int, base, head gitcmd.Hash) Request {
	s.Helper()
	c, err := gate.Merge(s.ctx, s.repo, gate.MergeOptions{Base: base, Head: head, Message: "merge\n",
		Identity: gitcmd.Identity{Name: "Engine", Email: "engine@example.com", When: time.Unix(1_700_000_000, 0).UTC()}})
	s.ok(err)
	return Request{
		Pull: pull, ConfigDigest: "config", ViewDigest: "view",
		Verdict: gate.Verdict{Version: 1, Candidate: c, ConfigDigest: "config", ViewDigest: "view", Complete: true,
			Checks: []gate.CheckResult{{Name: "test", Passed: true}}},
	}
}

func (s *scene) merge(req Request) (Result, error) {
	s.Helper()
	a, err := New(s.options)
	s.ok(err)
	return a.Merge(s.ctx, req)
}

func (s *scene) want(o Outcome, req Request) Result {
	s.Helper()
	got, err := s.merge(req)
	s.ok(err)
	if got.Outcome != o {
		s.Fatalf("outcome is %q %v, want %q", got.Outcome, got.Reasons, o)
	}
	return got
}

// at reads the base of the host.
func (s *scene) at() gitcmd.Hash {
	s.Helper()
	refs, err := s.repo.LsRemote(s.ctx, s.remote, s.base)
	if s.ok(err); len(refs) != 1 {
		s.Fatal(refs)
	}
	return refs[0].Hash
}

func (s *scene) unmoved() {
	s.Helper()
	if at := s.at(); at != s.first {
		s.Fatalf("the base moved to %s", at)
	}
}

func TestMerges(t *testing.T) {
	s := newScene(t, `{"all":[{"gates":"passed"},{"host_checks":"required"},{"changed_lines":{"max":1}},{"author":{"by":"writers"}}]}`)
	got := s.want(Merged, s.req)
	if s.at() != s.req.Verdict.Commit || got.Landed != s.req.Verdict.Commit || !got.Rule.Holds() {
		t.Fatalf("%+v, the base is %s", got, s.at())
	}
	if s.journal.outcomes() != "decided merged" || s.journal.entries[0].Rule == nil || s.journal.entries[0].Commit != got.Landed {
		t.Fatalf("%+v", s.journal.entries)
	}
	// The same request again finds it done.
	if again := s.want(Merged, s.req); again.Landed != got.Landed {
		t.Fatal(again)
	}
	// Another verdict about the merged pull request is refused.
	other := s.req
	other.Verdict.Head = s.first
	s.want(Refused, other)
}

// TestRefusals: each change alone keeps the pull request out; the scene without
// it is TestMerges. Where it can be taken back, the same request then merges.
func TestRefusals(t *testing.T) {
	forged := func(s *scene) gitcmd.Hash { return codehosttest.Commit(s.T, s.repo, "forged", s.first) }
	tests := map[string]struct {
		rule string
		harm func(*scene)
		mend func(*scene)
		want string
	}{
		"no verdict":        {harm: func(s *scene) { s.req.Verdict = gate.Verdict{Candidate: s.req.Verdict.Candidate} }, want: "gate: there is no verdict"},
		"failed gate":       {harm: func(s *scene) { s.req.Verdict.Checks = []gate.CheckResult{{Name: "test", Reason: "status 1"}} }, want: `check "test": status 1`},
		"gate without end":  {harm: func(s *scene) { s.req.Verdict.Complete = false }, want: "not every check ran"},
		"another config":    {harm: func(s *scene) { s.req.ConfigDigest = "other" }, mend: func(s *scene) { s.req.ConfigDigest = "config" }, want: "another config"},
		"another view":      {harm: func(s *scene) { s.req.ViewDigest = "other" }, mend: func(s *scene) { s.req.ViewDigest = "view" }, want: "another view"},
		"no config digest":  {harm: func(s *scene) { s.req.ConfigDigest = "" }, want: "config is not known"},
		"commit of another": {harm: func(s *scene) { s.req.Verdict.Commit = forged(s) }, want: "verify candidate"},
		"tree and commit of another": {harm: func(s *scene) {
			c, err := s.repo.ReadCommit(s.ctx, forged(s), 0)
			s.ok(err)
			who := gitcmd.Identity{Name: "x", Email: "x@example.com", When: time.Unix(1, 0)}
			s.req.Verdict.Commit, err = s.repo.CommitTree(s.ctx, gitcmd.NewCommit{Tree: c.Tree, Parents: []gitcmd.Hash{s.first, s.pull.HeadCommit}, Author: who, Committer: who, Message: "m\n"})
			s.ok(err)
			s.req.Verdict.Tree = c.Tree
		}, want: "not what git makes"},
		"no protection": {harm: func(s *scene) { s.ok(os.Chmod(s.host.Dir()+"/repo.git/hooks/pre-receive", 0o600)) },
			mend: func(s *scene) { s.ok(os.Chmod(s.host.Dir()+"/repo.git/hooks/pre-receive", 0o700)) }, want: "branch protection"},
		"protection in part unknown": {harm: func(s *scene) {
			s.options.Host = between{Host: s.host, protection: func(p codehost.Protection) codehost.Protection {
				p.Unknown = []string{"who may bypass"}
				return p
			}}
		}, mend: func(s *scene) { s.options.Host = s.host }, want: `not known to hold: "who may bypass"`},
		"does not exist": {harm: func(s *scene) {
			s.options.Host = between{Host: s.host, protection: func(p codehost.Protection) codehost.Protection { p.Exists = false; return p }}
		}, mend: func(s *scene) { s.options.Host = s.host }, want: "takes direct pushes"},
		"no base check": {harm: func(s *scene) {
			s.options.Host = between{Host: s.host, protection: func(p codehost.Protection) codehost.Protection { p.BaseCheck = ""; return p }}
		}, mend: func(s *scene) { s.options.Host = s.host }, want: "does not check on a merge"},
		"host lands the head": {harm: func(s *scene) {
			s.options.Host = between{Host: s.host, protection: func(p codehost.Protection) codehost.Protection {
				p.BaseCheck = codehost.BaseUpToDate
				return p
			}}
		}, want: "bring the base into the head first"},
		"changes requested": {harm: func(s *scene) { s.review("mia", codehost.ChangesRequested, s.first) },
			mend: func(s *scene) { s.review("mia", codehost.Approved, s.pull.HeadCommit) }, want: `"mia" asks for changes`},
		"closed": {harm: func(s *scene) { s.ok(s.host.ClosePull(s.ctx, s.pull.Number)) }, want: "it is closed"},
		"rule": {rule: `{"all":[{"gates":"passed"},{"approvals":{"min":1,"by":"writers"}}]}`, harm: func(s *scene) { s.review("sam", codehost.Approved, s.pull.HeadCommit) },
			mend: func(s *scene) { s.review("mia", codehost.Approved, s.pull.HeadCommit) }, want: "merge rule"},
		"rule with our own approval": {rule: `{"all":[{"gates":"passed"},{"approvals":{"min":1,"by":"writers"}}]}`,
			harm: func(s *scene) { s.review(local.DefaultAccount, codehost.Approved, s.pull.HeadCommit) }, want: "merge rule"},
		"too many lines": {rule: `{"all":[{"gates":"passed"},{"changed_lines":{"max":0}}]}`, harm: func(*scene) {},
			mend: func(s *scene) {
				s.options.Rule = rule(s.T, `{"all":[{"gates":"passed"},{"changed_lines":{"max":1}},{"changed_files":{"max":1}}]}`)
			}, want: "merge rule"},
		"host check": {rule: `{"all":[{"gates":"passed"},{"host_checks":"required"}]}`, harm: func(s *scene) {
			s.ok(s.host.Protect(s.ctx, codehost.Protection{Branch: s.base, RequiredChecks: []string{"ci"}}))
		}, mend: func(s *scene) {
			got, err := s.host.SetStatus(s.ctx, codehost.Status{Commit: s.pull.HeadCommit, Context: "ci", State: codehost.Success})
			if s.ok(err); !got.OK() {
				s.Fatal(got)
			}
		}, want: "merge rule"},
		"required by the host, not by the rule": {harm: func(s *scene) {
			s.ok(s.host.Protect(s.ctx, codehost.Protection{Branch: s.base, RequiredApprovals: 1}))
		}, mend: func(s *scene) { s.review("noa", codehost.Approved, s.pull.HeadCommit) }, want: "code host"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.rule == "" {
				test.rule = gatesPassed
			}
			s := newScene(t, test.rule)
			test.harm(s)
			got := s.want(Refused, s.req)
			var all []string
			for _, r := range got.Reasons {
				all = append(all, r.String())
			}
			if text := strings.Join(all, "\n"); !strings.Contains(text, test.want) {
				t.Fatalf("reasons are %q, want %q", text, test.want)
			}
			s.unmoved()
			if last := s.journal.entries[len(s.journal.entries)-1]; last.Outcome != Refused || len(last.Reasons) == 0 {
				t.Fatalf("on record is %+v", last)
			}
			if test.mend != nil {
				test.mend(s)
				s.want(Merged, s.req)
			}
		})
	}
}

func (s *scene) review(by string, v codehost.Verdict, head gitcmd.Hash) {
	s.Helper()
	s.ok(s.host.AddReview(s.ctx, local.NewReview{Pull: s.pull.Number, By: by, Verdict: v, Head: head}))
}

func TestMoved(t *testing.T) {
	s := newScene(t, gatesPassed)
	other, otherReq := s.open("other", 0)
	first := s.want(Merged, otherReq)
	// The base moved: gate again, on the new base, and it merges.
	s.want(GateAgain, s.req)
	again := s.gated(s.pull.Number, first.Landed, s.pull.HeadCommit)
	// The head moved.
	next := codehosttest.Commit(t, s.repo, "more", s.pull.HeadCommit)
	s.push(s.pull.Head, next, s.pull.HeadCommit)
	s.want(HeadMoved, again)
	if s.at() != first.Landed {
		t.Fatal("the base moved")
	}
	s.want(Merged, s.gated(s.pull.Number, first.Landed, next))
	if s.pull.Number == other.Number {
		t.Fatal("one pull request was opened twice")
	}
}

// TestBaseMovesInBetween: after all was read and judged, right before the host
// is asked.
func TestBaseMovesInBetween(t *testing.T) {
	s := newScene(t, gatesPassed)
	_, other := s.open("other", 0)
	s.options.Host = between{Host: s.host, merge: func(ctx context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
		got, err := s.host.Merge(ctx, codehost.MergeRequest{Pull: other.Pull, ExpectedHead: other.Verdict.Head, ExpectedBase: other.Verdict.Base, Commit: other.Verdict.Commit, Objects: s.repo})
		if err != nil || !got.OK() {
			t.Error(got, err)
		}
		return s.host.Merge(ctx, m)
	}}
	s.want(GateAgain, s.req)
	if s.at() != other.Verdict.Commit || s.journal.outcomes() != "decided gate_again" {
		t.Fatalf("the base is %s, on record is %s", s.at(), s.journal.outcomes())
	}
}

// TestNoRecordNoMerge: the decision can't be written down.
func TestNoRecordNoMerge(t *testing.T) {
	s := newScene(t, gatesPassed)
	full := errors.New("no space left")
	s.journal.fail = func(Entry) error { return full }
	if got, err := s.merge(s.req); !errors.Is(err, full) || got.Outcome != "" {
		t.Fatal(got, err)
	}
	s.unmoved()
	// The outcome can't be: an error, and the same request finds out.
	s.journal.fail = func(e Entry) error {
		if e.Outcome == Merged {
			return full
		}
		return nil
	}
	if got, err := s.merge(s.req); !errors.Is(err, full) || got.Outcome != "" {
		t.Fatal(got, err)
	}
	s.journal.fail = nil
	s.want(Merged, s.req)
}

// TestLostAnswer: the host merged and its answer did not arrive; meanwhile
// another merge came in.
func TestLostAnswer(t *testing.T) {
	for _, recordLost := range []bool{false, true} {
		testLostAnswer(t, recordLost)
	}
}

func testLostAnswer(t *testing.T, recordLost bool) {
	s := newScene(t, gatesPassed)
	record := fmt.Sprintf("%s/pulls/%d.md", s.host.Dir(), s.pull.Number)
	before, err := os.ReadFile(record)
	s.ok(err)
	lost := errors.New("connection reset")
	s.options.Host = between{Host: s.host, merge: func(ctx context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
		if _, err := s.host.Merge(ctx, m); err != nil {
			t.Error(err)
		}
		return codehost.MergeResult{}, lost
	}}
	if _, err := s.merge(s.req); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	s.options.Host = s.host
	landed := s.at()
	if recordLost {
		s.ok(os.WriteFile(record, before, 0o600))
	}
	head := codehosttest.Commit(t, s.repo, "later", landed)
	s.push("refs/heads/later", head, "")
	p, _, err := s.host.OpenPull(s.ctx, codehost.NewPull{Key: "later", Head: "refs/heads/later", ExpectedHead: head, Base: s.base, Title: "t"})
	s.ok(err)
	s.want(Merged, s.gated(p.Number, landed, head))
	if got := s.want(Merged, s.req); got.Landed != landed {
		t.Fatal(got)
	}
	if again, err := s.host.Pull(s.ctx, s.pull.Number); err != nil || again.State != codehost.Merged {
		t.Fatal(again.State, err)
	}
}

// TestMismatchFreezes: the host lands something else than was tested.
func TestMismatchFreezes(t *testing.T) {
	s := newScene(t, gatesPassed)
	_, next := s.open("next", 0)
	lies := map[string]func(context.Context, codehost.MergeRequest) (codehost.MergeResult, error){
		"another tree": func(ctx context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
			bad := codehosttest.Commit(t, s.repo, "surprise", s.first)
			s.push("refs/heads/surprise", bad, "")
			p, _, err := s.host.OpenPull(ctx, codehost.NewPull{Key: "s", Head: "refs/heads/surprise", ExpectedHead: bad, Base: s.base, Title: "t"})
			s.ok(err)
			got, err := s.host.Merge(ctx, codehost.MergeRequest{Pull: p.Number, ExpectedHead: bad, ExpectedBase: s.first, Commit: bad, Objects: s.repo})
			return got, err
		},
		"not in the base": func(_ context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
			return codehost.MergeResult{Result: codehost.Result{Outcome: codehost.Done}, Landed: m.Commit}, nil
		},
		"no commit": func(context.Context, codehost.MergeRequest) (codehost.MergeResult, error) {
			return codehost.MergeResult{Result: codehost.Result{Outcome: codehost.Done}}, nil
		},
		"unknown commit": func(_ context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
			return codehost.MergeResult{Result: codehost.Result{Outcome: codehost.Done}, Landed: gitcmd.Hash(strings.Repeat("7", len(m.Commit)))}, nil
		},
	}
	for _, name := range []string{"not in the base", "no commit", "unknown commit", "another tree"} {
		s.options.Host = between{Host: s.host, merge: lies[name]}
		s.want(Mismatch, s.req)
		// Nothing merges any more, not even what would.
		s.options.Host = s.host
		at := s.at()
		if got := s.want(Refused, next); got.Reasons[0].Rule != "frozen" || s.at() != at {
			t.Fatalf("%s: %v", name, got.Reasons)
		}
		a, err := New(s.options)
		s.ok(err)
		if why, err := a.Frozen(s.ctx, "refs/heads/other"); err != nil || why != "" {
			t.Fatalf("another base is frozen: %q %v", why, err)
		}
		s.ok(a.Thaw(s.ctx, s.base))
		if why, err := a.Frozen(s.ctx, s.base); err != nil || why != "" {
			t.Fatalf("still frozen: %q %v", why, err)
		}
	}
	s.want(GateAgain, next)
	// A damaged freeze is a freeze.
	a, err := New(s.options)
	s.ok(err)
	s.ok(a.freeze(s.ctx, s.base, "x"))
	path, err := a.queueFile(s.ctx, s.base, ".frozen")
	s.ok(err)
	s.ok(os.WriteFile(path, nil, 0o600))
	s.want(Refused, next)
}

// TestTwoAtOnce: two authorities, as two processes would have.
func TestTwoAtOnce(t *testing.T) {
	s := newScene(t, gatesPassed)
	_, other := s.open("other", 0)
	outcomes := make([]Outcome, 4)
	var wg sync.WaitGroup
	for i, req := range []Request{s.req, other, s.req, other} {
		a, err := New(s.options)
		s.ok(err)
		wg.Go(func() {
			got, err := a.Merge(s.ctx, req)
			if err != nil {
				t.Error(err)
			}
			outcomes[i] = got.Outcome
		})
	}
	wg.Wait()
	count := map[Outcome]int{}
	for _, o := range outcomes {
		count[o]++
	}
	if count[Merged] != 2 || count[GateAgain] != 2 || outcomes[0] != outcomes[2] {
		t.Fatalf("outcomes are %v", outcomes)
	}
}

// TestApprovalsCarryOver: bringing base into the head keeps an approval, any
// other change does not.
func TestApprovalsCarryOver(t *testing.T) {
	s := newScene(t, `{"all":[{"gates":"passed"},{"approvals":{"min":1,"by":"writers"}}]}`)
	s.review("mia", codehost.Approved, s.pull.HeadCommit)
	_, other := s.open("other", 0)
	withApproval := s.options.Rule
	s.options.Rule = rule(t, gatesPassed)
	base := s.want(Merged, other).Landed
	s.options.Rule = withApproval

	brought := s.gated(s.pull.Number, s.pull.HeadCommit, base).Verdict.Commit // base merged into head
	s.push(s.pull.Head, brought, s.pull.HeadCommit)
	more := codehosttest.Commit(t, s.repo, "unseen", brought)
	s.push(s.pull.Head, more, brought)
	s.want(Refused, s.gated(s.pull.Number, base, more))
	if got, err := s.repo.Push(s.ctx, gitcmd.Push{To: s.remote, Ref: s.pull.Head, New: brought, Old: more, Rewrite: true}); err != nil || got.Outcome != gitcmd.PushDone {
		t.Fatal(got, err)
	}
	s.want(Merged, s.gated(s.pull.Number, base, brought))
}

// TestMergedByHand: a person's merge is not taken for ours.
func TestMergedByHand(t *testing.T) {
	s := newScene(t, gatesPassed)
	mia, err := local.Open(s.ctx, s.host.Dir(), local.OpenOptions{Account: "mia"})
	s.ok(err)
	got, err := mia.Merge(s.ctx, codehost.MergeRequest{Pull: s.pull.Number, ExpectedHead: s.pull.HeadCommit, ExpectedBase: s.first, Commit: s.pull.HeadCommit, Objects: s.repo})
	if s.ok(err); !got.OK() {
		t.Fatal(got)
	}
	s.want(Refused, s.req)
}

func TestNewRefuses(t *testing.T) {
	s := newScene(t, gatesPassed)
	if _, err := New(s.options); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"host":      func(o *Options) { o.Host = nil },
		"repo":      func(o *Options) { o.Repo = nil },
		"journal":   func(o *Options) { o.Journal = nil },
		"dir":       func(o *Options) { o.Dir = "" },
		"zero rule": func(o *Options) { o.Rule = merge.Rule{} },
		"gates left": func(o *Options) {
			o.Rule = rule(t, `{"any":[{"gates":"passed"},{"approvals":{"min":1,"by":"writers"}}]}`)
		},
	} {
		o := s.options
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: made", name)
		}
	}
}
