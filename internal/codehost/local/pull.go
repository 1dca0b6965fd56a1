//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

// pullMatter is the front matter of a pull request.
type pullMatter struct {
	Title   string         `yaml:"title"`
	Author  string         `yaml:"author"`
	State   codehost.State `yaml:"state"`
	Head    string         `yaml:"head"`
	Base    string         `yaml:"base"`
	Key     string         `yaml:"key"`
	Closes  int            `yaml:"closes"`
	Created string         `yaml:"created"`
	// Of a merged one: what was merged, onto what, and as what it landed.
	MergedHead string `yaml:"merged_head"`
	MergedBase string `yaml:"merged_base"`
	Landed     string `yaml:"landed"`
	MergedBy   string `yaml:"merged_by"`
	MergedAt   string `yaml:"merged_at"`
}

// storedPull is a pull request as its file says.
type storedPull struct {
	pullMatter
	number     int
	body       string
	head, base gitcmd.Ref
	created    time.Time
	changed    time.Time
}

func (h *Host) readPull(number int) (storedPull, error) {
	path := h.path("pulls", numbered(number, ".md"))
	s := storedPull{number: number}
	var err error
	s.body, s.changed, err = readMarkdown(path, &s.pullMatter)
	if errors.Is(err, fs.ErrNotExist) {
		return storedPull{}, &codehost.NotFoundError{Kind: "pull request", Name: strconv.Itoa(number)}
	}
	if err != nil {
		return storedPull{}, err
	}
	if err := s.check(); err != nil {
		return storedPull{}, &FileError{path, err}
	}
	return s, nil
}

func (s *storedPull) check() error {
	var err error
	if s.head, err = gitcmd.Branch(s.Head); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if s.base, err = gitcmd.Branch(s.Base); err != nil {
		return fmt.Errorf("base: %w", err)
	}
	if s.created, err = parseStamp("created", s.Created, s.changed.UTC()); err != nil {
		return err
	}
	switch s.State {
	case codehost.Open, codehost.Closed:
		if s.Landed != "" || s.MergedHead != "" || s.MergedBase != "" {
			return fmt.Errorf("state: it is %s and says how it was merged", s.State)
		}
		return nil
	case codehost.Merged:
		for field, text := range map[string]string{"merged_head": s.MergedHead, "merged_base": s.MergedBase, "landed": s.Landed} {
			if _, err := gitcmd.ParseHash(text); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
		}
		return nil
	}
	return fmt.Errorf("state: %.40q is none of open, closed, merged", string(s.State))
}

func (s storedPull) encode() []byte {
	m := newFrontMatter()
	m.text("title", s.Title)
	m.text("author", s.Author)
	m.text("state", string(s.State))
	m.text("head", s.Head)
	m.text("base", s.Base)
	m.text("key", s.Key)
	m.number("closes", s.Closes)
	m.time("created", s.created)
	m.text("merged_head", s.MergedHead)
	m.text("merged_base", s.MergedBase)
	m.text("landed", s.Landed)
	m.text("merged_by", s.MergedBy)
	m.text("merged_at", s.MergedAt)
	return m.with(s.body)
}

// pulls reads all pull requests, in order.
func (h *Host) pulls() ([]storedPull, error) {
	ns, err := numbers(h.path("pulls"), ".md")
	if err != nil {
		return nil, err
	}
	var all []storedPull
	for _, n := range ns {
		s, err := h.readPull(n)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// closedByMerge reports whether a merged pull request closes the issue. The
// issue's own file is a person's and stays as it is.
func (h *Host) closedByMerge(issue int) (bool, error) {
	all, err := h.pulls()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(s storedPull) bool { return s.State == codehost.Merged && s.Closes == issue }), nil
}

// Pull reads a pull request as it is now.
func (h *Host) Pull(ctx context.Context, number int) (codehost.Pull, error) {
	s, err := h.readPull(number)
	if err != nil {
		return codehost.Pull{}, err
	}
	return h.pull(ctx, s)
}

func (h *Host) pull(ctx context.Context, s storedPull) (codehost.Pull, error) {
	p, err := h.people()
	if err != nil {
		return codehost.Pull{}, err
	}
	pull := codehost.Pull{
		Number: s.number, Title: s.Title, State: s.State, Head: s.head, Base: s.base, Closes: s.Closes,
		Text: codehost.Text{Author: p.account(s.Author), Body: s.body, CreatedAt: s.created, ChangedAt: s.changed.UTC()},
	}
	if s.State == codehost.Merged {
		pull.HeadCommit, pull.Landed = gitcmd.Hash(s.MergedHead), gitcmd.Hash(s.Landed)
		pull.MergedBy = p.account(s.MergedBy)
	} else if pull.HeadCommit, err = h.branch(ctx, s.head); err != nil {
		return codehost.Pull{}, err
	}
	if pull.BaseCommit, err = h.branch(ctx, s.base); err != nil {
		return codehost.Pull{}, err
	}
	pull.Reviews, err = h.reviews(s.number, p)
	return pull, err
}

// OpenPull finds or opens the pull request of a head branch.
func (h *Host) OpenPull(ctx context.Context, n codehost.NewPull) (codehost.Pull, codehost.Result, error) {
	fault := func(err error) (codehost.Pull, codehost.Result, error) {
		return codehost.Pull{}, codehost.Result{}, err
	}
	if err := n.Validate(); err != nil {
		return fault(err)
	}
	release, err := h.lock(ctx)
	if err != nil {
		return fault(err)
	}
	defer release()
	if _, result, err := h.mayWrite(); err != nil || !result.OK() {
		return codehost.Pull{}, result, err
	}
	all, err := h.pulls()
	if err != nil {
		return fault(err)
	}
	if found, ok := findPull(all, n); ok {
		return h.foundPull(ctx, found, n)
	}
	if result, err := h.checkNewPull(ctx, n); err != nil || !result.OK() {
		return codehost.Pull{}, result, err
	}
	now := h.now()
	s := storedPull{body: n.Body, created: now, pullMatter: pullMatter{
		Title: n.Title, Author: h.account, State: codehost.Open,
		Head: n.Head.BranchName(), Base: n.Base.BranchName(), Key: n.Key, Closes: n.Closes,
	}}
	number, err := addNumbered(h.path("pulls"), ".md", now, func(int) []byte { return s.encode() })
	if err != nil {
		return fault(err)
	}
	pull, err := h.Pull(ctx, number)
	return pull, codehost.Result{Outcome: codehost.Done}, err
}

// findPull prefers the one with the key, in whatever state, to another open one
// between the same branches.
func findPull(all []storedPull, n codehost.NewPull) (storedPull, bool) {
	if i := slices.IndexFunc(all, func(s storedPull) bool { return s.Key == n.Key }); i >= 0 {
		return all[i], true
	}
	i := slices.IndexFunc(all, func(s storedPull) bool {
		return s.State == codehost.Open && s.head == n.Head && s.base == n.Base
	})
	if i < 0 {
		return storedPull{}, false
	}
	return all[i], true
}

func (h *Host) foundPull(ctx context.Context, s storedPull, n codehost.NewPull) (codehost.Pull, codehost.Result, error) {
	pull, err := h.pull(ctx, s)
	if err != nil {
		return codehost.Pull{}, codehost.Result{}, err
	}
	result := codehost.Result{Outcome: codehost.Already}
	switch {
	case s.head != n.Head || s.base != n.Base:
		result = codehost.Result{Outcome: codehost.NotAllowed, Reason: "the key is that of a pull request between other branches"}
	case s.State == codehost.Open && pull.HeadCommit != n.ExpectedHead:
		result = codehost.Result{Outcome: codehost.Moved, Moved: codehost.MovedHead}
	}
	return pull, result, nil
}

// checkNewPull reports whether the pull request may be opened.
func (h *Host) checkNewPull(ctx context.Context, n codehost.NewPull) (codehost.Result, error) {
	head, err := h.branch(ctx, n.Head)
	if err != nil {
		return codehost.Result{}, err
	}
	base, err := h.branch(ctx, n.Base)
	if err != nil {
		return codehost.Result{}, err
	}
	if base == "" {
		return codehost.Result{}, &codehost.NotFoundError{Kind: "branch", Name: string(n.Base)}
	}
	if head != n.ExpectedHead {
		return codehost.Result{Outcome: codehost.Moved, Moved: codehost.MovedHead}, nil
	}
	merged, err := h.repo.IsAncestor(ctx, head, base)
	if err != nil {
		return codehost.Result{}, err
	}
	if merged {
		return codehost.Result{Outcome: codehost.NotAllowed, Reason: "the base holds the head already: there is nothing to merge"}, nil
	}
	if n.Closes > 0 {
		if err := h.checkThread(codehost.Thread{Issue: n.Closes}); err != nil {
			return codehost.Result{}, err
		}
	}
	return codehost.Result{Outcome: codehost.Done}, nil
}

// ClosePull closes an open pull request without a merge, as a person would.
func (h *Host) ClosePull(ctx context.Context, number int) error {
	release, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	s, err := h.readPull(number)
	if err != nil {
		return err
	}
	if s.State == codehost.Merged {
		return &codehost.InvalidError{Field: "pull request", Why: "it is merged"}
	}
	s.State = codehost.Closed
	return save(h.path("pulls", numbered(number, ".md")), s.encode(), 0o600, h.now())
}
