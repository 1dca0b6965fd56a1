package handover

import (
	"strings"
	"unicode/utf8"

	"confine/internal/plaintext"
)

// maxDepth and maxPath cap a path: tools recurse into it.
const (
	maxDepth = 100
	maxPath  = 1024
)

// oddName says why tools, systems or people misread a path; "" for a good one.
// Git's strict check refuses some of these already: each is said again here, as
// its list differs between versions.
func oddName(p string) string {
	switch {
	case p == "":
		return "it is empty"
	case len(p) > maxPath:
		return "it is too long"
	case strings.Count(p, "/") >= maxDepth:
		return "it is too deep"
	case !utf8.ValidString(p):
		return "it is not UTF-8"
	case strings.ContainsRune(p, '\\'):
		return "it holds a backslash, which separates components elsewhere"
	case plaintext.Line(p, maxPath+1) != p || strings.ContainsAny(p, "\n\t\r"):
		return "it holds a control, invisible or direction-changing character"
	}
	for name := range strings.SplitSeq(p, "/") {
		if why := oddComponent(name); why != "" {
			return why
		}
	}
	return ""
}

func oddComponent(name string) string {
	switch {
	case name == "":
		return "it has an empty component"
	case name == "." || name == "..":
		return "it leads to another directory"
	case isDotGit(name):
		return "a component means .git on some file system"
	}
	return ""
}

// isDotGit reports names that NTFS or HFS+ take for .git: another case, ignored
// characters, trailing dots and spaces, a stream suffix, the short name git~1.
func isDotGit(name string) bool {
	folded := Fold(name)
	if i := strings.IndexByte(folded, ':'); i >= 0 {
		folded = folded[:i]
	}
	folded = strings.TrimRight(folded, ". ")
	if folded == ".git" {
		return true
	}
	rest, ok := strings.CutPrefix(folded, "git~")
	return ok && len(rest) == 1 && rest[0] >= '0' && rest[0] <= '9'
}

// isGitFile reports the files that steer git in every clone: which programs
// filter, what is fetched besides. Their NTFS and HFS+ spellings count.
func isGitFile(p string) bool {
	name := Fold(p[strings.LastIndexByte(p, '/')+1:])
	if i := strings.IndexByte(name, ':'); i >= 0 {
		name = name[:i]
	}
	name = strings.TrimRight(name, ". ")
	switch name {
	case ".gitmodules", ".gitattributes", ".lfsconfig":
		return true
	}
	for _, short := range []string{"gitmod~", "gitatt~", "lfscon~"} {
		if rest, ok := strings.CutPrefix(name, short); ok && len(rest) == 1 && rest[0] >= '0' && rest[0] <= '9' {
			return true
		}
	}
	return false
}
