package workspace

import "strings"

// setting is one value of a git configuration file.
type setting struct{ section, key, value string }

// parseGitConfig reads what a person's configuration says. It serves to protect
// more, never to grant anything, so it reads loosely: what git would refuse is
// read as far as it makes sense. Sections and keys are in lower case, a
// subsection is dropped.
func parseGitConfig(data []byte) []setting {
	var out []setting
	section := ""
	text := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			head, rest, _ := strings.Cut(line[1:], "]")
			section, _, _ = strings.Cut(strings.ToLower(head), " ")
			section, _, _ = strings.Cut(section, ".")
			// A subsection may hold the bracket itself; then the rest is not a
			// setting and does no harm.
			line = strings.TrimSpace(rest)
		}
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		out = append(out, setting{section, strings.ToLower(strings.TrimSpace(key)), unquote(strings.TrimSpace(value))})
	}
	return out
}

// unquote takes away quotes, escapes and a comment at the end.
func unquote(value string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && i+1 < len(value):
			i++
			b.WriteByte(value[i])
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '#' || c == ';'):
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// commandKeys are keys whose value is a program.
var commandKeys = map[string]bool{
	"fsmonitor": true, "editor": true, "pager": true, "askpass": true, "sshcommand": true, "gitproxy": true,
	"clean": true, "smudge": true, "process": true, "textconv": true, "command": true, "external": true,
	"driver": true, "cmd": true, "helper": true, "program": true, "uploadpack": true, "receivepack": true,
}

// pointer is a path that a repository's configuration makes git obey, as written.
type pointer struct {
	path string
	// fromFile: relative to the file it is written in, else to the work tree.
	fromFile bool
	include  bool
}

// pointers are the paths in settings that may lie in the work tree. Keys with
// other paths (core.worktree, remote addresses) are none: what they name is not
// run.
func pointers(settings []setting) []pointer {
	var out []pointer
	for _, s := range settings {
		switch {
		case (s.section == "include" || s.section == "includeif") && s.key == "path":
			out = append(out, pointer{path: s.value, fromFile: true, include: true})
		case s.section == "core" && (s.key == "hookspath" || s.key == "attributesfile"):
			out = append(out, pointer{path: s.value})
		case s.section == "alias", commandKeys[s.key]:
			for _, word := range strings.Fields(strings.TrimPrefix(s.value, "!")) {
				// A program, or a script given to one.
				if strings.Contains(word, "/") || strings.Contains(word, ".") {
					out = append(out, pointer{path: strings.Trim(word, `'";`)})
				}
			}
		}
	}
	return out
}
