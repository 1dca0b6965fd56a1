package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/sandbox"
)

// handDriver stands for a sandbox: it runs the step on the host, with the places
// of the view replaced by the host's directories. It confines nothing; what the
// boundary would be is kept for the test to look at.
type handDriver struct {
	t     *testing.T
	specs []sandbox.Spec
	// exit, where set, is the end of every step whose script or command holds
	// failing; nothing is run then.
	failing string
	exit    sandbox.Exit
}

func (d *handDriver) Name() string { return "hand" }

func (d *handDriver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Running, error) {
	if err := spec.Boundary.Validate(); err != nil {
		return nil, err
	}
	d.specs = append(d.specs, spec)
	text := d.text(spec)
	if d.failing != "" && strings.Contains(text, d.failing) {
		io.WriteString(spec.Stderr, "it \x1b[31mfailed\x1b[0m\n")
		return &handRun{exit: d.exit}, nil
	}
	env, places := slices.Clone(spec.Boundary.Env), []string{"/tmp/confine-names", filepath.Join(d.t.TempDir(), "names")}
	for _, m := range spec.Boundary.View.Mounts {
		if m.Kind == boundary.Bind && m.Target != "/usr" {
			places = append(places, m.Target, m.Source)
			if m.Target == "/home/agent" {
				env = append(env, "HOME="+m.Source)
			}
		}
	}
	replace := strings.NewReplacer(places...)
	args := []string{"-c", replace.Replace(text), "sh"}
	for _, a := range spec.Args[2:] {
		args = append(args, replace.Replace(a))
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, spec.Stdin, spec.Stdout, spec.Stderr
	for _, m := range spec.Boundary.View.Mounts {
		if m.Target == Inside {
			cmd.Dir = m.Source
		}
	}
	run := &handRun{exit: sandbox.Exit{Reason: sandbox.Exited}}
	if err := cmd.Run(); err != nil {
		run.exit.Status = 1
	}
	return run, nil
}

// text is the script or command of a step.
func (d *handDriver) text(spec sandbox.Spec) string {
	if spec.Args[1] == "-c" {
		return spec.Args[2]
	}
	for _, f := range spec.Boundary.View.Files {
		if f.Path == spec.Args[1] {
			return string(f.Data)
		}
	}
	d.t.Fatalf("no script %q in the view", spec.Args[1])
	return ""
}

type handRun struct{ exit sandbox.Exit }

func (r *handRun) Signal(os.Signal) error { return nil }
func (r *handRun) Kill()                  {}
func (r *handRun) Wait() sandbox.Exit     { return r.exit }

// lab is a mirror with two branches, the base lent.
type lab struct {
	t      *testing.T
	dir    string
	driver *handDriver
	base   Base
	mirror *gitcmd.Repo
	lent   *gitcmd.Repo
	main   gitcmd.Hash
	other  gitcmd.Hash
}

const mainBranch = gitcmd.Ref("refs/heads/main")

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, dir: resolved(t.TempDir()), driver: &handDriver{t: t}}
	l.base = Base{Driver: l.driver, Boundary: boundary.Boundary{
		Version: boundary.Version, Tenant: "t", Identity: boundary.Identity{UID: 1000, GID: 1000},
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=de_DE"},
		View: boundary.View{Workdir: "/", Mounts: []boundary.Mount{
			{Kind: boundary.Bind, Target: "/usr", Source: "/usr"}, {Kind: boundary.Tmpfs, Target: "/home/agent"}}},
	}}
	work := filepath.Join(l.dir, "work")
	for _, script := range []string{
		"git init -q -b main " + work,
		"cd " + work + ` && mkdir src && echo one >src/a && printf 'out/\n*.o\n' >.gitignore && echo 1 >go.sum && git add . && git commit -qm one`,
		"cd " + work + ` && echo two >src/a && chmod +x src/a && ln -s a src/l && git add . && git commit -qm two`,
		"cd " + work + " && git checkout -qb secret && echo secret >s && git add . && git commit -qm secret",
		"git clone -q --mirror " + work + " " + filepath.Join(l.dir, "mirror.git"),
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	var err error
	if l.mirror, err = gitcmd.Open(t.Context(), filepath.Join(l.dir, "mirror.git")); err != nil {
		t.Fatal(err)
	}
	l.main, l.other = l.rev(mainBranch), l.rev("refs/heads/secret")
	if err := os.Mkdir(filepath.Join(l.dir, "lent"), 0o700); err != nil {
		t.Fatal(err)
	}
	if l.lent, err = Lend(t.Context(), l.lend()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) rev(ref gitcmd.Ref) gitcmd.Hash {
	h, err := l.mirror.RevParse(l.t.Context(), ref)
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

func (l *lab) lend() LendOptions {
	return LendOptions{Source: l.mirror, Base: l.main, Branch: mainBranch, Dir: filepath.Join(l.dir, "lent")}
}

func (l *lab) mkdir(name string) string {
	p := filepath.Join(l.dir, name)
	if err := os.Mkdir(p, 0o700); err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *lab) prepare(dir string) error {
	return Prepare(l.t.Context(), PrepareOptions{Base: l.base, Lent: l.lent, LentBranch: mainBranch, Commit: l.main, Branch: "refs/heads/confine/issue-1", Dir: dir})
}

func (l *lab) git(dir string, args ...string) string {
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("error: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestLentRepositoryHoldsTheBaseAndNothingElse(t *testing.T) {
	l := newLab(t)
	refs, err := l.lent.Refs(t.Context(), "refs/")
	if err != nil || len(refs) != 1 || refs[0].Ref != mainBranch || refs[0].Hash != l.main {
		t.Errorf("refs %v, %v", refs, err)
	}
	if commits, err := l.lent.RevList(t.Context(), gitcmd.RevListOptions{Include: []gitcmd.Hash{l.main}}); err != nil || len(commits) != 2 {
		t.Errorf("history %v, %v", commits, err)
	}
	if kind, _, err := l.lent.TypeOf(t.Context(), l.other); err == nil {
		t.Errorf("the other branch's commit is there as a %s", kind)
	}
	if kind, _, err := l.mirror.TypeOf(t.Context(), l.other); err != nil {
		t.Errorf("the mirror does not have it either: %s, %v", kind, err)
	}
	if alternates, err := l.lent.Alternates(); err != nil || len(alternates) > 0 {
		t.Errorf("it borrows from %q, %v", alternates, err)
	}
	// Another id must be able to read it.
	err = filepath.WalkDir(l.lent.Dir(), func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && (info.Mode().Perm()&0o004 == 0 || info.Mode().Perm()&0o022 != 0) {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLendUsesWhatIsThereOnlyIfItIsTheSame(t *testing.T) {
	l := newLab(t)
	again, err := Lend(t.Context(), l.lend())
	if err != nil || again.Dir() != l.lent.Dir() {
		t.Errorf("second time: %v", err)
	}
	if err := again.UpdateRef(t.Context(), gitcmd.RefUpdate{Ref: "refs/heads/zz-extra", New: l.main}); err != nil {
		t.Fatal(err)
	}
	if _, err := Lend(t.Context(), l.lend()); err == nil {
		t.Error("a repository with another ref was lent")
	}
	entries, err := os.ReadDir(filepath.Join(l.dir, "lent"))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestPrepareChecksOutTheCommit(t *testing.T) {
	l := newLab(t)
	dir := l.mkdir("ws")
	if err := l.prepare(dir); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"rev-parse HEAD":                                       string(l.main),
		"symbolic-ref HEAD":                                    "refs/heads/confine/issue-1",
		"status --porcelain":                                   "",
		"rev-parse refs/remotes/origin/main":                   string(l.main),
		"log --format=%s":                                      "two\none",
		"for-each-ref --format=%(refname)":                     "refs/heads/confine/issue-1\nrefs/remotes/origin/main",
		"config --get-regexp ^(core.hookspath|include|filter)": "error: exit status 1: ",
	} {
		if got := l.git(dir, strings.Fields(args)...); got != want {
			t.Errorf("git %s: %q, want %q", args, got, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git/hooks")); !os.IsNotExist(err) {
		t.Errorf("hooks of a template are there: %v", err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "src/a")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a program: %v, %v", info, err)
	}
	spec := l.driver.specs[0]
	if spec.Boundary.Network != boundary.NetworkOff || spec.Egress != nil {
		t.Error("the step has a network")
	}
	for _, m := range spec.Boundary.View.Mounts {
		if m.Writable != (m.Target == Inside) {
			t.Errorf("mount %+v", m)
		}
	}
	if !slices.Contains(spec.Boundary.Env, "LC_ALL=C") || slices.Contains(spec.Boundary.Env, "LC_ALL=de_DE") {
		t.Errorf("environment %q", spec.Boundary.Env)
	}
	if len(l.base.Boundary.View.Mounts) != 2 || len(l.base.Boundary.View.Files) != 0 || len(l.base.Boundary.Env) != 2 {
		t.Errorf("the caller's boundary was changed: %+v", l.base.Boundary)
	}
}

func TestPrepareRefuses(t *testing.T) {
	l := newLab(t)
	good := PrepareOptions{Base: l.base, Lent: l.lent, LentBranch: mainBranch, Commit: l.main, Branch: "refs/heads/b", Dir: l.mkdir("full")}
	put(t, good.Dir, "x", "")
	if err := Prepare(t.Context(), good); err == nil {
		t.Error("a directory with something in it was used")
	}
	good.Dir = l.mkdir("empty")
	for name, change := range map[string]func(*PrepareOptions){
		"an option as branch": func(o *PrepareOptions) { o.Branch = "refs/heads/-x" },
		"no branch":           func(o *PrepareOptions) { o.Branch = "refs/tags/x" },
		"a newline":           func(o *PrepareOptions) { o.LentBranch = "refs/heads/a\nb" },
		"a name as commit":    func(o *PrepareOptions) { o.Commit = "HEAD" },
		"no repository":       func(o *PrepareOptions) { o.Lent = nil },
		"no directory":        func(o *PrepareOptions) { o.Dir += "/none" },
	} {
		o := good
		change(&o)
		if err := Prepare(t.Context(), o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if len(l.driver.specs) != 0 {
		t.Error("a refused call started something")
	}
	o := good
	o.Commit = l.other // not in what was lent
	var failed *StepError
	if err := Prepare(t.Context(), o); !errors.As(err, &failed) {
		t.Errorf("a commit that was not lent: %v", err)
	}
	if err := l.prepare(l.mkdir("control")); err != nil {
		t.Errorf("the control: %v", err)
	}
}

func TestStepErrorIsPlain(t *testing.T) {
	l := newLab(t)
	l.driver.failing = "git init"
	for _, c := range []struct {
		exit sandbox.Exit
		want string
	}{
		{sandbox.Exit{Reason: sandbox.Exited, Status: 3}, `prepare workspace: check out the base: exit status 3: it said "it failed"`},
		{sandbox.Exit{Reason: sandbox.OutOfMemory, Status: 137}, `prepare workspace: check out the base: memory limit: it said "it failed"`},
		{sandbox.Exit{}, `prepare workspace: check out the base: the sandbox gave no result: it said "it failed"`},
	} {
		l.driver.exit = c.exit
		dir := t.TempDir()
		if err := l.prepare(dir); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.exit, err, c.want)
		}
	}
}

func (l *lab) setup(dir string, commands ...string) SetupOptions {
	return SetupOptions{Base: l.base, Dir: dir, Lent: l.lent, LentBranch: mainBranch, Commit: l.main, Commands: commands,
		Key: LayerKey{Tenant: "t", Repository: "r", View: "v", Egress: "e", Files: []string{"go.sum", "none"}}}
}

type noEgress struct{}

func (noEgress) Serve(sandbox.EgressSockets) (func(), error) { return nil, nil }

func TestSetupLayerComesBackWhereItIsUnpacked(t *testing.T) {
	l := newLab(t)
	layers := l.mkdir("layers")
	var output bytes.Buffer
	o := l.setup(layers, `mkdir -p out/deep && echo built >out/deep/x && echo o >src/b.o && echo new >'un
tracked' && ln -s deep out/link && echo said`, `git init -q nested && echo n >nested/n && echo changed >src/a`, `mkdir -p "$HOME/.cache/c" && echo cache >"$HOME/.cache/c/f"; test -f out/deep/x`)
	o.Egress, o.Output = noEgress{}, &output
	layer, err := Setup(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if output.String() != "said\n" {
		t.Errorf("output %q", output.String())
	}
	if want := []string{"nested/", "un\ntracked"}; !slices.Equal(layer.Paths, want) {
		t.Errorf("paths %q, want %q", layer.Paths, want)
	}
	for _, s := range l.driver.specs {
		command := s.Args[1] == "-c"
		if got := s.Boundary.Network == boundary.NetworkCaptured && s.Egress != nil; got != command {
			t.Errorf("step %q has a network: %v", s.Args, got)
		}
	}
	ws, home := l.mkdir("ws"), l.mkdir("home")
	if err := l.prepare(ws); err != nil {
		t.Fatal(err)
	}
	put(t, ws, "out/deep/x", "mine")
	if err := Restore(t.Context(), RestoreOptions{Base: l.base, Layer: layer, Lent: l.lent, Workspace: ws, Home: home}); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]string{
		ws + "/out/deep/x": "mine", ws + "/src/b.o": "o\n", ws + "/un\ntracked": "new\n", ws + "/nested/n": "n\n", ws + "/out/link/x": "mine",
		ws + "/src/a": "two\n", home + "/.cache/c/f": "cache\n",
	} {
		if text, err := os.ReadFile(p); err != nil || string(text) != want {
			t.Errorf("%q holds %q, %v; want %q", p, text, err, want)
		}
	}
	if got := l.git(ws, "status", "--porcelain"); strings.Contains(got, "src/") {
		t.Errorf("tracked files differ: %s", got)
	}
	entries, err := os.ReadDir(layers)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if m := l.base.Boundary.View.Mounts; len(m) != 2 || m[1].Kind != boundary.Tmpfs {
		t.Errorf("the caller's boundary was changed: %v", m)
	}
}

func TestSetupRunsOnceForOneKey(t *testing.T) {
	l := newLab(t)
	layers := l.mkdir("layers")
	first, err := Setup(t.Context(), l.setup(layers, "echo x >out.o"))
	if err != nil {
		t.Fatal(err)
	}
	ran := len(l.driver.specs)
	again, err := Setup(t.Context(), l.setup(layers, "echo x >out.o"))
	if err != nil || again.Key != first.Key || len(l.driver.specs) != ran {
		t.Errorf("the second time: %v, %d steps", err, len(l.driver.specs)-ran)
	}
	seen := map[string]string{first.Key: "the first"}
	for name, change := range map[string]func(*SetupOptions){
		"another tenant":     func(o *SetupOptions) { o.Key.Tenant = "u" },
		"another repository": func(o *SetupOptions) { o.Key.Repository = "s" },
		"another view":       func(o *SetupOptions) { o.Key.View = "w" },
		"other egress":       func(o *SetupOptions) { o.Key.Egress = "f" },
		"other commands":     func(o *SetupOptions) { o.Commands = []string{"echo y >out.o"} },
		"commands cut anew":  func(o *SetupOptions) { o.Commands = []string{"echo x ", ">out.o"} },
		"another key file":   func(o *SetupOptions) { o.Key.Files = []string{"src/a"} },
		"another id":         func(o *SetupOptions) { o.Boundary.Identity.UID = 7 },
		"other variables":    func(o *SetupOptions) { o.Boundary.Env = append(slices.Clone(o.Boundary.Env), "A=b") },
	} {
		o := l.setup(layers, "echo x >out.o")
		change(&o)
		key, err := o.key(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[key] = name
	}
	o := l.setup(layers, "echo x >out.o")
	o.Key.Files = []string{"none", "go.sum", "none"}
	if key, err := o.key(t.Context()); err != nil || key != first.Key {
		t.Errorf("the same files in another order have another key, %v", err)
	}
}

func TestFailedSetupKeepsNothing(t *testing.T) {
	l := newLab(t)
	layers := l.mkdir("layers")
	var failed *StepError
	if _, err := Setup(t.Context(), l.setup(layers, "true", "mkdir -p a/b && chmod 0 a && exit 3")); !errors.As(err, &failed) || !strings.Contains(err.Error(), "command 2") {
		t.Errorf("failed command: %v", err)
	}
	if entries, err := os.ReadDir(layers); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	o := l.setup(layers, "head -c 100000 /dev/zero >big.o")
	o.MaxBytes = 50000
	if _, err := Setup(t.Context(), o); err == nil || !strings.Contains(err.Error(), "larger than 50000") {
		t.Errorf("too large: %v", err)
	}
	if entries, err := os.ReadDir(layers); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	o.MaxBytes = 500000
	if _, err := Setup(t.Context(), o); err != nil {
		t.Errorf("the control: %v", err)
	}
}

func TestPartialOrChangedLayersAreNotUsed(t *testing.T) {
	l := newLab(t)
	layers := l.mkdir("layers")
	o := l.setup(layers, "echo x >out.o")
	layer, err := Setup(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func(string) error{
		"no manifest": func(d string) error { return os.Remove(d + "/manifest.json") },
		"cut short":   func(d string) error { return os.Truncate(d+"/home.tar", 1) },
		"missing":     func(d string) error { return os.Remove(d + "/workspace.tar") },
		"a link": func(d string) error {
			return errors.Join(os.Rename(d+"/home.tar", layers+"/x"), os.Symlink(layers+"/x", d+"/home.tar"))
		},
		"other names": func(d string) error { return os.WriteFile(d+"/names", []byte("abcd"), 0o600) },
		"unknown":     func(d string) error { return os.WriteFile(d+"/manifest.json", []byte(`{"version":1,"x":1}`), 0o600) },
	} {
		if err := harm(layer.Dir); err != nil {
			t.Fatal(err)
		}
		ran := len(l.driver.specs)
		again, err := Setup(t.Context(), o)
		if err != nil || len(l.driver.specs) == ran {
			t.Errorf("%s: %v, %d steps ran", name, err, len(l.driver.specs)-ran)
			continue
		}
		layer = again
	}
	// Changed after it was opened: the content no longer fits the manifest.
	info, err := os.Stat(layer.Dir + "/workspace.tar")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(layer.Dir+"/workspace.tar", make([]byte, info.Size()), 0o600); err != nil {
		t.Fatal(err)
	}
	ws := l.mkdir("ws")
	ran := len(l.driver.specs)
	if err := Restore(t.Context(), RestoreOptions{Base: l.base, Layer: layer, Lent: l.lent, Workspace: ws}); err == nil || len(l.driver.specs) != ran {
		t.Errorf("a changed archive was unpacked: %v", err)
	}
}

func TestSweepTakesOnlyWhatNobodyHolds(t *testing.T) {
	dir := t.TempDir()
	held, err := NewScratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "tmp-dead/a/b", "tmp-file", "other/x")
	if n, err := Sweep(dir); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	for name, want := range map[string]bool{filepath.Base(held.Dir): true, "tmp-dead": false, "tmp-file": true, "other/x": true} {
		if exists(filepath.Join(dir, name)) != want {
			t.Errorf("%q is there: %v", name, !want)
		}
	}
	if err := held.Remove(); err != nil || exists(held.Dir) {
		t.Errorf("remove: %v", err)
	}
}
