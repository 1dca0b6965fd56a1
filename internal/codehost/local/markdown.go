//go:build unix

package local

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// splitMarkdown parts a file into its YAML front matter and its text. The front
// matter is everything between a first line `---` and the next line `---`; one
// empty line after it does not belong to the text.
func splitMarkdown(data []byte) (matter []byte, body string, err error) {
	if !utf8.Valid(data) {
		return nil, "", errors.New("it is not UTF-8")
	}
	line, rest, ok := cutLine(data)
	if !ok || line != "---" {
		return nil, "", errors.New("line 1: want `---`, which begins the front matter")
	}
	start := rest
	for {
		line, after, ok := cutLine(rest)
		if line == "---" {
			matter, rest = start[:len(start)-len(rest)], after
			break
		}
		if !ok {
			return nil, "", errors.New("the front matter has no end: want a second line `---`")
		}
		rest = after
	}
	rest = bytes.TrimPrefix(bytes.TrimPrefix(rest, []byte("\r")), []byte("\n"))
	return matter, string(rest), nil
}

// cutLine returns the first line without its end; ok is false at the last one.
func cutLine(data []byte) (line string, rest []byte, ok bool) {
	before, after, ok := bytes.Cut(data, []byte("\n"))
	return strings.TrimSuffix(string(before), "\r"), after, ok
}

// readMarkdown reads a file into the front matter's struct and the text.
func readMarkdown(path string, matter any) (body string, changed time.Time, err error) {
	data, changed, err := read(path)
	if err != nil {
		return "", time.Time{}, err
	}
	front, body, err := splitMarkdown(data)
	if err == nil {
		err = decodeYAML(front, matter)
	}
	if err != nil {
		return "", time.Time{}, &FileError{path, err}
	}
	return body, changed, nil
}

// frontMatter builds a file. It is written by hand, as every string in it is
// somebody's: quoted, unless it is a plain word.
type frontMatter struct{ buf bytes.Buffer }

func newFrontMatter() *frontMatter {
	m := &frontMatter{}
	m.buf.WriteString("---\n")
	return m
}

func (m *frontMatter) text(key, value string) {
	if value != "" {
		fmt.Fprintf(&m.buf, "%s: %s\n", key, scalar(value))
	}
}

func (m *frontMatter) number(key string, value int) {
	if value != 0 {
		fmt.Fprintf(&m.buf, "%s: %s\n", key, strconv.Itoa(value))
	}
}

func (m *frontMatter) time(key string, value time.Time) {
	if !value.IsZero() {
		fmt.Fprintf(&m.buf, "%s: %s\n", key, stamp(value))
	}
}

func (m *frontMatter) list(key string, values []string) {
	if len(values) == 0 {
		return
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = scalar(v)
	}
	fmt.Fprintf(&m.buf, "%s: [%s]\n", key, strings.Join(quoted, ", "))
}

func (m *frontMatter) with(body string) []byte {
	m.buf.WriteString("---\n\n")
	m.buf.WriteString(body)
	return m.buf.Bytes()
}

// scalar writes a string so that YAML reads the same string. The callers let no
// control character in.
func scalar(s string) string {
	plain := s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/-") == ""
	if plain && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z') {
		switch strings.ToLower(s) {
		case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		default:
			return s
		}
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			// As it is: the reader gets the escapes of some characters wrong.
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// stamp is a time as people and YAML read it.
func stamp(t time.Time) string { return strconv.Quote(t.UTC().Format(time.RFC3339Nano)) }

// parseStamp reads a time of a file; "" is the fallback.
func parseStamp(field, text string, fallback time.Time) (time.Time, error) {
	if text == "" {
		return fallback, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %.60q is no time such as 2006-01-02T15:04:05Z", field, text)
	}
	return t.UTC(), nil
}
