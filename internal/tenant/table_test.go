package tenant

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// example writes a config that holds the example of one field: what is required
// beside it and around it comes from the examples as well.
func example(f *form, path []string, value string) string {
	name, rest := path[0], path[1:]
	if name == "[]" {
		return "[" + exampleOf(f.item, rest, value) + "]"
	}
	if name == "NAME" {
		return "{name: " + exampleOf(f.item, rest, value) + "}"
	}
	for _, form := range f.either {
		if slices.ContainsFunc(form.fields, func(e *entry) bool { return e.name == name }) || form.item != nil && name == "[]" {
			return example(form, path, value)
		}
	}
	var parts []string
	for _, e := range f.fields {
		switch {
		case e.name == name:
			parts = append(parts, e.name+": "+exampleOf(e.form, rest, value))
		case e.required:
			parts = append(parts, e.name+": "+e.example)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func exampleOf(f *form, path []string, value string) string {
	if len(path) == 0 {
		return value
	}
	return example(f, path, value)
}

func split(path string) []string {
	return strings.Split(strings.ReplaceAll(path, "[]", ".[]"), ".")
}

// Every field of the table has a description and an example that the parser
// reads; one of later work is read and then refused.
func TestEveryField(t *testing.T) {
	shape := table()
	count := 0
	walk(shape.form, "", "", func(info FieldInfo, e *entry) {
		count++
		if info.Doc == "" || !strings.HasSuffix(info.Doc, ".") || info.Example == "" || info.Type == "" || info.Accepted == "" {
			t.Errorf("%s is not described: %+v", info.Path, info)
		}
		if info.Required && (info.Default != "" || info.Absent != "") {
			t.Errorf("%s is required and has a default", info.Path)
		}
		text := example(shape.form, split(info.Path), e.example)
		n, err := parseText(text)
		if err != nil {
			t.Fatalf("%s: %s: %v", info.Path, text, err)
		}
		p := &reader{places: map[string]place{}}
		shape.read(p, n, "")
		refused := false
		for _, problem := range p.problems {
			if strings.HasPrefix(problem.Message, "not yet: ") && info.NotYet != "" {
				refused = true
				continue
			}
			t.Errorf("%s: %s: %s", info.Path, text, problem)
		}
		if refused != (info.NotYet != "") {
			t.Errorf("%s: refused %v, described as not yet: %q", info.Path, refused, info.NotYet)
		}
		if e.standard != "" {
			n, err := parseText(example(shape.form, split(info.Path), e.standard))
			if err != nil {
				t.Fatal(err)
			}
			p := &reader{places: map[string]place{}}
			shape.read(p, n, "")
			for _, problem := range p.problems {
				if !strings.HasPrefix(problem.Message, "not yet: ") {
					t.Errorf("default of %s: %s", info.Path, problem)
				}
			}
		}
	})
	if count < 100 {
		t.Errorf("only %d fields were tried", count)
	}
}

// Each absent field's default is usable.
func TestDefaultsHaveNoFault(t *testing.T) {
	for _, name := range []string{"least.yaml", "full.yaml", "design.yaml"} {
		_, problems := Parse(name, []byte(read(t, name)))
		if strings.Contains(problems.Error(), "a fault of confine") {
			t.Errorf("%s: %s", name, problems)
		}
	}
}

// schemaFields lists the property paths of a schema.
func schemaFields(schema map[string]any, at string, into map[string]map[string]any) {
	if properties, ok := schema["properties"].(map[string]any); ok {
		for name, value := range properties {
			property := value.(map[string]any)
			into[inside(at, name)] = property
			schemaFields(property, inside(at, name), into)
		}
	}
	if either, ok := schema["oneOf"].([]any); ok {
		for _, value := range either {
			schemaFields(value.(map[string]any), at, into)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		schemaFields(items, at+"[]", into)
	}
	if named, ok := schema["additionalProperties"].(map[string]any); ok {
		schemaFields(named, at+".NAME", into)
	}
}

func TestSchemaHasTheFieldsOfTheTable(t *testing.T) {
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]any{}
	schemaFields(schema, "", got)
	for _, field := range Fields() {
		property, ok := got[field.Path]
		delete(got, field.Path)
		_, refuses := property["not"]
		outer, _, _ := cutLast(field.Path)
		_, outerInfo := find(outer)
		switch {
		case field.NotYet != "" && outerInfo.NotYet != "":
			if ok {
				t.Errorf("schema describes %s inside of a refused field", field.Path)
			}
		case !ok:
			t.Errorf("schema lacks %s", field.Path)
		case refuses != (field.NotYet != ""):
			t.Errorf("schema refuses %s: %v, the parser: %q", field.Path, refuses, field.NotYet)
		case property["description"] == "":
			t.Errorf("schema does not describe %s", field.Path)
		}
	}
	for path := range got {
		t.Errorf("schema has %s, which is not in the table", path)
	}
	if schema["additionalProperties"] != false {
		t.Error("schema lets unknown fields pass")
	}
}

func cutLast(path string) (before, after string, found bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

func TestExplain(t *testing.T) {
	text, err := Explain("gate.test.timeout")
	want := `gate.NAME.timeout
  Time after which it is ended and has not passed.
  type:     duration
  accepted: hours, minutes and seconds from 1s to 24h, such as 45m or 1h30m
  default:  10m
  example:  5m
`
	if err != nil || text != want {
		t.Errorf("got:\n%s%v\nwant:\n%s", text, err, want)
	}
	all, err := Explain("")
	if err != nil || !strings.Contains(all, "NAME.min_tests") || !strings.Contains(all, "(not yet)") {
		t.Errorf("got:\n%s%v", all, err)
	}
	for path, want := range map[string]string{
		"budget.day":                     "not yet:",
		"egress.allow[3].proto":          "egress.allow[].proto",
		"merge.rule.all[0].any[1].gates": "merge.rule.gates",
		"repo":                           "required",
		"gate":                           "NAME.run",
	} {
		if text, err := Explain(path); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: got:\n%s%v\nwant %q", path, text, err, want)
		}
	}
	for path, want := range map[string]string{
		"timeout":     `did you mean "setup.timeout"?`,
		"repo.untill": `did you mean "repo.until"?`,
		"gate..run":   "there is no field",
		"\x1b[2J":     `"\x1b[2J"`,
	} {
		if _, err := Explain(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"view", "version", "egress", "gate"}
	for word, want := range map[string]string{"veiw": "view", "View": "view", "egres": "egress", "x": "", "gates": "gate", "budget": "", strings.Repeat("v", 100): ""} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestSizesAndDurations(t *testing.T) {
	try := func(text string, read func(*reader, string) (string, bool)) string {
		p := &reader{places: map[string]place{}}
		if value, ok := read(p, text); ok {
			return value
		}
		return "refused"
	}
	sizes := func(p *reader, text string) (string, bool) {
		n, err := parseText(text)
		if err != nil {
			return "", false
		}
		v, ok := size(0).read(p, n, "x")
		return fmt.Sprint(v), ok
	}
	durations := func(p *reader, text string) (string, bool) {
		n, err := parseText(text)
		if err != nil {
			return "", false
		}
		v, ok := duration().read(p, n, "x")
		return v.String(), ok
	}
	tokens := func(p *reader, text string) (string, bool) {
		n, err := parseText(text)
		if err != nil {
			return "", false
		}
		v, ok := tokenCount().read(p, n, "x")
		return fmt.Sprint(v), ok
	}
	for _, test := range []struct {
		text string
		read func(*reader, string) (string, bool)
		want string
	}{
		{"8GiB", sizes, "8589934592"}, {"1kB", sizes, "1000"}, {"0KiB", sizes, "0"}, {`"4MiB"`, sizes, "4194304"},
		{"8", sizes, "refused"}, {"8G", sizes, "refused"}, {"-1GiB", sizes, "refused"}, {"1.5GiB", sizes, "refused"}, {"08GiB", sizes, "refused"}, {"8 GiB", sizes, "refused"}, {"4194305TiB", sizes, "refused"},
		{"45m", durations, "45m0s"}, {"1h30m", durations, "1h30m0s"}, {"24h", durations, "24h0m0s"},
		{"500ms", durations, "refused"}, {"0s", durations, "refused"}, {"25h", durations, "refused"}, {"5", durations, "refused"}, {"1.5h", durations, "refused"}, {"-1h", durations, "refused"},
		{"500k", tokens, "500000"}, {"2M", tokens, "2000000"}, {"7", tokens, "7"}, {"0", tokens, "refused"}, {"1K", tokens, "refused"},
	} {
		if got := try(test.text, test.read); got != test.want {
			t.Errorf("%s: got %s, want %s", test.text, got, test.want)
		}
	}
}
