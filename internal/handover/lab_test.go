package handover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/sandbox"
)

var labTime = time.Unix(1_700_000_000, 0).UTC()

// lab is an engine's directory with a lent repository, and an agent's workspace
// cloned from it, as the agent has it: git there is plain git.
type lab struct {
	t         *testing.T
	engine    string // directory of the engine
	workspace string
	owned     string // the marker that hostile programs make
	lent      *gitcmd.Repo
	base      gitcmd.Hash
	calls     []gitcmd.Call
	ctx       context.Context
	driver    *hereDriver
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, engine: t.TempDir(), workspace: filepath.Join(t.TempDir(), "agent-workspace")}
	l.owned = filepath.Join(t.TempDir(), "owned")
	l.driver = &hereDriver{t: t}
	l.ctx = gitcmd.Observe(t.Context(), func(c gitcmd.Call) { l.calls = append(l.calls, c) })
	from := templates(t)
	lent := filepath.Join(l.engine, "lent.git")
	l.must(os.CopyFS(lent, os.DirFS(filepath.Join(from, "lent.git"))))
	l.must(os.CopyFS(l.workspace, os.DirFS(filepath.Join(from, "workspace"))))
	var err error
	l.lent, err = gitcmd.Open(t.Context(), lent)
	l.must(err)
	l.base, err = l.lent.RevParse(t.Context(), "refs/heads/main")
	l.must(err)
	for _, dir := range []string{"spool", "rescue"} {
		l.must(os.Mkdir(filepath.Join(l.engine, dir), 0o700))
	}
	return l
}

var template struct {
	sync.Mutex
	dir string
}

// templates makes, once, the lent repository and the workspace that each lab
// begins with a copy of.
func templates(t *testing.T) string {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if template.dir != "" {
		return template.dir
	}
	dir, err := os.MkdirTemp("", "handover-test-*")
	l := &lab{t: t}
	l.must(err)
	removeAtEnd = append(removeAtEnd, dir)
	seed := filepath.Join(dir, "seed")
	l.must(os.Mkdir(seed, 0o755))
	l.git(seed, "init", "-q", "-b", "main", "--template=")
	l.write(seed, "a.txt", "one\n")
	l.write(seed, "docs/guide.md", "guide\n")
	l.write(seed, ".gitignore", "ignored/\n")
	l.write(seed, ".github/workflows/ci.yml", "on: push\n")
	l.write(seed, ".env.test", "KEY=nothing\n")
	l.git(seed, "add", "-A")
	l.git(seed, "commit", "-q", "-m", "older base")
	l.write(seed, "a.txt", "one\ntwo\n")
	l.git(seed, "commit", "-q", "-a", "-m", "base")
	l.git(seed, "clone", "-q", "--bare", "--template=", seed, filepath.Join(dir, "lent.git"))
	l.git(seed, "clone", "-q", "--template=", filepath.Join(dir, "lent.git"), filepath.Join(dir, "workspace"))
	template.dir = dir
	return dir
}

var removeAtEnd []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range removeAtEnd {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) write(dir, name, text string) {
	l.t.Helper()
	path := filepath.Join(dir, name)
	l.must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.must(os.WriteFile(path, []byte(text), 0o644))
}

// git is the agent's.
func (l *lab) git(dir string, args ...string) string { return l.gitIn(dir, "", args...) }

func (l *lab) gitIn(dir, stdin string, args ...string) string {
	l.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = agentEnv()
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = exit.Stderr
		}
		l.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// tryGit is git whose success does not matter.
func (l *lab) tryGit(dir string, args ...string) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, agentEnv()
	_ = cmd.Run()
}

func agentEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Agent", "GIT_AUTHOR_EMAIL=agent@example.com", "GIT_COMMITTER_NAME=Agent", "GIT_COMMITTER_EMAIL=agent@example.com"}
}

// commit commits everything in the workspace.
func (l *lab) commit(message string) gitcmd.Hash {
	l.t.Helper()
	l.git(l.workspace, "add", "-A")
	l.git(l.workspace, "commit", "-q", "--allow-empty", "-m", message)
	return gitcmd.Hash(l.git(l.workspace, "rev-parse", "HEAD"))
}

func (l *lab) take(change ...func(*ExportOptions)) (Export, error) {
	l.t.Helper()
	o := ExportOptions{
		Driver: l.driver, Boundary: boundary.Boundary{Version: boundary.Version, Tenant: "test"},
		Workspace: l.workspace, Lent: l.lent, Base: l.base, Leftovers: true, Spool: filepath.Join(l.engine, "spool"),
	}
	for _, f := range change {
		f(&o)
	}
	return Take(l.ctx, o)
}

func (l *lab) mustTake(change ...func(*ExportOptions)) Export {
	l.t.Helper()
	e, err := l.take(change...)
	l.must(err)
	return e
}

func (l *lab) receive(e Export) (Received, error) {
	l.t.Helper()
	f, err := os.Open(e.Path)
	l.must(err)
	defer f.Close()
	dir, err := os.MkdirTemp(l.engine, "q-*")
	l.must(err)
	return Receive(l.ctx, ReceiveOptions{Bundle: f, Lent: l.lent, Base: l.base, Dir: filepath.Join(dir, "quarantine.git")})
}

// through takes, receives and checks.
func (l *lab) through(rules Rules) (Received, *Report) {
	l.t.Helper()
	e := l.mustTake()
	if e.Kind != Bundle {
		l.t.Fatalf("the export is %+v", e)
	}
	r, err := l.receive(e)
	l.must(err)
	report, err := Check(l.ctx, CheckOptions{Received: r, Rules: rules})
	l.must(err)
	return r, report
}

func (l *lab) notOwned() {
	l.t.Helper()
	if _, err := os.Lstat(l.owned); err == nil {
		l.t.Error("a program of the agent ran: the marker exists")
	}
}

// has reports whether a list names rule and path.
func has(list []Refusal, rule Rule, path string) bool {
	for _, r := range list {
		if r.Rule == rule && r.Path == path {
			return true
		}
	}
	return false
}

// snapshot is a digest of all names, modes and bytes below dir.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := path + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			line += " " + hex.EncodeToString(sum[:])
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	h.Write([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(h.Sum(nil))
}

// hereDriver runs the command of a boundary right here, its targets replaced by
// their sources: for tests of the script, with no boundary around it. A program
// of the agent that it started would reach the host's marker.
type hereDriver struct {
	t *testing.T
	// path comes before PATH, for programs that fail.
	path string
	last boundary.Boundary
}

func (d *hereDriver) Name() string { return "here" }

func (d *hereDriver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Running, error) {
	d.last = spec.Boundary
	root := d.t.TempDir()
	places := map[string]string{}
	for _, m := range spec.Boundary.View.Mounts {
		places[m.Target] = m.Source
		if m.Kind == boundary.Tmpfs {
			places[m.Target] = d.t.TempDir()
		}
	}
	for _, f := range spec.Boundary.View.Files {
		path := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			return nil, err
		}
		places[f.Path] = path
	}
	at := func(s string) string {
		if place, ok := places[s]; ok {
			return place
		}
		return s
	}
	args := []string{}
	for _, a := range spec.Args {
		args = append(args, at(a))
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	for _, v := range spec.Boundary.Env {
		name, value, _ := strings.Cut(v, "=")
		if name == "PATH" && d.path != "" {
			value = d.path + ":" + value
		}
		cmd.Env = append(cmd.Env, name+"="+at(value))
	}
	cmd.Dir = at(spec.Boundary.View.Workdir)
	cmd.Stdout = spec.Stdout
	cmd.Stderr = spec.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &hereRun{cmd}, nil
}

type hereRun struct{ cmd *exec.Cmd }

func (r *hereRun) Signal(s os.Signal) error { return r.cmd.Process.Signal(s) }
func (r *hereRun) Kill()                    { _ = r.cmd.Process.Kill() }
func (r *hereRun) Wait() sandbox.Exit {
	err := r.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return sandbox.Exit{Reason: sandbox.Exited}
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return sandbox.Exit{Reason: sandbox.Exited, Status: exit.ExitCode()}
	}
	return sandbox.Exit{Reason: sandbox.Cancelled, Err: err}
}
