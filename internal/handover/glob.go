package handover

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Glob is a pattern of paths in a tree. Without a slash it means a name at any
// depth (a directory's name stands for all below it), else a path from the root;
// "**" stands for any number of components, also none. It is matched in folded
// form (Fold), as file systems that ignore case would.
type Glob struct {
	text  string
	parts []string
}

// ParseGlob refuses patterns that could not match a path.
func ParseGlob(text string) (Glob, error) {
	fail := func(why string) (Glob, error) {
		return Glob{}, fmt.Errorf("parse path pattern %.200q: %s", text, why)
	}
	folded := Fold(strings.TrimSuffix(text, "/"))
	if folded == "" || len(text) > 1024 {
		return fail("it is empty or too long")
	}
	parts := strings.Split(folded, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			return fail("it has an empty component, or one that no path of a tree has; write it without a leading slash")
		}
		if strings.Contains(p, "**") && p != "**" {
			return fail(`it holds "**" beside other characters`)
		}
		if _, err := path.Match(p, ""); err != nil {
			return fail("a bracket is not closed, or the last backslash escapes nothing")
		}
	}
	if len(parts) == 1 && parts[0] != "**" {
		parts = []string{"**", parts[0]}
	}
	// A directory may be replaced by a file or a link of its name, and a name
	// may be a directory: the pattern means the entry and all below it.
	if parts[len(parts)-1] != "**" {
		parts = append(parts, "**")
	}
	return Glob{text: text, parts: parts}, nil
}

// String is the pattern as it was written.
func (g Glob) String() string { return g.text }

// match takes a folded path.
func (g Glob) match(folded string) bool {
	return matchParts(g.parts, strings.Split(folded, "/"))
}

// matchParts goes back to the last "**" only, which is enough: what an earlier
// one could take more of, the last one can as well. So the time is bounded by
// the product of both lengths.
func matchParts(pattern, have []string) bool {
	p, h, star, from := 0, 0, -1, 0
	for h < len(have) {
		if p < len(pattern) && pattern[p] == "**" {
			star, from = p, h
			p++
			continue
		}
		if p < len(pattern) {
			if ok, err := path.Match(pattern[p], have[h]); err == nil && ok {
				p++
				h++
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, h = star+1, from
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// Fold gives two paths that some file system takes for one the same form:
// without the characters that HFS+ ignores, case folded, in normal form C.
// (golang.org/x/text/cases folds Cherokee letters to each other in turn, so that
// the two cases never meet; a fuzz test found it.)
func Fold(p string) string {
	// Normalising stops at bytes that are no UTF-8.
	p = strings.ToValidUTF8(p, "\ufffd")
	return norm.NFC.String(ligatures.Replace(strings.Map(foldRune, norm.NFD.String(p))))
}

// foldRune picks one letter of all that differ by case only.
func foldRune(c rune) rune {
	if ignoredByHFS(c) {
		return -1
	}
	least := c
	for r := unicode.SimpleFold(c); r != c; r = unicode.SimpleFold(r) {
		least = min(least, r)
	}
	if least >= 'A' && least <= 'Z' {
		return least + 'a' - 'A'
	}
	return least
}

// ligatures are the letters whose full folding is several letters of ASCII: the
// others can't hide a name that any rule knows.
var ligatures = strings.NewReplacer("ß", "ss", "ẞ", "ss", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")

// ignoredByHFS lists what HFS+ leaves out when it compares names; git's own
// check for a hidden .git knows the same list.
func ignoredByHFS(c rune) bool {
	return c >= 0x200c && c <= 0x200f || c >= 0x202a && c <= 0x202e || c >= 0x206a && c <= 0x206f || c == 0xfeff
}
