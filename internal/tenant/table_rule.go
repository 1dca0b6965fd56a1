package tenant

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"confine/internal/merge"
)

// rule is a merge rule: a mapping with exactly one predicate.
func rule() shape[merge.Rule] {
	whole := predicate(1)
	return refine(whole, "merge rule", whole.accepts, nil, func(r merge.Rule) (merge.Rule, error) {
		err := r.Validate()
		var invalid *merge.InvalidError
		if errors.As(err, &invalid) {
			return merge.Rule{}, errors.New(strings.TrimPrefix(invalid.Path+": "+invalid.Why, ": "))
		}
		return r, err
	})
}

// predicate is one predicate; depth counts from 1.
func predicate(depth int) shape[merge.Rule] {
	type fields = merge.Rule
	inner := deeper(depth)
	bound := func() shape[*merge.Bound] {
		return pointer(object("bound", nil, bind(entry{name: "max", doc: "Most, itself allowed.", example: "200", required: true},
			integer(0, 1_000_000), func(b *merge.Bound) *int { return &b.Max })))
	}
	whole := object("predicate", nil,
		bind(entry{name: "all", doc: "All of these hold.", example: "[{gates: passed}]"},
			list(inner, merge.MaxPredicates), func(r *fields) *[]merge.Rule { return &r.All }),
		bind(entry{name: "any", doc: "At least one of these holds.", example: "[{gates: passed}]"},
			list(inner, merge.MaxPredicates), func(r *fields) *[]merge.Rule { return &r.Any }),
		bind(entry{name: "not", doc: "This is known not to hold.", example: "{labels: {has: [hold]}}"},
			pointer(inner), func(r *fields) **merge.Rule { return &r.Not }),
		bind(entry{name: "gates", doc: "Every check of the gate passed on the tree that is merged.", example: "passed"},
			oneOf[string](now(merge.Passed)...), func(r *fields) *string { return &r.Gates }),
		bind(entry{name: "host_checks", doc: "Every check that the host's branch protection requires passed.", example: "required"},
			oneOf[string](now(merge.Required)...), func(r *fields) *string { return &r.HostChecks }),
		bind(entry{name: "changed_lines", doc: "Lines added and removed. It does not hold for a change of files that have no lines.", example: "{max: 200}"},
			bound(), func(r *fields) **merge.Bound { return &r.ChangedLines }),
		bind(entry{name: "changed_files", doc: "Files that differ.", example: "{max: 10}"},
			bound(), func(r *fields) **merge.Bound { return &r.ChangedFiles }),
		bind(entry{name: "approvals", doc: "Different people approved this change. The engine's own approval never counts.", example: "{min: 1, by: writers}"},
			pointer(object("approvals", nil,
				bind(entry{name: "min", doc: "How many.", example: "2", standard: "1"}, integer(1, 100), func(a *merge.Approvals) *int { return &a.Min }),
				bind(entry{name: "by", doc: "Who counts.", example: "admins", standard: "writers"}, people(), func(a *merge.Approvals) *merge.People { return &a.By }),
			)), func(r *fields) **merge.Approvals { return &r.Approvals }),
		bind(entry{name: "labels", doc: "Labels of the pull request.", example: "{lacks: [hold]}"},
			pointer(object("labels", nil,
				bind(entry{name: "has", doc: "All of these are there.", example: "[small]"}, list(text(), 32), func(l *merge.Labels) *[]string { return &l.Has }),
				bind(entry{name: "lacks", doc: "None of these is there.", example: "[hold]"}, list(text(), 32), func(l *merge.Labels) *[]string { return &l.Lacks }),
			)), func(r *fields) **merge.Labels { return &r.Labels }),
		bind(entry{name: "author", doc: "Who wrote the issue.", example: "{by: writers}"},
			pointer(object("author", nil,
				bind(entry{name: "by", doc: "Who counts.", example: "writers", required: true}, people(), func(a *merge.Author) *merge.People { return &a.By }),
			)), func(r *fields) **merge.Author { return &r.Author }),
	)
	whole.schema["minProperties"], whole.schema["maxProperties"] = 1, 1
	return whole
}

// deeper is the predicate inside of one: described by the outermost, and built
// only when a rule that deep is read, or it would have no end.
func deeper(depth int) shape[merge.Rule] {
	f := &form{kind: "predicate", accepts: "a predicate as in merge.rule", schema: map[string]any{"$ref": "#/properties/merge/properties/rule"}}
	return shape[merge.Rule]{form: f, read: func(p *reader, n ast.Node, at string) (merge.Rule, bool) {
		if depth >= merge.MaxDepth {
			p.complain(n, at, "", "is nested more than %d deep", merge.MaxDepth)
			return merge.Rule{}, false
		}
		return predicate(depth+1).read(p, n, at)
	}}
}

// people is a group or a list of names.
func people() shape[merge.People] {
	group := refine(oneOf[string](now(merge.Writers, merge.Admins)...), "writers or admins", "writers (everybody who may push) or admins", nil,
		func(s string) (merge.People, error) { return merge.Group(s), nil })
	names := refine(list(line("login", "a login name at the code host", anything), 64), "list of login names", "a list of login names", nil,
		func(list []string) (merge.People, error) {
			if len(list) == 0 {
				return merge.People{}, errors.New("names nobody")
			}
			return merge.People{Names: list}, nil
		})
	return choose(group, shape[merge.People]{}, names)
}
