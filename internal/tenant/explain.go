package tenant

import (
	"fmt"
	"strings"
)

// FieldInfo describes one field.
type FieldInfo struct {
	// Path is the general path: NAME stands for a name of one's own, [] for an
	// element of a list.
	Path     string `json:"path"`
	Doc      string `json:"doc"`
	Type     string `json:"type"`
	Accepted string `json:"accepted"`
	// Default is YAML, Absent words for what the absence means.
	Default  string `json:"default,omitempty"`
	Absent   string `json:"absent,omitempty"`
	Example  string `json:"example,omitempty"`
	Required bool   `json:"required,omitempty"`
	// NotYet says why the field is refused for now.
	NotYet string `json:"not_yet,omitempty"`
	// Fields are the names of the fields inside.
	Fields []string `json:"fields,omitempty"`
}

// Fields describes every field, in the order of the table.
func Fields() []FieldInfo {
	var all []FieldInfo
	walk(table().form, "", "", func(info FieldInfo, _ *entry) { all = append(all, info) })
	return all
}

// walk visits every field below a form. later is the refusal of one around it.
func walk(f *form, at, later string, visit func(FieldInfo, *entry)) {
	for _, e := range f.fields {
		info := describeEntry(e, inside(at, e.name))
		if info.NotYet == "" {
			info.NotYet = later
		}
		visit(info, e)
		walk(e.form, info.Path, info.NotYet, visit)
	}
	for _, form := range f.either {
		walk(form, at, later, visit)
	}
	switch {
	case f.item == nil:
	case f.named:
		walk(f.item, at+".NAME", later, visit)
	default:
		walk(f.item, at+"[]", later, visit)
	}
}

func describeEntry(e *entry, path string) FieldInfo {
	info := FieldInfo{
		Path: path, Doc: e.doc, Type: e.form.kind, Accepted: e.form.accepts, Default: e.standard,
		Absent: e.absent, Example: e.example, Required: e.required, NotYet: e.later,
	}
	for _, inner := range innerFields(e.form) {
		info.Fields = append(info.Fields, inner.name)
	}
	return info
}

// innerFields are the fields of a form, or of what it is a list, map or choice of.
func innerFields(f *form) []*entry {
	fields := f.fields
	for _, form := range f.either {
		fields = append(fields, innerFields(form)...)
	}
	if f.item != nil {
		fields = append(fields, innerFields(f.item)...)
	}
	return fields
}

// find returns the field at a path, in which any name may stand for NAME and
// list indices may be left out, and the reason if one around it is not yet
// there. It returns nil if there is none.
func find(path string) (found *entry, info FieldInfo) {
	path = outermost(path)
	var segments []string
	for segment := range strings.SplitSeq(path, ".") {
		segment, _, _ = strings.Cut(segment, "[")
		segments = append(segments, segment)
	}
	best := -1
	walk(table().form, "", "", func(candidate FieldInfo, e *entry) {
		parts := strings.Split(strings.ReplaceAll(candidate.Path, "[]", ""), ".")
		if len(parts) != len(segments) {
			return
		}
		exact := 0
		for i, part := range parts {
			switch {
			case part == segments[i]:
				exact++
			case part != "NAME" || segments[i] == "":
				return
			}
		}
		if exact > best {
			best, found, info = exact, e, candidate
		}
	})
	return found, info
}

// outermost is the path of a predicate without the rules around it, which
// describe it: merge.rule.all[1].any[0].gates is merge.rule.gates.
func outermost(path string) string {
	const rule = "merge.rule."
	rest, ok := strings.CutPrefix(path, rule)
	for ok {
		name, inner, more := strings.Cut(rest, ".")
		name, _, _ = strings.Cut(name, "[")
		if !more || name != "all" && name != "any" && name != "not" {
			return rule + rest
		}
		rest = inner
	}
	return path
}

// generalPath is a path as `confine config explain` takes it.
func generalPath(path string) string {
	if _, info := find(path); info.Path != "" {
		return strings.ReplaceAll(info.Path, "[]", "")
	}
	return ""
}

// UnknownFieldError is a path at which no field is.
type UnknownFieldError struct {
	Path string
	near string
}

func (e *UnknownFieldError) Error() string {
	text := fmt.Sprintf("explain field: there is no field %.200q", e.Path)
	if e.near != "" {
		text += fmt.Sprintf(": did you mean %q?", e.near)
	}
	return text
}

// Hint says how to find the field.
func (e *UnknownFieldError) Hint() string { return "confine config explain lists every field" }

// Field describes the field at a path such as "gate.NAME.timeout".
func Field(path string) (FieldInfo, error) {
	found, info := find(path)
	if found != nil {
		return info, nil
	}
	var paths, last []string
	for _, field := range Fields() {
		plain := strings.ReplaceAll(field.Path, "[]", "")
		paths = append(paths, plain)
		if plain[strings.LastIndexByte(plain, '.')+1:] == path {
			last = append(last, plain)
		}
	}
	near := nearest(path, paths)
	if len(last) > 0 {
		near = last[0]
	}
	return FieldInfo{}, &UnknownFieldError{Path: path, near: near}
}

// Text is the description for a person.
func (i FieldInfo) Text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n  %s\n", i.Path, i.Doc)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&out, "  %-9s %s\n", name+":", value)
		}
	}
	row("not yet", i.NotYet)
	row("type", i.Type)
	if i.Accepted != i.Type {
		row("accepted", i.Accepted)
	}
	if i.Required {
		row("default", "none, it is required")
	} else {
		row("default", i.Default)
	}
	row("absent", i.Absent)
	row("example", i.Example)
	return out.String()
}

// Explain describes the field at a path; an empty path lists every field, one
// line each.
func Explain(path string) (string, error) {
	if path != "" {
		info, err := Field(path)
		if err != nil {
			return "", err
		}
		var out strings.Builder
		out.WriteString(info.Text())
		for _, name := range info.Fields {
			if inner, err := Field(strings.ReplaceAll(info.Path, "[]", "") + "." + name); err == nil {
				fmt.Fprintf(&out, "\n  %-16s %s", name, summary(inner))
			} else if inner, err := Field(strings.ReplaceAll(info.Path, "[]", "") + ".NAME." + name); err == nil {
				fmt.Fprintf(&out, "\n  %-16s %s", "NAME."+name, summary(inner))
			}
		}
		return strings.TrimRight(out.String(), "\n") + "\n", nil
	}
	var out strings.Builder
	for _, field := range Fields() {
		depth := strings.Count(field.Path, ".")
		name := field.Path[strings.LastIndexByte(field.Path, '.')+1:]
		if rest, named := strings.CutSuffix(field.Path, ".NAME."+name); named && rest != "" {
			name = "NAME." + name
			depth--
		}
		fmt.Fprintf(&out, "%-30s %s\n", strings.Repeat("  ", depth)+name, summary(field))
	}
	return out.String(), nil
}

// summary is the first sentence of what a field does, and whether it is there.
func summary(i FieldInfo) string {
	first, _, more := strings.Cut(i.Doc, ". ")
	if more {
		first += "."
	}
	switch {
	case i.NotYet != "":
		first += " (not yet)"
	case i.Required:
		first += " (required)"
	}
	return first
}
