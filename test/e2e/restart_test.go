package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"confine/internal/agent"
	"confine/internal/codehost"
	"confine/internal/engine"
	"confine/internal/gate"
	"confine/internal/sandbox"
)

// configure writes a config for the project's repository and returns its path.
func (p *project) configure(t *testing.T, script, more string) string {
	t.Helper()
	quoted, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(more, "gate:") {
		more += "gate: {check: {run: sh check.sh}}\n"
	}
	text := `version: 1
tenant: demo
repo: {url: "local:` + p.host.Dir() + `", until: merge}
view: {host: true, allow_missing: [cgroup]}
agent: {kind: command, command: [sh, -c, ` + string(quoted) + `]}
merge: {mode: engine, rule: {gates: passed}}
` + more
	config := filepath.Join(filepath.Dir(p.state), "tenant.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// ended is how a confine process ended.
type ended struct {
	status         int
	stdout, stderr string
}

// confine runs the program to its end.
func (p *project) confine(t *testing.T, binary string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, append(args, "--state", p.state)...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// signalled starts a run whose agent commits and then sleeps, sends the signal,
// and waits for the end of all of it.
func (p *project) signalled(t *testing.T, binary, token string, s syscall.Signal) ended {
	t.Helper()
	config := p.configure(t, fix+"; echo later > notes; sleep "+token, "")
	var out, errOut bytes.Buffer
	cmd := exec.Command(binary, "work", "--config", config, "--issue", "1", "--state", p.state)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the agent", func() bool { return processWith(token) })
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitFor(t, "the agent's end", func() bool { return !processWith(token) })
	return ended{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// kept are the rescue files, by name.
func (p *project) kept(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.state, "rescue", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (p *project) scratch() []string {
	left, _ := filepath.Glob(filepath.Join(p.state, "scratch", "*"))
	return left
}

// TestSignalsEndARun: whatever a terminal, a shell or a service manager sends, the
// run has an end on record and the work is kept.
func TestSignalsEndARun(t *testing.T) {
	binary := program(t)
	for s, token := range map[syscall.Signal]string{
		syscall.SIGINT: "31415.101", syscall.SIGTERM: "31415.102", syscall.SIGHUP: "31415.103", syscall.SIGQUIT: "31415.104",
	} {
		t.Run(s.String(), func(t *testing.T) {
			p := newProject(t, "")
			e := p.signalled(t, binary, token, s)
			if e.status != 1 || !strings.Contains(e.stderr, "interrupted") || !strings.Contains(e.stdout, "rescue   ") {
				t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
			}
			if files := p.kept(t); len(files) != 1 || !strings.HasSuffix(files[0], ".bundle") {
				t.Errorf("kept %v", files)
			}
			if left := p.scratch(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestHangUpThatIsIgnoredEndsNothing: nohup(1) asks for just that.
func TestHangUpThatIsIgnoredEndsNothing(t *testing.T) {
	const token = "3.1415105"
	p := newProject(t, "")
	config := p.configure(t, fix+"; sleep "+token, "")
	var out bytes.Buffer
	cmd := exec.Command("nohup", program(t), "work", "--config", config, "--issue", "1", "--state", p.state)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the agent", func() bool { return processWith(token) })
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), ": merged") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestReaderThatIsGone: a run whose output nobody reads any more goes on.
func TestReaderThatIsGone(t *testing.T) {
	p := newProject(t, "")
	config := p.configure(t, "sleep 0.5; echo said; "+fix, "")
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
	out.Close()
	if err := cmd.Wait(); err != nil || p.tip(t) == p.base {
		t.Errorf("%v: the base is at %s", err, p.tip(t))
	}
}

// TestKilledEngineLosesNoWork: the agent has committed, and changed a file, when
// the engine is killed; the next start keeps both before it clears away.
func TestKilledEngineLosesNoWork(t *testing.T) {
	p := newProject(t, "")
	p.signalled(t, program(t), "31415.106", syscall.SIGKILL)
	if len(p.scratch()) != 1 || len(p.kept(t)) != 0 {
		t.Fatalf("the kill left %v and kept %v: this proves nothing", p.scratch(), p.kept(t))
	}
	p.o.Config.Agent = agent.Command{Args: []string{"true"}}
	if rec, err := p.work(t, engine.UntilMerge); rec.State != engine.Failed {
		t.Fatalf("%v: %s %s", err, rec.State, rec.Reason)
	}
	files := p.kept(t)
	if len(files) != 1 || !strings.HasSuffix(files[0], ".bundle") {
		t.Fatalf("kept %v\n%s", files, p.log)
	}
	if !strings.Contains(p.log.String(), files[0]) {
		t.Errorf("nobody is told of %s:\n%s", files[0], p.log)
	}
	rec := p.record(t, strings.TrimSuffix(filepath.Base(files[0]), ".bundle"))
	if rec.State != engine.Interrupted || rec.Rescue != files[0] || !strings.Contains(rec.Reason, "implement") {
		t.Errorf("record: %s %q %q", rec.State, rec.Reason, rec.Rescue)
	}
	if heads, err := exec.Command("git", "bundle", "list-heads", files[0]).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, heads)
	}
}

// TestKilledEngineWhoseWorkCantBeRead: the directory stays, and is named.
func TestKilledEngineWhoseWorkCantBeRead(t *testing.T) {
	p := newProject(t, "")
	p.signalled(t, program(t), "31415.107", syscall.SIGKILL)
	p.o.Driver = noExport{p.o.Driver}
	p.o.Config.Agent = agent.Command{Args: []string{"true"}}
	_, _ = p.work(t, engine.UntilMerge)
	var texts []string
	for _, dir := range p.kept(t) {
		b, _ := os.ReadFile(filepath.Join(dir, "sum.sh"))
		texts = append(texts, string(b))
		if !strings.Contains(p.log.String(), dir) {
			t.Errorf("nobody is told of %s:\n%s", dir, p.log)
		}
	}
	// The killed run's and this one's own, whose agent changed nothing.
	if len(texts) != 2 || !strings.Contains(texts[0], "+") || !strings.Contains(texts[1], "-") {
		t.Errorf("kept %q\n%s", texts, p.log)
	}
}

// noExport has no sandbox for the hand-over.
type noExport struct{ sandbox.Driver }

func (d noExport) Start(ctx context.Context, s sandbox.Spec) (sandbox.Running, error) {
	if len(s.Args) > 1 && strings.Contains(s.Args[1], "export.sh") {
		return nil, errors.New("no room")
	}
	return d.Driver.Start(ctx, s)
}

// record reads a run's record.
func (p *project) record(t *testing.T, id string) engine.Record {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.state, "runs", id, "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rec engine.Record
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

// dyingHost ends the calling goroutine as it merges: as a kill does, nothing
// after it happens. What the host had on record before is put back.
type dyingHost struct {
	codehost.Host
	dir    string
	landed bool
}

func (h *dyingHost) Merge(ctx context.Context, m codehost.MergeRequest) (codehost.MergeResult, error) {
	if h.landed {
		pulls, _ := filepath.Glob(filepath.Join(h.dir, "pulls", "*.md"))
		before, err := os.ReadFile(pulls[0])
		if err == nil {
			_, err = h.Host.Merge(ctx, m)
		}
		if err == nil {
			err = os.WriteFile(pulls[0], before, 0o600)
		}
		if err != nil {
			panic(err)
		}
	}
	runtime.Goexit()
	return codehost.MergeResult{}, nil
}

// TestKilledBetweenLandingAndRecord: the base has the merge and nobody wrote it
// down. The next start does, and starts no agent for it.
func TestKilledBetweenLandingAndRecord(t *testing.T) {
	p := newProject(t, fix)
	before := p.tip(t)
	died := make(chan struct{})
	o := p.o
	o.Host = &dyingHost{p.host, p.host.Dir(), true}
	go func() {
		defer close(died)
		_, _ = engine.Work(context.Background(), o, 1, engine.UntilMerge)
	}()
	<-died
	landed := p.tip(t)
	issue, err := p.host.Issue(t.Context(), 1)
	if err != nil || landed == before || issue.State != codehost.Open {
		t.Fatalf("%v: tip %s, issue %s: this proves nothing\n%s", err, landed, issue.State, p.log)
	}
	p.o.Config.Agent = agent.Command{Args: []string{"sh", "-c", "echo the agent ran again"}}
	p.log.Reset()
	rec, err := p.work(t, engine.UntilMerge)
	if err != nil || rec.State != engine.Merged || rec.Landed != landed || rec.Pull != 1 {
		t.Fatalf("%v: %s %q, landed %q, pull %d\n%s", err, rec.State, rec.Reason, rec.Landed, rec.Pull, p.log)
	}
	if strings.Contains(p.log.String(), "the agent ran again") || !strings.Contains(p.log.String(), "merged") {
		t.Errorf("log:\n%s", p.log)
	}
	p.mergedOnce(t, landed)
	if got := p.record(t, rec.Run); got.State != engine.Merged || got.Ended.IsZero() {
		t.Errorf("record: %s", got.State)
	}
	// Once settled it is over.
	if rec, err := p.work(t, engine.UntilMerge); rec.State != engine.Refused || !strings.Contains(rec.Reason, "closed") {
		t.Errorf("%v: %s %q", err, rec.State, rec.Reason)
	}
}

// mergedOnce checks that the host holds exactly one of everything.
func (p *project) mergedOnce(t *testing.T, landed any) {
	t.Helper()
	issue, err := p.host.Issue(t.Context(), 1)
	if err != nil || issue.State != codehost.Closed || len(issue.Comments) != 1 || !strings.Contains(issue.Comments[0].Body, "merged") {
		t.Errorf("%v: issue %+v", err, issue)
	}
	pull, err := p.host.Pull(t.Context(), 1)
	if err != nil || pull.State != codehost.Merged || any(pull.Landed) != landed {
		t.Errorf("%v: pull request %+v", err, pull)
	}
	if _, err := p.host.Pull(t.Context(), 2); err == nil {
		t.Error("there is a second pull request")
	}
	remote, err := p.host.Remote(t.Context(), codehost.Read)
	if err != nil {
		t.Fatal(err)
	}
	branches, err := exec.Command("git", "--git-dir", remote.Path, "for-each-ref", "--format=%(refname)", "refs/heads/").Output()
	if n := strings.Count(string(branches), "\n"); err != nil || n != 2 {
		t.Errorf("%v: branches %q", err, branches)
	}
	if p.tip(t) != landed {
		t.Errorf("the base is at %s", p.tip(t))
	}
}

// TestKilledMergeOfAnotherRepository: only the code host that was asked to merge
// knows; a start for another repository leaves the run to one that can ask.
func TestKilledMergeOfAnotherRepository(t *testing.T) {
	p, other := newProject(t, fix), newProject(t, fix)
	died := make(chan struct{})
	o := p.o
	o.Host = &dyingHost{p.host, p.host.Dir(), true}
	go func() {
		defer close(died)
		_, _ = engine.Work(context.Background(), o, 1, engine.UntilMerge)
	}()
	<-died
	ids, _ := filepath.Glob(filepath.Join(p.state, "runs", "*-1"))
	if len(ids) != 1 {
		t.Fatalf("runs %v", ids)
	}
	id := filepath.Base(ids[0])
	other.state, other.o.StateDir, other.o.Config.Repository = p.state, p.state, "other"
	if rec, err := other.work(t, engine.UntilMerge); err != nil || rec.State != engine.Merged || rec.Run == id {
		t.Fatalf("%v: run %s %s %q", err, rec.Run, rec.State, rec.Reason)
	}
	if rec := p.record(t, id); rec.State != engine.Running {
		t.Errorf("a start that can't know calls it %s: %s", rec.State, rec.Reason)
	}
	if rec, err := p.work(t, engine.UntilMerge); err != nil || rec.State != engine.Merged || rec.Run != id {
		t.Errorf("%v: run %s %s %q", err, rec.Run, rec.State, rec.Reason)
	}
	p.mergedOnce(t, p.tip(t))
}

// TestKilledBeforeLanding: the base has nothing, so nothing is called merged.
func TestKilledBeforeLanding(t *testing.T) {
	p := newProject(t, fix)
	died := make(chan struct{})
	o := p.o
	o.Host = &dyingHost{p.host, p.host.Dir(), false}
	go func() {
		defer close(died)
		_, _ = engine.Work(context.Background(), o, 1, engine.UntilMerge)
	}()
	<-died
	p.o.Config.Gate = []gate.Check{{Name: "none", Args: []string{"true"}}}
	if rec, err := engine.Check(t.Context(), p.o); err != nil || rec.State != engine.Checked {
		t.Errorf("%v: %s %q", err, rec.State, rec.Reason)
	}
	ids, _ := filepath.Glob(filepath.Join(p.state, "runs", "*-1"))
	if len(ids) != 1 {
		t.Fatalf("runs %v", ids)
	}
	rec := p.record(t, filepath.Base(ids[0]))
	if rec.State != engine.Interrupted || !strings.Contains(rec.Reason, "pull request 1") || rec.Landed != "" || p.tip(t) != p.base {
		t.Errorf("%s %q %s", rec.State, rec.Reason, rec.Landed)
	}
}

// TestFirstStartsRace: several first starts on one state directory make the
// mirror once, and all of them work.
func TestFirstStartsRace(t *testing.T) {
	p := newProject(t, "")
	p.o.Config.Gate = []gate.Check{{Name: "none", Args: []string{"true"}}}
	p.o.Progress, p.o.Output = nil, nil
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if rec, err := engine.Check(t.Context(), p.o); err != nil || rec.State != engine.Checked {
				t.Errorf("%v: %s %q", err, rec.State, rec.Reason)
			}
		})
	}
	all.Wait()
	if left := p.scratch(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestMirrorIsMadeWhole: what a first start left that was killed as it made the
// mirror is no mirror.
func TestMirrorIsMadeWhole(t *testing.T) {
	p := newProject(t, fix)
	if rec, err := p.work(t, engine.UntilMerge); err != nil {
		t.Fatalf("%v: %s", err, rec.Reason)
	}
	found, err := filepath.Glob(filepath.Join(p.state, "tenants", "*", "*", "mirror.git"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v: mirrors %v", err, found)
	}
	for _, name := range []string{"objects", "HEAD"} {
		if err := os.RemoveAll(filepath.Join(found[0], name)); err != nil {
			t.Fatal(err)
		}
	}
	p.o.Config.Gate = []gate.Check{{Name: "none", Args: []string{"true"}}}
	if rec, err := engine.Check(t.Context(), p.o); err != nil || rec.State != engine.Checked {
		t.Errorf("%v: %s %q", err, rec.State, rec.Reason)
	}
}
