// Package merge is the merge rule: a tree of predicates over facts, and the
// answer as a tree of the same shape with a reason at every node.
//
// It promises that what is not known never merges: the zero Rule, a predicate
// whose facts were not gathered, and the opposite of such a predicate all do
// not hold. An answer depends on the rule and the facts alone, so a decision
// can be explained, recorded and made again.
//
// It does not gather facts and does not judge whether they are true or belong
// to the commit that is merged: the merge authority reads them from the host
// and binds them. Package tenant parses rules from configs; the merge authority
// evaluates them; the doors render results.
package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// MaxDepth and MaxPredicates bound a rule, so that its answer can be read.
const (
	MaxDepth      = 8
	MaxPredicates = 64
)

// Rule is one predicate. Exactly one field is set; the JSON form is that of the
// config. The zero Rule never holds.
type Rule struct {
	// All holds if every part holds; Any if at least one does. Both are never
	// empty.
	All []Rule `json:"all,omitempty"`
	Any []Rule `json:"any,omitempty"`
	// Not holds if its part is known not to hold.
	Not *Rule `json:"not,omitempty"`
	// Gates: "passed" is the only word: every check of the gate passed, and
	// there was one.
	Gates string `json:"gates,omitempty"`
	// HostChecks: "required" is the only word: every check that the host's
	// branch protection requires passed.
	HostChecks   string     `json:"host_checks,omitempty"`
	ChangedLines *Bound     `json:"changed_lines,omitempty"`
	ChangedFiles *Bound     `json:"changed_files,omitempty"`
	Approvals    *Approvals `json:"approvals,omitempty"`
	Labels       *Labels    `json:"labels,omitempty"`
	Author       *Author    `json:"author,omitempty"`
}

// The only words of gates and host_checks.
const (
	Passed   = "passed"
	Required = "required"
)

// Bound is an upper limit, itself allowed.
type Bound struct {
	Max int `json:"max"`
}

// Approvals asks for a number of different people.
type Approvals struct {
	Min int    `json:"min"`
	By  People `json:"by"`
}

// Labels asks for labels of the pull request. At least one list is not empty.
type Labels struct {
	Has   []string `json:"has,omitempty"`
	Lacks []string `json:"lacks,omitempty"`
}

// Author asks who wrote the issue.
type Author struct {
	By People `json:"by"`
}

// People is who counts: everybody with a permission, or those named. Exactly
// one field is set; the zero value is nobody.
type People struct {
	Group Permission
	Names []string
}

// The words for groups in configs and in JSON.
const (
	Writers = "writers"
	Admins  = "admins"
)

// Group returns the people that a group's word means, nobody if it is none.
func Group(word string) People {
	switch word {
	case Writers:
		return People{Group: Write}
	case Admins:
		return People{Group: Admin}
	}
	return People{}
}

// MarshalJSON writes a group's word or the list of names.
func (p People) MarshalJSON() ([]byte, error) {
	if p.Group != "" {
		return json.Marshal(p.String())
	}
	return json.Marshal(p.Names)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *People) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil {
		*p = Group(word)
		return nil
	}
	*p = People{}
	return json.Unmarshal(data, &p.Names)
}

// Permission is what a person may do with the repository at the code host.
type Permission string

// The permissions that a rule may ask for. Admin includes Write.
const (
	None  Permission = ""
	Read  Permission = "read"
	Write Permission = "write"
	Admin Permission = "admin"
)

// Person is somebody at the code host.
type Person struct {
	Name       string     `json:"name"`
	Permission Permission `json:"permission"`
}

// Include reports whether person counts.
func (p People) Include(person Person) bool {
	if person.Name == "" {
		return false
	}
	switch p.Group {
	case Admin:
		return person.Permission == Admin
	case Write:
		return person.Permission == Admin || person.Permission == Write
	}
	return slices.ContainsFunc(p.Names, func(name string) bool { return strings.EqualFold(name, person.Name) })
}

// String names the people as the config does.
func (p People) String() string {
	switch {
	case p.Group == Admin:
		return Admins
	case p.Group == Write:
		return Writers
	case len(p.Names) > 0:
		return strings.Join(p.Names, ", ")
	}
	return "nobody"
}

// InvalidError is a rule that means nothing: where in it, and why.
type InvalidError struct {
	// Path is the place, such as "all[1].changed_lines"; empty for the root.
	Path string
	Why  string
}

func (e *InvalidError) Error() string {
	if e.Path == "" {
		return "merge rule: " + e.Why
	}
	return "merge rule: " + e.Path + ": " + e.Why
}

// Parse reads the JSON form, strictly, and validates it.
func Parse(data []byte) (Rule, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var r Rule
	if err := dec.Decode(&r); err != nil {
		return Rule{}, fmt.Errorf("parse merge rule: %w", err)
	}
	if dec.More() {
		return Rule{}, &InvalidError{Why: "something follows it"}
	}
	if err := r.Validate(); err != nil {
		return Rule{}, err
	}
	return r, nil
}

// Validate returns the first thing that is wrong, an *InvalidError.
func (r Rule) Validate() error {
	count := 0
	return r.validate("", 1, &count)
}

func (r Rule) validate(path string, depth int, count *int) error {
	*count++
	if depth > MaxDepth {
		return &InvalidError{path, fmt.Sprintf("is nested more than %d deep", MaxDepth)}
	}
	if *count > MaxPredicates {
		return &InvalidError{path, fmt.Sprintf("is predicate %d, a rule has at most %d", *count, MaxPredicates)}
	}
	set := r.set()
	if len(set) != 1 {
		return &InvalidError{path, fmt.Sprintf("holds %d predicates, wants exactly one", len(set))}
	}
	name := set[0]
	at := strings.TrimPrefix(path+"."+name, ".")
	if why := r.wrong(name); why != "" {
		return &InvalidError{at, why}
	}
	for i, part := range r.parts() {
		inner := fmt.Sprintf("%s[%d]", at, i)
		if name == "not" {
			inner = at
		}
		if err := part.validate(inner, depth+1, count); err != nil {
			return err
		}
	}
	return nil
}

// set lists the predicates that the rule holds, by name.
func (r Rule) set() []string {
	var names []string
	add := func(name string, is bool) {
		if is {
			names = append(names, name)
		}
	}
	add("all", r.All != nil)
	add("any", r.Any != nil)
	add("not", r.Not != nil)
	add("gates", r.Gates != "")
	add("host_checks", r.HostChecks != "")
	add("changed_lines", r.ChangedLines != nil)
	add("changed_files", r.ChangedFiles != nil)
	add("approvals", r.Approvals != nil)
	add("labels", r.Labels != nil)
	add("author", r.Author != nil)
	return names
}

// parts are the rules inside of a rule.
func (r Rule) parts() []Rule {
	switch {
	case r.Not != nil:
		return []Rule{*r.Not}
	case r.All != nil:
		return r.All
	}
	return r.Any
}

// wrong says why the one predicate that is set has no meaning, "" if it has.
func (r Rule) wrong(name string) string {
	switch name {
	case "all", "any":
		if len(r.parts()) == 0 {
			return "is empty"
		}
	case "gates":
		if r.Gates != Passed {
			return fmt.Sprintf("is %.80q, the only word is %q", r.Gates, Passed)
		}
	case "host_checks":
		if r.HostChecks != Required {
			return fmt.Sprintf("is %.80q, the only word is %q", r.HostChecks, Required)
		}
	case "changed_lines":
		return r.ChangedLines.wrong()
	case "changed_files":
		return r.ChangedFiles.wrong()
	case "approvals":
		if r.Approvals.Min < 1 {
			return "min is less than 1"
		}
		if names := r.Approvals.By.Names; len(names) > 0 && len(names) < r.Approvals.Min {
			return fmt.Sprintf("asks for %d of %d people", r.Approvals.Min, len(names))
		}
		return r.Approvals.By.wrong()
	case "labels":
		if len(r.Labels.Has)+len(r.Labels.Lacks) == 0 {
			return "names no label"
		}
		if slices.Contains(r.Labels.Has, "") || slices.Contains(r.Labels.Lacks, "") {
			return "names an empty label"
		}
		for _, label := range r.Labels.Has {
			if slices.Contains(r.Labels.Lacks, label) {
				return fmt.Sprintf("both has and lacks %.80q", label)
			}
		}
	case "author":
		return r.Author.By.wrong()
	}
	return ""
}

func (b Bound) wrong() string {
	if b.Max < 0 {
		return "max is negative"
	}
	return ""
}

func (p People) wrong() string {
	switch {
	case p.Group != "" && len(p.Names) > 0:
		return "by names a group and people"
	case p.Group != "" && p.Group != Write && p.Group != Admin:
		return fmt.Sprintf("by is %.80q, the groups are writers and admins", string(p.Group))
	case p.Group == "" && len(p.Names) == 0:
		return "by names nobody"
	}
	seen := map[string]bool{}
	for _, name := range p.Names {
		folded := strings.ToLower(name)
		if name == "" || seen[folded] {
			return fmt.Sprintf("by names %.80q twice or not at all", name)
		}
		seen[folded] = true
	}
	return ""
}

// NeedsGates reports whether the rule can hold only if the gates passed. One
// that can hold without would merge what nobody tested.
func (r Rule) NeedsGates() bool {
	switch {
	case r.Gates == Passed:
		return true
	case r.All != nil:
		return slices.ContainsFunc(r.All, Rule.NeedsGates)
	case r.Any != nil:
		return len(r.Any) > 0 && !slices.ContainsFunc(r.Any, func(part Rule) bool { return !part.NeedsGates() })
	}
	return false
}
