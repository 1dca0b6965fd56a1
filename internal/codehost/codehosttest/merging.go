package codehosttest

import (
	"sync"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

func testProtection(b *bench) {
	p, err := b.Host.Protection(b.ctx, b.base)
	b.ok(err)
	if !p.Exists || !p.RequirePR || len(p.Unknown) != 0 || p.BaseCheck == "" || p.Branch != b.base {
		b.Fatalf("the base has %+v", p)
	}
	b.ok(b.People.Protect(b.ctx, codehost.Protection{Branch: b.base, RequiredChecks: []string{"confine/gate", "ci: ünit"}, RequiredApprovals: 2}))
	if p, err = b.Host.Protection(b.ctx, b.base); err != nil || len(p.RequiredChecks) != 2 || p.RequiredChecks[1] != "ci: ünit" || p.RequiredApprovals != 2 || !p.Exists {
		b.Fatalf("the base has %+v, %v", p, err)
	}
	other, err := b.Host.Protection(b.ctx, "refs/heads/unprotected")
	b.ok(err)
	if other.Exists || other.BaseCheck != "" {
		b.Fatalf("an unprotected branch has %+v", other)
	}
	_, err = b.Host.Protection(b.ctx, "refs/heads/-x")
	b.wantInvalid(err)

	// What it says is so: no direct push, in any form. An unprotected branch
	// takes each of the same pushes.
	next := b.commit("a", b.first)
	foreign := b.commit("b")
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: "refs/heads/free", New: b.first})
	b.push(gitcmd.PushRefused, gitcmd.Push{Ref: b.base, New: next, Old: b.first})
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: "refs/heads/free", New: next, Old: b.first})
	b.push(gitcmd.PushRefused, gitcmd.Push{Ref: b.base, New: foreign, Old: b.first, Rewrite: true})
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: "refs/heads/free", New: foreign, Old: next, Rewrite: true})
	b.push(gitcmd.PushRefused, gitcmd.Push{Ref: b.base, Old: b.first})
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: "refs/heads/free", Old: foreign})
	if at := b.at(b.base); at != b.first {
		b.Fatalf("the base moved to %s", at)
	}
}

func testMerge(b *bench) {
	n, err := b.People.File(b.ctx, Words{Author: b.Reader, Title: "x"})
	b.ok(err)
	head := b.commit("a", b.first)
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: "refs/heads/a", New: head})
	p, result, err := b.Host.OpenPull(b.ctx, codehost.NewPull{Key: "k", Head: "refs/heads/a", ExpectedHead: head, Base: b.base, Title: "t", Closes: n})
	b.want(codehost.Done, result, err)
	req := b.request(p)
	got, err := b.Host.Merge(b.ctx, req)
	b.want(codehost.Done, got.Result, err)
	b.wantLanded(got, req)
	if p, err = b.Host.Pull(b.ctx, p.Number); err != nil || p.State != codehost.Merged || p.Landed != got.Landed || p.HeadCommit != head || p.MergedBy.Name != b.Account {
		b.Fatalf("the pull request is %+v, %v", p, err)
	}
	if issue, err := b.Host.Issue(b.ctx, n); err != nil || issue.State != codehost.Closed {
		b.Fatalf("the issue is %s, %v; want closed", issue.State, err)
	}
	// The answer was lost, and the branch deleted.
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: "refs/heads/a", Old: head})
	again, err := b.Host.Merge(b.ctx, req)
	b.want(codehost.Already, again.Result, err)
	if again.Landed != got.Landed {
		b.Fatalf("landed %s, before %s", again.Landed, got.Landed)
	}
	// Another merge of the same pull request is not this one.
	req.ExpectedBase, req.Commit = got.Landed, b.commit("c", got.Landed)
	got, err = b.Host.Merge(b.ctx, req)
	b.want(codehost.NotAllowed, got.Result, err)
	// The merge's right to the base ended with it.
	b.ok(b.repo.Fetch(b.ctx, b.remote, gitcmd.FetchRef{From: b.base, To: "refs/confine/base"}))
	b.push(gitcmd.PushRefused, gitcmd.Push{Ref: b.base, New: req.Commit, Old: again.Landed})
}

// wantLanded holds a merge to having the tested tree in the base.
func (b *bench) wantLanded(got codehost.MergeResult, req codehost.MergeRequest) {
	b.Helper()
	if at := b.at(b.base); at != got.Landed || got.Landed == "" {
		b.Fatalf("the base is %s, the host says %s", at, got.Landed)
	}
	b.ok(b.repo.Fetch(b.ctx, b.remote, gitcmd.FetchRef{From: b.base, To: "refs/confine/base"}))
	landed, err := b.repo.ReadCommit(b.ctx, got.Landed, 0)
	b.ok(err)
	tested, err := b.repo.ReadCommit(b.ctx, req.Commit, 0)
	b.ok(err)
	if landed.Tree != tested.Tree {
		b.Fatalf("landed tree %s, tested %s", landed.Tree, tested.Tree)
	}
}

// testMergeHead: the head contains the base and lands as it is.
func testMergeHead(b *bench) {
	p := b.open("a")
	req := b.request(p)
	req.Commit = p.HeadCommit
	got, err := b.Host.Merge(b.ctx, req)
	b.want(codehost.Done, got.Result, err)
	b.wantLanded(got, req)
}

func testMergeMoved(b *bench) {
	p, q := b.open("a"), b.open("b")
	req := b.request(p)
	// The head moved.
	next := b.commit("c", p.HeadCommit)
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: p.Head, New: next, Old: p.HeadCommit})
	got, err := b.Host.Merge(b.ctx, req)
	b.wantMoved(codehost.MovedHead, got.Result, err)
	// The base moved, by another merge.
	req.ExpectedHead, req.Commit = next, b.merge(b.first, next)
	other, err := b.Host.Merge(b.ctx, b.request(q))
	b.want(codehost.Done, other.Result, err)
	got, err = b.Host.Merge(b.ctx, req)
	b.wantMoved(codehost.MovedBase, got.Result, err)
	if at := b.at(b.base); at != other.Landed {
		b.Fatalf("the base is %s, want the other merge", at)
	}
	// Decided anew on what is there, it lands.
	req.ExpectedBase, req.Commit = other.Landed, b.merge(other.Landed, next)
	got, err = b.Host.Merge(b.ctx, req)
	b.want(codehost.Done, got.Result, err)
	// The head is gone.
	r := b.open("d")
	req = b.request(r)
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: r.Head, Old: r.HeadCommit})
	lost, err := b.Host.Merge(b.ctx, req)
	b.wantMoved(codehost.MovedHead, lost.Result, err)
}

func testMergeRefused(b *bench) {
	p := b.open("a")
	req := b.request(p)
	unrelated := req
	unrelated.Commit = b.commit("x", b.first)
	got, err := b.Host.Merge(b.ctx, unrelated)
	b.want(codehost.NotAllowed, got.Result, err)
	b.ok(b.People.ClosePull(b.ctx, p.Number))
	got, err = b.Host.Merge(b.ctx, req)
	b.want(codehost.NotAllowed, got.Result, err)
	if at := b.at(b.base); at != b.first {
		b.Fatalf("the base moved to %s", at)
	}
	absent := req
	absent.Pull += 1000
	_, err = b.Host.Merge(b.ctx, absent)
	b.wantNotFound(err)
	for _, change := range []func(*codehost.MergeRequest){
		func(m *codehost.MergeRequest) { m.Pull = 0 },
		func(m *codehost.MergeRequest) { m.ExpectedHead = "" },
		func(m *codehost.MergeRequest) { m.ExpectedBase = "" },
		func(m *codehost.MergeRequest) { m.Commit = "HEAD" },
		func(m *codehost.MergeRequest) { m.Commit = m.ExpectedBase },
		func(m *codehost.MergeRequest) { m.Objects = nil },
	} {
		bad := req
		change(&bad)
		_, err = b.Host.Merge(b.ctx, bad)
		b.wantInvalid(err)
	}
}

func testMergeChecks(b *bench) {
	const name = "confine/gate"
	b.ok(b.People.Protect(b.ctx, codehost.Protection{Branch: b.base, RequiredChecks: []string{name}}))
	p := b.open("a")
	req := b.request(p)
	refused := func(why string) {
		b.Helper()
		got, err := b.Host.Merge(b.ctx, req)
		b.ok(err)
		if got.Outcome != codehost.NotAllowed || b.at(b.base) != b.first {
			b.Fatalf("%s: outcome is %s, want not_allowed", why, got.Result)
		}
	}
	set := func(commit gitcmd.Hash, context string, state codehost.StatusState) {
		b.Helper()
		result, err := b.Host.SetStatus(b.ctx, codehost.Status{Commit: commit, Context: context, State: state})
		b.want(codehost.Done, result, err)
	}
	refused("no status")
	set(b.first, name, codehost.Success)
	refused("the success of another commit")
	set(p.HeadCommit, "confine/gate2", codehost.Success)
	refused("the success of another context")
	set(p.HeadCommit, name, codehost.Pending)
	refused("pending")
	set(p.HeadCommit, name, codehost.Failure)
	refused("failure")
	set(p.HeadCommit, name, codehost.Success)
	got, err := b.Host.Merge(b.ctx, req)
	b.want(codehost.Done, got.Result, err)
}

func testMergeApprovals(b *bench) {
	b.ok(b.People.Protect(b.ctx, codehost.Protection{Branch: b.base, RequiredApprovals: 1}))
	p := b.open("a")
	review := func(by string, v codehost.Verdict, head gitcmd.Hash) {
		b.Helper()
		b.ok(b.People.Review(b.ctx, p.Number, codehost.Review{By: codehost.Account{Name: by}, Verdict: v, Head: head}))
	}
	refused := func(why string) {
		b.Helper()
		got, err := b.Host.Merge(b.ctx, b.request(p))
		b.ok(err)
		if got.Outcome != codehost.NotAllowed || b.at(b.base) != b.first {
			b.Fatalf("%s: outcome is %s, want not_allowed", why, got.Result)
		}
	}
	refused("no review")
	review(b.Reader, codehost.Approved, p.HeadCommit)
	refused("a reader's approval")
	review(b.Account, codehost.Approved, p.HeadCommit)
	refused("our own approval")
	review(b.Other, codehost.Approved, p.HeadCommit)
	review(b.Other, codehost.ChangesRequested, p.HeadCommit)
	refused("an approval taken back")
	review(b.Other, codehost.Approved, p.HeadCommit)
	old := p.HeadCommit
	next := b.commit("c", old)
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: p.Head, New: next, Old: old})
	var err error
	p, err = b.Host.Pull(b.ctx, p.Number)
	b.ok(err)
	refused("the approval of an older head")
	review(b.Other, codehost.Approved, next)
	p, err = b.Host.Pull(b.ctx, p.Number)
	b.ok(err)
	found := false
	for _, r := range p.Reviews {
		found = found || r.By.Name == b.Other && r.By.Permission == codehost.PermissionWrite && r.Verdict == codehost.Approved && r.Head == next
	}
	if !found || len(p.Reviews) != 3 {
		b.Fatalf("reviews are %+v, want the newest of each of three", p.Reviews)
	}
	got, err := b.Host.Merge(b.ctx, b.request(p))
	b.want(codehost.Done, got.Result, err)
}

func testMergeConcurrent(b *bench) {
	p, q := b.open("a"), b.open("b")
	requests := []codehost.MergeRequest{b.request(p), b.request(p), b.request(q), b.request(q)}
	results, errs := make([]codehost.MergeResult, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, req := range requests {
		wg.Go(func() { results[i], errs[i] = b.Host.Merge(b.ctx, req) })
	}
	wg.Wait()
	count := map[codehost.Outcome]int{}
	for i := range requests {
		b.ok(errs[i])
		count[results[i].Outcome]++
	}
	// One wins, its twin finds it done, the other two find the base moved.
	if count[codehost.Done] != 1 || count[codehost.Already] != 1 || count[codehost.Moved] != 2 {
		b.Fatalf("outcomes are %v", count)
	}
}

func testRights(b *bench) {
	n, err := b.People.File(b.ctx, Words{Author: b.Reader, Title: "x"})
	b.ok(err)
	issue, err := b.Host.Issue(b.ctx, n)
	b.ok(err)
	p := b.open("a")
	head := b.commit("c", b.first)
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: "refs/heads/c", New: head})
	req := b.request(p)
	all := func(want codehost.Outcome) {
		b.Helper()
		claim, err := b.Host.Claim(b.ctx, codehost.Claim{Issue: n, Key: "k", Revision: issue.Revision})
		b.want(want, claim.Result, err)
		_, result, err := b.Host.OpenPull(b.ctx, codehost.NewPull{Key: "c", Head: "refs/heads/c", ExpectedHead: head, Base: b.base, Title: "t"})
		b.want(want, result, err)
		result, err = b.Host.SetStatus(b.ctx, codehost.Status{Commit: head, Context: "c", State: codehost.Success})
		b.want(want, result, err)
		_, result, err = b.Host.UpsertComment(b.ctx, codehost.CommentEdit{Thread: codehost.Thread{Pull: p.Number}, Marker: "m", Body: "x"})
		b.want(want, result, err)
		merged, err := b.Host.Merge(b.ctx, req)
		b.want(want, merged.Result, err)
	}
	b.ok(b.People.Permit(b.ctx, codehost.Account{Name: b.Account, Permission: codehost.PermissionRead}))
	all(codehost.NotAllowed)
	if at := b.at(b.base); at != b.first {
		b.Fatalf("the base moved to %s", at)
	}
	b.ok(b.People.Permit(b.ctx, codehost.Account{Name: b.Account, Permission: codehost.PermissionWrite}))
	all(codehost.Done)
}
