package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// good is facts under which every predicate of the tests holds.
func good() Facts {
	return Facts{
		Gates:      []Check{{Name: "vet", Passed: true}, {Name: "test", Passed: true}},
		HostChecks: []Check{{Name: "ci", Passed: true}},
		Change:     &Change{Lines: 200, Files: 10},
		Approvals:  []Person{{"ada", Write}, {"bob", Admin}},
		Engine:     "confine-bot",
		Labels:     []string{"agent"},
		Author:     &Person{"ada", Write},
	}
}

func rule(t *testing.T, text string) Rule {
	t.Helper()
	r, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPredicates(t *testing.T) {
	tests := []struct {
		name, rule string
		change     func(*Facts)
		want       Outcome
		reason     string
	}{
		{"gates passed", `{"gates":"passed"}`, nil, Holds, "vet, test"},
		{"one gate failed", `{"gates":"passed"}`, func(f *Facts) { f.Gates[1].Passed = false; f.Gates[1].Reason = "status 1" }, Fails, "test: status 1"},
		{"no gate ran", `{"gates":"passed"}`, func(f *Facts) { f.Gates = nil }, Unknown, "no check ran"},
		{"an empty list of gates", `{"gates":"passed"}`, func(f *Facts) { f.Gates = []Check{} }, Unknown, "no check ran"},
		{"host checks passed", `{"host_checks":"required"}`, nil, Holds, "ci"},
		{"host check pending", `{"host_checks":"required"}`, func(f *Facts) { f.HostChecks[0] = Check{Name: "ci"} }, Fails, "ci: not passed"},
		{"host requires none", `{"host_checks":"required"}`, func(f *Facts) { f.HostChecks = []Check{} }, Holds, "the host requires none"},
		{"host not read", `{"host_checks":"required"}`, func(f *Facts) { f.HostChecks = nil }, Unknown, "not read from the host"},
		{"lines at the limit", `{"changed_lines":{"max":200}}`, nil, Holds, "200 lines"},
		{"lines above", `{"changed_lines":{"max":199}}`, nil, Fails, "200 lines"},
		{"a binary file has no lines", `{"changed_lines":{"max":200}}`, func(f *Facts) { f.Change.Opaque = 1 }, Fails, "200 lines, and 1 files that have no lines to count"},
		{"lines not counted", `{"changed_lines":{"max":200}}`, func(f *Facts) { f.Change = nil }, Unknown, "not counted"},
		{"files at the limit", `{"changed_files":{"max":10}}`, nil, Holds, "10 files"},
		{"files above", `{"changed_files":{"max":9}}`, nil, Fails, "10 files"},
		{"files not counted", `{"changed_files":{"max":9}}`, func(f *Facts) { f.Change = nil }, Unknown, "not counted"},
		{"approved by writers", `{"approvals":{"min":2,"by":"writers"}}`, nil, Holds, "2 of 2: ada, bob"},
		{"approved by one admin", `{"approvals":{"min":2,"by":"admins"}}`, nil, Fails, "1 of 2: bob"},
		{"approved by name", `{"approvals":{"min":1,"by":["ADA"]}}`, nil, Holds, "1 of 1: ada"},
		{"approved by others", `{"approvals":{"min":1,"by":["eve"]}}`, nil, Fails, "0 of 1"},
		{"a reader's approval", `{"approvals":{"min":1,"by":"writers"}}`, func(f *Facts) { f.Approvals = []Person{{"eve", Read}, {"mallory", None}} }, Fails, "0 of 1"},
		{"one person twice", `{"approvals":{"min":2,"by":"writers"}}`, func(f *Facts) { f.Approvals = []Person{{"ada", Write}, {"Ada", Write}} }, Fails, "1 of 2: ada"},
		{"the engine's own approval", `{"approvals":{"min":1,"by":"writers"}}`, func(f *Facts) { f.Approvals = []Person{{"Confine-Bot", Admin}} }, Fails, "0 of 1"},
		{"a nameless approval", `{"approvals":{"min":1,"by":"writers"}}`, func(f *Facts) { f.Approvals = []Person{{"", Admin}} }, Fails, "0 of 1"},
		{"approvals not read", `{"approvals":{"min":1,"by":"writers"}}`, func(f *Facts) { f.Approvals = nil }, Unknown, "not read from the host"},
		{"label there", `{"labels":{"has":["agent"]}}`, nil, Holds, ""},
		{"label not there", `{"labels":{"has":["small"]}}`, nil, Fails, `"small" is not there`},
		{"stop label absent", `{"labels":{"lacks":["hold"]}}`, nil, Holds, ""},
		{"stop label in another case", `{"labels":{"lacks":["hold"]}}`, func(f *Facts) { f.Labels = []string{"Hold"} }, Fails, `"Hold" is there`},
		{"labels not read", `{"labels":{"lacks":["hold"]}}`, func(f *Facts) { f.Labels = nil }, Unknown, "not read from the host"},
		{"author", `{"author":{"by":"writers"}}`, nil, Holds, "ada (permission write)"},
		{"author without permission", `{"author":{"by":"writers"}}`, func(f *Facts) { f.Author = &Person{Name: "eve"} }, Fails, "eve (permission none)"},
		{"author not read", `{"author":{"by":"writers"}}`, func(f *Facts) { f.Author = nil }, Unknown, "not read from the host"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			facts := good()
			if test.change != nil {
				test.change(&facts)
			}
			got := rule(t, test.rule).Evaluate(facts)
			if got.Outcome != test.want || got.Reason != test.reason {
				t.Errorf("got %s (%s), want %s (%s)", got.Outcome, got.Reason, test.want, test.reason)
			}
			// The opposite of what is not known is not known either.
			not := Rule{Not: ptr(rule(t, test.rule))}
			want := map[Outcome]Outcome{Unknown: Unknown, Fails: Holds, Holds: Fails}[test.want]
			if got := not.Evaluate(facts); got.Outcome != want {
				t.Errorf("its opposite: got %s, want %s", got.Outcome, want)
			}
		})
	}
}

func ptr[T any](value T) *T { return &value }

func TestTrees(t *testing.T) {
	const (
		holds   = `{"gates":"passed"}`
		fails   = `{"changed_files":{"max":0}}`
		unknown = `{"labels":{"has":["x"]}}`
	)
	facts := good()
	facts.Labels = nil
	tests := []struct {
		parts    []string
		all, any Outcome
	}{
		{[]string{holds}, Holds, Holds},
		{[]string{holds, holds}, Holds, Holds},
		{[]string{holds, fails}, Fails, Holds},
		{[]string{fails, holds}, Fails, Holds},
		{[]string{fails, fails}, Fails, Fails},
		{[]string{holds, unknown}, Unknown, Holds},
		{[]string{unknown, holds}, Unknown, Holds},
		{[]string{fails, unknown}, Fails, Unknown},
		{[]string{unknown, fails}, Fails, Unknown},
		{[]string{unknown, holds, fails}, Fails, Holds},
		{[]string{unknown, unknown}, Unknown, Unknown},
	}
	for _, test := range tests {
		list := "[" + strings.Join(test.parts, ",") + "]"
		if got := rule(t, `{"all":`+list+`}`).Evaluate(facts); got.Outcome != test.all || len(got.Parts) != len(test.parts) {
			t.Errorf("all %s: got %+v, want %s", list, got, test.all)
		}
		if got := rule(t, `{"any":`+list+`}`).Evaluate(facts); got.Outcome != test.any || len(got.Parts) != len(test.parts) {
			t.Errorf("any %s: got %+v, want %s", list, got, test.any)
		}
	}
}

func TestZeroNeverHolds(t *testing.T) {
	if (Result{}).Holds() {
		t.Error("the zero result holds")
	}
	if got := (Rule{}).Evaluate(good()); got.Holds() {
		t.Errorf("the zero rule holds: %+v", got)
	}
	if got := (Rule{Not: &Rule{}}).Evaluate(good()); got.Holds() {
		t.Errorf("the opposite of the zero rule holds: %+v", got)
	}
	if (People{}).Include(Person{"ada", Admin}) {
		t.Error("nobody includes somebody")
	}
	for _, text := range []string{`{"gates":"passed"}`, `{"not":{"gates":"passed"}}`, `{"any":[{"author":{"by":"writers"}},{"labels":{"lacks":["x"]}}]}`} {
		if got := rule(t, text).Evaluate(Facts{}); got.Holds() {
			t.Errorf("%s holds without facts: %+v", text, got)
		}
	}
}

func TestInvalid(t *testing.T) {
	deep := strings.Repeat(`{"not":`, MaxDepth) + `{"gates":"passed"}` + strings.Repeat("}", MaxDepth)
	wide := `{"all":[` + strings.TrimSuffix(strings.Repeat(`{"gates":"passed"},`, MaxPredicates), ",") + `]}`
	tests := []struct{ name, rule, path, why string }{
		{"empty", `{}`, "", "holds 0 predicates, wants exactly one"},
		{"two", `{"gates":"passed","host_checks":"required"}`, "", "holds 2 predicates, wants exactly one"},
		{"empty all", `{"all":[]}`, "all", "is empty"},
		{"empty any", `{"all":[{"any":[]}]}`, "all[0].any", "is empty"},
		{"word", `{"not":{"gates":"failed"}}`, "not.gates", `is "failed", the only word is "passed"`},
		{"negative", `{"all":[{"gates":"passed"},{"changed_lines":{"max":-1}}]}`, "all[1].changed_lines", "max is negative"},
		{"no approvals", `{"approvals":{"min":0,"by":"writers"}}`, "approvals", "min is less than 1"},
		{"approvals by nobody", `{"approvals":{"min":1}}`, "approvals", "by names nobody"},
		{"approvals by an unknown group", `{"approvals":{"min":1,"by":"everyone"}}`, "approvals", "by names nobody"},
		{"more than there are", `{"approvals":{"min":2,"by":["ada"]}}`, "approvals", "asks for 2 of 1 people"},
		{"a name twice", `{"approvals":{"min":2,"by":["ada","Ada"]}}`, "approvals", `by names "Ada" twice or not at all`},
		{"no label", `{"labels":{}}`, "labels", "names no label"},
		{"contradiction", `{"labels":{"has":["x"],"lacks":["x"]}}`, "labels", `both has and lacks "x"`},
		{"depth", deep, strings.TrimSuffix(strings.Repeat("not.", MaxDepth), "."), "is nested more than 8 deep"},
		{"width", wide, "all[63]", "is predicate 65, a rule has at most 64"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse([]byte(test.rule))
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			if invalid.Path != test.path || invalid.Why != test.why {
				t.Errorf("got %q %q, want %q %q", invalid.Path, invalid.Why, test.path, test.why)
			}
		})
	}
	for _, text := range []string{`{"gate":"passed"}`, `{"gates":"passed"} {}`, `[]`, `{"changed_lines":{"max":1.5}}`, `{"changed_lines":{"maximum":1}}`} {
		if r, err := Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%s) = %+v, want an error", text, r)
		}
	}
}

func TestNeedsGates(t *testing.T) {
	tests := map[string]bool{
		`{"gates":"passed"}`: true,
		`{"all":[{"host_checks":"required"},{"gates":"passed"}]}`:             true,
		`{"any":[{"gates":"passed"},{"approvals":{"min":1,"by":"writers"}}]}`: false,
		`{"any":[{"gates":"passed"},{"all":[{"gates":"passed"}]}]}`:           true,
		`{"not":{"gates":"passed"}}`:                                          false,
		`{"all":[{"not":{"gates":"passed"}},{"host_checks":"required"}]}`:     false,
		`{"all":[{"any":[{"gates":"passed"},{"changed_lines":{"max":1}}]}]}`:  false,
		`{"all":[{"approvals":{"min":1,"by":"admins"}}]}`:                     false,
	}
	for text, want := range tests {
		r := rule(t, text)
		if got := r.NeedsGates(); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		// What it promises, tried: no failed gate under which such a rule holds.
		facts := good()
		facts.Gates[0].Passed = false
		if want && r.Evaluate(facts).Holds() {
			t.Errorf("%s holds with a failed gate", text)
		}
	}
}

func TestText(t *testing.T) {
	r := rule(t, `{"all":[{"gates":"passed"},{"any":[{"changed_lines":{"max":10}},{"approvals":{"min":1,"by":"writers"}}]},{"not":{"labels":{"has":["hold"]}}}]}`)
	facts := good()
	facts.Labels = nil
	facts.Approvals = []Person{{"a\x1b[31mda\n\u202e", Write}}
	want := `? all
  ✓ gates: passed (vet, test)
  ✓ any
    ✗ changed_lines: {max: 10} (200 lines)
    ✓ approvals: {min: 1, by: writers} (1 of 1: a[31mda)
  ? not
    ? labels: {has: [hold]} (not read from the host)
`
	if got := r.Evaluate(facts).Text(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got, want := (Result{}).Text(), "? no rule\n"; got != want {
		t.Errorf("zero result: got %q, want %q", got, want)
	}
}

func TestJSON(t *testing.T) {
	text := `{"all":[{"gates":"passed"},{"any":[{"changed_lines":{"max":200}},{"approvals":{"min":1,"by":"writers"}},{"author":{"by":["ada"]}}]}]}`
	r := rule(t, text)
	out, err := json.Marshal(r)
	if err != nil || string(out) != text {
		t.Errorf("got %s, %v, want %s", out, err, text)
	}
	again, err := Parse(out)
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("read back: %+v, %v", again, err)
	}
	out, err = json.Marshal(rule(t, `{"not":{"gates":"passed"}}`).Evaluate(good()))
	want := `{"predicate":"not","holds":false,"outcome":"fails","parts":[{"predicate":"gates: passed","holds":true,"outcome":"holds","reason":"vet, test"}]}`
	if err != nil || string(out) != want {
		t.Errorf("got %s, %v\nwant %s", out, err, want)
	}
}

func TestLinesOf(t *testing.T) {
	for bytes, want := range map[int]int{0: 1, 1: 1, 400: 1, 401: 2, 100_000: 250} {
		if got := LinesOf(bytes); got != want {
			t.Errorf("LinesOf(%d) = %d, want %d", bytes, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{}`, `{"gates":"passed"}`, `{"not":{"not":{}}}`, `{"all":[{"any":[{"labels":{"lacks":["x"]}}]}]}`, `{"author":{"by":["a"]}}`, `null`, `[1]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		if r.Evaluate(Facts{}).Holds() {
			t.Errorf("%s holds without facts", data)
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatalf("%s became %s: %v", data, out, err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(second, out) {
			t.Errorf("%s became %s, then %s: %v", data, out, second, err)
		}
	})
}
