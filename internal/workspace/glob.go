package workspace

import (
	"fmt"
	"path"
	"strings"
)

// glob is a pattern of paths below a workspace. Without a slash it means a name
// at any depth, else (also after "./") a path from the root; "**" stands for any number of
// directories, also none.
type glob struct {
	text  string
	parts []string
}

// parseGlob refuses what could not match anything below a root.
func parseGlob(text string) (glob, error) {
	fail := func(why string) (glob, error) { return glob{}, &GlobError{Glob: text, Why: why} }
	trimmed := strings.TrimSuffix(strings.TrimPrefix(text, "./"), "/")
	switch {
	case trimmed == "" || len(text) > 1024:
		return fail("is empty or too long")
	case strings.HasPrefix(trimmed, "/"):
		return fail("begins with a slash: patterns are paths below the workspace")
	case strings.ContainsRune(text, 0):
		return fail("holds a NUL")
	}
	parts := strings.Split(trimmed, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			return fail(fmt.Sprintf("holds the component %q, which no path below the workspace has", p))
		}
		if strings.Contains(p, "**") && p != "**" {
			return fail(`holds "**" beside other characters`)
		}
		if _, err := path.Match(p, ""); err != nil {
			return fail("is no pattern: a bracket is not closed or the last backslash escapes nothing")
		}
	}
	if parts[len(parts)-1] == "**" {
		return fail(`ends in "**": name the directory itself, all in it goes with it`)
	}
	if len(parts) == 1 && !strings.HasPrefix(text, "./") {
		parts = []string{"**", parts[0]}
	}
	return glob{text: text, parts: parts}, nil
}

// GlobError is a mask that can't be enforced as written.
type GlobError struct{ Glob, Why string }

func (e *GlobError) Error() string { return fmt.Sprintf("mask %.200q: %s", e.Glob, e.Why) }

// Hint shows what is accepted.
func (e *GlobError) Hint() string {
	return `a mask is a name ("*.key"), or a path below the workspace ("config/secrets", "**/prod/*.pem")`
}

// match reports whether the pattern means the path; the root itself it never does.
func (g glob) match(rel string) bool {
	return rel != "" && matchParts(g.parts, strings.Split(rel, "/"))
}

// matchParts goes back to the last "**" only, which is enough: what an earlier
// one could take more of, the last one can as well. So the time is bounded by
// the product of both lengths, whatever a hostile path looks like.
func matchParts(pattern, have []string) bool {
	p, h := 0, 0
	star, from := -1, 0
	for h < len(have) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, from = p, h
			p++
			continue
		case p < len(pattern):
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

// defaultMasks are the files that hold secrets by custom, defaultShown those
// that only look like them. Letter case does not matter: on some file systems it
// makes no difference.
var (
	defaultMasks = []string{".env", ".env.*"}
	defaultShown = []string{".env.example", ".env.sample", ".env.template", ".env.dist"}
)

// masks decides which paths are covered.
type masks struct{ globs []glob }

func newMasks(patterns []string) (masks, error) {
	var m masks
	for _, p := range patterns {
		g, err := parseGlob(p)
		if err != nil {
			return masks{}, err
		}
		m.globs = append(m.globs, g)
	}
	return m, nil
}

// matchAnywhere reports whether a path would still be covered in any other
// directory: its place need not be kept.
func (m masks) matchAnywhere(rel string) bool {
	name := path.Base(rel)
	if defaultMasked(name) {
		return true
	}
	for _, g := range m.globs {
		if len(g.parts) == 2 && g.parts[0] == "**" && g.match(name) {
			return true
		}
	}
	return false
}

// any reports whether there is a pattern that needs the whole path.
func (m masks) any() bool { return len(m.globs) > 0 }

func (m masks) match(rel, name string) bool {
	return defaultMasked(name) || m.matchGiven(rel)
}

func defaultMasked(name string) bool {
	if len(name) < len(".env") || !strings.EqualFold(name[:4], ".env") {
		return false
	}
	name = strings.ToLower(name)
	for _, shown := range defaultShown {
		if name == shown {
			return false
		}
	}
	for _, p := range defaultMasks {
		if ok, err := path.Match(p, name); err == nil && ok {
			return true
		}
	}
	return false
}

func (m masks) matchGiven(rel string) bool {
	for _, g := range m.globs {
		if g.match(rel) {
			return true
		}
	}
	return false
}
