package merge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Facts is what is known about one change. What a caller did not gather stays
// zero and is unknown, which never merges.
type Facts struct {
	// Gates are the checks of the gate on the tree that would be merged.
	Gates []Check
	// HostChecks are the checks that the base's protection requires, with their
	// state for the head; nil if they were not read, empty if none is required.
	HostChecks []Check
	Change     *Change
	// Approvals are those that are valid for this head (or carried over, when
	// only base was brought in since); nil if they were not read.
	Approvals []Person
	// Engine is the account the engine acts as. Its approval never counts.
	Engine string
	// Labels are those of the pull request; nil if they were not read.
	Labels []string
	// Author is who wrote the issue.
	Author *Person
}

// Check is one check and its state. Name and Reason may be untrusted.
type Check struct {
	Name   string
	Passed bool
	// Reason says why it has not passed: "failed", "pending", "never reported".
	Reason string
}

// LineBytes is how long a line may be to count as one.
const LineBytes = 400

// LinesOf is how many lines a line of this many bytes counts as, so that a
// change can't hide from changed_lines in one long line.
func LinesOf(bytes int) int { return max(1, (bytes+LineBytes-1)/LineBytes) }

// Change is the size of the whole change against base.
type Change struct {
	// Lines is added plus removed lines, each counted by LinesOf.
	Lines int
	// Files counts every path that differs: also renamed, removed, mode changed.
	Files int
	// Opaque counts those of them whose lines can't be counted: binary files,
	// links, submodules.
	Opaque int
}

// Outcome is what a predicate says. The zero value is "unknown", which counts
// as not holding, and so does its opposite.
type Outcome int

// The outcomes.
const (
	Unknown Outcome = iota
	Fails
	Holds
)

var outcomeNames = [...]string{"unknown", "fails", "holds"}

func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return outcomeNames[Unknown]
	}
	return outcomeNames[o]
}

// MarshalText writes the outcome's name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Result is the answer of one predicate. The zero Result does not hold.
type Result struct {
	// Predicate is the predicate as it reads in the config.
	Predicate string
	Outcome   Outcome
	// Reason says why, in one line. It may hold names from the host.
	Reason string
	// Parts are the answers of the rules inside.
	Parts []Result
}

// Holds reports whether the predicate holds.
func (r Result) Holds() bool { return r.Outcome == Holds }

// MarshalJSON adds the one question a reader of the record has.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Predicate string   `json:"predicate"`
		Holds     bool     `json:"holds"`
		Outcome   Outcome  `json:"outcome"`
		Reason    string   `json:"reason,omitempty"`
		Parts     []Result `json:"parts,omitempty"`
	}{r.Predicate, r.Holds(), r.Outcome, r.Reason, r.Parts})
}

// Evaluate answers the rule. A rule that is not valid does not hold.
func (r Rule) Evaluate(facts Facts) Result {
	if err := r.Validate(); err != nil {
		return Result{Predicate: "rule", Outcome: Unknown, Reason: err.Error()}
	}
	return r.evaluate(facts)
}

func (r Rule) evaluate(facts Facts) Result {
	switch {
	case r.All != nil:
		return r.evaluateAll(facts)
	case r.Any != nil:
		return r.evaluateAny(facts)
	case r.Not != nil:
		part := r.Not.evaluate(facts)
		result := Result{Predicate: "not", Parts: []Result{part}}
		switch part.Outcome {
		case Holds:
			result.Outcome = Fails
		case Fails:
			result.Outcome = Holds
		}
		return result
	case r.Gates != "":
		return evaluateChecks("gates: passed", facts.Gates, "no check ran")
	case r.HostChecks != "":
		if facts.HostChecks != nil && len(facts.HostChecks) == 0 {
			return Result{Predicate: "host_checks: required", Outcome: Holds, Reason: "the host requires none"}
		}
		return evaluateChecks("host_checks: required", facts.HostChecks, "not read from the host")
	case r.ChangedLines != nil:
		return r.ChangedLines.evaluateLines(facts.Change)
	case r.ChangedFiles != nil:
		return r.ChangedFiles.evaluateFiles(facts.Change)
	case r.Approvals != nil:
		return r.Approvals.evaluate(facts)
	case r.Labels != nil:
		return r.Labels.evaluate(facts.Labels)
	}
	return r.Author.evaluate(facts.Author)
}

// evaluateAll fails if a part fails, holds if all hold, else is unknown.
func (r Rule) evaluateAll(facts Facts) Result {
	result := Result{Predicate: "all", Outcome: Holds}
	for _, rule := range r.All {
		part := rule.evaluate(facts)
		result.Parts = append(result.Parts, part)
		if part.Outcome == Fails || result.Outcome == Holds {
			result.Outcome = part.Outcome
		}
	}
	return result
}

// evaluateAny holds if a part holds, fails if all fail, else is unknown.
func (r Rule) evaluateAny(facts Facts) Result {
	result := Result{Predicate: "any", Outcome: Fails}
	for _, rule := range r.Any {
		part := rule.evaluate(facts)
		result.Parts = append(result.Parts, part)
		if part.Outcome == Holds || result.Outcome == Fails {
			result.Outcome = part.Outcome
		}
	}
	return result
}

func evaluateChecks(predicate string, checks []Check, none string) Result {
	result := Result{Predicate: predicate}
	if len(checks) == 0 {
		result.Reason = none
		return result
	}
	var not, passed []string
	for _, check := range checks {
		if check.Passed {
			passed = append(passed, check.Name)
			continue
		}
		reason := check.Reason
		if reason == "" {
			reason = "not passed"
		}
		not = append(not, fmt.Sprintf("%s: %s", check.Name, reason))
	}
	if len(not) > 0 {
		result.Outcome, result.Reason = Fails, strings.Join(not, ", ")
		return result
	}
	result.Outcome, result.Reason = Holds, strings.Join(passed, ", ")
	return result
}

func (b Bound) evaluateLines(change *Change) Result {
	result := Result{Predicate: fmt.Sprintf("changed_lines: {max: %d}", b.Max)}
	switch {
	case change == nil:
		result.Reason = "not counted"
	case change.Lines > b.Max:
		result.Outcome, result.Reason = Fails, fmt.Sprintf("%d lines", change.Lines)
	case change.Opaque > 0:
		// A binary file has no lines and may hold anything.
		result.Outcome = Fails
		result.Reason = fmt.Sprintf("%d lines, and %d files that have no lines to count", change.Lines, change.Opaque)
	default:
		result.Outcome, result.Reason = Holds, fmt.Sprintf("%d lines", change.Lines)
	}
	return result
}

func (b Bound) evaluateFiles(change *Change) Result {
	result := Result{Predicate: fmt.Sprintf("changed_files: {max: %d}", b.Max)}
	if change == nil {
		result.Reason = "not counted"
		return result
	}
	result.Outcome, result.Reason = Holds, fmt.Sprintf("%d files", change.Files)
	if change.Files > b.Max {
		result.Outcome = Fails
	}
	return result
}

func (a Approvals) evaluate(facts Facts) Result {
	result := Result{Predicate: fmt.Sprintf("approvals: {min: %d, by: %s}", a.Min, a.By)}
	if facts.Approvals == nil {
		result.Reason = "not read from the host"
		return result
	}
	counted := map[string]bool{}
	var names []string
	for _, person := range facts.Approvals {
		key := strings.ToLower(person.Name)
		if !a.By.Include(person) || counted[key] || strings.EqualFold(person.Name, facts.Engine) {
			continue
		}
		counted[key] = true
		names = append(names, person.Name)
	}
	result.Outcome = Fails
	if len(names) >= a.Min {
		result.Outcome = Holds
	}
	result.Reason = fmt.Sprintf("%d of %d", len(names), a.Min)
	if len(names) > 0 {
		result.Reason += ": " + strings.Join(names, ", ")
	}
	return result
}

func (l Labels) evaluate(labels []string) Result {
	var says []string
	if len(l.Has) > 0 {
		says = append(says, fmt.Sprintf("has: [%s]", strings.Join(l.Has, ", ")))
	}
	if len(l.Lacks) > 0 {
		says = append(says, fmt.Sprintf("lacks: [%s]", strings.Join(l.Lacks, ", ")))
	}
	result := Result{Predicate: "labels: {" + strings.Join(says, ", ") + "}"}
	if labels == nil {
		result.Reason = "not read from the host"
		return result
	}
	result.Outcome = Fails
	for _, label := range l.Has {
		if !slices.Contains(labels, label) {
			result.Reason = fmt.Sprintf("%q is not there", label)
			return result
		}
	}
	for _, label := range l.Lacks {
		// Some hosts keep one label in several cases: any of them stops.
		at := slices.IndexFunc(labels, func(have string) bool { return strings.EqualFold(have, label) })
		if at >= 0 {
			result.Reason = fmt.Sprintf("%q is there", labels[at])
			return result
		}
	}
	result.Outcome = Holds
	return result
}

func (a Author) evaluate(author *Person) Result {
	result := Result{Predicate: fmt.Sprintf("author: {by: %s}", a.By)}
	if author == nil {
		result.Reason = "not read from the host"
		return result
	}
	result.Outcome = Fails
	if a.By.Include(*author) {
		result.Outcome = Holds
	}
	permission := author.Permission
	if permission == None {
		permission = "none"
	}
	result.Reason = fmt.Sprintf("%s (permission %s)", author.Name, permission)
	return result
}

// marks are what stands before a line of Text.
var marks = [...]string{Unknown: "?", Fails: "✗", Holds: "✓"}

// maxShown caps one line of Text.
const maxShown = 300

// Text renders the answer for a person: one line for each predicate, indented,
// with ✓, ✗ or ? before it. Names from the host are cleaned.
func (r Result) Text() string {
	var out strings.Builder
	r.text(&out, 0)
	return out.String()
}

func (r Result) text(out *strings.Builder, depth int) {
	mark := marks[Unknown]
	if r.Outcome == Fails || r.Outcome == Holds {
		mark = marks[r.Outcome]
	}
	line := r.Predicate
	if line == "" {
		line = "no rule"
	}
	if r.Reason != "" {
		line += " (" + r.Reason + ")"
	}
	fmt.Fprintf(out, "%s%s %s\n", strings.Repeat("  ", depth), mark, printable(line))
	for _, part := range r.Parts {
		part.text(out, depth+1)
	}
}

// printable is one capped line without anything that is not seen: this package
// knows no other of its layer, and plaintext is one.
func printable(s string) string {
	kept := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, "\ufffd"))
	if runes := []rune(kept); len(runes) > maxShown {
		return string(runes[:maxShown-1]) + "…"
	}
	return kept
}
