package workspace

import (
	"path"
	"slices"
	"strings"
)

// Kind says what sort of thing a finding is.
type Kind string

// The kinds of findings.
const (
	KindGitControl Kind = "git control file"
	KindRepository Kind = "new repository"
	KindEditor     Kind = "editor settings"
	KindAgent      Kind = "agent settings"
	KindHooks      Kind = "git hooks of the project"
	KindShell      Kind = "shell environment"
	KindContainer  Kind = "dev container"
	KindPackage    Kind = "package manager settings"
	KindScripts    Kind = "package scripts"
	KindInterp     Kind = "virtual environment"
	KindDebugger   Kind = "debugger settings"
	KindLinter     Kind = "linter settings"
	KindBuild      Kind = "build script"
	KindToolchain  Kind = "choice of a toolchain"
	KindVersions   Kind = "version control settings"
	KindGitState   Kind = "unfinished git operation"
	KindPipeline   Kind = "pipeline of the code host"
	// KindInstructions is text: no program runs it, but an agent that a person
	// starts there later does as it says, with that person's rights.
	KindInstructions Kind = "agent instructions"
	KindLinkOut      Kind = "link out of the tree"
	KindSetID        Kind = "set-id file"
	KindSpecial      Kind = "socket, FIFO or device"
	KindMasked       Kind = "masked file in git"
	// KindMaskedName is a file that a run made where a mask would cover it: a
	// staged run's is not committed.
	KindMaskedName Kind = "file of a masked name"
	KindUnseen     Kind = "directory that can't be looked into"
)

// rule is one line of the catalogue: files below a directory of that name at any
// depth (all, if files is empty), or files of those names at any depth.
type rule struct {
	kind  Kind
	dir   string
	files []string
	by    string
	// stays is for what is listed only, though it lies in a repository's
	// directory.
	stays bool
}

// index finds the lines that concern a name without going through all of them:
// every file of the tree is asked about.
type index struct {
	dirs  map[string][]*rule
	names map[string]*rule
	// begin and end are patterns such as "a*" by their first byte and "*.b" by
	// what follows the star.
	begin map[byte][]namePattern
	end   map[string]*rule
}

type namePattern struct {
	pattern string
	rule    *rule
}

var known = makeIndex(catalogue)

func makeIndex(rules []rule) index {
	x := index{map[string][]*rule{}, map[string]*rule{}, map[byte][]namePattern{}, map[string]*rule{}}
	for i := range rules {
		r := &rules[i]
		if r.dir != "" {
			x.dirs[r.dir] = append(x.dirs[r.dir], r)
			continue
		}
		for _, f := range r.files {
			rest, star := strings.CutPrefix(f, "*")
			switch {
			case star:
				x.end[rest] = r
			case strings.Contains(f, "*"):
				x.begin[f[0]] = append(x.begin[f[0]], namePattern{f, r})
			default:
				x.names[f] = r
			}
		}
	}
	return x
}

// byName finds the line of a name in lower case, wherever it lies.
func (x index) byName(name string) *rule {
	if name == "" {
		return nil
	}
	if r := x.names[name]; r != nil {
		return r
	}
	for _, p := range x.begin[name[0]] {
		if ok, err := path.Match(p.pattern, name); err == nil && ok {
			return p.rule
		}
	}
	return x.end[path.Ext(name)]
}

// venvDirs hold the programs of a virtual environment.
var venvDirs = map[string]bool{"bin": true, "scripts": true}

var venvRule = &rule{kind: KindInterp, by: "editors and shells, which start the interpreter of the virtual environment"}

// scope is where a directory lies, as far as the catalogue is concerned.
type scope struct {
	// under are the lines whose directory this one lies in (or is), with the
	// path from there.
	under []scopeRule
	// installed is below node_modules: nobody opens those folders. Of them only
	// what lies in a settings directory counts.
	installed bool
}

type scopeRule struct {
	rule *rule
	// rest is the path from the line's directory, as much of it as a pattern can
	// tell apart.
	rest []string
}

const (
	// maxRest is longer than the longest pattern of the catalogue.
	maxRest = 4
	// maxUnder caps the lines of one scope. Only a tree made for it has more.
	maxUnder = 64
)

var crowdedRule = &rule{kind: KindEditor, by: "whatever reads settings there: it lies below too many directories of settings to tell"}

// below is the scope of a directory of that name in one of this scope.
func (s scope) below(name string) scope {
	name = strings.ToLower(name)
	out := scope{installed: s.installed || name == "node_modules"}
	for _, u := range s.under {
		if len(u.rule.files) == 0 { // it has all that is in it
			out.under = []scopeRule{u}
			return out
		}
		if len(u.rest) < maxRest {
			u.rest = append(slices.Clip(u.rest), name)
		}
		out.under = append(out.under, u)
	}
	if out.installed {
		return out
	}
	for _, r := range known.dirs[name] {
		out.under = append(out.under, scopeRule{rule: r})
	}
	if len(out.under) > maxUnder {
		out.under = []scopeRule{{rule: crowdedRule}}
	}
	return out
}

// find returns the line that a file or link of this name falls under.
func (s scope) find(name string, link bool) *rule {
	name = strings.ToLower(name)
	for _, u := range s.under {
		if len(u.rule.files) == 0 {
			return u.rule
		}
		have := append(append(make([]string, 0, len(u.rest)+1), u.rest...), name)
		for _, f := range u.rule.files {
			want := strings.Split(f, "/")
			// A link may stand in the place of any directory on the way.
			if matchParts(want, have) || link && len(have) < len(want) && matchParts(want[:len(have)], have) {
				return u.rule
			}
		}
	}
	if s.installed {
		return nil
	}
	// A link in the place of a directory brings in a whole one from elsewhere.
	if rules := known.dirs[name]; link && len(rules) > 0 {
		return rules[0]
	}
	return known.byName(name)
}
