//go:build unix

package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

// Merge lands a pull request by pushing exactly the given commit to the base,
// with a lease on the expected base and a grant that the hook lets pass once.
func (h *Host) Merge(ctx context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
	if err := m.Validate(); err != nil {
		return codehost.MergeResult{}, err
	}
	release, err := h.lock(ctx)
	if err != nil {
		return codehost.MergeResult{}, err
	}
	defer release()
	s, err := h.readPull(m.Pull)
	if err != nil {
		return codehost.MergeResult{}, err
	}
	if landed, err := h.landed(ctx, s, m); err != nil || landed {
		return h.finish(s, m, codehost.Already, err)
	}
	for _, check := range []func(context.Context, storedPull, codehost.MergeRequest) (codehost.Result, error){
		h.checkMergeState, h.checkMergeCommit, h.checkMergeRules,
	} {
		if result, err := check(ctx, s, m); err != nil || !result.OK() {
			return codehost.MergeResult{Result: result}, err
		}
	}
	result, err := h.pushGranted(ctx, s.base, m)
	if err != nil {
		// Whether the push arrived is what the base says.
		if at, readErr := h.branch(context.WithoutCancel(ctx), s.base); readErr != nil || at != m.Commit {
			return codehost.MergeResult{}, err
		}
		result = codehost.Result{Outcome: codehost.Done}
	}
	if !result.OK() {
		return codehost.MergeResult{Result: result}, nil
	}
	return h.finish(s, m, result.Outcome, nil)
}

// landed reports whether this very merge was made before, also when the record
// of it was lost after the push.
func (h *Host) landed(ctx context.Context, s storedPull, m codehost.MergeRequest) (bool, error) {
	switch s.State {
	case codehost.Merged:
		return s.Landed == string(m.Commit) && s.MergedHead == string(m.ExpectedHead) && s.MergedBase == string(m.ExpectedBase), nil
	case codehost.Closed:
		return false, nil
	}
	base, err := h.branch(ctx, s.base)
	if err != nil || base == "" || base == m.ExpectedBase {
		return false, err
	}
	if err := h.checkCommit(ctx, m.Commit); err != nil {
		var gone *codehost.NotFoundError
		if errors.As(err, &gone) {
			return false, nil
		}
		return false, err
	}
	in, err := h.repo.IsAncestor(ctx, m.Commit, base)
	if err != nil || !in {
		return false, err
	}
	// A commit of the base that is not a merge of this head onto the expected
	// base is no proof of anything.
	return h.brings(ctx, h.repo, m)
}

// finish records the merge. The push is made: whatever goes wrong here is found
// by landed the next time.
func (h *Host) finish(s storedPull, m codehost.MergeRequest, o codehost.Outcome, err error) (codehost.MergeResult, error) {
	if err != nil {
		return codehost.MergeResult{}, err
	}
	if s.State != codehost.Merged {
		now := h.now()
		s.State = codehost.Merged
		s.MergedHead, s.MergedBase, s.Landed = string(m.ExpectedHead), string(m.ExpectedBase), string(m.Commit)
		s.MergedBy, s.MergedAt = h.account, now.UTC().Format("2006-01-02T15:04:05Z")
		if err := save(h.path("pulls", numbered(s.number, ".md")), s.encode(), 0o600, now); err != nil {
			return codehost.MergeResult{}, fmt.Errorf("record the merge of pull request %d as %s: %w", s.number, m.Commit.Short(), err)
		}
	}
	return codehost.MergeResult{Result: codehost.Result{Outcome: o}, Landed: m.Commit}, nil
}

func refuse(format string, args ...any) (codehost.Result, error) {
	return codehost.Result{Outcome: codehost.NotAllowed, Reason: fmt.Sprintf(format, args...)}, nil
}

// checkMergeState compares the state that the merge was decided on.
func (h *Host) checkMergeState(ctx context.Context, s storedPull, m codehost.MergeRequest) (codehost.Result, error) {
	if s.State != codehost.Open {
		return refuse("the pull request is %s", s.State)
	}
	head, err := h.branch(ctx, s.head)
	if err != nil {
		return codehost.Result{}, err
	}
	if head != m.ExpectedHead {
		return codehost.Result{Outcome: codehost.Moved, Moved: codehost.MovedHead}, nil
	}
	base, err := h.branch(ctx, s.base)
	if err != nil {
		return codehost.Result{}, err
	}
	if base != m.ExpectedBase {
		return codehost.Result{Outcome: codehost.Moved, Moved: codehost.MovedBase}, nil
	}
	return codehost.Result{Outcome: codehost.Done}, nil
}

// checkMergeCommit holds the commit to being a merge of the head onto the base.
func (h *Host) checkMergeCommit(ctx context.Context, _ storedPull, m codehost.MergeRequest) (codehost.Result, error) {
	kind, _, err := m.Objects.TypeOf(ctx, m.Commit)
	if err != nil {
		return codehost.Result{}, fmt.Errorf("find the commit to merge: %w", err)
	}
	if kind != gitcmd.CommitObject {
		return refuse("%s is a %s, not a commit", m.Commit.Short(), kind)
	}
	ok, err := h.brings(ctx, m.Objects, m)
	if err != nil {
		return codehost.Result{}, err
	}
	if !ok {
		return refuse("%s is no merge of %s onto %s", m.Commit.Short(), m.ExpectedHead.Short(), m.ExpectedBase.Short())
	}
	return codehost.Result{Outcome: codehost.Done}, nil
}

// brings reports whether the commit brings the head onto the base: it is the
// head and contains the base, or its parents are the base and the head.
func (h *Host) brings(ctx context.Context, repo *gitcmd.Repo, m codehost.MergeRequest) (bool, error) {
	if m.Commit == m.ExpectedHead {
		return repo.IsAncestor(ctx, m.ExpectedBase, m.Commit)
	}
	c, err := repo.ReadCommit(ctx, m.Commit, 0)
	if err != nil {
		return false, err
	}
	return len(c.Parents) == 2 && c.Parents[0] == m.ExpectedBase && c.Parents[1] == m.ExpectedHead, nil
}

// checkMergeRules holds the merge to what the base's protection asks for.
func (h *Host) checkMergeRules(ctx context.Context, s storedPull, m codehost.MergeRequest) (codehost.Result, error) {
	p, result, err := h.mayWrite()
	if err != nil || !result.OK() {
		return result, err
	}
	rules, err := h.protections()
	if err != nil {
		return codehost.Result{}, err
	}
	rule := rules[s.base]
	statuses, err := h.readStatuses(m.ExpectedHead)
	if err != nil {
		return codehost.Result{}, err
	}
	states := map[string]codehost.StatusState{}
	for _, f := range statuses {
		// A status of someone who may not write is an opinion.
		if p.of(f.By).AtLeast(codehost.PermissionWrite) {
			states[f.Context] = f.State
		}
	}
	for _, name := range rule.RequiredChecks {
		switch state := states[name]; state {
		case codehost.Success:
		case "":
			return refuse("the required check %q has no status on %s", name, m.ExpectedHead.Short())
		default:
			return refuse("the required check %q is %s on %s", name, state, m.ExpectedHead.Short())
		}
	}
	reviews, err := h.reviews(s.number, p)
	if err != nil {
		return codehost.Result{}, err
	}
	approvals := 0
	for _, r := range reviews {
		if r.Verdict == codehost.Approved && r.Head == m.ExpectedHead && r.By.Name != s.Author && r.By.Permission.AtLeast(codehost.PermissionWrite) {
			approvals++
		}
	}
	if approvals < rule.RequiredApprovals {
		return refuse("%d of %d required approvals of %s", approvals, rule.RequiredApprovals, m.ExpectedHead.Short())
	}
	return codehost.Result{Outcome: codehost.Done}, nil
}

// pushGranted pushes the commit to the base under a grant for exactly this
// update. The caller holds the lock, so there is one grant at a time.
func (h *Host) pushGranted(ctx context.Context, base gitcmd.Ref, m codehost.MergeRequest) (result codehost.Result, err error) {
	token := rand.Text()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s\n", token, m.ExpectedBase, m.Commit, base))
	grant := h.path("repo.git", "confine", "grant")
	if err := os.MkdirAll(h.path("repo.git", "confine"), 0o700); err != nil {
		return codehost.Result{}, fmt.Errorf("grant the merge: %w", err)
	}
	if err := save(grant, []byte(hex.EncodeToString(sum[:])+"\n"), 0o600, h.now()); err != nil {
		return codehost.Result{}, err
	}
	defer func() {
		// The hook has taken it if it ran at all.
		if rmErr := os.Remove(grant); err == nil && rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = fmt.Errorf("take back the grant: %w", rmErr)
		}
	}()
	pushed, err := m.Objects.Push(ctx, gitcmd.Push{
		To: gitcmd.Remote{Path: h.repo.Dir()}, Ref: base, New: m.Commit, Old: m.ExpectedBase, HookToken: token,
	})
	if err != nil {
		return codehost.Result{}, err
	}
	switch pushed.Outcome {
	case gitcmd.PushDone, gitcmd.PushAlready:
		return codehost.Result{Outcome: codehost.Done}, nil
	case gitcmd.PushMoved:
		return codehost.Result{Outcome: codehost.Moved, Moved: codehost.MovedBase, Reason: pushed.Reason}, nil
	}
	return codehost.Result{Outcome: codehost.NotAllowed, Reason: pushed.Reason}, nil
}
