package hostview

import (
	"os"
	"slices"
	"strings"
	"testing"

	"confine/internal/boundary"
)

func find(t *testing.T, root string, o ToolchainOptions) Toolchains {
	t.Helper()
	if o.Home == "" {
		o.Home = "/home/u"
	}
	o.root = root
	found := FindToolchains(o)
	validate(t, found.Part)
	for _, m := range found.Mounts {
		if m.Writable {
			t.Errorf("%q is writable", m.Target)
		}
	}
	return found
}

// lent are the directories shown, in one line.
func lent(found Toolchains) string {
	var list []string
	for _, l := range found.Lent {
		list = append(list, l.Path)
	}
	return strings.Join(list, " ")
}

// Each kind of toolchain comes in whole, what lies beside it does not.
func TestToolchainsComeInWhole(t *testing.T) {
	for name, c := range map[string]struct {
		entries   []string
		path      string
		lent, env string
	}{
		"nvm": {
			[]string{"/home/u/.nvm/versions/node/v22.1.0/bin/node", "/home/u/.nvm/versions/node/v20.0.0/bin/node", "/home/u/.nvm/alias/default"},
			"/home/u/.nvm/versions/node/v22.1.0/bin", "/home/u/.nvm/versions/node/v22.1.0", "",
		},
		"pyenv": {
			[]string{"/home/u/.pyenv/shims/python", "/home/u/.pyenv/bin/pyenv", "/home/u/.pyenv/versions/3.12.1/bin/python"},
			"/home/u/.pyenv/shims:/home/u/.pyenv/bin", "/home/u/.pyenv", "PYENV_ROOT=/home/u/.pyenv",
		},
		"cargo without its credentials": {
			[]string{"/home/u/.cargo/bin/cargo -> rustup", "/home/u/.cargo/bin/rustup", "/home/u/.cargo/credentials.toml", "/home/u/.cargo/registry/", "/home/u/.rustup/settings.toml"},
			"/home/u/.cargo/bin", "/home/u/.cargo/bin /home/u/.rustup", "RUSTUP_HOME=/home/u/.rustup",
		},
		"go": {
			[]string{"/home/u/go/bin/gopls", "/home/u/go/pkg/mod/", "/home/u/sdk/go1.26/bin/go", "/home/u/sdk/go1.26/VERSION"},
			"/home/u/go/bin:/home/u/sdk/go1.26/bin", "/home/u/go/bin /home/u/sdk/go1.26", "", // no module was ever fetched
		},
		"a Go tree anywhere": {
			[]string{"/home/u/x/y/bin/go", "/home/u/x/y/VERSION", "/home/u/x/y/src/", "/home/u/x/y/pkg/"},
			"/home/u/x/y/bin", "/home/u/x/y", "",
		},
		"conda": {
			[]string{"/home/u/miniconda3/condabin/conda", "/home/u/miniconda3/bin/python", "/home/u/miniconda3/conda-meta/"},
			"/home/u/miniconda3/bin:/home/u/miniconda3/condabin", "/home/u/miniconda3", "",
		},
		"mise": {
			[]string{"/home/u/.local/share/mise/shims/node", "/home/u/.config/mise/config.toml"},
			"/home/u/.local/share/mise/shims", "/home/u/.local/share/mise", "MISE_DATA_DIR=/home/u/.local/share/mise",
		},
		"uv without its credentials": {
			[]string{"/home/u/.local/bin/ruff -> ../share/uv/tools/ruff/bin/ruff", "/home/u/.local/share/uv/tools/ruff/bin/ruff", "/home/u/.local/share/uv/credentials/credentials.toml"},
			"/home/u/.local/bin", "/home/u/.local/bin /home/u/.local/share/uv/tools", "",
		},
		"modules of the user": {
			[]string{"/home/u/.local/bin/black", "/home/u/.local/lib/python3.11/site-packages/black/"},
			"/home/u/.local/bin", "/home/u/.local/bin /home/u/.local/lib", "PYTHONUSERBASE=/home/u/.local",
		},
		"a program that is a link to its own tree": {
			[]string{"/home/u/.local/bin/claude -> /home/u/.local/share/claude/versions/2.1.3", "/home/u/.local/share/claude/versions/2.1.3"},
			"/home/u/.local/bin", "/home/u/.local/bin /home/u/.local/share/claude/versions", "",
		},
		"plain programs":                    {[]string{"/home/u/bin/tool", "/home/u/other"}, "/home/u/bin", "/home/u/bin", ""},
		"opt":                               {[]string{"/opt/app/1/bin/app", "/opt/other/x"}, "/opt/app/1/bin", "/opt/app", ""},
		"a parent named after its child":    {[]string{"/home/u/.rustup/toolchains/x/bin/rustc", "/home/u/.cargo/bin/cargo"}, "/home/u/.rustup/toolchains/x/bin:/home/u/.cargo/bin", "/home/u/.cargo/bin /home/u/.rustup", "RUSTUP_HOME=/home/u/.rustup"},
		"a link of the home to another one": {[]string{"/data/pyenv/bin/pyenv", "/home/u/.pyenv -> /data/pyenv"}, "/home/u/.pyenv/bin", "/home/u/.pyenv", "PYENV_ROOT=/home/u/.pyenv"},
	} {
		found := find(t, newTestHost(t, c.entries...), ToolchainOptions{Path: c.path})
		if got := lent(found); got != c.lent {
			t.Errorf("%s: shown %q, want %q", name, got, c.lent)
		}
		if got := strings.Join(found.Env, " "); got != c.env {
			t.Errorf("%s: environment %q, want %q", name, got, c.env)
		}
		if len(found.Path) != len(c.path) {
			t.Errorf("%s: PATH is %q, was %q", name, found.Path, c.path)
		}
		if len(found.Skipped) > 0 {
			t.Errorf("%s: skipped %v", name, found.Skipped)
		}
	}
}

// A directory of PATH that holds, or is, something else than programs stays
// outside, and the one after it still comes in.
func TestNoSecretComesInThroughPath(t *testing.T) {
	for name, c := range map[string]struct {
		entries []string
		path    string
	}{
		"the home":                      {nil, "/home/u"},
		"the home with a slash":         {nil, "/home/u/"},
		"the home by dots":              {nil, "/home/u/bin/.."},
		"above the home":                {nil, "/home"},
		"the root":                      {nil, "/"},
		"a relative directory":          {nil, "bin"},
		"the current directory":         {nil, "."},
		"ssh":                           {[]string{"/home/u/.ssh/bin/x"}, "/home/u/.ssh/bin"},
		"ssh itself":                    {[]string{"/home/u/.ssh/id"}, "/home/u/.ssh"},
		"docker":                        {[]string{"/home/u/.docker/bin/x"}, "/home/u/.docker/bin"},
		"gh":                            {[]string{"/home/u/.config/gh/bin/x"}, "/home/u/.config/gh/bin"},
		"an agent's login":              {[]string{"/home/u/.claude/bin/x"}, "/home/u/.claude/bin"},
		"an unknown place":              {[]string{"/home/u/src/tool/x"}, "/home/u/src/tool"},
		"a tree that holds credentials": {[]string{"/home/u/.config/pyvenv.cfg", "/home/u/.config/bin/x", "/home/u/.config/gh/hosts.yml"}, "/home/u/.config/bin"},
		"a link to ssh":                 {[]string{"/home/u/bin -> .ssh", "/home/u/.ssh/id"}, "/home/u/bin"},
		"a link to the home":            {[]string{"/home/u/bin -> ."}, "/home/u/bin"},
		"a link to the root":            {[]string{"/home/u/bin -> /"}, "/home/u/bin"},
		"a layout that is a link":       {[]string{"/home/u/.pyenv -> .aws", "/home/u/.aws/bin/x"}, "/home/u/.pyenv/bin"},
		"a layout that leads to /etc":   {[]string{"/home/u/.pyenv -> /etc", "/etc/bin/x"}, "/home/u/.pyenv/bin"},
		"etc":                           {[]string{"/etc/bin/x"}, "/etc/bin"},
		"opt itself":                    {[]string{"/opt/x"}, "/opt"},
		"another user's home":           {[]string{"/home/v/bin/x"}, "/home/v/bin"},
		"snap":                          {[]string{"/snap/bin/x"}, "/snap/bin"},
		"srv":                           {[]string{"/srv/bin/x"}, "/srv/bin"},
	} {
		root := newTestHost(t, append(c.entries, "/home/u/.pyenv2", "/home/u/.nvm/versions/node/v1/bin/node")...)
		found := find(t, root, ToolchainOptions{Path: c.path + ":/home/u/.nvm/versions/node/v1/bin"})
		if got := lent(found); got != "/home/u/.nvm/versions/node/v1" {
			t.Errorf("%s: shown %q", name, got)
		}
		if found.Path != "/home/u/.nvm/versions/node/v1/bin" {
			t.Errorf("%s: PATH inside is %q", name, found.Path)
		}
		if len(found.Skipped) != 1 {
			t.Errorf("%s: skipped %v, want one with a reason", name, found.Skipped)
		}
	}
}

func TestLinksOutOfAProgramDirectoryAreFollowedOnlyToToolchains(t *testing.T) {
	root := newTestHost(t,
		"/home/u/.local/bin/ok -> /home/u/.nvm/versions/node/v1/bin/node", "/home/u/.nvm/versions/node/v1/bin/node",
		"/home/u/.local/bin/mine -> /home/u/src/mine/target/mine", "/home/u/src/mine/target/mine", "/home/u/src/mine/.env",
		"/home/u/.local/bin/key -> ../../.ssh/id_rsa", "/home/u/.ssh/id_rsa",
		"/home/u/.local/bin/shadow -> /etc/shadow", "/etc/shadow",
		"/home/u/.local/bin/sys -> /usr/bin/env", "/usr/bin/env",
		"/home/u/.local/bin/home -> /home/u",
		"/home/u/.local/bin/gone -> /nowhere",
		"/home/u/.local/bin/app -> /opt/app/bin/app", "/opt/app/bin/app",
		"/home/u/.local/bin/opt -> /opt",
	)
	found := find(t, root, ToolchainOptions{Path: "/home/u/.local/bin"})
	if got, want := lent(found), "/home/u/.local/bin /home/u/.nvm/versions/node/v1 /opt/app"; got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
	var skipped []string
	for _, s := range found.Skipped {
		skipped = append(skipped, strings.TrimPrefix(s.Path, "/home/u/.local/bin/"))
	}
	slices.Sort(skipped)
	if got := strings.Join(skipped, " "); got != "home key mine opt shadow" {
		t.Errorf("skipped %q: %v", got, found.Skipped)
	}
}

func TestCredentialsInAToolchainAreMasked(t *testing.T) {
	node := "/home/u/.nvm/versions/node/v1"
	root := newTestHost(t, node+"/bin/node", node+"/etc/npmrc", node+"/.env", node+"/bin/.env.local", node+"/README",
		"/home/u/.dotnet/tools/x", "/home/u/.dotnet/corefx/cryptography/x509stores/my/key.pfx")
	found := find(t, root, ToolchainOptions{Path: node + "/bin:/home/u/.dotnet/tools"})
	var masked []string
	for i, m := range found.Mounts {
		if m.Kind == boundary.Mask {
			masked = append(masked, m.Target)
			if !slices.ContainsFunc(found.Mounts[:i], func(b boundary.Mount) bool { return b.Kind == boundary.Bind && within(m.Target, b.Target) }) {
				t.Errorf("mask %q comes before what it covers", m.Target)
			}
		}
	}
	want := []string{"/home/u/.dotnet/corefx", node + "/.env", node + "/etc/npmrc", node + "/bin/.env.local"}
	if !slices.Equal(masked, want) {
		t.Errorf("masked %q, want %q", masked, want)
	}
}

func TestSourcesHaveNoLinks(t *testing.T) {
	root := newTestHost(t, "/var/home/u/.pyenv/bin/pyenv", "/home -> var/home", "/var/home/u/.nvm/versions/node/v1/bin/node")
	found := find(t, root, ToolchainOptions{Path: "/home/u/.pyenv/bin:/var/home/u/.nvm/versions/node/v1/bin"})
	for target, source := range map[string]string{"/home/u/.pyenv": "/var/home/u/.pyenv", "/var/home/u/.nvm/versions/node/v1": "/var/home/u/.nvm/versions/node/v1"} {
		if m := mountAt(found.Mounts, target); m.Source != root+source {
			t.Errorf("%q shows %q, want %q", target, m.Source, source)
		}
	}
}

func TestPathInside(t *testing.T) {
	root := newTestHost(t, "/usr/bin/x", "/bin -> usr/bin", "/home/u/w/.venv/bin/python", "/home/u/w/.venv/pyvenv.cfg", "/nix/store/a/bin/x", "/home/u/.nix-profile -> /nix/store/a", "/home/u/w-evil/x/tool")
	found := find(t, root, ToolchainOptions{Workspace: "/home/u/w", Inside: "/workspace",
		Path: "/home/u/w/.venv/bin:/home/u/w-evil/x::/usr/bin:/usr/bin:/home/u/missing/bin:/bin:/home/u/.nix-profile/bin"})
	if want := "/workspace/.venv/bin:/usr/bin:/bin:/nix/store/a/bin"; found.Path != want {
		t.Errorf("PATH inside is %q, want %q", found.Path, want)
	}
	if len(found.Mounts) != 0 || len(found.Skipped) != 1 {
		t.Errorf("mounts %v, skipped %v", found.Mounts, found.Skipped)
	}
}

func TestNothingOfAnyHomeForATenant(t *testing.T) {
	root := newTestHost(t, "/home/u/.nvm/versions/node/v1/bin/node", "/root/.pyenv/bin/x", "/opt/app/bin/x", "/usr/bin/x")
	found := FindToolchains(ToolchainOptions{Path: "/home/u/.nvm/versions/node/v1/bin:/root/.pyenv/bin:/opt/app/bin:/usr/bin", root: root})
	if got := lent(found); got != "/opt/app" || found.Path != "/opt/app/bin:/usr/bin" {
		t.Errorf("shown %q, PATH %q", got, found.Path)
	}
}

func TestVersionFilesAreCopied(t *testing.T) {
	root := newTestHost(t, "/home/u/.asdf/shims/node", "/home/u/.tool-versions", "/home/u/.ssh/id")
	found := find(t, root, ToolchainOptions{Path: "/home/u/.asdf/shims", RunHome: "/home/agent"})
	if text, _ := fileAt(found.Files, "/home/agent/.tool-versions"); text != "/home/u/.tool-versions" {
		t.Errorf("files %v", found.Files)
	}
	if err := os.Remove(root + "/home/u/.tool-versions"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(".ssh/id", root+"/home/u/.tool-versions"); err != nil {
		t.Fatal(err)
	}
	if found := find(t, root, ToolchainOptions{Path: "/home/u/.asdf/shims", RunHome: "/home/agent"}); len(found.Files) != 0 {
		t.Errorf("a link was copied: %v", found.Files)
	}
}

// TestGoModulesComeAlong: what the caller's go command has fetched is there, as
// it is without a network and as the first proxy with one.
func TestGoModulesComeAlong(t *testing.T) {
	root := newTestHost(t, "/usr/bin/go", "/home/u/go/pkg/mod/cache/download/", "/home/u/go/pkg/mod/example.com/", "/srv/mod/cache/download/", "/srv/other/")
	const path = "/usr/bin"
	for name, c := range map[string]struct {
		o         ToolchainOptions
		lent, env string
	}{
		"no network":         {ToolchainOptions{Path: path}, "/home/u/go/pkg/mod", "GOMODCACHE=/home/u/go/pkg/mod"},
		"network":            {ToolchainOptions{Path: path, Network: true}, "/home/u/go/pkg/mod/cache/download", "GOPROXY=file:///home/u/go/pkg/mod/cache/download,https://proxy.golang.org,direct"},
		"GOPATH":             {ToolchainOptions{Path: path, GoPath: "/home/u/go:/x"}, "/home/u/go/pkg/mod", "GOMODCACHE=/home/u/go/pkg/mod"},
		"GOMODCACHE":         {ToolchainOptions{Path: path, GoModCache: "/srv/mod"}, "/srv/mod", "GOMODCACHE=/srv/mod"},
		"no cache there":     {ToolchainOptions{Path: path, GoModCache: "/srv/other"}, "", ""},
		"relative":           {ToolchainOptions{Path: path, GoModCache: "mod"}, "", ""},
		"no go":              {ToolchainOptions{Path: "/bin"}, "", ""},
		"the home itself":    {ToolchainOptions{Path: path, GoModCache: "/home/u"}, "", ""},
		"where secrets lie":  {ToolchainOptions{Path: path, GoModCache: "/home/u/.ssh"}, "", ""},
		"a holder of a home": {ToolchainOptions{Path: path, GoModCache: "/home"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := find(t, root, c.o)
			if lent(found) != c.lent || strings.Join(found.Env, " ") != c.env {
				t.Errorf("lent %q, env %q", lent(found), found.Env)
			}
		})
	}
	// A tenant has no home, and no module of the host's user.
	if got := FindToolchains(ToolchainOptions{Path: path, root: root}); len(got.Lent) > 0 || len(got.Env) > 0 {
		t.Errorf("tenant: %+v", got)
	}
}
