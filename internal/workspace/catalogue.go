package workspace

import (
	"path"
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
	KindLinkOut    Kind = "link out of the tree"
	KindSetID      Kind = "set-id file"
	KindUnseen     Kind = "directory that can't be looked into"
)

// catalogue is what some program on a host runs by itself, without a person
// having named it: when a folder is opened or entered, or in the course of
// another command. A Makefile is not in it, as somebody says "make".
//
// It is data, so that a new tool is a new line. Names are compared without
// letter case, as some file systems do.
var catalogue = []rule{
	{kind: KindEditor, dir: ".vscode", files: []string{"tasks.json", "settings.json", "launch.json", "mcp.json"}, by: "VS Code and its relatives, when the folder is opened"},
	{kind: KindEditor, dir: ".idea", by: "JetBrains editors, when the project is opened"},
	{kind: KindEditor, dir: ".run", files: []string{"*.run.xml"}, by: "JetBrains editors"},
	{kind: KindEditor, dir: ".zed", by: "Zed, when the folder is opened"},
	{kind: KindEditor, dir: ".fleet", by: "Fleet, when the folder is opened"},
	{kind: KindEditor, files: []string{"*.code-workspace"}, by: "VS Code, when the workspace is opened"},
	{kind: KindEditor, files: []string{".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el"}, by: "Vim, Neovim or Emacs, when a file beside it is opened"},
	{kind: KindAgent, dir: ".claude", by: "Claude Code (hooks, settings), when it is started in the folder"},
	{kind: KindAgent, dir: ".cursor", by: "Cursor, when the folder is opened"},
	{kind: KindAgent, dir: ".codex", by: "Codex, when it is started in the folder"},
	{kind: KindAgent, dir: ".gemini", by: "Gemini CLI, when it is started in the folder"},
	{kind: KindAgent, dir: ".qwen", by: "Qwen Code, when it is started in the folder"},
	{kind: KindAgent, dir: ".opencode", by: "OpenCode, when it is started in the folder"},
	{kind: KindAgent, dir: ".windsurf", by: "Windsurf, when the folder is opened"},
	{kind: KindAgent, dir: ".kiro", by: "Kiro, when the folder is opened"},
	{kind: KindAgent, dir: ".github", files: []string{"hooks/**", "copilot/**"}, by: "Copilot, when it is started in the folder"},
	{kind: KindAgent, files: []string{".mcp.json", "mcp.json", "opencode.json", "opencode.jsonc", ".aider.conf.yml"}, by: "coding agents, which start the servers and commands it names"},
	{kind: KindContainer, dir: ".devcontainer", by: "editors, when the folder is opened in a container"},
	{kind: KindContainer, files: []string{".devcontainer.json"}, by: "editors, when the folder is opened in a container"},
	{kind: KindShell, files: []string{".envrc", ".autoenv", ".autoenv.zsh", ".in", "mise.toml", ".mise.toml", "devbox.json"}, by: "direnv, autoenv, mise or devbox, when a shell enters the folder"},
	{kind: KindHooks, dir: ".husky", by: "git, at commit and push"},
	{kind: KindHooks, dir: ".githooks", by: "git, at commit and push"},
	{kind: KindHooks, files: []string{".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", ".overcommit.yml"}, by: "git, at commit and push, where its tool is installed"},
	{kind: KindGitControl, files: []string{".gitattributes"}, by: "git, which runs the filters, diff and merge drivers it names that are configured"},
	{kind: KindGitControl, files: []string{".gitmodules", ".lfsconfig"}, by: "git, which fetches from the addresses it names"},
	{kind: KindPackage, dir: ".yarn", files: []string{"plugins/**", "releases/**", "sdks/**"}, by: "Yarn, at any of its commands"},
	{kind: KindPackage, files: []string{".yarnrc.yml", ".yarnrc", ".npmrc", ".pnpmfile.cjs", ".pnp.cjs", ".pnp.loader.mjs"}, by: "npm, pnpm, Yarn or Node, at any of their commands"},
	{kind: KindPackage, dir: ".cargo", files: []string{"config", "config.toml"}, by: "Cargo, at any of its commands, and editors through it"},
	{kind: KindPackage, dir: ".mvn", by: "Maven, at any of its commands"},
	{kind: KindPackage, dir: ".bundle", files: []string{"config"}, by: "Bundler, at any of its commands"},
	{kind: KindLinter, files: []string{".pylintrc", ".eslintrc.js", ".eslintrc.cjs", "eslint.config.js", "eslint.config.mjs", "eslint.config.cjs", "eslint.config.ts", ".prettierrc.js", ".prettierrc.cjs", ".prettierrc.mjs", "prettier.config.js", "prettier.config.mjs", "prettier.config.cjs"}, by: "editors, which run it to check an opened file"},
	{kind: KindDebugger, files: []string{".gdbinit", ".lldbinit"}, by: "debuggers started in the folder"},
	{kind: KindInterp, files: []string{"pyvenv.cfg"}, by: "editors and shells, which start the interpreter beside it"},
	{kind: KindScripts, files: []string{"package.json"}, by: "npm, pnpm or Yarn, when packages are installed"},
}

// rule is one line of the catalogue: files below a directory of that name at any
// depth (all, if files is empty), or files of those names at any depth.
type rule struct {
	kind  Kind
	dir   string
	files []string
	by    string
}

// byDir and byName find the lines that concern a name.
var byDir, byName, byPattern = indexCatalogue()

func indexCatalogue() (dirs map[string][]*rule, names map[string]*rule, patterns []namePattern) {
	dirs, names = map[string][]*rule{}, map[string]*rule{}
	for i := range catalogue {
		r := &catalogue[i]
		if r.dir != "" {
			dirs[r.dir] = append(dirs[r.dir], r)
			continue
		}
		for _, f := range r.files {
			if strings.ContainsAny(f, "*?[") {
				patterns = append(patterns, namePattern{f, r})
			} else {
				names[f] = r
			}
		}
	}
	return dirs, names, patterns
}

type namePattern struct {
	pattern string
	rule    *rule
}

// venvDirs hold the programs of a virtual environment.
var venvDirs = map[string]bool{"bin": true, "scripts": true}

var venvRule = &rule{kind: KindInterp, by: "editors and shells, which start the interpreter of the virtual environment"}

// scope is where a directory lies, as far as the catalogue is concerned.
type scope struct {
	// under are the lines whose directory this one lies in (or is), with the
	// path from there.
	under []scopeRule
	// installed is below node_modules: nobody opens those folders.
	installed bool
}

type scopeRule struct {
	rule *rule
	rest []string
}

func scopeOf(rel string) scope {
	var s scope
	if rel == "" {
		return s
	}
	parts := strings.Split(strings.ToLower(rel), "/")
	for i, p := range parts {
		if p == "node_modules" {
			s.installed = true
		}
		for _, r := range byDir[p] {
			s.under = append(s.under, scopeRule{r, parts[i+1:]})
		}
	}
	return s
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
			if matchParts(strings.Split(f, "/"), have) {
				return u.rule
			}
		}
	}
	if s.installed {
		return nil
	}
	// A link in the place of a directory brings in a whole one from elsewhere.
	if rules := byDir[name]; link && len(rules) > 0 {
		return rules[0]
	}
	if r := byName[name]; r != nil {
		return r
	}
	for _, p := range byPattern {
		if ok, err := path.Match(p.pattern, name); err == nil && ok {
			return p.rule
		}
	}
	return nil
}
