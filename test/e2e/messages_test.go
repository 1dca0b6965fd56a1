package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"confine/internal/codehost"
	"confine/internal/engine"
)

// TestUntilPlanWithoutPlan: a run in which no agent runs has not planned.
func TestUntilPlanWithoutPlan(t *testing.T) {
	p := newProject(t, "true")
	config := p.configure(t, "true", "")
	e := p.confine(t, program(t), "work", "--config", config, "--issue", "1", "--until", "plan")
	if e.status != 2 || !strings.Contains(e.stderr, "stages.plan") || strings.Contains(e.stdout, "planned") {
		t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	if rec, err := engine.Work(t.Context(), p.o, 1, engine.UntilPlan); err == nil || rec.State == engine.Planned {
		t.Errorf("%v: %s", err, rec.State)
	}
}

// TestFailedCommandsAreShown: what the command that failed wrote is where a person
// and a program look for it, cleaned.
func TestFailedCommandsAreShown(t *testing.T) {
	binary := program(t)
	p := newProject(t, "")
	failing := `printf 'first\nthe \033[31mcause\033[0m\nof it' >&2; nothing-of-this-name; exit 7`
	for name, c := range map[string]struct {
		more string
		args []string
		hint string
	}{
		"setup":         {"setup: {run: [" + quote(failing) + "]}\n", []string{"check"}, "setup.run"},
		"gate":          {"gate: {check: {run: " + quote(failing) + "}}\n", []string{"check"}, "the base"},
		"work":          {"gate: {check: {run: " + quote(failing) + "}}\n", []string{"work", "--issue", "1"}, "confine check"},
		"setup of work": {"setup: {run: [" + quote(failing) + "]}\n", []string{"work", "--issue", "1"}, "confine check"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(c.args, "--config", p.configure(t, fix, c.more))
			e := p.confine(t, binary, args...)
			for _, want := range []string{"  | first\n", "  | the cause\n", "nothing-of-this-name"} {
				if !strings.Contains(e.stdout, want) {
					t.Errorf("no %q on the last screen:\n%s", want, e.stdout)
				}
			}
			if e.status != 1 || strings.Contains(e.stdout+e.stderr, "\033") || !strings.Contains(e.stderr, c.hint) {
				t.Errorf("status %d\n%s", e.status, e.stderr)
			}
			if c.args[0] == "check" && strings.Contains(e.stderr, "confine check") {
				t.Errorf("the hint names the command itself:\n%s", e.stderr)
			}
			var rec engine.Record
			e = p.confine(t, binary, append(args, "--json")...)
			if err := json.Unmarshal([]byte(e.stdout), &rec); err != nil || len(rec.Output) != 1 || !strings.Contains(strings.Join(rec.Output[0].Lines, "\n"), "the cause\nof it") {
				t.Errorf("%v: %+v", err, rec.Output)
			}
		})
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// TestHintsNameTheField: each of these has one thing that mends it.
func TestHintsNameTheField(t *testing.T) {
	binary := program(t)
	tools := t.TempDir()
	for name, text := range map[string]string{"lost": "#!/nope\n", "plain": "#!/bin/sh\n", "good": "#!/bin/sh\n"} {
		mode := os.FileMode(0o755)
		if name == "plain" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(tools, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	tools, err := filepath.EvalSymlinks(tools)
	if err != nil {
		t.Fatal(err)
	}
	seen := "view: {host: true, allow_missing: [cgroup], ro: [" + quote(tools) + "]}\n"
	unseen := "view: {host: true, allow_missing: [cgroup]}\n"
	for name, c := range map[string]struct {
		view, agent, base, issue string
		want                     string
	}{
		"interpreter is missing":  {view: seen, agent: tools + "/lost", want: `"/nope"`},
		"agent is not executable": {view: seen, agent: tools + "/plain", want: "chmod"},
		"agent is not in view":    {view: unseen, agent: tools + "/good", want: "view.ro"},
		"agent is nowhere":        {view: seen, agent: tools + "/none", want: "agent.command"},
		"no such base":            {view: seen, agent: tools + "/good", base: "nope", want: "repo.base"},
		"no such issue":           {view: seen, agent: tools + "/good", issue: "99", want: "--issue"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, "")
			config := p.configure(t, "", "")
			text, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			edited := strings.Replace(string(text), unseen, c.view, 1)
			edited = strings.Replace(edited, `[sh, -c, ""]`, "["+quote(c.agent)+"]", 1)
			if c.base != "" {
				edited = strings.Replace(edited, "until: merge", "until: merge, base: "+c.base, 1)
			}
			if err := os.WriteFile(config, []byte(edited), 0o600); err != nil {
				t.Fatal(err)
			}
			issue := c.issue
			if issue == "" {
				issue = "1"
			}
			e := p.confine(t, binary, "work", "--config", config, "--issue", issue)
			_, hint, _ := strings.Cut(e.stderr, "confine: hint: ")
			if e.status == 0 || !strings.Contains(hint, c.want) || strings.Contains(hint, "--ro") {
				t.Errorf("status %d\n%s", e.status, e.stderr)
			}
		})
	}
}

// TestCheckWithoutGate: the field is named, not an inner word.
func TestCheckWithoutGate(t *testing.T) {
	p := newProject(t, "")
	config := p.configure(t, "true", "")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(string(text), "gate: {check: {run: sh check.sh}}\n", "", 1)
	without = strings.Replace(without, "until: merge", "until: plan", 1)
	without = strings.Replace(without, "merge: {mode: engine, rule: {gates: passed}}\n", "", 1) + "stages: {plan: {tools: [read]}, implement: {tools: [read, edit]}}\n"
	if err := os.WriteFile(config, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	e := p.confine(t, program(t), "check", "--config", config)
	if e.status != 2 || !strings.Contains(e.stderr, "field gate") || strings.Contains(e.stderr, "there is none") {
		t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
}

// TestBaseThatGoesAway: the base is deleted, or loses its history, while the
// agent works.
func TestBaseThatGoesAway(t *testing.T) {
	for name, c := range map[string]struct {
		then func(t *testing.T, p *project, git string)
		want string
	}{
		"deleted": {func(t *testing.T, p *project, git string) {
			if out, err := exec.Command("git", "--git-dir", git, "update-ref", "-d", "refs/heads/main").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}, "is gone"},
		"rewritten": {func(t *testing.T, p *project, git string) {
			tree, err := exec.Command("git", "--git-dir", git, "rev-parse", "main^{tree}").Output()
			if err != nil {
				t.Error(err)
			}
			made, err := exec.Command("git", "--git-dir", git, "-c", "user.name=x", "-c", "user.email=x@y", "commit-tree", "-m", "Anew", strings.TrimSpace(string(tree))).Output()
			if err == nil {
				err = exec.Command("git", "--git-dir", git, "update-ref", "refs/heads/main", strings.TrimSpace(string(made))).Run()
			}
			if err != nil {
				t.Error(err)
			}
		}, "was rewritten"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, fix)
			remote, err := p.host.Remote(t.Context(), codehost.Read)
			if err != nil {
				t.Fatal(err)
			}
			progress := p.o.Progress
			p.o.Progress = func(e engine.Event) {
				progress(e)
				if e.Stage == "hand-over" && e.Text == "" {
					c.then(t, p, remote.Path)
				}
			}
			rec, err := p.work(t, engine.UntilMerge)
			var hint interface{ Hint() string }
			if rec.State != engine.Waiting || !strings.Contains(rec.Reason, c.want) || !errors.As(err, &hint) || hint.Hint() == "" || rec.Rescue == "" {
				t.Errorf("%v: %s %q, rescue %q", err, rec.State, rec.Reason, rec.Rescue)
			}
		})
	}
}
