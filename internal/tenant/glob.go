package tenant

import (
	"fmt"
	"path"
	"strings"
	"unicode"
)

// Glob is a pattern for paths in a repository:
//
//   - * stands for any characters but a slash, ? for one;
//   - ** as a whole component stands for any number of components, none too;
//   - a pattern without a slash matches that name in every directory;
//   - a pattern that matches a directory covers everything below it;
//   - letters match in either case, as some checkouts are on file systems that
//     take both for one.
//
// Each of these protects more rather than less. Brackets, braces, backslashes
// and negation are refused: what a list protects should be plain to see.
type Glob string

// ParseGlob checks a pattern. One that can match no path of a repository, or is
// not in its short form, is an error.
func ParseGlob(s string) (Glob, error) {
	switch {
	case s == "":
		return "", fmt.Errorf("is empty")
	case len(s) > 1024:
		return "", fmt.Errorf("is longer than 1024 bytes")
	case strings.ContainsAny(s, `[]{}\`):
		return "", fmt.Errorf(`%.200q holds one of []{}\, which are not accepted: use *, ? and **`, s)
	case s[0] == '!':
		return "", fmt.Errorf("%.200q begins with !: a pattern can't take something out of a list", s)
	case s[0] == '/':
		return "", fmt.Errorf("%.200q begins with a slash and can't match, write %.200q", s, shortGlob(s))
	case strings.HasSuffix(s, "/"):
		return "", fmt.Errorf("%.200q ends with a slash and can't match, write %.200q", s, shortGlob(s)+"/**")
	}
	previous := ""
	for _, component := range strings.Split(s, "/") {
		switch {
		case component == "" || component == ".":
			return "", fmt.Errorf("%.200q is not in its short form, write %.200q", s, shortGlob(s))
		case component == "..":
			return "", fmt.Errorf("%.200q leaves the repository and can't match", s)
		case strings.EqualFold(component, ".git"):
			return "", fmt.Errorf("%.200q can't match: git keeps no path with a .git in it", s)
		case component == "**" && previous == "**":
			return "", fmt.Errorf("%.200q holds **/**, write one **", s)
		case component != "**" && strings.Contains(component, "**"):
			return "", fmt.Errorf("%.200q holds ** inside of a name: ** is a whole component, * is within one", s)
		}
		previous = component
	}
	return Glob(s), nil
}

// shortGlob is what a pattern with slashes too many probably means.
func shortGlob(s string) string {
	short := strings.TrimPrefix(path.Clean("/"+s), "/")
	if short == "" {
		return "**"
	}
	return short
}

// Match reports whether the pattern covers a path of the repository.
func (g Glob) Match(name string) bool {
	if g == "" {
		return false
	}
	pattern := strings.Split(string(g), "/")
	if len(pattern) == 1 && g != "**" {
		pattern = []string{"**", pattern[0]}
	}
	components := strings.Split(name, "/")
	// Covering a directory covers what is below.
	for n := 1; n <= len(components); n++ {
		if matchComponents(pattern, components[:n]) {
			return true
		}
	}
	return false
}

// matchComponents goes back to the last ** alone: that is enough, as an earlier
// one could only take components that the last can take too. So time grows with
// the product of the lengths, never faster.
func matchComponents(pattern, components []string) bool {
	p, c, starP, starC := 0, 0, -1, 0
	for c < len(components) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			starP, starC = p, c
			p++
		case p < len(pattern) && matchComponent([]rune(pattern[p]), []rune(components[c])):
			p++
			c++
		case starP >= 0:
			starC++
			p, c = starP+1, starC
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

func matchComponent(pattern, name []rune) bool {
	p, n, starP, starN := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			starP, starN = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || sameLetter(pattern[p], name[n])):
			p++
			n++
		case starP >= 0:
			starN++
			p, n = starP+1, starN
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// sameLetter compares by Unicode's simple folding, as strings.EqualFold does.
func sameLetter(a, b rune) bool {
	if a == b {
		return true
	}
	for r := unicode.SimpleFold(a); r != a; r = unicode.SimpleFold(r) {
		if r == b {
			return true
		}
	}
	return false
}
