package workspace

// catalogue is what some program runs or obeys by itself, without a person
// having named it: when a folder is opened or entered, in the course of another
// command, or once it is pushed. A Makefile is not in it, as somebody says
// "make".
//
// It is data, so that a new tool is a new line. Everything is in lower case, as
// names are compared without it: some file systems do. Of names without a
// directory, one star may stand at the end or in the middle, or at the beginning
// before an extension.
var catalogue = []rule{
	// Editors.
	{kind: KindEditor, dir: ".vscode", by: "VS Code and its relatives, when the folder is opened"},
	{kind: KindEditor, dir: ".vs", by: "Visual Studio, when the folder is opened"},
	{kind: KindEditor, dir: ".idea", by: "JetBrains editors, when the project is opened"},
	{kind: KindEditor, dir: ".run", files: []string{"*.run.xml"}, by: "JetBrains editors"},
	{kind: KindEditor, dir: ".zed", by: "Zed, when the folder is opened"},
	{kind: KindEditor, dir: ".fleet", by: "Fleet, when the folder is opened"},
	{kind: KindEditor, dir: ".nova", by: "Nova, when the folder is opened"},
	{kind: KindEditor, dir: ".helix", by: "Helix, when it is started in the folder"},
	{kind: KindEditor, dir: ".vim", by: "Vim's plug-ins, when a file beside it is opened"},
	{kind: KindEditor, dir: ".nvim", by: "Neovim's plug-ins, when a file beside it is opened"},
	{kind: KindEditor, dir: ".settings", by: "Eclipse and editors that use it for Java, when the project is opened"},
	{kind: KindEditor, dir: ".externaltoolbuilders", by: "Eclipse, when the project is built"},
	{kind: KindEditor, dir: "nbproject", by: "NetBeans, when the project is opened"},
	{kind: KindEditor, dir: ".ropeproject", files: []string{"config.py"}, by: "Python's rope, when an editor opens the folder"},
	{kind: KindEditor, files: []string{".project", ".classpath", ".factorypath"}, by: "Eclipse and editors that use it for Java, when the project is opened"},
	{kind: KindEditor, files: []string{"*.code-workspace", "*.sublime-project", "*.rproj"}, by: "VS Code, Sublime Text or RStudio, when the project is opened"},
	{kind: KindEditor, files: []string{
		".exrc", "_exrc", ".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".lvimrc", "_lvimrc", ".local.vimrc", ".nvimrc", ".nvim.lua", ".neoconf.json",
		".dir-locals.el", ".dir-locals-2.el", ".lite_project.lua",
	}, by: "Vim, Neovim, Emacs or Lite XL, when a file beside it is opened"},
	{kind: KindEditor, files: []string{"compile_commands.json", "compile_flags.txt", ".clangd", ".ccls", "hie.yaml", "omnisharp.json", ".solargraph.yml"}, by: "editors' language servers, which may start what it names"},
	{kind: KindEditor, files: []string{".directory", "*.desktop"}, by: "file managers, when the folder is opened"},

	// Coding agents: what they run, and what they do as they are told in.
	{kind: KindAgent, dir: ".claude", by: "Claude Code (hooks, settings, commands), when it is started in the folder"},
	{kind: KindAgent, dir: ".cursor", by: "Cursor (settings, rules), when the folder is opened"},
	{kind: KindAgent, dir: ".codex", by: "Codex, when it is started in the folder"},
	{kind: KindAgent, dir: ".gemini", by: "Gemini CLI, when it is started in the folder"},
	{kind: KindAgent, dir: ".qwen", by: "Qwen Code, when it is started in the folder"},
	{kind: KindAgent, dir: ".opencode", by: "OpenCode, when it is started in the folder"},
	{kind: KindAgent, dir: ".windsurf", by: "Windsurf, when the folder is opened"},
	{kind: KindAgent, dir: ".kiro", by: "Kiro, when the folder is opened"},
	{kind: KindAgent, dir: ".agents", by: "coding agents (skills, settings), when they are started in the folder"},
	{kind: KindAgent, dir: ".agent", by: "coding agents (rules, workflows), when they are started in the folder"},
	{kind: KindAgent, dir: ".continue", by: "Continue, when the folder is opened"},
	{kind: KindAgent, dir: ".amazonq", by: "Amazon Q, when it is started in the folder"},
	{kind: KindAgent, dir: ".amp", by: "Amp, when it is started in the folder"},
	{kind: KindAgent, dir: ".crush", by: "Crush, when it is started in the folder"},
	{kind: KindAgent, dir: ".factory", by: "Factory's droid, when it is started in the folder"},
	{kind: KindAgent, dir: ".goose", by: "goose, when it is started in the folder"},
	{kind: KindAgent, dir: ".pi", by: "pi, when it is started in the folder"},
	{kind: KindAgent, dir: ".vibe", by: "Mistral Vibe, when it is started in the folder"},
	{kind: KindAgent, dir: ".openhands", by: "OpenHands, when it is started in the folder"},
	{kind: KindAgent, dir: ".trae", by: "Trae, when the folder is opened"},
	{kind: KindAgent, dir: ".copilot", by: "Copilot, when it is started in the folder"},
	{kind: KindAgent, dir: ".mcp", by: "coding agents, which start the servers it names"},
	{kind: KindAgent, dir: ".github", files: []string{"hooks/**", "copilot/**", "mcp.json", "lsp.json"}, by: "Copilot, when it is started in the folder"},
	{kind: KindAgent, files: []string{
		".mcp.json", "mcp.json", ".lsp.json", "opencode.json", "opencode.jsonc", "crush.json", ".crush.json", ".aider.conf.yml", ".aider.model.settings.yml",
		".continuerc.json", "conductor.json", ".replit",
	}, by: "coding agents, which start the servers and commands it names"},
	{kind: KindInstructions, files: []string{
		"claude.md", "claude.local.md", "agents.md", "agents.override.md", "agents.local.md", "agent.md", "gemini.md", "qwen.md", "warp.md", "crush.md", "replit.md", "skill.md",
		".cursorrules", ".windsurfrules", ".clinerules", ".continuerules", ".goosehints", ".augment-guidelines", ".rules", ".roomodes", ".kilocodemodes", ".roorules*", ".clinerules-*",
	}, by: "coding agents, which do as it says"},
	{kind: KindInstructions, dir: ".github", files: []string{"copilot-instructions.md", "instructions/**", "prompts/**", "chatmodes/**", "agents/**", "skills/**"}, by: "Copilot, which does as it says"},
	{kind: KindInstructions, dir: ".clinerules", by: "Cline, which does as it says"},
	{kind: KindInstructions, dir: ".roo", by: "Roo Code, which does as it says"},
	{kind: KindInstructions, dir: ".kilocode", by: "Kilo Code, which does as it says"},
	{kind: KindInstructions, dir: ".junie", by: "Junie, which does as it says"},
	{kind: KindInstructions, dir: ".augment", by: "Augment, which does as it says"},

	// Containers and machines made for the folder.
	{kind: KindContainer, dir: ".devcontainer", by: "editors, when the folder is opened in a container"},
	{kind: KindContainer, dir: ".idx", by: "Firebase Studio, when the folder is opened"},
	{kind: KindContainer, dir: ".gitpod", by: "Gitpod, when the folder is opened"},
	{kind: KindContainer, dir: ".codesandbox", by: "CodeSandbox, when the folder is opened"},
	{kind: KindContainer, files: []string{".devcontainer.json", ".gitpod.yml", "devfile.yaml", ".devfile.yaml"}, by: "editors, when the folder is opened in a container"},
	{kind: KindContainer, files: []string{"compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"}, by: "Docker Compose, beside the file it is asked for"},

	// Shells, and what decides which program a name means.
	{kind: KindShell, files: []string{
		".envrc", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".in", ".out", "devbox.json", "devenv.nix", "devenv.yaml", "flake.nix", "flake.lock", "shell.nix", "activate-hermit", ".sdkmanrc",
	}, by: "direnv, autoenv, devbox, devenv, hermit or SDKMAN, when a shell enters the folder"},
	{kind: KindShell, files: []string{"mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml", ".rtx.toml", ".tool-versions"}, by: "mise or asdf, when a shell enters the folder"},
	{kind: KindShell, files: []string{".env", ".env.*", ".flaskenv"}, by: "programs that take their environment from it"},
	{kind: KindShell, dir: ".mise", by: "mise, when a shell enters the folder"},
	{kind: KindShell, dir: "mise", files: []string{"config.toml", "config.*.toml", "conf.d/**", "tasks/**"}, by: "mise, when a shell enters the folder"},
	{kind: KindShell, dir: ".config", files: []string{"mise.toml", "mise.*.toml", "mise/**"}, by: "mise, when a shell enters the folder"},
	{kind: KindShell, dir: ".direnv", by: "direnv, when a shell enters the folder"},
	{kind: KindShell, dir: ".shadowenv.d", by: "shadowenv, when a shell enters the folder"},
	{kind: KindShell, dir: ".flox", by: "Flox, when a shell enters the folder"},
	{kind: KindToolchain, files: []string{"rust-toolchain", "rust-toolchain.toml"}, by: "rustup, which runs the compiler it names at any command of Cargo"},
	{kind: KindToolchain, files: []string{".python-version", ".ruby-version", ".node-version", ".nvmrc", ".java-version", ".go-version", ".terraform-version", ".bazelversion", ".bazeliskrc"}, by: "version managers, which run what it names"},
	{kind: KindToolchain, files: []string{"global.json"}, by: "dotnet, which runs the version it names"},

	// Version control.
	{kind: KindHooks, dir: ".husky", by: "git, at commit and push"},
	{kind: KindHooks, dir: ".githooks", by: "git, at commit and push"},
	{kind: KindHooks, dir: ".git-hooks", by: "git, at commit and push"},
	{kind: KindHooks, files: []string{
		".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", "prek.toml", "lefthook.*", ".lefthook.*", "lefthook-local.*", ".lefthook-local.*", ".overcommit.yml", "hk.pkl", ".gitlint",
		".lintstagedrc*", "lint-staged.config.*", "commitlint.config.*", ".commitlintrc*", ".czrc", ".cz-config.js",
	}, by: "git, at commit and push, where its tool is installed"},
	{kind: KindGitControl, files: []string{".gitattributes"}, by: "git, which runs the filters, diff and merge drivers it names that are configured"},
	{kind: KindGitControl, files: []string{".gitmodules", ".lfsconfig"}, by: "git, which fetches from the addresses it names"},
	{kind: KindVersions, dir: ".hg", files: []string{"hgrc", "hgrc-not-shared", "sharedpath", "requires", "store/requires"}, by: "Mercurial, at any of its commands"},
	{kind: KindVersions, dir: ".sl", files: []string{"config", "sharedpath"}, by: "Sapling, at any of its commands"},
	{kind: KindVersions, dir: ".jj", files: []string{"repo", "repo/config.toml", "repo/config-id", "repo/store/git_target", "workspace-config.toml", "workspace-config-id"}, by: "Jujutsu, at any of its commands"},
	{kind: KindVersions, dir: "_darcs", files: []string{"prefs/**"}, by: "darcs, at any of its commands"},
	{kind: KindVersions, dir: ".bzr", files: []string{"branch/branch.conf", "branch/location"}, by: "Breezy, at any of its commands"},
	{kind: KindVersions, dir: ".pijul", files: []string{"config"}, by: "Pijul, at any of its commands"},
	{kind: KindVersions, dir: ".fossil-settings", by: "Fossil, at any of its commands"},

	// Package managers.
	{kind: KindScripts, files: []string{"package.json"}, by: "npm, pnpm or Yarn, when packages are installed"},
	{kind: KindScripts, files: []string{"composer.json"}, by: "Composer, when packages are installed"},
	{kind: KindPackage, dir: ".yarn", files: []string{"plugins/**", "releases/**", "sdks/**"}, by: "Yarn, at any of its commands"},
	{kind: KindPackage, files: []string{".yarnrc.yml", ".yarnrc", ".npmrc", ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpm-workspace.yaml", ".pnp.cjs", ".pnp.loader.mjs", "bunfig.toml", ".bunfig.toml"}, by: "npm, pnpm, Yarn, Bun or Node, at any of their commands"},
	{kind: KindPackage, dir: ".cargo", files: []string{"config", "config.toml"}, by: "Cargo, at any of its commands, and editors through it"},
	{kind: KindPackage, dir: ".mvn", by: "Maven, at any of its commands"},
	{kind: KindPackage, dir: "gradle", files: []string{"wrapper/**", "gradle-daemon-jvm.properties"}, by: "Gradle's wrapper and editors through it, which fetch and run what it names"},
	{kind: KindPackage, files: []string{"gradlew", "gradlew.bat", "mvnw", "mvnw.cmd"}, by: "editors, which build the project through it"},
	{kind: KindPackage, files: []string{"gradle.properties"}, by: "Gradle, at any of its commands"},
	{kind: KindPackage, dir: ".bundle", files: []string{"config"}, by: "Bundler, at any of its commands"},
	{kind: KindPackage, files: []string{"gemfile", "gems.rb"}, by: "Bundler, at any of its commands, and editors through it"},
	{kind: KindPackage, files: []string{"nuget.config"}, by: "dotnet, when packages are restored"},
	{kind: KindPackage, dir: ".config", files: []string{"dotnet-tools.json"}, by: "dotnet, when tools are restored"},
	{kind: KindPackage, files: []string{"pip.conf", "uv.toml", "poetry.toml", "pyproject.toml", "setup.py", "setup.cfg", ".pdm.toml"}, by: "pip, uv, Poetry and Python's checkers, which run the build back end and plug-ins it names"},
	{kind: KindPackage, files: []string{".bazelrc", "user.bazelrc", ".buckconfig", ".buckconfig.local", "pants.toml", ".pants.rc"}, by: "Bazel, Buck or Pants, at any of their commands"},
	{kind: KindPackage, dir: "tools", files: []string{"bazel"}, by: "Bazel's launcher, in its own place"},

	// What an editor runs to know the project, before anybody says "build".
	{kind: KindBuild, files: []string{"build.rs"}, by: "Cargo, and editors as soon as the folder is opened"},
	{kind: KindBuild, files: []string{"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "init.gradle", "pom.xml", "build.sbt", "build.sc", "build.mill", ".sbtopts", ".jvmopts"}, by: "editors, which ask Gradle, Maven or sbt about the project when it is opened"},
	{kind: KindBuild, dir: ".bsp", by: "editors, which start the build server it names"},
	{kind: KindBuild, files: []string{"cmakelists.txt", "cmakepresets.json", "cmakeuserpresets.json"}, by: "editors, which configure the project when it is opened"},
	{kind: KindBuild, files: []string{"*.csproj", "*.fsproj", "*.vbproj", "*.vcxproj", "*.sln", "*.slnx", "directory.build.*", "directory.packages.props"}, by: "editors, which evaluate it when the project is opened"},
	{kind: KindBuild, files: []string{"mix.exs", ".formatter.exs", ".iex.exs", "rebar.config", "package.swift"}, by: "editors and tools of the language, which evaluate it when the project is opened"},
	{kind: KindBuild, files: []string{"nx.json"}, by: "Nx and editors through it, which load the plug-ins it names"},
	{kind: KindBuild, files: []string{"vite.config.*", "vitest.config.*", "svelte.config.*", "astro.config.*"}, by: "editors' extensions, when the folder is opened"},

	// Checkers, debuggers and interpreters.
	{kind: KindLinter, files: []string{
		".pylintrc", "pylintrc", ".flake8", "mypy.ini", ".mypy.ini", ".eslintrc*", "eslint.config.*", ".prettierrc*", "prettier.config.*", ".stylelintrc*", "stylelint.config.*",
		"tailwind.config.*", "postcss.config.*", ".markdownlint*", "cspell.config.*", ".oxlintrc.json", ".golangci.*", ".custom-gcl.yml", ".rubocop.yml", ".standard.yml", ".php-cs-fixer*", "phpstan.neon*", "psalm.xml*",
	}, by: "editors and hooks, which run it or what it names to check a file"},
	{kind: KindDebugger, files: []string{".gdbinit", ".lldbinit", ".pdbrc", ".byebugrc", ".rdbgrc"}, by: "debuggers started in the folder"},
	{kind: KindDebugger, files: []string{".irbrc", ".pryrc", ".ghci", ".ocamlinit", ".rprofile", ".renviron", ".rdata", ".octaverc", "jupyter_*"}, by: "interpreters started in the folder"},
	{kind: KindInterp, files: []string{"pyvenv.cfg"}, by: "editors and shells, which start the interpreter beside it"},

	// What the code host runs or obeys.
	{kind: KindPipeline, dir: ".github", files: []string{"workflows/**", "actions/**", "dependabot.yml", "dependabot.yaml", "codeowners", "renovate.*"}, by: "the code host, once it is pushed"},
	{kind: KindPipeline, dir: ".gitea", by: "the code host, once it is pushed"},
	{kind: KindPipeline, dir: ".forgejo", by: "the code host, once it is pushed"},
	{kind: KindPipeline, dir: ".gitlab", by: "the code host, once it is pushed"},
	{kind: KindPipeline, dir: ".circleci", by: "CircleCI, once it is pushed"},
	{kind: KindPipeline, dir: ".buildkite", by: "Buildkite, once it is pushed"},
	{kind: KindPipeline, dir: ".woodpecker", by: "Woodpecker, once it is pushed"},
	{kind: KindPipeline, dir: ".semaphore", by: "Semaphore, once it is pushed"},
	{kind: KindPipeline, dir: ".tekton", by: "Tekton, once it is pushed"},
	{kind: KindPipeline, dir: ".teamcity", by: "TeamCity, once it is pushed"},
	{kind: KindPipeline, dir: ".azure-pipelines", by: "Azure Pipelines, once it is pushed"},
	{kind: KindPipeline, dir: ".builds", by: "builds.sr.ht, once it is pushed"},
	{kind: KindPipeline, dir: ".zuul.d", by: "Zuul, once it is pushed"},
	{kind: KindPipeline, files: []string{
		"action.yml", "action.yaml", "codeowners", ".gitlab-ci.yml", ".gitlab-ci.yaml", ".travis.yml", "jenkinsfile", "azure-pipelines.yml", "azure-pipelines.yaml", "bitbucket-pipelines.yml", ".drone.*", ".woodpecker.yml", ".woodpecker.yaml",
		"appveyor.yml", ".appveyor.yml", ".cirrus.yml", ".cirrus.star", ".build.yml", "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml", ".prow.yaml", ".zuul.yaml", "zuul.yaml", "wercker.yml", "bitrise.yml", "codemagic.yaml",
		"renovate.json*", ".renovaterc*", "netlify.toml", "vercel.json", ".readthedocs.yml", ".readthedocs.yaml",
	}, by: "the code host or a service of it, once it is pushed"},
}
