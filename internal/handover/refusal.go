package handover

import (
	"fmt"
	"strconv"
	"strings"

	"confine/internal/gitcmd"
	"confine/internal/plaintext"
)

// Rule names one rule of the hand-over.
type Rule string

// The rules.
const (
	RuleBundle     Rule = "bundle"            // not a bundle of one ref on known commits
	RuleObjects    Rule = "objects"           // git's strict check of an object
	RuleBytes      Rule = "bytes"             // more bytes than allowed
	RuleBase       Rule = "base_ancestor"     // the head does not contain the base
	RuleCommits    Rule = "commit_count"      // more new commits than allowed
	RuleFiles      Rule = "file_count"        // more changed files than allowed
	RuleFileBytes  Rule = "file_bytes"        // one file larger than allowed
	RuleMerge      Rule = "merge_commit"      // a commit with several parents
	RuleRoot       Rule = "unrelated_root"    // a commit without a parent
	RuleSymlink    Rule = "symlink"           // a new or changed symbolic link
	RuleSubmodule  Rule = "submodule"         // a new or changed gitlink
	RuleGitFile    Rule = "git_control_file"  // .gitmodules, .gitattributes, .lfsconfig
	RuleName       Rule = "path_name"         // a name that tools misread
	RuleCase       Rule = "case_collision"    // a name that differs by case only
	RulePath       Rule = "protected_path"    // a path of a protected tier
	RuleSecret     Rule = "secret"            // what looks like a credential
	RuleCommitForm Rule = "commit_form"       // a commit that can't be read
	RuleMode       Rule = "file_mode"         // a mode that git does not write
	RuleMore       Rule = "too_many_findings" // the list is cut
)

// Refusal is one finding against the hand-over. It is an error where it stops
// the step at once.
type Refusal struct {
	Rule Rule `json:"rule"`
	// Commit is the commit in which it is; "" for the whole.
	Commit gitcmd.Hash `json:"commit,omitempty"`
	// Path is the path in that commit, untrusted bytes; "" where it has none.
	Path string `json:"path,omitempty"`
	// Field is the config field that governs the rule; "" where none does.
	Field string `json:"field,omitempty"`
	// Detail is for people: quoted, without secrets.
	Detail string `json:"detail,omitempty"`
}

func (r *Refusal) Error() string { return r.String() }

// String is one line of plain text.
func (r *Refusal) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "refused by %s", r.Rule)
	if r.Commit != "" {
		fmt.Fprintf(&b, ", commit %s", r.Commit.Short())
	}
	if r.Path != "" {
		b.WriteString(", path " + ShowPath(r.Path))
	}
	if r.Detail != "" {
		b.WriteString(": " + plaintext.Line(r.Detail, 500))
	}
	if r.Field != "" {
		b.WriteString(" (" + r.Field + ")")
	}
	return b.String()
}

// Hint names the field that would allow it.
func (r *Refusal) Hint() string {
	if r.Field == "" {
		return "no setting allows this"
	}
	return "the field " + r.Field + " governs this rule"
}

// ShowPath quotes a path for people; two different paths never look the same.
func ShowPath(p string) string {
	const limit = 300
	if len(p) > limit {
		return strconv.QuoteToASCII(p[:limit]) + "…"
	}
	return strconv.QuoteToASCII(p)
}

// maxFindings caps each list of a report: a hostile change can break a rule in
// every file.
const maxFindings = 1000

// Report is the outcome of Check. The zero value passed nothing: see Passed.
type Report struct {
	// Base and Head are what was checked.
	Base, Head gitcmd.Hash
	// Commits are the new commits, parents first.
	Commits []gitcmd.Hash
	// Changes are the files that differ between base and head.
	Changes []gitcmd.Change
	// Refusals stop the hand-over, Approvals need a person's yes, Notes are for
	// the record.
	Refusals, Approvals, Notes []Refusal
	complete                   bool
}

// Passed reports whether the check ran to its end and refused nothing. The
// approvals are still to be asked for.
func (r *Report) Passed() bool { return r != nil && r.complete && len(r.Refusals) == 0 }

// RefusedError is a hand-over that may not go on.
type RefusedError struct{ Report *Report }

func (e *RefusedError) Error() string {
	switch n := len(e.Report.Refusals); n {
	case 0:
		return "hand over commits: the check did not run to its end"
	case 1:
		return "hand over commits: " + e.Report.Refusals[0].String()
	default:
		return fmt.Sprintf("hand over commits: %d refusals, the first: %s", n, e.Report.Refusals[0].String())
	}
}

func add(list []Refusal, r Refusal) []Refusal {
	switch {
	case len(list) < maxFindings:
		return append(list, r)
	case len(list) == maxFindings:
		return append(list, Refusal{Rule: RuleMore, Detail: fmt.Sprintf("only the first %d are listed", maxFindings)})
	}
	return list
}
