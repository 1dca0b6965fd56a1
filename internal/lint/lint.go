// Package lint holds the tree to the rules of the house that a machine can
// check: the direction of imports, who may start processes, where unsafe code
// may be, and what tests may not do. Each rule carries its reason (table.go).
//
// It reads syntax alone: it does not follow what a library does, reflection or
// linkname, so it stops oversights, not a determined author. Its own test runs
// it over the repository; nothing else calls it.
package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the module's path, the prefix of its own imports.
const module = "confine/"

// ban is one thing that is forbidden but to a few.
type ban struct {
	// what is an import path, or import path "." name of a function. A name
	// that ends in "*" stands for all that begin so.
	what string
	// in, where set, are the only folders the ban concerns.
	in []string
	// only are the folders that are free of it.
	only []string
	// file, where set, must be part of the file's name as well.
	file string
	why  string
}

// forbids reports whether the ban forbids a thing in this file.
func (b ban) forbids(thing, file string) bool {
	if prefix, ok := strings.CutSuffix(b.what, "*"); ok {
		return strings.HasPrefix(thing, prefix) && b.covers(file)
	}
	return b.what == thing && b.covers(file)
}

func (b ban) covers(file string) bool {
	if b.in != nil && !slices.ContainsFunc(b.in, func(dir string) bool { return below(file, dir) }) {
		return false
	}
	if !slices.ContainsFunc(b.only, func(dir string) bool { return below(file, dir) }) {
		return true
	}
	return b.file != "" && !strings.Contains(path.Base(file), b.file)
}

func below(file, dir string) bool { return strings.HasPrefix(file, dir+"/") }

// Finding is one broken rule.
type Finding struct {
	File string
	Line int
	Text string
}

func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text) }

// Check reads every Go file of the tree and returns what breaks a rule. An
// error means that a file could not be read, not that a rule was broken.
func Check(tree fs.FS) ([]Finding, error) {
	c := &checker{fset: token.NewFileSet(), documented: map[string]bool{}, packages: map[string]string{}}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && unread(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			c.checkObject(name)
			return nil
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return c.checkFile(name, data)
	})
	if err != nil {
		return nil, fmt.Errorf("read tree: %w", err)
	}
	c.checkPackageComments()
	slices.SortFunc(c.findings, func(a, b Finding) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
	return c.findings, nil
}

// unread reports whether a folder, or one above it, is left out of the walk.
func unread(dir string) bool {
	first, _, _ := strings.Cut(dir, "/")
	return first == "bin" || slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") || part == "testdata" || part == "node_modules"
	})
}

// objects are the files beside Go that the go command builds in by itself, by
// how they end.
var objects = []string{".s", ".S", ".sx", ".c", ".cc", ".cpp", ".cxx", ".m", ".f", ".F", ".for", ".f90", ".h", ".hh", ".hpp", ".hxx", ".swig", ".swigcxx", ".syso"}

func (c *checker) checkObject(name string) {
	switch end := path.Ext(name); {
	case !slices.Contains(objects, end):
	case end == ".s" && below(name, "internal/kernel"):
	case end == ".s":
		c.findings = append(c.findings, Finding{File: name, Line: 1, Text: "assembly: only internal/kernel may have some, as the compiler checks none of it"})
	default:
		c.findings = append(c.findings, Finding{File: name, Line: 1, Text: "the go command builds this in by itself, without cgo or as an object that nobody can review: the binary is Go, and a little assembly of internal/kernel"})
	}
}

type checker struct {
	fset     *token.FileSet
	findings []Finding
	// documented and packages say, by folder, whether a package comment was
	// seen and in which file the package was first met.
	documented map[string]bool
	packages   map[string]string
}

// source is one parsed file.
type source struct {
	name    string
	syntax  *ast.File
	imports map[string]string // local name -> import path
	test    bool              // part of a test
	program bool              // part of the program: cmd/ or internal/
}

func (c *checker) add(s source, pos token.Pos, format string, args ...any) {
	c.findings = append(c.findings, Finding{File: s.name, Line: c.fset.Position(pos).Line, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) checkFile(name string, data []byte) error {
	syntax, err := parser.ParseFile(c.fset, name, data, parser.ParseComments)
	if err != nil {
		return err
	}
	s := source{name: name, syntax: syntax, imports: map[string]string{}}
	component := componentOf(name)
	if top, _, _ := strings.Cut(name, "/"); top == name || !places[top] {
		c.add(s, syntax.Name.Pos(), "this is no place for Go: the program is in cmd and internal, the rest in test, bench and examples, and no rule would hold elsewhere")
		return nil
	}
	s.test = strings.HasSuffix(name, "_test.go") || below(name, "test")
	s.program = !s.test && (below(name, "cmd") || below(name, "internal")) && !outside[component]

	if emptyNames[syntax.Name.Name] {
		c.add(s, syntax.Name.Pos(), "package name %q says nothing: name it after what it holds", syntax.Name.Name)
	}
	c.checkLength(s, data)
	c.checkImports(s, component)
	c.checkCalls(s)
	c.checkComments(s)
	dir := path.Dir(name)
	if !strings.HasSuffix(name, "_test.go") {
		if _, seen := c.packages[dir]; !seen {
			c.packages[dir] = name
		}
		c.documented[dir] = c.documented[dir] || syntax.Doc != nil
	}
	return nil
}

// componentOf returns the first folder below internal/, or "".
func componentOf(name string) string {
	rest, ok := strings.CutPrefix(name, "internal/")
	if !ok {
		return ""
	}
	component, _, ok := strings.Cut(rest, "/")
	if !ok {
		return ""
	}
	return component
}

func (c *checker) checkImports(s source, component string) {
	layer, known := layers[component]
	if s.program && below(s.name, "internal") && !known {
		c.add(s, s.syntax.Name.Pos(), "package %q is in no layer: add it to internal/lint/table.go", component)
		return
	}
	for _, spec := range s.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser accepted it, the compiler won't
		}
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			c.add(s, spec.Pos(), "dot import of %q hides where names come from", imported)
		}
		s.imports[local] = imported
		if !s.program {
			if own, ok := strings.CutPrefix(imported, module); ok && outside[component] && componentOf(own+"/") != component {
				c.add(s, spec.Pos(), "%s is no part of the program and must not import %q of it", component, imported)
			}
			continue
		}
		for _, b := range importBans {
			if b.forbids(imported, s.name) {
				c.add(s, spec.Pos(), "import of %q: %s", imported, b.why)
			}
		}
		if slices.Contains(dataPackages, component) && !dataMay(component, imported) {
			c.add(s, spec.Pos(), "import of %q: %s", imported, dataWhy)
		}
		c.checkLayer(s, spec, imported, component, layer)
	}
}

func (c *checker) checkLayer(s source, spec *ast.ImportSpec, imported, component string, layer int) {
	own, ok := strings.CutPrefix(imported, module)
	if !ok {
		return
	}
	target := componentOf(own + "/")
	switch {
	case unread(own):
		c.add(s, spec.Pos(), "import of %q, which the lint does not read", imported)
	case target == "" || outside[target]:
		c.add(s, spec.Pos(), "import of %q, which is no part of the program", imported)
	case component == "": // cmd wires everything
	case target == component:
	case layers[target] == layer:
		c.add(s, spec.Pos(), "import of %q: both are of layer %d, and parts of one layer know each other only through interfaces that the user of them declares", imported, layer)
	case layers[target] > layer:
		c.add(s, spec.Pos(), "import of %q: imports go down, and %s (layer %d) is above %s (layer %d)", imported, target, layers[target], component, layer)
	}
}

func (c *checker) checkCalls(s source) {
	// Conformance suites are tests in ordinary files.
	tests := s.test
	for _, imported := range s.imports {
		tests = tests || imported == "testing"
	}
	var bans []ban
	if tests {
		bans = append(bans, testBans...)
	}
	if s.program {
		bans = append(bans, callBans...)
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		imported := s.packageOf(sel.X)
		if imported == "" {
			// A method, of whatever: syntax does not tell whose it is.
			if tests && skips[sel.Sel.Name] {
				c.add(s, sel.Pos(), "%s: %s", sel.Sel.Name, skipWhy)
			}
			return true
		}
		full := imported + "." + sel.Sel.Name
		for _, b := range bans {
			if b.forbids(full, s.name) {
				c.add(s, sel.Pos(), "%s: %s", full, b.why)
			}
		}
		return true
	})
}

// packageOf returns the import path of the package that an expression names, ""
// if it names none.
func (s source) packageOf(x ast.Expr) string {
	if paren, ok := x.(*ast.ParenExpr); ok {
		return s.packageOf(paren.X)
	}
	if x, ok := x.(*ast.Ident); ok {
		return s.imports[x.Name]
	}
	return ""
}

func (c *checker) checkLength(s source, data []byte) {
	if n := bytes.Count(data, []byte{'\n'}); n > maxLines && !ast.IsGenerated(s.syntax) && !bytes.Contains(data, []byte("\n//lint:long ")) {
		c.add(s, s.syntax.Pos(), "%d lines: split it, or say why not in a comment //lint:long REASON", n)
	}
}

func (c *checker) checkComments(s source) {
	for _, group := range s.syntax.Comments {
		for _, comment := range group.List {
			text := strings.TrimSpace(strings.TrimLeft(comment.Text, "/*"))
			for _, mark := range []string{"TODO", "FIXME", "XXX"} {
				if strings.HasPrefix(text, mark) {
					c.add(s, comment.Pos(), "%s: unfinished work is not committed", mark)
				}
			}
			if strings.HasPrefix(comment.Text, "//go:linkname ") && s.program && !below(s.name, "internal/kernel") {
				c.add(s, comment.Pos(), "go:linkname reaches into the runtime: only internal/kernel may")
			}
		}
	}
}

func (c *checker) checkPackageComments() {
	for dir, file := range c.packages {
		if !c.documented[dir] {
			c.findings = append(c.findings, Finding{File: file, Line: 1, Text: "package without a package comment: what it promises, what it does not, who calls it"})
		}
	}
}
