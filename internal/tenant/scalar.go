package tenant

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"confine/internal/plaintext"
)

// maxText caps one text of a config.
const maxText = 64 << 10

// text is any text: quoted, plain or a block. Plain scalars that YAML reads as
// something else are refused rather than turned into what they looked like.
func text() shape[string] {
	f := &form{kind: "text", accepts: "text", schema: map[string]any{"type": "string"}}
	return shape[string]{form: f, read: func(p *reader, n ast.Node, at string) (string, bool) {
		n, ok := p.plain(n, at)
		if !ok {
			return "", false
		}
		var value string
		switch n := n.(type) {
		case *ast.StringNode:
			value = n.Value
		case *ast.LiteralNode:
			value = n.Value.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
			p.complain(n, at, f.accepts, "is %s, wants text: put it in quotes", describe(n))
			return "", false
		default:
			p.complain(n, at, f.accepts, "is %s, wants text", describe(n))
			return "", false
		}
		switch {
		case len(value) > maxText:
			p.complain(n, at, "", "is longer than %d bytes", maxText)
		case strings.TrimSpace(value) == "":
			p.complain(n, at, f.accepts, "is empty")
		case plaintext.Block(value, len(value)) != value:
			p.complain(n, at, "", "holds characters that are not seen: whoever reviews the config would read something else")
		default:
			return value, true
		}
		return "", false
	}}
}

// line is text of one line.
func line(kind, accepts string, check func(string) error) shape[string] {
	return refine(text(), kind, accepts, nil, func(s string) (string, error) {
		if strings.ContainsAny(s, "\n\t") {
			return "", errors.New("holds a line break or tab")
		}
		if s != strings.TrimSpace(s) {
			return "", errors.New("begins or ends with a space")
		}
		return s, check(s)
	})
}

func anything(string) error { return nil }

func boolean() shape[bool] {
	f := &form{kind: "true or false", accepts: "true or false", schema: map[string]any{"type": "boolean"}}
	return shape[bool]{form: f, read: func(p *reader, n ast.Node, at string) (bool, bool) {
		n, ok := p.plain(n, at)
		if !ok {
			return false, false
		}
		value, ok := n.(*ast.BoolNode)
		if !ok {
			p.complain(n, at, f.accepts, "is %s, wants true or false", describe(n))
			return false, false
		}
		return value.Value, true
	}}
}

// number is what a scalar that may look like a number says, as it is written.
func number(kind, accepts string, schema map[string]any) shape[string] {
	f := &form{kind: kind, accepts: accepts, schema: schema}
	return shape[string]{form: f, read: func(p *reader, n ast.Node, at string) (string, bool) {
		n, ok := p.plain(n, at)
		if !ok {
			return "", false
		}
		switch n.(type) {
		case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
			return n.GetToken().Value, true
		}
		p.complain(n, at, accepts, "is %s, wants %s", describe(n), kind)
		return "", false
	}}
}

// digits reports whether s is a decimal number as people write it: no sign, no
// leading zero (YAML reads that as octal), no underscore.
func digits(s string) bool {
	if s == "" || len(s) > 1 && s[0] == '0' {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

func integer(least, most int) shape[int] {
	accepts := fmt.Sprintf("a whole number from %d to %d", least, most)
	schema := map[string]any{"type": "integer", "minimum": least, "maximum": most}
	return refine(number("whole number", accepts, schema), "whole number", accepts, nil, func(s string) (int, error) {
		value, err := strconv.Atoi(s)
		if err != nil || !digits(s) || value < least || value > most {
			return 0, fmt.Errorf("%.40q is out of range or no whole number", s)
		}
		return value, nil
	})
}

// unit is the factor of a suffix.
type unit struct {
	suffix string
	factor int64
}

// sizeUnits by suffix, longer ones first.
func sizeUnits() []unit {
	return []unit{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	}
}

// withUnit reads DIGITS UNIT.
func withUnit(s string, units []unit) (int64, bool) {
	for _, u := range units {
		count, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		value, err := strconv.ParseInt(count, 10, 64)
		if err != nil || !digits(count) || value > (1<<62)/u.factor {
			return 0, false
		}
		return value * u.factor, true
	}
	return 0, false
}

// size is a number of bytes. The unit is always written: a bare number was
// meant as megabytes by half of those who wrote one.
func size(least int64) shape[int64] {
	accepts := "a whole number with KiB, MiB, GiB or TiB (or kB, MB, GB, TB), such as 8GiB"
	schema := map[string]any{"type": "string", "pattern": "^(0|[1-9][0-9]*)([KMGT]iB|[kMGT]B)$"}
	return refine(number("size", accepts, schema), "size", accepts, nil, func(s string) (int64, error) {
		value, ok := withUnit(s, sizeUnits())
		if !ok {
			return 0, fmt.Errorf("%.40q is no size", s)
		}
		if value < least {
			return 0, fmt.Errorf("%.40q is less than the least that works, %d bytes", s, least)
		}
		return value, nil
	})
}

// tokenCount is a number of model tokens.
func tokenCount() shape[int64] {
	accepts := "a whole number, or one with k or M, such as 500k"
	schema := map[string]any{"type": []string{"integer", "string"}, "pattern": "^[1-9][0-9]*[kM]?$", "minimum": 1}
	return refine(number("tokens", accepts, schema), "tokens", accepts, nil, func(s string) (int64, error) {
		value, ok := withUnit(s, []unit{{"k", 1e3}, {"M", 1e6}, {"", 1}})
		if !ok || value < 1 {
			return 0, fmt.Errorf("%.40q is no number of tokens", s)
		}
		return value, nil
	})
}

// processors is a number of processors in thousandths.
func processors() shape[int64] {
	accepts := "a number of processors with at most three decimals, from 0.01 to 1024, such as 4 or 1.5"
	schema := map[string]any{"type": "number", "minimum": 0.01, "maximum": 1024}
	return refine(number("processors", accepts, schema), "processors", accepts, nil, func(s string) (int64, error) {
		value, ok := decimal(s, 3)
		if !ok || value < 10 || value > 1024_000 {
			return 0, fmt.Errorf("%.40q is no number of processors", s)
		}
		return value, nil
	})
}

// decimal reads a decimal number exactly, as a whole number of 10^-places.
func decimal(s string, places int) (int64, bool) {
	whole, part, dotted := strings.Cut(s, ".")
	if !digits(whole) || dotted && part == "" || len(part) > places || strings.Trim(part, "0123456789") != "" {
		return 0, false
	}
	value, err := strconv.ParseInt(whole+part+strings.Repeat("0", places-len(part)), 10, 64)
	return value, err == nil
}

// Money is an exact amount in millionths of the currency unit that the provider
// bills in. Floats would lose cents in sums.
type Money int64

// moneyPlaces is how many decimals a Money keeps.
const moneyPlaces = 6

// ParseMoney reads an amount such as "40.00".
func ParseMoney(s string) (Money, error) {
	value, ok := decimal(s, moneyPlaces)
	if !ok {
		return 0, fmt.Errorf("%.40q is no amount", s)
	}
	return Money(value), nil
}

// String writes the amount with at least two decimals.
func (m Money) String() string {
	sign, value := "", uint64(m)
	if m < 0 {
		sign, value = "-", uint64(-m)
	}
	part := strings.TrimRight(fmt.Sprintf("%06d", value%1e6), "0")
	for len(part) < 2 {
		part += "0"
	}
	return fmt.Sprintf("%s%d.%s", sign, value/1e6, part)
}

// MarshalJSON writes the amount as text: JSON numbers are floats to many.
func (m Money) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

func money() shape[Money] {
	accepts := "an amount with at most six decimals, such as 40.00"
	schema := map[string]any{"type": "number", "minimum": 0}
	return refine(number("money", accepts, schema), "money", accepts, nil, ParseMoney)
}

// maxDuration is the longest time limit; one run longer than a day is an
// oversight.
const maxDuration = 24 * time.Hour

func duration() shape[time.Duration] {
	accepts := "hours, minutes and seconds from 1s to 24h, such as 45m or 1h30m"
	schema := map[string]any{"type": "string", "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$", "minLength": 2}
	return refine(number("duration", accepts, schema), "duration", accepts, nil, func(s string) (time.Duration, error) {
		value, err := time.ParseDuration(s)
		if err != nil || strings.Trim(s, "0123456789hms") != "" || strings.Contains(s, "ms") {
			return 0, fmt.Errorf("%.40q is no duration", s)
		}
		if value < time.Second || value > maxDuration {
			return 0, fmt.Errorf("%.40q is out of range", s)
		}
		return value, nil
	})
}

// word is one accepted value. later refuses it, though it is known.
type word struct{ name, later string }

// now makes words that work.
func now(names ...string) []word {
	words := make([]word, len(names))
	for i, name := range names {
		words[i] = word{name: name}
	}
	return words
}

// oneOf is one of a few words.
func oneOf[S ~string](words ...word) shape[S] {
	var names, known []string
	for _, w := range words {
		known = append(known, w.name)
		if w.later == "" {
			names = append(names, w.name)
		}
	}
	accepts := strings.Join(names, ", ")
	if len(names) > 1 {
		accepts = strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	}
	f := &form{kind: "one of " + accepts, accepts: accepts, schema: map[string]any{"enum": names}}
	if len(names) == 1 {
		f.kind = accepts
	}
	for _, w := range words {
		if w.later != "" {
			f.kind += fmt.Sprintf("; %s is not yet supported", w.name)
		}
	}
	plain := text()
	return shape[S]{form: f, read: func(p *reader, n ast.Node, at string) (S, bool) {
		value, ok := plain.read(p, n, at)
		if !ok {
			return "", false
		}
		for _, w := range words {
			if w.name == value && w.later == "" {
				return S(value), true
			}
			if w.name == value {
				p.complain(n, at, accepts, "%q is not yet supported: %s", value, w.later)
				return "", false
			}
		}
		p.complain(n, at, accepts, "%.60q is not accepted%s", value, didYouMean(value, known))
		return "", false
	}}
}

// repositoryPath is a file's path in the repository.
func repositoryPath() shape[string] {
	return line("path", "a path in the repository, such as go.sum", func(s string) error {
		if s == "." || path.IsAbs(s) || path.Clean(s) != s || s == ".." || strings.HasPrefix(s, "../") {
			return fmt.Errorf("%.200q is no path in the repository in its short form", s)
		}
		return nil
	})
}

// absolutePath is a path on this machine, or inside the view.
func absolutePath(check func(string) error) shape[string] {
	return line("absolute path", "an absolute path without . and .., such as /opt/toolchain", func(s string) error {
		if !path.IsAbs(s) {
			return fmt.Errorf("%.200q is not absolute", s)
		}
		if clean := path.Clean(s); clean != s {
			return fmt.Errorf("%.200q is not in its short form, write %.200q", s, clean)
		}
		if strings.ContainsAny(s, ":") {
			// It would split in two in a PATH.
			return fmt.Errorf("%.200q holds a colon", s)
		}
		return check(s)
	})
}
