package gate

import (
	"context"
	"fmt"

	"confine/internal/gitcmd"
)

// Candidate is what a merge would put into the base.
type Candidate struct {
	Base gitcmd.Hash `json:"base"`
	Head gitcmd.Hash `json:"head"`
	// Commit is the merge, Tree its files.
	Commit gitcmd.Hash `json:"commit"`
	Tree   gitcmd.Hash `json:"tree"`
}

// MergeOptions say what to merge, and who says so.
type MergeOptions struct {
	Base, Head gitcmd.Hash
	// FastForward takes the head itself where it contains the base, as hosts
	// do that merge up-to-date heads only. Otherwise there is always a merge
	// commit of ours.
	FastForward bool
	Identity    gitcmd.Identity
	Message     string
}

// ConflictError is a head that can't be merged onto the base. Paths are untrusted
// bytes.
type ConflictError struct {
	Base, Head gitcmd.Hash
	Paths      []string
}

func (e *ConflictError) Error() string {
	const shown = 5
	paths := e.Paths[:min(shown, len(e.Paths))]
	more := ""
	if n := len(e.Paths) - len(paths); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("merge %s onto %s: conflict in %.200q%s", e.Head.Short(), e.Base.Short(), paths, more)
}

// NothingError is a head that the base contains already.
type NothingError struct{ Base, Head gitcmd.Hash }

func (e *NothingError) Error() string {
	return fmt.Sprintf("merge %s onto %s: the base contains it already", e.Head.Short(), e.Base.Short())
}

// Merge makes the candidate as objects of the repository; no ref changes. It
// returns a *ConflictError or a *NothingError where there is none.
func Merge(ctx context.Context, repo *gitcmd.Repo, o MergeOptions) (Candidate, error) {
	in, err := repo.IsAncestor(ctx, o.Head, o.Base)
	if err != nil {
		return Candidate{}, fmt.Errorf("merge %s onto %s: %w", o.Head.Short(), o.Base.Short(), err)
	}
	if in {
		return Candidate{}, &NothingError{Base: o.Base, Head: o.Head}
	}
	merged, err := repo.MergeTree(ctx, o.Base, o.Head)
	if err != nil {
		return Candidate{}, fmt.Errorf("merge %s onto %s: %w", o.Head.Short(), o.Base.Short(), err)
	}
	if !merged.Clean() {
		return Candidate{}, &ConflictError{Base: o.Base, Head: o.Head, Paths: merged.Conflicts}
	}
	c := Candidate{Base: o.Base, Head: o.Head, Tree: merged.Tree}
	if o.FastForward {
		if in, err = repo.IsAncestor(ctx, o.Base, o.Head); err != nil {
			return Candidate{}, err
		}
		if in {
			// The merge of a head that contains the base is the head's tree.
			c.Commit = o.Head
			return c, c.Verify(ctx, repo)
		}
	}
	c.Commit, err = repo.CommitTree(ctx, gitcmd.NewCommit{
		Tree: merged.Tree, Parents: []gitcmd.Hash{o.Base, o.Head},
		Author: o.Identity, Committer: o.Identity, Message: o.Message,
	})
	if err != nil {
		return Candidate{}, fmt.Errorf("commit the merge of %s onto %s: %w", o.Head.Short(), o.Base.Short(), err)
	}
	return c, nil
}

// Verify holds the candidate to what it says about itself: its commit has that
// tree and brings that head onto that base.
func (c Candidate) Verify(ctx context.Context, repo *gitcmd.Repo) error {
	bad := func(why string) error { return fmt.Errorf("verify candidate %s: %s", c.Commit.Short(), why) }
	commit, err := repo.ReadCommit(ctx, c.Commit, 0)
	if err != nil {
		return fmt.Errorf("verify candidate %s: %w", c.Commit.Short(), err)
	}
	if commit.Tree != c.Tree {
		return bad(fmt.Sprintf("its tree is %s, not %s", commit.Tree.Short(), c.Tree.Short()))
	}
	if c.Commit == c.Head {
		in, err := repo.IsAncestor(ctx, c.Base, c.Head)
		if err != nil {
			return fmt.Errorf("verify candidate %s: %w", c.Commit.Short(), err)
		}
		if !in {
			return bad("it is the head and does not contain the base")
		}
		return nil
	}
	if len(commit.Parents) != 2 || commit.Parents[0] != c.Base || commit.Parents[1] != c.Head {
		return bad("its parents are not the base and the head")
	}
	return nil
}
