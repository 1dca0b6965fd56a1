package handover

import (
	"regexp"
	"strings"
	"sync"

	"confine/internal/gitcmd"
	"confine/internal/plaintext"
)

// Caps of what is kept of a message and an author.
const (
	maxMessage = 8000
	maxSubject = 200
	maxAuthor  = 120
)

var (
	// skipMarkers make CI systems leave a commit out, in brackets or alone.
	skipMarkers = mustExpr(`(?i)\[\s*((?:skip|no)[ _-]?(?:ci|actions?|travis|appveyor|azurepipelines|azp|cirrus|netlify|vercel|cd|deploy|pipelines?|checks?|circleci|buildkite|drone|render|review|release)|(?:ci|actions?|azurepipelines|azp|buildkite|circleci|travis|appveyor|cirrus|netlify|vercel|cd|deploy|pipelines?|drone|render)[ _-]?skip(?:ped)?)\s*\]`)
	bareMarkers = mustExpr(`(?i)\*\*\*\s*NO_CI\s*\*\*\*`)
	// issueRefs are what a closing keyword needs after it: #1, org/repo#1, GH-1,
	// the address of an issue. Where a message holds such a keyword all of them
	// are taken apart: hosts read lists ("fixes #1, #2") and words between.
	issueRefs = mustExpr(`(?i)#(\d+)\b`)
	ghRefs    = mustExpr(`(?i)\bGH-(\d+)\b`)
	issueURLs = mustExpr(`(?i)/(issues|pull|pulls|merge_requests|work_items)/(\d+)`)
	closing   = mustExpr(`(?i)\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)\b`)
	// trailers are lines that programs act on: sign-offs, review marks, checks
	// to skip, our own.
	trailers = mustExpr(`(?i)^\s*(?:[a-z][a-z-]*-by|skip-checks|confine-[a-z-]+|change-id|cc|fixes|closes|resolves|merge-request|git-[a-z-]+)\s*[:=]`)
)

// cleanMessage makes a message that says the same to a person and nothing to a
// program.
func cleanMessage(text string) string {
	lines := strings.Split(plaintext.Block(text, maxMessage), "\n")
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return "Change without a message"
	}
	lines[0] = plaintext.Line(lines[0], maxSubject)
	if len(lines) > 1 && strings.TrimSpace(lines[1]) != "" {
		// Without the empty line hosts take the second for the subject too.
		lines = append([]string{lines[0], ""}, lines[1:]...)
	}
	// After the cuts, which can end a number and so make a reference.
	lines = strings.Split(disarm(strings.Join(lines, "\n")), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, " \t")
		if trailers().MatchString(line) {
			line = "| " + strings.TrimLeft(line, " \t")
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// disarm takes apart what hosts and CI systems act on, wherever it stands in a
// message.
func disarm(text string) string {
	text = skipMarkers().ReplaceAllString(text, "($1)")
	text = bareMarkers().ReplaceAllString(text, "(no_ci)")
	if closing().MatchString(text) {
		text = issueRefs().ReplaceAllString(text, " no. $1")
		text = ghRefs().ReplaceAllString(text, "GH no. $1")
		text = issueURLs().ReplaceAllString(text, "/$1 no. $2")
	}
	return text
}

// cleanAuthor is the author in one line that can't end the trailer it is in, and
// that is disarmed as a message is: a name is a place for markers too.
func cleanAuthor(id gitcmd.Identity) string {
	strip := func(s string) string {
		s = strings.Map(func(c rune) rune {
			if c == '<' || c == '>' {
				return -1
			}
			return c
		}, plaintext.Line(s, maxAuthor))
		return disarm(strings.Join(strings.Fields(s), " "))
	}
	name, email := strip(id.Name), strip(id.Email)
	switch {
	case name == "" && email == "":
		return "unknown"
	case email == "":
		return name
	case name == "":
		return "<" + email + ">"
	}
	return name + " <" + email + ">"
}

// mustExpr compiles an expression at its first use: most starts of the program
// never look at a message.
func mustExpr(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s) })
}
