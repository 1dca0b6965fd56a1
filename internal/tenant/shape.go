package tenant

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A shape is one form of value: how it is read, and how it is described. The
// table of fields (table.go) is made of shapes, and parser, JSON Schema and
// explanations all come out of it, so that they can't differ.
type shape[V any] struct {
	*form
	// read returns the value, or false after it has reported a problem.
	read func(p *reader, n ast.Node, at string) (V, bool)
}

// form describes a shape without its Go type.
type form struct {
	// kind is a short name for explanations: "size", "list of path".
	kind string
	// accepts says what may be written, for messages.
	accepts string
	// schema holds the JSON Schema keywords of the value itself.
	schema map[string]any
	// fields are those of an object; item is the form of a list's or map's
	// elements; either the forms of which one is chosen.
	fields []*entry
	item   *form
	either []*form
	named  bool // item is reached by name, not by index
}

// entry is one field of an object as data.
type entry struct {
	name string
	// doc says what the field does; example and standard are YAML. standard is
	// read as if it stood in the file when the field is absent.
	doc, example, standard string
	// absent says in words what the absence of a field without standard means.
	absent string
	// later refuses the field, which is known and has no effect yet.
	later    string
	required bool
	form     *form
}

// field is an entry of an object that is read into a T.
type field[T any] struct {
	*entry
	read func(p *reader, n ast.Node, at string, into *T) bool
}

// bind makes a field of a shape and the place where its value goes.
func bind[T, V any](e entry, s shape[V], place func(*T) *V) field[T] {
	e.form = s.form
	return field[T]{entry: &e, read: func(p *reader, n ast.Node, at string, into *T) bool {
		value, ok := s.read(p, n, at)
		// Also when it has problems: of an object, what has none is there for
		// the checks of several fields.
		*place(into) = value
		return ok
	}}
}

// place is a line and column of the file.
type place struct{ line, column int }

// reader is the state of reading one config.
type reader struct {
	file     string
	problems Problems
	// places remembers where each field stood, for checks that look at several.
	places map[string]place
}

func placeOf(n ast.Node) place {
	tk := n.GetToken()
	// A mapping's own token is the colon after its first key.
	if mapping, ok := n.(*ast.MappingNode); ok && !mapping.IsFlowStyle && len(mapping.Values) > 0 {
		tk = mapping.Values[0].Key.GetToken()
	}
	if tk == nil || tk.Position == nil {
		return place{1, 1}
	}
	return place{max(1, tk.Position.Line), max(1, tk.Position.Column)}
}

// complain reports a problem at a node.
func (p *reader) complain(n ast.Node, at, accepted, format string, args ...any) {
	where := placeOf(n)
	p.problems = append(p.problems, Problem{
		File: p.file, Line: where.line, Column: where.column, Field: at,
		Message: fmt.Sprintf(format, args...), Accepted: accepted,
	})
}

// blame reports a problem of a field that was read before, or of the nearest
// one around it that stands in the file.
func (p *reader) blame(at, accepted, format string, args ...any) {
	where, ok := place{1, 1}, false
	for outer := at; !ok; outer = parent(outer) {
		where, ok = p.places[outer]
		if outer == "" {
			break
		}
	}
	p.problems = append(p.problems, Problem{
		File: p.file, Line: max(1, where.line), Column: max(1, where.column), Field: at,
		Message: fmt.Sprintf(format, args...), Accepted: accepted,
	})
}

// sound reports whether no field at or below any of the paths has a problem.
func (p *reader) sound(paths ...string) bool {
	return !slices.ContainsFunc(p.problems, func(problem Problem) bool {
		return slices.ContainsFunc(paths, func(at string) bool {
			rest, ok := strings.CutPrefix(problem.Field, at)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
	})
}

func inside(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// parent is the path of what holds at.
func parent(at string) string { return at[:max(0, strings.LastIndexAny(at, ".["))] }

// plain refuses the constructs of YAML with which a config would say something
// else than it seems to. It returns the node without a comment around it.
func (p *reader) plain(n ast.Node, at string) (ast.Node, bool) {
	switch n := n.(type) {
	case *ast.AnchorNode:
		p.complain(n, at, "", "YAML anchors are not accepted: write the value where it is used")
	case *ast.AliasNode:
		p.complain(n, at, "", "YAML aliases are not accepted: write the value itself")
	case *ast.TagNode:
		p.complain(n, at, "", "YAML tags are not accepted: write the value alone")
	case nil:
		p.problems = append(p.problems, Problem{File: p.file, Line: 1, Column: 1, Field: at, Message: "is empty"})
	case *ast.MappingNode:
		if whole := joined(n); whole != nil {
			return whole, true
		}
		return n, true
	default:
		return n, true
	}
	return nil, false
}

// joined returns the text that a list inside of braces holds, as in
// {allow: [db.example.com:5432]}: there the YAML library takes a colon for the
// end of a key even if no space follows, which is not YAML, and would make
// hosts with ports a trap. It returns nil for what is a mapping.
func joined(n *ast.MappingNode) ast.Node {
	if n.IsFlowStyle || len(n.Values) != 1 {
		return nil
	}
	pair := n.Values[0]
	key, ok := pair.Key.(*ast.StringNode)
	if !ok || key.Token.Type != token.StringType {
		return nil
	}
	switch value := pair.Value.(type) {
	case *ast.StringNode:
		if value.Token.Type != token.StringType {
			return nil
		}
	case *ast.IntegerNode, *ast.FloatNode:
	default:
		return nil
	}
	colon, value := pair.Start, pair.Value.GetToken()
	if colon.Position.Line != value.Position.Line || value.Position.Column != colon.Position.Column+1 {
		return nil
	}
	whole := key.Token.Clone()
	whole.Value += ":" + value.Value
	return ast.String(whole)
}

// mapping returns the entries of a mapping.
func (p *reader) mapping(n ast.Node, at, accepts string) ([]*ast.MappingValueNode, bool) {
	n, ok := p.plain(n, at)
	if !ok {
		return nil, false
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	p.complain(n, at, accepts, "is %s, wants a mapping", describe(n))
	return nil, false
}

// key returns the name of an entry. seen holds the names before it.
func (p *reader) key(value *ast.MappingValueNode, at string, seen map[string]place) (string, bool) {
	switch key := value.Key.(type) {
	case *ast.StringNode:
		if where, twice := seen[key.Value]; twice {
			p.complain(key, inside(at, shownKey(key.Value)), "", "is given twice, first on line %d", where.line)
			return "", false
		}
		seen[key.Value] = placeOf(key)
		return key.Value, true
	case *ast.MergeKeyNode:
		p.complain(key, at, "", "YAML merge keys are not accepted: write the fields themselves")
	case *ast.MappingKeyNode:
		p.complain(key, at, "", "keys with a question mark are not accepted: write `name: value`")
	default:
		p.complain(value, at, "", "a key is %s, wants a name", describe(value.Key))
	}
	return "", false
}

// shownKey makes a key that is no name fit to stand in a path.
func shownKey(key string) string {
	for _, c := range []byte(key) {
		if c <= ' ' || c >= 0x7f || c == '.' || c == '[' {
			return fmt.Sprintf("%.60q", key)
		}
	}
	return fmt.Sprintf("%.60s", key)
}

// object is a mapping with known fields. unknown explains names that are none
// for a reason.
func object[T any](kind string, unknown map[string]string, fields ...field[T]) shape[T] {
	f := &form{kind: kind, schema: map[string]any{"type": "object", "additionalProperties": false}}
	names := make([]string, len(fields))
	for i, field := range fields {
		f.fields = append(f.fields, field.entry)
		names[i] = field.name
	}
	f.accepts = "the fields " + strings.Join(names, ", ")
	return shape[T]{form: f, read: func(p *reader, n ast.Node, at string) (T, bool) {
		var into T
		values, ok := p.mapping(n, at, f.accepts)
		if !ok {
			return into, false
		}
		before := len(p.problems)
		seen := map[string]place{}
		for _, value := range values {
			name, ok := p.key(value, at, seen)
			if !ok {
				continue
			}
			i := slices.Index(names, name)
			if i < 0 {
				p.unknown(value.Key, inside(at, shownKey(name)), name, names, unknown[name])
				continue
			}
			p.field(fields[i].entry, value, inside(at, name), func(n ast.Node, at string) bool {
				return fields[i].read(p, n, at, &into)
			})
		}
		for _, field := range fields {
			if _, given := seen[field.name]; given {
				continue
			}
			switch {
			case field.required:
				p.complain(n, inside(at, field.name), field.form.accepts, "is missing")
			case field.standard != "":
				p.standard(field.entry, at, func(p *reader, n ast.Node, at string) bool { return field.read(p, n, at, &into) })
			}
		}
		return into, len(p.problems) == before
	}}
}

// field reads one field that stands in the file.
func (p *reader) field(e *entry, value *ast.MappingValueNode, at string, read func(ast.Node, string) bool) {
	p.places[at] = placeOf(value.Key)
	read(value.Value, at)
	if e.later != "" {
		p.complain(value.Key, at, "", "not yet: %s", e.later)
	}
}

// standard reads the default of a field that is absent. Its own problems are
// those of this program; the test of the table reads every default.
func (p *reader) standard(e *entry, at string, read func(*reader, ast.Node, string) bool) {
	own := &reader{file: p.file, places: map[string]place{}}
	n, err := parseText(e.standard)
	if err != nil || !read(own, n, inside(at, e.name)) {
		p.blame(inside(at, e.name), "", "has no usable default, give a value (a fault of confine: %v %v)", err, own.problems)
	}
}

func (p *reader) unknown(n ast.Node, at, name string, names []string, why string) {
	if why != "" {
		p.complain(n, at, "", "%s", why)
		return
	}
	p.complain(n, at, strings.Join(names, ", "), "unknown field%s", didYouMean(name, names))
}

// list is a sequence of one shape.
func list[V any](item shape[V], most int) shape[[]V] {
	f := &form{
		kind: "list of " + item.kind, accepts: "a list, each element " + item.accepts, item: item.form,
		schema: map[string]any{"type": "array", "maxItems": most},
	}
	return shape[[]V]{form: f, read: func(p *reader, n ast.Node, at string) ([]V, bool) {
		n, ok := p.plain(n, at)
		if !ok {
			return nil, false
		}
		sequence, ok := n.(*ast.SequenceNode)
		if !ok {
			p.complain(n, at, f.accepts, "is %s, wants a list", describe(n))
			return nil, false
		}
		if len(sequence.Values) > most {
			p.complain(n, at, "", "has %d elements, more than %d", len(sequence.Values), most)
			return nil, false
		}
		out := make([]V, 0, len(sequence.Values))
		all := true
		for i, element := range sequence.Values {
			place := at + "[" + strconv.Itoa(i) + "]"
			if element != nil {
				p.places[place] = placeOf(element)
			}
			value, ok := item.read(p, element, place)
			all = all && ok
			out = append(out, value)
		}
		return out, all
	}}
}

// named is one entry of a mapping with free names.
type named[V any] struct {
	name  string
	value V
}

// mapOf is a mapping with free names, in the order of the file. wrong says what
// is wrong with a name, "" if nothing is.
func mapOf[V any](kind, names string, wrong func(string) string, item shape[V], most int) shape[[]named[V]] {
	f := &form{
		kind: kind, accepts: names + ", each with " + item.accepts, item: item.form, named: true,
		schema: map[string]any{"type": "object", "maxProperties": most},
	}
	return shape[[]named[V]]{form: f, read: func(p *reader, n ast.Node, at string) ([]named[V], bool) {
		values, ok := p.mapping(n, at, f.accepts)
		if !ok {
			return nil, false
		}
		if len(values) > most {
			p.complain(n, at, "", "has %d entries, more than %d", len(values), most)
			return nil, false
		}
		var out []named[V]
		seen := map[string]place{}
		before := len(p.problems)
		for _, value := range values {
			name, ok := p.key(value, at, seen)
			if !ok {
				continue
			}
			place := inside(at, shownKey(name))
			p.places[place] = placeOf(value.Key)
			if why := wrong(name); why != "" {
				p.complain(value.Key, place, names, "%s", why)
				continue
			}
			if v, ok := item.read(p, value.Value, place); ok {
				out = append(out, named[V]{name, v})
			}
		}
		return out, len(p.problems) == before
	}}
}

// refine makes a shape of another by a function that may refuse.
func refine[V, W any](from shape[V], kind, accepts string, schema map[string]any, check func(V) (W, error)) shape[W] {
	f := *from.form
	f.kind, f.accepts = kind, accepts
	if schema != nil {
		f.schema = schema
	}
	return shape[W]{form: &f, read: func(p *reader, n ast.Node, at string) (W, bool) {
		var none W
		value, ok := from.read(p, n, at)
		if !ok {
			return none, false
		}
		out, err := check(value)
		if err != nil {
			p.complain(n, at, accepts, "%s", err)
			return none, false
		}
		return out, true
	}}
}

// choose takes the scalar, mapping or sequence shape by what stands there. A
// zero shape is none.
func choose[V any](scalar, mapping, sequence shape[V]) shape[V] {
	f := &form{}
	var kinds, accepts []string
	for _, s := range []shape[V]{scalar, mapping, sequence} {
		if s.form != nil {
			f.either = append(f.either, s.form)
			kinds = append(kinds, s.kind)
			accepts = append(accepts, s.accepts)
		}
	}
	f.kind, f.accepts = strings.Join(kinds, " or "), strings.Join(accepts, "; or ")
	return shape[V]{form: f, read: func(p *reader, n ast.Node, at string) (V, bool) {
		var none V
		n, ok := p.plain(n, at)
		if !ok {
			return none, false
		}
		chosen := scalar
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			chosen = mapping
		case *ast.SequenceNode:
			chosen = sequence
		}
		if chosen.form == nil {
			p.complain(n, at, f.accepts, "is %s", describe(n))
			return none, false
		}
		return chosen.read(p, n, at)
	}}
}

// describe names what a node is.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.NullNode:
		return "empty"
	}
	return "something else"
}
