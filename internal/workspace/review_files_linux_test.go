package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What tools of the host run or agents of the host obey, each made from nothing.
func TestReviewFindsWhatToolsRunAndAgentsObey(t *testing.T) {
	for kind, names := range map[Kind]string{
		KindVersions: ".hg/hgrc .hg/hgrc-not-shared .HG/HGRC .jj/repo/config.toml .jj/repo/store/git_target .jj/repo _darcs/prefs/defaults sub/.hg/hgrc",
		KindShell: `mise.local.toml .mise/config.toml .config/mise/config.toml .mise.toml .mise.local.toml mise.production.toml .config/mise.toml .tool-versions
			.sdkmanrc .direnv/flake-profile.rc .env .env.local sub/.ENV flake.nix activate-hermit`,
		KindToolchain: "rust-toolchain.toml rust-toolchain .python-version global.json",
		KindPackage: `.cargo/config.toml sub/.cargo/config gradle/wrapper/gradle-wrapper.properties gradle/wrapper/gradle-wrapper.jar .mvn/jvm.config .mvn/wrapper/maven-wrapper.properties
			gradlew mvnw gradle.properties bunfig.toml NuGet.Config pnpm-workspace.yaml .bazelrc tools/bazel Gemfile`,
		KindBuild: "build.rs build.gradle.kts settings.gradle CMakeLists.txt App.csproj Directory.Build.props mix.exs .bsp/sbt.json nx.json",
		KindEditor: `.dir-locals.el .dir-locals-2.el .exrc .vimrc _vimrc .nvim.lua .nvimrc .vim/coc-settings.json .helix/languages.toml .vscode/c_cpp_properties.json
			.factorypath .settings/org.eclipse.prefs compile_commands.json`,
		KindInstructions: `CLAUDE.md claude.md CLAUDE.local.md sub/AGENTS.md AGENTS.override.md GEMINI.md QWEN.md .cursorrules .cursor/rules/a.mdc .github/copilot-instructions.md
			.github/instructions/go.instructions.md .github/prompts/x.prompt.md .windsurfrules .clinerules .clinerules/a.md .roo/rules/a.md .roomodes .junie/guidelines.md .goosehints .rules`,
		KindAgent: ".claude/commands/x.md .agents/skills/x/SKILL.md .continue/config.yaml .github/mcp.json .amazonq/mcp.json crush.json",
		KindPipeline: `.github/workflows/ci.yml .github/actions/x/action.yml action.yml .gitlab-ci.yml .circleci/config.yml Jenkinsfile .gitea/workflows/x.yaml .forgejo/workflows/x.yaml
			.travis.yml azure-pipelines.yml bitbucket-pipelines.yml .woodpecker/a.yml .drone.yml .buildkite/pipeline.yml .github/CODEOWNERS .github/dependabot.yml .GitHub/Workflows/CI.yml`,
		KindLinter:   ".eslintrc.json .prettierrc .golangci.yml .flake8 .rubocop.yml tailwind.config.js mypy.ini",
		KindDebugger: ".pdbrc .irbrc .ghci .Rprofile",
		KindHooks:    ".lintstagedrc.json .pre-commit-hooks.yaml",
	} {
		for _, name := range strings.Fields(names) {
			dir := t.TempDir()
			write(t, dir, append(repo(".git"), "main.go")...)
			r, _ := reviewAfter(t, dir, func() { write(t, dir, name, "other.go", "rules/x.md", "docs/README.md", "node_modules/y/CLAUDE.md") })
			want := kind
			if strings.HasPrefix(name, ".cursor/") {
				want = KindAgent // its rules are one line with its settings
			}
			if len(r.Findings) != 1 || r.Findings[0].Kind != want || r.Findings[0].Path != name {
				t.Errorf("%s: found %v, want %s", name, r.Findings, want)
			}
		}
	}
}

// What git carries on with later, left by a run: listed, not taken away, as a
// person may have stopped there to go on outside.
func TestReviewFindsUnfinishedOperationsOfGit(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, slices.Concat(repo(".git"), repo("w/.git"), []string{".git/worktrees/x/HEAD", ".git/worktrees/x/commondir", "w/.git/rebase-merge/git-rebase-todo", "w/.git/rebase-merge/strategy"})...)
	r, got := reviewAfter(t, dir, func() {
		put(t, dir, ".git/rebase-merge/git-rebase-todo", "pick 123 x\n  exec touch /tmp/evil\nx true\nexecutor\n")
		write(t, dir, ".git/rebase-merge/done", ".git/rebase-merge/strategy", ".git/rebase-apply/author-script", ".git/rebase-apply/0001", ".git/sequencer/todo", ".git/sequencer/opts", ".git/BISECT_NAMES", ".git/BISECT_LOG",
			".git/worktrees/x/rebase-merge/git-rebase-todo", ".git/MERGE_MSG", ".git/remotes/origin", ".git/branches/old")
		put(t, dir, "w/.git/rebase-merge/git-rebase-todo", "exec evil\n")
	})
	const state = string(KindGitState)
	expect(t, got, state+" .git/rebase-merge/git-rebase-todo new", state+" .git/rebase-merge/strategy new", state+" .git/rebase-apply/author-script new", state+" .git/sequencer/todo new", state+" .git/sequencer/opts new",
		state+" .git/BISECT_NAMES new", state+" .git/BISECT_LOG new", state+" .git/worktrees/x/rebase-merge/git-rebase-todo new", state+" w/.git/rebase-merge/git-rebase-todo changed",
		"git control file .git/remotes/origin new", "git control file .git/branches/old new")
	for _, f := range r.Findings {
		if f.Kind == KindGitState && f.HeldAt != "" {
			t.Errorf("%q was taken away", f.Path)
		}
		if f.Path == ".git/rebase-merge/git-rebase-todo" && f.Detail != "runs touch /tmp/evil; true" {
			t.Errorf("detail %q does not say what it runs", f.Detail)
		}
	}
}

// A link anywhere on the way to a file of the catalogue brings one in.
func TestReviewFindsLinksOnTheWayToAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "evil/x", ".jj/", "gradle/")
	_, got := reviewAfter(t, dir, func() {
		write(t, dir, ".github/workflows -> ../evil", ".jj/repo -> ../evil", "gradle/wrapper -> ../evil", "sub/.hg -> ../evil", ".git/rebase-merge -> ../evil")
	})
	expect(t, got, string(KindPipeline)+" .github/workflows new", string(KindVersions)+" .jj/repo new", string(KindPackage)+" gradle/wrapper new", string(KindVersions)+" sub/.hg new",
		"new repository .git new")
}

// On a file system without letter case these are the control files themselves.
func TestControlFilesOfAnotherLetterCase(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, repo(".git")...)
	_, got := reviewAfter(t, dir, func() { write(t, dir, ".git/CommonDir", ".git/Config.Worktree", ".git/Rebase-Merge/Git-Rebase-Todo") })
	expect(t, got, "git control file .git/CommonDir new", "git control file .git/Config.Worktree new", string(KindGitState)+" .git/Rebase-Merge/Git-Rebase-Todo new")
}

// A directory that can be listed but not passed hides what its files are.
func TestReviewNamesDirectoriesThatHideTheirFiles(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root passes every directory: there is nothing to hide from it, and what
		// is in it is found.
		dir := t.TempDir()
		write(t, dir, "x")
		_, got := reviewAfter(t, dir, func() {
			write(t, dir, ".vscode/tasks.json")
			if err := os.Chmod(filepath.Join(dir, ".vscode"), 0o400); err != nil {
				t.Fatal(err)
			}
		})
		expect(t, got, "editor settings .vscode/tasks.json new")
		return
	}
	dir := t.TempDir()
	write(t, dir, "x")
	_, got := reviewAfter(t, dir, func() {
		write(t, dir, ".vscode/tasks.json")
		if err := os.Chmod(filepath.Join(dir, ".vscode"), 0o400); err != nil {
			t.Fatal(err)
		}
	})
	_ = os.Chmod(filepath.Join(dir, ".vscode"), 0o700)
	expect(t, got, string(KindUnseen)+" .vscode new")
}
