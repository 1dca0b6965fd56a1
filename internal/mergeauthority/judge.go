//go:build unix

package mergeauthority

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"confine/internal/codehost"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/merge"
)

// judge returns every reason against the merge, and keeps the rule's answer.
func (t *try) judge(ctx context.Context) ([]Reason, error) {
	protection, err := t.Host.Protection(ctx, t.base)
	if err != nil {
		return nil, err
	}
	reasons := judgeProtection(protection, t.req.Verdict)
	more, err := t.judgeVerdict(ctx)
	if err != nil {
		return nil, err
	}
	reasons = append(reasons, more...)
	reasons = append(reasons, judgeReviews(t.pull.Reviews)...)
	if len(more) > 0 {
		// The facts would be about objects that are not what they should be.
		return reasons, nil
	}
	facts, err := t.facts(ctx, protection)
	if err != nil {
		return nil, err
	}
	t.rule = t.Rule.Evaluate(facts)
	if !t.rule.Holds() {
		reasons = append(reasons, Reason{"merge rule", "merge.rule", strings.TrimSpace(t.rule.Text())})
	}
	return reasons, nil
}

// judgeProtection holds the base to being protected in a way that is known.
func judgeProtection(p codehost.Protection, v gate.Verdict) []Reason {
	var reasons []Reason
	add := func(format string, args ...any) {
		reasons = append(reasons, Reason{"branch protection", "merge.mode", fmt.Sprintf(format, args...)})
	}
	for _, what := range p.Unknown {
		add("not known to hold: %.300q", what)
	}
	if !p.Exists {
		add("the base takes direct pushes: protect it at the code host, or merge by hand (mode: person)")
		return reasons
	}
	switch p.BaseCheck {
	case codehost.BaseLease:
	case codehost.BaseUpToDate:
		if v.Commit != v.Head {
			add("the host lands the head, but the gate tested a merge of it: bring the base into the head first")
		}
	default:
		add("the host does not check on a merge that the base is still the one that was tested (%.40q)", string(p.BaseCheck))
	}
	return reasons
}

// judgeVerdict holds the verdict to being about exactly this merge, by the
// objects and not by its word.
func (t *try) judgeVerdict(ctx context.Context) ([]Reason, error) {
	v := t.req.Verdict
	bad := func(field, detail string) []Reason { return []Reason{{"gate", field, detail}} }
	if why := v.Why(); why != "" {
		return bad("gate", why), nil
	}
	about := gate.About{Candidate: v.Candidate, ConfigDigest: t.req.ConfigDigest, ViewDigest: t.req.ViewDigest}
	about.Head, about.Base = t.pull.HeadCommit, t.pull.BaseCommit
	if why := v.Covers(about); why != "" {
		return bad("gate", why), nil
	}
	if err := v.Candidate.Verify(ctx, t.Repo); err != nil {
		var broken *gitcmd.Error
		if errors.As(err, &broken) {
			return nil, err
		}
		return bad("", err.Error()), nil
	}
	merged, err := t.Repo.MergeTree(ctx, v.Base, v.Head)
	if err != nil {
		return nil, err
	}
	if !merged.Clean() || merged.Tree != v.Tree {
		return bad("", "the tested tree is not what git makes of the base and the head"), nil
	}
	return nil, nil
}

// judgeReviews lets nobody be overruled who may write and asked for changes. It
// holds until the same person says otherwise, whatever was pushed since.
func judgeReviews(reviews []codehost.Review) []Reason {
	var reasons []Reason
	for _, r := range reviews {
		if r.Verdict == codehost.ChangesRequested && r.By.Permission.AtLeast(codehost.PermissionWrite) {
			reasons = append(reasons, Reason{"review", "", fmt.Sprintf("%.100q asks for changes", r.By.Name)})
		}
	}
	return reasons
}

// facts gathers what the rule may ask about.
func (t *try) facts(ctx context.Context, p codehost.Protection) (merge.Facts, error) {
	about, err := t.Host.Repository(ctx)
	if err != nil {
		return merge.Facts{}, err
	}
	f := merge.Facts{Engine: about.Account.Name, Labels: []string{}}
	for _, c := range t.req.Verdict.Checks {
		f.Gates = append(f.Gates, merge.Check{Name: c.Name, Passed: c.Passed, Reason: c.Reason})
	}
	for _, l := range t.pull.Labels {
		f.Labels = append(f.Labels, l.Name)
	}
	if f.HostChecks, err = t.hostChecks(ctx, p); err != nil {
		return merge.Facts{}, err
	}
	if f.Approvals, err = t.approvals(ctx); err != nil {
		return merge.Facts{}, err
	}
	if asksForChange(t.Rule) {
		change, err := measure(ctx, t.Repo, t.req.Verdict.Base, t.req.Verdict.Tree)
		if err != nil {
			return merge.Facts{}, err
		}
		f.Change = &change
	}
	if t.pull.Closes > 0 {
		issue, err := t.Host.Issue(ctx, t.pull.Closes)
		if err != nil {
			return merge.Facts{}, err
		}
		author := person(issue.Author)
		f.Author = &author
	}
	return f, nil
}

// hostChecks reads the state of each required check on the head. The status of
// an account that may not write is an opinion.
func (t *try) hostChecks(ctx context.Context, p codehost.Protection) ([]merge.Check, error) {
	statuses, err := t.Host.Statuses(ctx, t.pull.HeadCommit)
	if err != nil {
		return nil, err
	}
	states := map[string]codehost.StatusState{}
	for _, s := range statuses {
		if s.Commit == t.pull.HeadCommit && s.By.Permission.AtLeast(codehost.PermissionWrite) {
			states[s.Context] = s.State
		}
	}
	checks := []merge.Check{}
	for _, name := range p.RequiredChecks {
		c := merge.Check{Name: name, Passed: states[name] == codehost.Success, Reason: string(states[name])}
		if c.Reason == "" {
			c.Reason = "never reported"
		}
		checks = append(checks, c)
	}
	return checks, nil
}

// approvals lists who approves of the head. An approval of an earlier head
// counts if only base was brought in since.
func (t *try) approvals(ctx context.Context) ([]merge.Person, error) {
	people := []merge.Person{}
	for _, r := range t.pull.Reviews {
		if r.Verdict != codehost.Approved {
			continue
		}
		same := r.Head == t.pull.HeadCommit
		if !same {
			var err error
			if same, err = t.sameChange(ctx, r.Head, t.pull.HeadCommit); err != nil {
				return nil, err
			}
		}
		if same {
			people = append(people, person(r.By))
		}
	}
	return people, nil
}

// sameChange reports whether a later head changes against its base exactly what
// an earlier one did: the same paths from the same content to the same content.
func (t *try) sameChange(ctx context.Context, earlier, later gitcmd.Hash) (bool, error) {
	if _, _, err := t.Repo.TypeOf(ctx, earlier); err != nil {
		var gone *gitcmd.NotFoundError
		if errors.As(err, &gone) {
			return false, nil // a head that was forced away
		}
		return false, err
	}
	in, err := t.Repo.IsAncestor(ctx, earlier, later)
	if err != nil || !in {
		return false, err
	}
	var changes [2][]gitcmd.Change
	for i, head := range []gitcmd.Hash{earlier, later} {
		from, err := t.Repo.MergeBase(ctx, t.pull.BaseCommit, head)
		if err != nil || from == "" {
			return false, err
		}
		if changes[i], err = t.Repo.DiffTree(ctx, from, head); err != nil {
			return false, err
		}
	}
	if len(changes[0]) != len(changes[1]) {
		return false, nil
	}
	for i := range changes[0] {
		if changes[0][i] != changes[1][i] {
			return false, nil
		}
	}
	return true, nil
}

func person(a codehost.Account) merge.Person {
	p := merge.Person{Name: a.Name}
	switch a.Permission {
	case codehost.PermissionRead:
		p.Permission = merge.Read
	case codehost.PermissionWrite:
		p.Permission = merge.Write
	case codehost.PermissionAdmin:
		p.Permission = merge.Admin
	}
	return p
}

// asksForChange reports whether the rule needs the size of the change, which
// takes reading every changed file.
func asksForChange(r merge.Rule) bool {
	if r.ChangedLines != nil || r.ChangedFiles != nil || (r.Not != nil && asksForChange(*r.Not)) {
		return true
	}
	for _, part := range append(append([]merge.Rule{}, r.All...), r.Any...) {
		if asksForChange(part) {
			return true
		}
	}
	return false
}
