package tenant

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"confine/internal/plaintext"
)

// MaxBytes caps a config file.
const MaxBytes = 1 << 20

// maxTokens caps what the YAML parser is given: its time grows with the square
// of the number of keys (100,000 lines of `a: 1` took 94 seconds), and a config
// with every field set has some 400.
const maxTokens = 20_000

// byteOrderMark is the encoding of U+FEFF.
const byteOrderMark = "\xef\xbb\xbf"

// Load reads and checks a config file. The error is Problems if the file was
// read.
func Load(name string) (*Config, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	config, problems := Parse(name, data)
	if len(problems) > 0 {
		return nil, problems
	}
	return config, nil
}

// FileError is a config file that is not read, for what it is and not for what
// is in it.
type FileError struct {
	Name string
	Why  string
	hint string
}

func (e *FileError) Error() string { return fmt.Sprintf("%q %s", e.Name, e.Why) }

// Hint says what would mend it.
func (e *FileError) Hint() string { return e.hint }

func readFile(name string) ([]byte, error) {
	// Asked before it is opened: opening a named pipe would wait for a writer.
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &FileError{Name: name, Why: "is not a regular file"}
	}
	if info.Mode().Perm()&0o002 != 0 {
		// Who can write the config decides what runs, and what may be reached.
		return nil, &FileError{Name: name, Why: "can be written by every user of this machine", hint: "chmod o-w it: whoever writes the config decides what is merged"}
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Parse checks the text of a config. name stands for the file in problems. The
// config is nil if there is any problem; all problems are reported.
func Parse(name string, data []byte) (*Config, Problems) {
	p := &reader{file: plaintext.Line(name, 200), places: map[string]place{}}
	root := p.document(data)
	if root == nil {
		return nil, p.problems.sorted()
	}
	config, _ := table().read(p, root, "")
	for _, check := range checks() {
		check.run(&config, p)
	}
	if len(p.problems) > 0 {
		return nil, p.problems.sorted()
	}
	return &config, nil
}

// document returns the one YAML document of a file, or nil after a problem.
func (p *reader) document(data []byte) ast.Node {
	whole := func(format string, args ...any) ast.Node {
		p.problems = append(p.problems, Problem{File: p.file, Line: 1, Column: 1, Message: fmt.Sprintf(format, args...)})
		return nil
	}
	// Editors put one at the start, where YAML allows it. The parser takes it for
	// the first letter of the first field.
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	switch {
	case len(data) > MaxBytes:
		return whole("the file is larger than %d bytes", MaxBytes)
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return whole("the file is UTF-16, by its byte order mark: save it as UTF-8")
	case !utf8.Valid(data):
		return whole("the file is not UTF-8")
	case bytes.IndexByte(data, 0) >= 0:
		return whole("the file holds a zero byte")
	}
	if i := bytes.Index(data, []byte(byteOrderMark)); i >= 0 {
		line := 1 + bytes.Count(data[:i], []byte{'\n'})
		return whole("line %d holds a byte order mark (U+FEFF), which can't be seen and is allowed only as the first character of the file: take it out, or write it as \\uFEFF in double quotes", line)
	}
	tokens := lexer.Tokenize(string(data))
	if len(tokens) > maxTokens {
		return whole("the file has more than %d YAML tokens", maxTokens)
	}
	// Keys given twice are found by us, with both places.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p.syntax(err)
		return nil
	}
	if len(file.Docs) > 1 {
		return whole("the file holds more than one YAML document, or a directive: write one, without a line of three dashes between")
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return whole("the file is empty")
	}
	return file.Docs[0].Body
}

// syntax reports what is no YAML. The parser's own text shows lines of the file,
// which may hold what nobody should see; its bare message does not.
func (p *reader) syntax(err error) {
	problem := Problem{File: p.file, Line: 1, Column: 1, Message: "is no valid YAML"}
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		problem.Message += ": " + plaintext.Line(syntax.GetMessage(), 200)
		if token := syntax.GetToken(); token != nil && token.Position != nil {
			problem.Line, problem.Column = max(1, token.Position.Line), max(1, token.Position.Column)
		}
	}
	p.problems = append(p.problems, problem)
}

// parseText parses a piece of YAML that is part of this program.
func parseText(text string) (ast.Node, error) {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, fmt.Errorf("parse %q: not one document", text)
	}
	return file.Docs[0].Body, nil
}
