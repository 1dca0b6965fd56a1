package handover

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"confine/internal/gitcmd"
)

// RewriteOptions say as whom the commits are written.
type RewriteOptions struct {
	Received Received
	// Report is the check of exactly these commits, without a refusal. The
	// caller has asked for its approvals.
	Report *Report
	// Engine is the author and committer of every new commit, at one time.
	Engine gitcmd.Identity
	// Run is the id of the run, for the trailer Confine-Run.
	Run string
}

// RewrittenCommit is a commit before and after.
type RewrittenCommit struct{ Old, New gitcmd.Hash }

// Rewritten are commits of the engine, ready for delivery. Only Rewrite makes
// one with a head.
type Rewritten struct {
	Repo *gitcmd.Repo
	Base gitcmd.Hash
	// Commits are the new ones, parents first; empty when all were known.
	Commits []RewrittenCommit
	head    gitcmd.Hash
}

// Head is the commit to deliver.
func (r Rewritten) Head() gitcmd.Hash { return r.head }

// Rewrite writes each new commit again: the same tree, the engine's identity, a
// cleaned message, trailers that say which run it was and who the commit said
// its author was. This ends author spoofing, signatures, sign-offs, markers that
// skip CI and words that close issues. Commits that are not new stay as they are.
func Rewrite(ctx context.Context, o RewriteOptions) (Rewritten, error) {
	if err := o.check(); err != nil {
		return Rewritten{}, fmt.Errorf("rewrite commits: %w", err)
	}
	repo := o.Received.Repo
	out := Rewritten{Repo: repo, Base: o.Report.Base, head: o.Report.Head}
	renamed := map[gitcmd.Hash]gitcmd.Hash{}
	for _, old := range o.Report.Commits {
		commit, err := repo.ReadCommit(ctx, old, maxCommitBytes)
		if err != nil {
			return Rewritten{}, fmt.Errorf("rewrite commits: %w", err)
		}
		parents := make([]gitcmd.Hash, len(commit.Parents))
		for i, p := range commit.Parents {
			if parents[i] = p; renamed[p] != "" {
				parents[i] = renamed[p]
			}
		}
		message := fmt.Sprintf("%s\n\nConfine-Run: %s\nConfine-Agent-Author: %s\n", cleanMessage(commit.Message), o.Run, cleanAuthor(commit.Author))
		h, err := repo.CommitTree(ctx, gitcmd.NewCommit{Tree: commit.Tree, Parents: parents, Author: o.Engine, Committer: o.Engine, Message: message})
		if err != nil {
			return Rewritten{}, fmt.Errorf("rewrite commit %s: %w", old.Short(), err)
		}
		renamed[old] = h
		out.Commits = append(out.Commits, RewrittenCommit{old, h})
	}
	if h := renamed[out.head]; h != "" {
		out.head = h
	}
	if err := setRef(ctx, repo, rewrittenRef, out.head); err != nil {
		return Rewritten{}, fmt.Errorf("rewrite commits: %w", err)
	}
	return out, nil
}

func (o RewriteOptions) check() error {
	switch {
	case o.Received.Repo == nil || o.Report == nil:
		return errors.New("nothing was received or checked")
	case !o.Report.Passed():
		return &RefusedError{Report: o.Report}
	case o.Report.Base != o.Received.Base || o.Report.Head != o.Received.Head:
		return errors.New("the report is about other commits")
	case o.Run == "" || len(o.Run) > 100 || strings.ContainsFunc(o.Run, func(c rune) bool { return c <= ' ' || c > '~' }):
		return fmt.Errorf("run id %.100q: want 1-100 printable characters without spaces", o.Run)
	}
	return nil
}

// setRef sets a ref of the quarantine whatever it was, as a step may run again
// after a crash.
func setRef(ctx context.Context, repo *gitcmd.Repo, ref gitcmd.Ref, h gitcmd.Hash) error {
	old, err := repo.RevParse(ctx, ref)
	var missing *gitcmd.NotFoundError
	if err != nil && !errors.As(err, &missing) {
		return err
	}
	if old == h {
		return nil
	}
	return repo.UpdateRef(ctx, gitcmd.RefUpdate{Ref: ref, New: h, Old: old})
}
