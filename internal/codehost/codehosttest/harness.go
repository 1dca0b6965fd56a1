// Package codehosttest is the conformance suite of code hosts: every
// implementation of codehost.Host passes it, fakes included.
//
// It promises that a host answers the same way as the others: repeated calls,
// moved heads and bases, two callers at once, missing rights, hostile text. What
// is special to one host, it tests itself. The tests of each host call Run.
package codehosttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

// Harness is one new host for one test: with a default branch of one commit or
// more that is protected, and our own account that may write.
type Harness struct {
	Host codehost.Host
	// Account is our own account's name.
	Account string
	// Other is a second account that may write; Reader one that may read.
	Other, Reader string
	People        People
}

// People does what people do on the host, by whatever way.
type People interface {
	// File files an issue and returns its number.
	File(ctx context.Context, issue Words) (int, error)
	// Comment comments on an issue or pull request.
	Comment(ctx context.Context, thread codehost.Thread, words Words) error
	// Permit changes what an account may do.
	Permit(ctx context.Context, account codehost.Account) error
	// Review reviews a pull request's head.
	Review(ctx context.Context, pull int, review codehost.Review) error
	// ClosePull closes a pull request without a merge.
	ClosePull(ctx context.Context, pull int) error
	// Protect sets what merges into a branch need.
	Protect(ctx context.Context, p codehost.Protection) error
}

// Words is what somebody writes. Title and Labels are of issues only.
type Words struct {
	Author, Title, Body string
	Labels              []string
}

// bench is one test's host and the engine's repository beside it.
type bench struct {
	*testing.T
	Harness
	ctx    context.Context
	repo   *gitcmd.Repo
	remote gitcmd.Remote
	base   gitcmd.Ref
	first  gitcmd.Hash
}

// Run runs the suite. Each test gets a host of its own.
func Run(t *testing.T, make func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(*bench)
	}{
		{"repository", testRepository},
		{"issue", testIssue},
		{"issue text is data", testIssueText},
		{"claim", testClaim},
		{"pull request", testPull},
		{"pull request opened by many at once", testPullConcurrent},
		{"pull request arguments", testPullArguments},
		{"status", testStatus},
		{"comment", testComment},
		{"protection", testProtection},
		{"merge", testMerge},
		{"merge of a head that is up to date", testMergeHead},
		{"merge moved", testMergeMoved},
		{"merge refused", testMergeRefused},
		{"merge checks", testMergeChecks},
		{"merge approvals", testMergeApprovals},
		{"merge by two at once", testMergeConcurrent},
		{"account without rights", testRights},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := &bench{T: t, Harness: make(t), ctx: t.Context()}
			b.clone()
			test.run(b)
		})
	}
}

// clone makes the engine's repository with the host's base in it.
func (b *bench) clone() {
	b.Helper()
	var err error
	b.repo, err = gitcmd.Init(b.ctx, b.TempDir()+"/engine.git", gitcmd.InitOptions{})
	b.ok(err)
	about, err := b.Host.Repository(b.ctx)
	b.ok(err)
	b.base = about.DefaultBranch
	b.remote, err = b.Host.Remote(b.ctx, codehost.Write)
	b.ok(err)
	b.ok(b.repo.Fetch(b.ctx, b.remote, gitcmd.FetchRef{From: b.base, To: "refs/confine/base"}))
	b.first, err = b.repo.RevParse(b.ctx, "refs/confine/base")
	b.ok(err)
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// want stops the test unless a call had this outcome.
func (b *bench) want(o codehost.Outcome, got codehost.Result, err error) {
	b.Helper()
	b.ok(err)
	if got.Outcome != o {
		b.Fatalf("outcome is %s, want %s", got, o)
	}
}

func (b *bench) wantMoved(w codehost.What, got codehost.Result, err error) {
	b.Helper()
	b.want(codehost.Moved, got, err)
	if got.Moved != w {
		b.Fatalf("%s moved, want %s", got.Moved, w)
	}
}

func (b *bench) wantNotFound(err error) {
	b.Helper()
	var e *codehost.NotFoundError
	if !errors.As(err, &e) {
		b.Fatalf("got %v, want a NotFoundError", err)
	}
}

func (b *bench) wantInvalid(err error) {
	b.Helper()
	var e *codehost.InvalidError
	if !errors.As(err, &e) {
		b.Fatalf("got %v, want an InvalidError", err)
	}
}

// commit writes a commit with one file of its own on the parents.
func (b *bench) commit(name string, parents ...gitcmd.Hash) gitcmd.Hash {
	b.Helper()
	return Commit(b.T, b.repo, name, parents...)
}

// Commit writes a commit with the first parent's files and one more, whose name
// and content are name.
func Commit(t testing.TB, repo *gitcmd.Repo, name string, parents ...gitcmd.Hash) gitcmd.Hash {
	t.Helper()
	ctx := t.Context()
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	var entries []gitcmd.TreeEntry
	if len(parents) > 0 {
		var err error
		entries, err = repo.LsTree(ctx, parents[0], gitcmd.LsTreeOptions{})
		fail(err)
	}
	blob, err := repo.HashObject(ctx, strings.NewReader(name+"\n"))
	fail(err)
	entries = append(entries, gitcmd.TreeEntry{Mode: gitcmd.ModeFile, Type: gitcmd.BlobObject, Hash: blob, Path: name})
	tree, err := repo.MkTree(ctx, entries)
	fail(err)
	who := gitcmd.Identity{Name: "A Person", Email: "person@example.com", When: time.Unix(1_700_000_000, 0).UTC()}
	hash, err := repo.CommitTree(ctx, gitcmd.NewCommit{Tree: tree, Parents: parents, Author: who, Committer: who, Message: name + "\n"})
	fail(err)
	return hash
}

// merge writes the merge of head onto base.
func (b *bench) merge(base, head gitcmd.Hash) gitcmd.Hash {
	b.Helper()
	merged, err := b.repo.MergeTree(b.ctx, base, head)
	b.ok(err)
	if !merged.Clean() {
		b.Fatalf("conflicts: %q", merged.Conflicts)
	}
	who := gitcmd.Identity{Name: "A Person", Email: "person@example.com", When: time.Unix(1_700_000_100, 0).UTC()}
	hash, err := b.repo.CommitTree(b.ctx, gitcmd.NewCommit{
		Tree: merged.Tree, Parents: []gitcmd.Hash{base, head}, Author: who, Committer: who, Message: "merge\n"})
	b.ok(err)
	return hash
}

// push sets a branch of the host and expects an outcome.
func (b *bench) push(o gitcmd.PushOutcome, p gitcmd.Push) gitcmd.PushResult {
	b.Helper()
	p.To = b.remote
	result, err := b.repo.Push(b.ctx, p)
	b.ok(err)
	if result.Outcome != o {
		b.Fatalf("push to %s is %s (%s), want %s", p.Ref, result.Outcome, result.Reason, o)
	}
	return result
}

// at reads what a branch of the host names.
func (b *bench) at(ref gitcmd.Ref) gitcmd.Hash {
	b.Helper()
	refs, err := b.repo.LsRemote(b.ctx, b.remote, ref)
	b.ok(err)
	if len(refs) == 0 {
		return ""
	}
	return refs[0].Hash
}

// open pushes a new branch with one commit on the base and opens its pull
// request.
func (b *bench) open(name string) codehost.Pull {
	b.Helper()
	head := b.commit(name, b.first)
	branch := gitcmd.Ref("refs/heads/" + name)
	b.push(gitcmd.PushDone, gitcmd.Push{Ref: branch, New: head})
	pull, result, err := b.Host.OpenPull(b.ctx, codehost.NewPull{
		Key: "run-" + name, Head: branch, ExpectedHead: head, Base: b.base, Title: "Add " + name, Body: "It adds " + name + ".\n"})
	b.want(codehost.Done, result, err)
	return pull
}

// request is the merge of a pull request as it is now.
func (b *bench) request(p codehost.Pull) codehost.MergeRequest {
	b.Helper()
	return codehost.MergeRequest{
		Pull: p.Number, ExpectedHead: p.HeadCommit, ExpectedBase: b.first,
		Commit: b.merge(b.first, p.HeadCommit), Objects: b.repo,
	}
}
