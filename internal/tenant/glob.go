package tenant

import (
	"fmt"
	"path"
	"strings"
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
// and negation are refused: what a list protects should be plain to see. Package
// handover does the matching; what is accepted here is part of what it accepts.
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
