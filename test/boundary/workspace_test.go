//go:build linux

package boundary

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/hostview"
	"confine/internal/sandbox"
	"confine/internal/sandbox/native"
	"confine/internal/workspace"
)

// hostBoundary is this host's system, as the command line and the engine show it.
func hostBoundary(t *testing.T, trusted ...string) boundary.Boundary {
	t.Helper()
	part, _, err := hostview.System(hostview.Options{UID: 1000, GID: 1000, SafeDirectories: trusted, HomeBytes: 256 << 20, TmpBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	env, err := hostview.Env(hostview.EnvOptions{UID: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b := boundary.Boundary{
		Version: boundary.Version, Tenant: "test", Env: env, AllowMissing: []boundary.Layer{boundary.LayerCgroup},
		Identity: boundary.Identity{UID: 1000, GID: 1000, HostUID: 0x6fff1000, HostGID: 0x6fff1000},
		View:     boundary.View{Workdir: "/"},
	}
	part.AddTo(&b.View)
	return b
}

func runInside(t *testing.T, b boundary.Boundary, script string) (string, sandbox.Exit) {
	t.Helper()
	var out bytes.Buffer
	run, err := native.New().Start(context.Background(), sandbox.Spec{Boundary: b, Args: []string{"/bin/sh", "-c", script}, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	exit := run.Wait()
	return out.String(), exit
}

func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// Each line is tried inside; the exit status says whether it worked.
func TestLiveWorkspaceOnTheRealKernel(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, `git init -q -b main . && echo a >a && git add a && git commit -qm i
		git init -q vendor/sub && mkdir vendor/sub/.git/hooks 2>/dev/null || true
		echo SECRET=1 >.env; echo ok >.env.example; mkdir conf; echo k >conf/x.key; ln -s ../a .git/plain
		rm -rf vendor/sub/.git/info; chmod 644 .env`)
	l, err := workspace.Live(workspace.Options{Dir: dir, Masks: []string{"*.key"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := hostBoundary(t, l.SafeDirectories...)
	b.View.Mounts = append(b.View.Mounts, l.Mounts...)
	b.View.Workdir = workspace.Inside
	for _, c := range []struct {
		script string
		works  bool
	}{
		{"echo x >new && cat a new", true},
		{"git status", true},
		{"echo b >a && git add a && git commit -qm two && git checkout -q HEAD~1 -- a && git checkout -q -b other", true},
		{"git -C vendor/sub status", true},
		{"cat .env.example", true},
		{"whoami && ssh -G localhost >/dev/null && test \"$(id -un)\" = agent", true},
		{"test -s .env", false},
		{"echo x >.env", false},
		{"rm -f .env", false},
		{"mv .env e", false},
		{"ln .env e", false},
		{"test -s conf/x.key", false},
		{"mv conf conf2 && test -s conf2/x.key; r=$?; mv conf2 conf; exit $r", false},
		{"git config core.fsmonitor id", false},
		{"echo x >>.git/config", false},
		{"rm -f .git/config", false},
		{"mv .git g", false},
		{"rm -rf .git; test ! -e .git/config", false},
		{"ln .git/config c && echo x >>c", false},
		{"echo x >.git/hooks/pre-commit", false},
		{"mv .git/hooks h", false},
		{"echo x >>vendor/sub/.git/config", false},
		{"echo x >vendor/sub/.git/hooks/pre-commit", false},
		{"mv vendor/sub/.git vendor/sub/g", false},
		{"mv vendor v || mv vendor/sub vendor/s", false},
		{"mkdir vendor/sub/.git/info && echo '* filter=x' >vendor/sub/.git/info/attributes", true},
		{"mkdir .vscode && echo '{}' >.vscode/tasks.json && ln -s /etc out", true},
	} {
		out, exit := runInside(t, b, c.script)
		if exit.Reason != sandbox.Exited || exit.Success() != c.works {
			t.Errorf("%s: %+v, want success %v: %s", c.script, exit, c.works, out)
		}
	}
	review, err := l.Review(workspace.ReviewOptions{HeldDir: filepath.Join(t.TempDir(), "held")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range review.Findings {
		got = append(got, string(f.Kind)+" "+f.Path)
	}
	if want := "editor settings .vscode/tasks.json,git control file vendor/sub/.git/info/attributes,link out of the tree out"; strings.Join(got, ",") != want {
		t.Errorf("the review found %q, want %q", got, want)
	}
	if text := shell(t, dir, "cat .env conf*/x.key; git config --get-all core.fsmonitor || true; ls .git/hooks | grep -v sample || true"); text != "SECRET=1\nk\n" {
		t.Errorf("afterwards the host has %q", text)
	}
}

func TestEngineWorkspaceOnTheRealKernel(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	shell(t, dir, `git init -q -b main work && cd work && mkdir d && echo one >d/f && echo 'out/' >.gitignore && git add . && git commit -qm one
		cd .. && git clone -q --bare work mirror.git && mkdir -m 700 lent layers ws home`)
	mirror, err := gitcmd.Open(ctx, filepath.Join(dir, "mirror.git"))
	if err != nil {
		t.Fatal(err)
	}
	const main = gitcmd.Ref("refs/heads/main")
	base, err := mirror.RevParse(ctx, main)
	if err != nil {
		t.Fatal(err)
	}
	lent, err := workspace.Lend(ctx, workspace.LendOptions{Source: mirror, Base: base, Branch: main, Dir: filepath.Join(dir, "lent")})
	if err != nil {
		t.Fatal(err)
	}
	with := workspace.Base{Driver: native.New(), Boundary: hostBoundary(t, workspace.Inside, workspace.LentTarget)}
	layer, err := workspace.Setup(ctx, workspace.SetupOptions{Base: with, Dir: filepath.Join(dir, "layers"), Lent: lent, LentBranch: main, Commit: base,
		Commands: []string{"mkdir -p out/x && echo built >out/x/y && chmod 700 out/x && mkdir -p ~/.cache && echo c >~/.cache/c", "test -f out/x/y && test -f ~/.cache/c"},
		Key:      workspace.LayerKey{Tenant: "test", Repository: "r", View: "v"}})
	if err != nil {
		t.Fatal(err)
	}
	ws, home := filepath.Join(dir, "ws"), filepath.Join(dir, "home")
	if err := workspace.Prepare(ctx, workspace.PrepareOptions{Base: with, Lent: lent, LentBranch: main, Commit: base, Branch: "refs/heads/confine/1", Dir: ws}); err != nil {
		t.Fatal(err)
	}
	if err := workspace.Restore(ctx, workspace.RestoreOptions{Base: with, Layer: layer, Lent: lent, Workspace: ws, Home: home}); err != nil {
		t.Fatal(err)
	}
	// The agent's own sandbox over what was made.
	b := with.Boundary
	b.View.Mounts = append(b.View.Mounts,
		boundary.Mount{Kind: boundary.Bind, Target: workspace.Inside, Source: ws, Writable: true},
		boundary.Mount{Kind: boundary.Bind, Target: workspace.LentTarget, Source: lent.Dir()})
	b.View.Workdir = workspace.Inside
	out, exit := runInside(t, b, `set -e; cat d/f out/x/y; echo two >d/f; git commit -qam two; git log --format=%s; git status --porcelain; git fetch -q origin; git rev-list --count origin/main`)
	if !exit.Success() || out != "one\nbuilt\ntwo\none\n1\n" {
		t.Errorf("%+v: %s", exit, out)
	}
	if out, exit := runInside(t, b, "rm -f /lent/HEAD; rm -rf /lent/objects; echo x >/lent/config; test ! -s /lent/HEAD"); exit.Success() {
		t.Errorf("the lent repository was changed: %s", out)
	}
	if out, exit := runInside(t, b, "mkdir -p deep/er && chmod 0 deep"); !exit.Success() {
		t.Errorf("%+v: %s", exit, out)
	}
	for _, d := range []string{ws, home} {
		if err := workspace.Remove(d); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(ws); !os.IsNotExist(err) {
		t.Errorf("the workspace is still there: %v", err)
	}
}
