package handover

import "fmt"

// Tier is how strongly a path is protected. The zero value is no tier: Protect
// returns it for paths that no pattern names.
type Tier string

// The tiers.
const (
	TierRefuse   Tier = "refuse"   // may not change
	TierApproval Tier = "approval" // a person has to say yes
	TierNote     Tier = "note"     // is recorded
	TierFree     Tier = ""
)

// defaultRefuse are files that a code host or a CI system runs as soon as they
// are pushed, with what secrets it has.
var defaultRefuse = []string{
	".github/**", ".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab/**", ".circleci/**",
	"Jenkinsfile*", ".jenkins/**", ".gitea/**", ".forgejo/**", "azure-pipelines*.yml", "azure-pipelines*.yaml", ".azure-pipelines/**", ".azuredevops/**",
	".buildkite/**", ".travis.yml", ".drone.yml", ".drone.star", ".woodpecker.yml", ".woodpecker.yaml", ".woodpecker/**",
	"bitbucket-pipelines.yml", ".cirrus.yml", ".cirrus.star", "appveyor.yml", ".appveyor.yml", ".semaphore/**", ".teamcity/**", ".builds/**", ".build.yml",
	".tekton/**", "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml", "buildspec.yaml", "codefresh.yml", ".screwdriver.yaml", "wercker.yml", ".harness/**",
	".concourse/**", ".prow.yaml", ".ci/**", "netlify.toml", "vercel.json", "render.yaml", ".mergify.yml", ".mergify/**", "bors.toml", "renovate.json*", ".renovaterc*",
}

// defaultApproval are files that start something when a person opens, installs,
// builds or commits, and those that say who may approve what.
var defaultApproval = []string{
	"CODEOWNERS", "OWNERS", "MAINTAINERS",
	".envrc", ".env", ".env.*", ".vscode/**", ".idea/**", ".zed/**", ".fleet/**", "*.code-workspace", ".devcontainer/**", ".devcontainer.json", ".gitpod.yml", ".gitpod.Dockerfile",
	".husky/**", ".githooks/**", ".git-hooks/**", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "lefthook.yml", "lefthook.yaml", ".lefthook/**", ".overcommit.yml",
	".claude/**", ".mcp.json", "mcp.json", ".cursor/**", ".cursorrules", ".codex/**", ".gemini/**", ".windsurf/**", ".aider*", ".continue/**", ".roo/**", ".cline/**", ".opencode/**",
	"CLAUDE.md", "AGENTS.md", "GEMINI.md",
	".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/**", ".pnpmfile.cjs", "pnpm-workspace.yaml", ".netrc", ".pypirc", "pip.conf", ".cargo/**", "build.rs",
	"sitecustomize.py", "usercustomize.py", "pyvenv.cfg", "*.pth", "conftest.py", "setup.py", "binding.gyp", ".gemrc", ".bundle/**", ".mvn/**", ".gradle/**", "gradle/wrapper/**", "gradlew", "gradlew.bat", "mvnw", "mvnw.cmd",
	".tool-versions", "mise.toml", ".mise.toml", ".mise/**", ".asdfrc", ".nvmrc", ".direnv/**", "flake.nix", "shell.nix", ".gitconfig", ".gitallowed", ".secretlintrc*", ".gitleaks.toml", ".gitleaksignore", ".trivyignore",
}

// defaultNote are files that deserve a look: what is installed and what is
// built.
var defaultNote = []string{
	"package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb", "go.mod", "go.sum", "Cargo.toml", "Cargo.lock", "requirements*.txt", "pyproject.toml", "poetry.lock", "uv.lock", "Pipfile", "Pipfile.lock",
	"Gemfile", "Gemfile.lock", "*.gemspec", "pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "composer.json", "composer.lock", "Dockerfile*", "Containerfile*", "docker-compose*.yml", "docker-compose*.yaml", "compose.yml", "compose.yaml",
	"Makefile", "GNUmakefile", "*.mk", "justfile", "Taskfile.yml", "Rakefile", "CMakeLists.txt", "meson.build", ".gitignore",
}

// Protection decides the tier of a path. The zero value protects nothing; make
// one with NewProtection.
type Protection struct {
	levels []level
	free   []Glob
}

// level is a list of patterns. Levels are asked from the strictest down.
type level struct {
	tier    Tier
	field   string
	builtIn bool
	globs   []Glob
}

// ProtectOptions are the patterns of a config. They add to the built-in ones:
// the strictest tier wins. Free takes paths out of the built-in patterns, so that
// naming one in Free and in Approval lowers it from refuse to approval.
type ProtectOptions struct {
	Refuse, Approval, Note, Free []string
}

// NewProtection parses the patterns.
func NewProtection(o ProtectOptions) (Protection, error) {
	lists := []struct {
		level
		patterns []string
	}{
		{level{tier: TierRefuse, field: "protect.refuse"}, o.Refuse},
		{level{tier: TierRefuse, field: "protect.free", builtIn: true}, defaultRefuse},
		{level{tier: TierApproval, field: "protect.approval"}, o.Approval},
		{level{tier: TierApproval, field: "protect.free", builtIn: true}, defaultApproval},
		{level{tier: TierNote, field: "protect.note"}, o.Note},
		{level{tier: TierNote, field: "protect.free", builtIn: true}, defaultNote},
	}
	var p Protection
	var err error
	for _, list := range lists {
		l := list.level
		if l.globs, err = parseGlobs(list.patterns); err != nil {
			return Protection{}, fmt.Errorf("%s: %w", l.field, err)
		}
		p.levels = append(p.levels, l)
	}
	if p.free, err = parseGlobs(o.Free); err != nil {
		return Protection{}, fmt.Errorf("protect.free: %w", err)
	}
	return p, nil
}

func parseGlobs(patterns []string) ([]Glob, error) {
	var globs []Glob
	for _, text := range patterns {
		g, err := ParseGlob(text)
		if err != nil {
			return nil, err
		}
		globs = append(globs, g)
	}
	return globs, nil
}

// Verdict is why a path has its tier.
type Verdict struct {
	Tier Tier
	// Field is the config field that says so, or that would change it.
	Field string
	// Pattern is the one that matched.
	Pattern string
}

// Decide returns the strictest tier that a pattern gives the path.
func (p Protection) Decide(path string) Verdict {
	folded := Fold(path)
	_, freed := firstMatch(p.free, folded)
	for _, l := range p.levels {
		if l.builtIn && freed {
			continue
		}
		if pattern, ok := firstMatch(l.globs, folded); ok {
			return Verdict{l.tier, l.field, pattern}
		}
	}
	return Verdict{}
}

func firstMatch(globs []Glob, folded string) (string, bool) {
	for _, g := range globs {
		if g.match(folded) {
			return g.text, true
		}
	}
	return "", false
}
