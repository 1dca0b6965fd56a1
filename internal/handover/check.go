package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"confine/internal/gitcmd"
)

// Rules are the limits and permissions of a hand-over. Zero limits mean the
// default beside each; the zero value allows nothing that is off by default.
type Rules struct {
	Protection Protection
	// MaxCommits (default 200), MaxFiles (changed files, all commits together;
	// 5000), MaxFileBytes (one file; 10 MiB), MaxBytes (new content, all files
	// together; 256 MiB).
	MaxCommits, MaxFiles   int
	MaxFileBytes, MaxBytes int64
	// AllowMerges, AllowSymlinks, AllowSubmodules and AllowGitFiles lower the
	// rule from a refusal to an approval.
	AllowMerges, AllowSymlinks, AllowSubmodules, AllowGitFiles bool
	// KnownSecrets are the tenant's own credentials: any larger part of one, in
	// common encodings, is refused.
	KnownSecrets []string
}

func (r Rules) withDefaults() Rules {
	r.MaxCommits = orDefault(r.MaxCommits, 200)
	r.MaxFiles = orDefault(r.MaxFiles, 5000)
	r.MaxFileBytes = orDefault(r.MaxFileBytes, 10<<20)
	r.MaxBytes = orDefault(r.MaxBytes, 256<<20)
	if len(r.Protection.levels) == 0 {
		// The built-in patterns are well formed: a test parses them.
		r.Protection, _ = NewProtection(ProtectOptions{})
	}
	return r
}

// CheckOptions say what is checked.
type CheckOptions struct {
	Received Received
	// Known are commits that the code host has already, besides the base: their
	// history is not new.
	Known []gitcmd.Hash
	Rules Rules
}

// Check applies every rule to every new commit and to the difference between
// base and head, by plumbing alone. What it finds is in the report; an error is
// a fault, and then nothing passed.
func Check(ctx context.Context, o CheckOptions) (*Report, error) {
	c := &checker{
		ctx: ctx, repo: o.Received.Repo, rules: o.Rules.withDefaults(),
		report: &Report{Base: o.Received.Base, Head: o.Received.Head},
		blobs:  map[gitcmd.Hash]source{}, seen: map[finding]bool{},
	}
	if c.repo == nil {
		return c.report, errors.New("check commits: nothing was received")
	}
	if err := c.run(o.Known); err != nil {
		return c.report, fmt.Errorf("check commits: %w", err)
	}
	c.report.complete = true
	return c.report, nil
}

// source is where new content was seen first.
type source struct {
	commit gitcmd.Hash
	path   string
	old    gitcmd.Hash // what was at the path before
}

// finding tells findings apart, so that a path is listed once per rule.
type finding struct {
	rule   Rule
	path   string
	detail string
}

type checker struct {
	ctx    context.Context
	repo   *gitcmd.Repo
	rules  Rules
	report *Report
	// steps are all changes, commit by commit, and of the whole.
	steps []step
	blobs map[gitcmd.Hash]source
	order []gitcmd.Hash // of blobs
	seen  map[finding]bool
	names *spellings
	// inNames are the secrets that paths hold.
	inNames []string
}

// step is what one commit changes against one of its parents, or what the head
// changes against the base (commit "").
type step struct {
	commit, tree gitcmd.Hash
	changes      []gitcmd.Change
}

func (c *checker) run(known []gitcmd.Hash) error {
	ok, err := c.checkHistory(known)
	if err != nil || !ok {
		return err
	}
	commits, err := c.readCommits()
	if err != nil {
		return err
	}
	if ok, err := c.collect(commits); err != nil || !ok {
		return err
	}
	if err := c.loadNames(); err != nil {
		return err
	}
	for _, s := range c.steps {
		for _, change := range s.changes {
			c.checkChange(s, change)
		}
		if err := c.checkCase(s); err != nil {
			return err
		}
	}
	err = c.checkContent(commits)
	c.maskNames()
	return err
}

// checkHistory holds the head to the base and counts the new commits. Without
// that there is nothing further to say: ok is false.
func (c *checker) checkHistory(known []gitcmd.Hash) (ok bool, err error) {
	r := c.report
	ancestor, err := c.repo.IsAncestor(c.ctx, r.Base, r.Head)
	if err != nil {
		return false, err
	}
	if !ancestor {
		c.refuse(Refusal{Rule: RuleBase, Commit: r.Head, Detail: fmt.Sprintf("the head does not contain the base %s: history below the base was rewritten or left out", r.Base.Short())})
		return false, nil
	}
	r.Commits, err = c.repo.RevList(c.ctx, gitcmd.RevListOptions{
		Include: []gitcmd.Hash{r.Head}, Exclude: append([]gitcmd.Hash{r.Base}, known...), Max: c.rules.MaxCommits})
	if errors.Is(err, gitcmd.ErrTooLarge) {
		c.refuse(Refusal{Rule: RuleCommits, Field: "handover.max_commits", Detail: fmt.Sprintf("more than %d new commits", c.rules.MaxCommits)})
		return false, nil
	}
	return err == nil, err
}

// maxCommitBytes caps one commit object.
const maxCommitBytes = 256 << 10

func (c *checker) readCommits() ([]gitcmd.Commit, error) {
	var commits []gitcmd.Commit
	for _, h := range c.report.Commits {
		commit, err := c.repo.ReadCommit(c.ctx, h, maxCommitBytes)
		switch {
		case errors.Is(err, gitcmd.ErrTooLarge):
			c.refuse(Refusal{Rule: RuleCommitForm, Commit: h, Detail: fmt.Sprintf("its message or headers are larger than %d bytes", maxCommitBytes)})
			continue
		case err != nil:
			return nil, err
		}
		switch {
		case len(commit.Parents) == 0:
			c.refuse(Refusal{Rule: RuleRoot, Commit: h, Detail: "it has no parent: its history has nothing to do with the base"})
		case len(commit.Parents) > 1:
			c.permit(c.rules.AllowMerges, Refusal{Rule: RuleMerge, Commit: h, Field: "handover.allow", Detail: fmt.Sprintf("it has %d parents", len(commit.Parents))})
		}
		commits = append(commits, commit)
	}
	return commits, nil
}

// collect lists all changes: of each commit against each parent, and of the head
// against the base. A merge that adds a file of its own changes it against every
// parent; a change that a later commit takes back is in its own commit.
func (c *checker) collect(commits []gitcmd.Commit) (ok bool, err error) {
	r := c.report
	var pairs []gitcmd.TreePair
	for _, commit := range commits {
		parents := commit.Parents
		if len(parents) == 0 {
			parents = []gitcmd.Hash{""}
		}
		for _, p := range parents {
			pairs = append(pairs, gitcmd.TreePair{From: p, To: commit.Hash})
			c.steps = append(c.steps, step{commit: commit.Hash, tree: commit.Tree})
		}
	}
	// Last, so that findings name the commit where there is one.
	pairs = append(pairs, gitcmd.TreePair{From: r.Base, To: r.Head})
	c.steps = append(c.steps, step{tree: r.Head})
	tooMany := Refusal{Rule: RuleFiles, Field: "handover.max_files", Detail: fmt.Sprintf("more than %d changed files, or deeper directories than %d", c.rules.MaxFiles, maxDepth)}
	lists, err := c.repo.DiffTrees(c.ctx, pairs, gitcmd.DiffOptions{MaxChanges: changesPerFile * c.rules.MaxFiles, MaxDepth: maxDepth})
	if errors.Is(err, gitcmd.ErrTooLarge) {
		c.refuse(tooMany)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range c.steps {
		c.steps[i].changes = lists[i]
	}
	r.Changes = lists[len(lists)-1]
	if len(c.changedPaths()) > c.rules.MaxFiles {
		c.refuse(tooMany)
		return false, nil
	}
	return true, nil
}

// changesPerFile is how often one file may change on average, all commits and
// the whole counted.
const changesPerFile = 20

// checkChange applies the rules that need no content.
func (c *checker) checkChange(s step, ch gitcmd.Change) {
	at := func(rule Rule, field, detail string) Refusal {
		return Refusal{Rule: rule, Commit: s.commit, Path: ch.Path, Field: field, Detail: detail}
	}
	if ch.NewHash != "" {
		if why := oddName(ch.Path); why != "" {
			c.refuse(at(RuleName, "", why))
		}
	}
	switch ch.NewMode {
	case gitcmd.ModeSymlink:
		c.permit(c.rules.AllowSymlinks, at(RuleSymlink, "handover.allow", "a new or changed symbolic link"))
	case gitcmd.ModeGitlink:
		c.permit(c.rules.AllowSubmodules, at(RuleSubmodule, "handover.allow", "a new or changed submodule"))
	case gitcmd.ModeFile, gitcmd.ModeExec, 0:
	default:
		c.refuse(at(RuleMode, "", "mode "+ch.NewMode.String()))
	}
	if ch.OldMode == gitcmd.ModeGitlink && ch.NewMode != gitcmd.ModeGitlink {
		c.permit(c.rules.AllowSubmodules, at(RuleSubmodule, "handover.allow", "a submodule is removed or replaced"))
	}
	if isGitFile(ch.Path) {
		c.permit(c.rules.AllowGitFiles, at(RuleGitFile, "handover.allow", "it steers git in every clone"))
	}
	v := c.rules.Protection.Decide(ch.Path)
	protected := at(RulePath, v.Field, fmt.Sprintf("protected by the pattern %q", v.Pattern))
	switch v.Tier {
	case TierRefuse:
		c.refuse(protected)
	case TierApproval:
		c.approve(protected)
	case TierNote:
		c.note(protected)
	}
	if ch.NewHash != "" && (ch.NewMode == gitcmd.ModeFile || ch.NewMode == gitcmd.ModeExec || ch.NewMode == gitcmd.ModeSymlink) && ch.NewHash != ch.OldHash {
		if _, ok := c.blobs[ch.NewHash]; !ok {
			c.blobs[ch.NewHash] = source{s.commit, ch.Path, ch.OldHash}
			c.order = append(c.order, ch.NewHash)
		}
	}
}

// permit refuses, or where the config allows the thing asks for an approval.
func (c *checker) permit(allowed bool, r Refusal) {
	if allowed {
		c.approve(r)
		return
	}
	c.refuse(r)
}

func (c *checker) refuse(r Refusal)  { c.find(&c.report.Refusals, r) }
func (c *checker) approve(r Refusal) { c.find(&c.report.Approvals, r) }
func (c *checker) note(r Refusal)    { c.find(&c.report.Notes, r) }

// find adds a finding unless the same rule has named the path already.
func (c *checker) find(list *[]Refusal, r Refusal) {
	key := finding{r.Rule, r.Path, r.Detail}
	if r.Path == "" {
		key.path = string(r.Commit)
	}
	if !c.seen[key] {
		c.seen[key] = true
		*list = add(*list, r)
	}
}

// changedPaths is a sorted list without repetition of the paths of all steps.
func (c *checker) changedPaths() []string {
	var all []string
	for _, s := range c.steps {
		for _, ch := range s.changes {
			all = append(all, ch.Path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
