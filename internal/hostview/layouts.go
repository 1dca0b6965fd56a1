package hostview

// A layout is where below a home a kind of toolchain keeps its programs, and
// what of it the programs need. Patterns are path.Match patterns of whole
// components, relative to the home.
type layout struct {
	// pattern is matched against the beginning of a directory of PATH.
	pattern string
	// root, where set, is shown instead of what the pattern matched.
	root string
	// also are further places that the programs need.
	also []string
	// env are variables that tell the programs where they are, as their home
	// inside is another one: name and place below the home.
	env [][2]string
	// masks are places in it that are covered where they exist.
	masks []string
	// files are small files of the home that say which version is meant.
	files []string
}

// layouts are searched in order; the first that matches counts.
var layouts = []layout{
	{pattern: ".nvm/versions/node/*"},
	{pattern: ".nvm/versions/io.js/*"},
	{pattern: ".nodenv", env: [][2]string{{"NODENV_ROOT", ".nodenv"}}},
	{pattern: ".fnm/node-versions/*"},
	{pattern: ".local/share/fnm"},
	{pattern: ".local/share/pnpm"},
	{pattern: ".npm-global"},
	{pattern: ".npm-packages"},
	{pattern: ".yarn/bin"},
	{pattern: ".config/yarn/global/node_modules"},
	{pattern: ".volta", env: [][2]string{{"VOLTA_HOME", ".volta"}}},
	{pattern: ".bun/bin", also: []string{".bun/install/global"}},
	{pattern: ".deno/bin"},
	{pattern: ".pyenv", env: [][2]string{{"PYENV_ROOT", ".pyenv"}}},
	{pattern: ".poetry"},
	{pattern: ".local/pipx"},
	{pattern: ".rbenv", env: [][2]string{{"RBENV_ROOT", ".rbenv"}}},
	{pattern: ".rvm"},
	{pattern: ".gem/ruby/*"},
	{pattern: ".local/share/gem/ruby/*"},
	{pattern: ".goenv", env: [][2]string{{"GOENV_ROOT", ".goenv"}}},
	{pattern: "go/bin"},
	{pattern: "sdk/go*"},
	{pattern: ".jenv", env: [][2]string{{"JENV_ROOT", ".jenv"}}},
	{pattern: ".phpenv", env: [][2]string{{"PHPENV_ROOT", ".phpenv"}}},
	{pattern: ".composer/vendor"},
	{pattern: ".config/composer/vendor"},
	{pattern: ".cargo/bin", also: []string{".rustup"}, env: [][2]string{{"RUSTUP_HOME", ".rustup"}}},
	{pattern: ".rustup", env: [][2]string{{"RUSTUP_HOME", ".rustup"}}},
	{pattern: ".sdkman/candidates", env: [][2]string{{"JAVA_HOME", ".sdkman/candidates/java/current"}}},
	{pattern: ".jbang/bin", root: ".jbang"},
	{pattern: ".asdf", env: [][2]string{{"ASDF_DATA_DIR", ".asdf"}}, files: []string{".tool-versions"}},
	{pattern: ".local/share/mise", env: [][2]string{{"MISE_DATA_DIR", ".local/share/mise"}}, files: []string{".tool-versions"}},
	{pattern: ".local/share/rtx", files: []string{".tool-versions"}},
	{pattern: ".proto", env: [][2]string{{"PROTO_HOME", ".proto"}}},
	{pattern: ".ghcup", also: []string{".cabal/bin"}},
	{pattern: ".cabal/bin", also: []string{".ghcup"}},
	{pattern: ".opam/*"},
	{pattern: ".dotnet", env: [][2]string{{"DOTNET_ROOT", ".dotnet"}}, masks: []string{".dotnet/corefx"}}, // private keys
	{pattern: ".juliaup"},
	{pattern: ".elan", env: [][2]string{{"ELAN_HOME", ".elan"}}},
	{pattern: ".local/bin", also: []string{".local/lib"}},
	{pattern: ".local/lib/*"},
	{pattern: ".local/opt/*"},
	{pattern: ".local/go"},
	{pattern: ".local/share/pipx"},
	// Beside these two, uv keeps credentials.
	{pattern: ".local/share/uv/tools"},
	{pattern: ".local/share/uv/python"},
	{pattern: ".local/share/claude/versions"},
	{pattern: ".local/share/cursor-agent"},
	{pattern: ".local/share/coursier/bin"},
	{pattern: ".opencode/bin"},
	{pattern: ".amp/bin"},
}

// never are places below a home that hold credentials. A
// toolchain's directory that is one of them, lies in one, or holds one, stays
// outside.
var never = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci", ".password-store", ".pki",
	".netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".gitconfig", ".vault-token", ".pgpass", ".my.cnf",
	".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".composer/auth.json", ".config/composer/auth.json",
	".m2", ".gradle", ".sbt", ".ivy2", ".nuget", ".terraform.d", ".terraformrc", ".pulumi", ".databrickscfg", ".boto", ".s3cfg",
	".config/gh", ".config/glab-cli", ".config/hub", ".config/gcloud", ".config/doctl", ".config/op", ".config/rclone", ".config/git",
	".config/google-chrome", ".config/chromium", ".mozilla", ".thunderbird", ".local/share/keyrings", ".local/share/containers",
	".claude", ".claude.json", ".codex", ".gemini", ".config/claude", ".config/opencode", ".local/share/opencode", ".config/github-copilot",
	".bash_history", ".zsh_history", ".local/share/fish", ".env",
}

// personal are places of a person's own data, where no toolchain is looked for.
var personal = []string{"Desktop", "Documents", "Downloads", "Library", "Music", "Pictures", "Videos"}

// programDirs are the names a directory of PATH may have, below a home, to be
// shown although no layout knows it. Any other might hold more than programs.
var programDirs = []string{"bin", "sbin", "shims", ".bin"}

// signatures tell the root of a toolchain, in any place, by what lies in it.
var signatures = []struct {
	name string
	has  []string
}{
	{"a Go tree", []string{"VERSION", "src", "pkg"}},
	{"a conda environment", []string{"conda-meta"}},
	{"a virtual environment", []string{"pyvenv.cfg"}},
	{"a Java development kit", []string{"release", "lib"}},
	{"a Node tree", []string{"lib/node_modules"}},
	{"a Flutter tree", []string{"packages/flutter"}},
}

// credentialFiles are masked where they lie in the root of a toolchain, in its
// etc, or in a directory of programs.
var credentialFiles = []string{
	".env", ".env.*", ".npmrc", "npmrc", ".yarnrc.yml", ".netrc", "_netrc", ".pypirc", "pip.conf", ".git-credentials",
	"credentials", "credentials.*", "auth.json", ".pgpass", "id_rsa", "id_ed25519", "id_ecdsa", "*.key", "*.p12",
}
