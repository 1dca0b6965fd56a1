package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/sandbox"
)

// scripted is a driver that writes what it is told instead of running anything.
type scripted struct {
	do    func(spec sandbox.Spec) (sandbox.Exit, error)
	specs []sandbox.Spec
}

func (*scripted) Name() string { return "scripted" }

func (d *scripted) Start(_ context.Context, spec sandbox.Spec) (sandbox.Running, error) {
	d.specs = append(d.specs, spec)
	exit, err := d.do(spec)
	if err != nil {
		return nil, err
	}
	return ended{exit}, nil
}

type ended struct{ exit sandbox.Exit }

func (ended) Signal(os.Signal) error { return nil }
func (ended) Kill()                  {}
func (e ended) Wait() sandbox.Exit   { return e.exit }

// fresh makes boundaries over new directory names.
type fresh struct {
	change   func(*boundary.Boundary)
	made     []string
	released int
	fail     error
}

func (f *fresh) Make(_ context.Context, check string, c Candidate) (Workspace, error) {
	f.made = append(f.made, check)
	b := boundary.Boundary{Version: boundary.Version, Tenant: "t", Env: []string{"PATH=/usr/bin"}, View: boundary.View{
		Mounts: []boundary.Mount{{Kind: boundary.Bind, Source: fmt.Sprintf("/w/%d-%s", len(f.made), c.Tree), Target: "/workspace", Writable: true}},
	}}
	if f.change != nil {
		f.change(&b)
	}
	return Workspace{Boundary: b, Release: func() error { f.released++; return f.fail }}, nil
}

func goodPlan(checks ...Check) Plan {
	return Plan{
		Candidate:    Candidate{Base: "b", Head: "h", Commit: "c", Tree: "t"},
		ConfigDigest: "cd", ViewDigest: "vd", Checks: checks,
	}
}

func exits(status int) func(sandbox.Spec) (sandbox.Exit, error) {
	return func(sandbox.Spec) (sandbox.Exit, error) {
		return sandbox.Exit{Reason: sandbox.Exited, Status: status}, nil
	}
}

func TestZeroVerdictHasNotPassed(t *testing.T) {
	var v Verdict
	if v.Passed() || v.Covers(About{}) == "" {
		t.Fatal("the zero verdict counts")
	}
	good, err := Runner{Driver: &scripted{do: exits(0)}, Workspaces: &fresh{}}.Run(t.Context(), goodPlan(Check{Name: "a", Args: []string{"true"}}))
	if err != nil || !good.Passed() {
		t.Fatal(good.Why(), err)
	}
	for name, change := range map[string]func(*Verdict){
		"version":      func(v *Verdict) { v.Version = 0 },
		"tree":         func(v *Verdict) { v.Tree = "" },
		"base":         func(v *Verdict) { v.Base = "" },
		"head":         func(v *Verdict) { v.Head = "" },
		"config":       func(v *Verdict) { v.ConfigDigest = "" },
		"view":         func(v *Verdict) { v.ViewDigest = "" },
		"incomplete":   func(v *Verdict) { v.Complete = false },
		"no checks":    func(v *Verdict) { v.Checks = nil },
		"failed check": func(v *Verdict) { v.Checks = append(v.Checks, CheckResult{Name: "zero"}) },
	} {
		bad := good
		bad.Checks = slices.Clone(good.Checks)
		change(&bad)
		if bad.Passed() {
			t.Errorf("%s: passed", name)
		}
	}
}

func TestVerdictJSON(t *testing.T) {
	v, err := Runner{Driver: &scripted{do: exits(0)}, Workspaces: &fresh{}}.Run(t.Context(), goodPlan(Check{Name: "a", Args: []string{"true"}}))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(data), `"passed":true`) || !strings.Contains(string(data), `"tree":"t"`) {
		t.Fatalf("%s %v", data, err)
	}
	var back Verdict
	if err := json.Unmarshal(data, &back); err != nil || !back.Passed() || back.Covers(About{v.Candidate, "cd", "vd"}) != "" {
		t.Fatalf("%s: %v %q", data, err, back.Why())
	}
	// The word alone passes nothing.
	back = Verdict{}
	if err := json.Unmarshal([]byte(`{"passed":true,"version":1,"complete":true}`), &back); err != nil || back.Passed() {
		t.Fatal("passed by its word", err)
	}
}

func TestCovers(t *testing.T) {
	v := Verdict{Version: 1, Candidate: goodPlan().Candidate, ConfigDigest: "cd", ViewDigest: "vd"}
	about := About{goodPlan().Candidate, "cd", "vd"}
	if why := v.Covers(about); why != "" {
		t.Fatal(why)
	}
	for want, change := range map[string]func(*About){
		"another base":   func(a *About) { a.Base = "x" },
		"another head":   func(a *About) { a.Head = "x" },
		"another tree":   func(a *About) { a.Tree = "x" },
		"another commit": func(a *About) { a.Commit = "x" },
		"another config": func(a *About) { a.ConfigDigest = "x" },
		"another view":   func(a *About) { a.ViewDigest = "x" },
		"tree is not":    func(a *About) { a.Tree = "" },
	} {
		other := about
		change(&other)
		if why := v.Covers(other); !strings.Contains(why, want) {
			t.Errorf("got %q, want %q", why, want)
		}
	}
}

// TestEachCheckIsFresh: one workspace a check, released, its own limits, and no
// writable directory twice.
func TestEachCheckIsFresh(t *testing.T) {
	d, w := &scripted{do: exits(0)}, &fresh{}
	var seen []string
	r := Runner{Driver: d, Workspaces: w, Started: func(n string) { seen = append(seen, n) }, Finished: func(c CheckResult) { seen = append(seen, c.Name+" ended") }}
	plan := goodPlan(Check{Name: "vet", Args: []string{"go", "vet"}, Env: []string{"CI=1"}}, Check{Name: "test", Args: []string{"go", "test"}, Timeout: time.Minute})
	v, err := r.Run(t.Context(), plan)
	if err != nil || !v.Passed() || w.released != 2 || !slices.Equal(w.made, []string{"vet", "test"}) {
		t.Fatal(v.Why(), err, w.released, w.made)
	}
	if !slices.Equal(seen, []string{"vet", "vet ended", "test", "test ended"}) {
		t.Fatal(seen)
	}
	if got := d.specs[0].Boundary; got.Limits.Time != DefaultTimeout || got.Limits.Output == 0 || !slices.Equal(got.Env, []string{"PATH=/usr/bin", "CI=1"}) {
		t.Fatalf("%+v %v", got.Limits, got.Env)
	}
	if d.specs[1].Boundary.Limits.Time != time.Minute || d.specs[1].Egress != nil {
		t.Fatal(d.specs[1].Boundary.Limits)
	}

	w = &fresh{change: func(b *boundary.Boundary) { b.View.Mounts[0].Source = "/w/same" }}
	r.Workspaces = w
	var bad *PlanError
	if v, err = r.Run(t.Context(), plan); !errors.As(err, &bad) || bad.Field != "workspace" || v.Passed() || w.released != 2 {
		t.Fatalf("a shared workspace: %v", err)
	}
	// Read-only parts may be shared.
	r.Workspaces = &fresh{change: func(b *boundary.Boundary) {
		b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: "/usr", Target: "/usr"})
	}}
	if v, err = r.Run(t.Context(), plan); err != nil || !v.Passed() {
		t.Fatal(v.Why(), err)
	}
}

func TestGateHasNoNetwork(t *testing.T) {
	d := &scripted{do: exits(0)}
	w := &fresh{change: func(b *boundary.Boundary) { b.Network = boundary.NetworkCaptured }}
	v, err := Runner{Driver: d, Workspaces: w}.Run(t.Context(), goodPlan(Check{Name: "a", Args: []string{"true"}}))
	var bad *PlanError
	if !errors.As(err, &bad) || bad.Field != "network" || v.Passed() || len(d.specs) != 0 || w.released != 1 {
		t.Fatalf("%v, %d started, %d released", err, len(d.specs), w.released)
	}
	w.change = nil
	if v, err = (Runner{Driver: d, Workspaces: w}).Run(t.Context(), goodPlan(Check{Name: "a", Args: []string{"true"}})); err != nil || !v.Passed() {
		t.Fatal(v.Why(), err)
	}
}

func TestPlanIsChecked(t *testing.T) {
	good := Check{Name: "a", Args: []string{"true"}}
	for field, change := range map[string]func(*Plan){
		"tree":          func(p *Plan) { p.Candidate.Tree = "" },
		"config digest": func(p *Plan) { p.ConfigDigest = "" },
		"view digest":   func(p *Plan) { p.ViewDigest = "" },
		"checks":        func(p *Plan) { p.Checks = nil },
		"name":          func(p *Plan) { p.Checks[0].Name = "a\nb" },
		"run":           func(p *Plan) { p.Checks[0].Args = nil },
		"timeout":       func(p *Plan) { p.Checks[0].Timeout = -1 },
		"report":        func(p *Plan) { p.Checks[0].Report = "junit" },
		"min_tests":     func(p *Plan) { p.Checks[0].MinTests = 1 },
	} {
		p := goodPlan(good)
		change(&p)
		d := &scripted{do: exits(0)}
		v, err := Runner{Driver: d, Workspaces: &fresh{}}.Run(t.Context(), p)
		var bad *PlanError
		if !errors.As(err, &bad) || bad.Field != field || v.Passed() || len(d.specs) > 0 {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if _, err := (Runner{Driver: &scripted{do: exits(0)}, Workspaces: &fresh{}}).Run(t.Context(), goodPlan(good, good)); err == nil {
		t.Error("two checks of one name run")
	}
}

// TestHowChecksEnd: nothing but an own end with status 0 passes; what is not the
// candidate's doing is an error.
func TestHowChecksEnd(t *testing.T) {
	const report = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"T"}
{"Action":"pass","Package":"p","Test":"T"}
{"Action":"pass","Package":"p"}
`
	tests := map[string]struct {
		exit   sandbox.Exit
		start  error
		report Report
		out    string
		want   string // reason; "" passes
		fault  bool
	}{
		"success":          {exit: sandbox.Exit{Reason: sandbox.Exited}},
		"status":           {exit: sandbox.Exit{Reason: sandbox.Exited, Status: 3}, want: "status 3"},
		"zero exit":        {want: "the sandbox broke", fault: true},
		"fault":            {exit: sandbox.Exit{Reason: sandbox.Fault, Err: io.ErrUnexpectedEOF}, want: "the sandbox broke", fault: true},
		"error at the end": {exit: sandbox.Exit{Reason: sandbox.Exited, Err: io.ErrUnexpectedEOF}, want: "the sandbox broke", fault: true},
		"cancelled":        {exit: sandbox.Exit{Reason: sandbox.Cancelled}, want: "cancelled", fault: true},
		"time limit":       {exit: sandbox.Exit{Reason: sandbox.TimedOut}, want: "time limit"},
		"memory":           {exit: sandbox.Exit{Reason: sandbox.OutOfMemory, Status: 137}, want: "memory limit"},
		"memory of a part": {exit: sandbox.Exit{Reason: sandbox.Exited, Status: 137, OOMKills: 2}, want: "it ended with status 137: processes were killed at the memory limit (2 times, view.limits.memory)"},
		"a part that went": {exit: sandbox.Exit{Reason: sandbox.Exited, OOMKills: 1}},
		"forks":            {exit: sandbox.Exit{Reason: sandbox.Exited, Status: 2, PidsHit: 3}, want: "it ended with status 2: new processes were refused at their limit (3 times, view.limits.pids)"},
		"tests and memory": {exit: sandbox.Exit{Reason: sandbox.Exited, Status: 1, OOMKills: 1}, report: GoTest, out: report, want: "killed at the memory limit"},
		"disk":             {exit: sandbox.Exit{Reason: sandbox.DiskFull}, want: "disk limit"},
		"signal":           {exit: sandbox.Exit{Reason: sandbox.Signalled, Signal: 9, Status: 137}, want: "signal 9"},
		"not found":        {start: &sandbox.StartError{Step: "exec", Err: os.ErrNotExist, NotFound: true}, want: "not found in the view"},
		"does not start":   {start: &sandbox.StartError{Step: "mount", Err: os.ErrPermission}, fault: true, want: "-"},
		"tests":            {exit: sandbox.Exit{Reason: sandbox.Exited}, report: GoTest, out: report},
		"tests and status": {exit: sandbox.Exit{Reason: sandbox.Exited, Status: 1}, report: GoTest, out: report, want: "status 1"},
		"tests and time":   {exit: sandbox.Exit{Reason: sandbox.TimedOut}, report: GoTest, out: report, want: "time limit"},
		"no tests":         {exit: sandbox.Exit{Reason: sandbox.Exited}, report: GoTest, want: "0 tests passed, at least 1 must"},
		"report cut":       {exit: sandbox.Exit{Reason: sandbox.Exited, OutputDropped: 1}, report: GoTest, out: report, want: "cut off"},
	}
	for name, test := range tests {
		d := &scripted{do: func(spec sandbox.Spec) (sandbox.Exit, error) {
			if test.start != nil {
				return sandbox.Exit{}, test.start
			}
			io.WriteString(spec.Stdout, test.out)
			return test.exit, nil
		}}
		w := &fresh{}
		v, err := Runner{Driver: d, Workspaces: w}.Run(t.Context(), goodPlan(Check{Name: "a", Args: []string{"x"}, Report: test.report}))
		if (err != nil) != test.fault || v.Passed() != (test.want == "") || w.released != 1 {
			t.Errorf("%s: passed %v, error %v, released %d", name, v.Passed(), err, w.released)
			continue
		}
		if test.want != "" && test.want != "-" && (len(v.Checks) != 1 || !strings.Contains(v.Checks[0].Reason, test.want)) {
			t.Errorf("%s: got %+v, want %q", name, v.Checks, test.want)
		}
	}
	// What can't be removed is said, and the verdict is not complete.
	v, err := Runner{Driver: &scripted{do: exits(0)}, Workspaces: &fresh{fail: os.ErrPermission}}.Run(t.Context(), goodPlan(Check{Name: "a", Args: []string{"x"}}))
	if !errors.Is(err, os.ErrPermission) || v.Passed() {
		t.Fatal(err)
	}
	// A cancelled gate starts nothing more.
	ctx, cancel := context.WithCancel(t.Context())
	d := &scripted{do: func(sandbox.Spec) (sandbox.Exit, error) {
		cancel()
		return sandbox.Exit{Reason: sandbox.Exited}, nil
	}}
	v, err = Runner{Driver: d, Workspaces: &fresh{}}.Run(ctx, goodPlan(Check{Name: "a", Args: []string{"x"}}, Check{Name: "b", Args: []string{"x"}}))
	if !errors.Is(err, context.Canceled) || v.Passed() || len(d.specs) != 1 {
		t.Fatal(err, len(d.specs))
	}
}

func TestFailedCheckDoesNotHideOthers(t *testing.T) {
	d := &scripted{do: func(s sandbox.Spec) (sandbox.Exit, error) {
		io.WriteString(s.Stdout, "out ")
		io.WriteString(s.Stderr, "err")
		status := 0
		if s.Args[0] == "bad" {
			status = 1
		}
		return sandbox.Exit{Reason: sandbox.Exited, Status: status, OutputBytes: 7}, nil
	}}
	v, err := Runner{Driver: d, Workspaces: &fresh{}}.Run(t.Context(), goodPlan(Check{Name: "a", Args: []string{"bad"}}, Check{Name: "b", Args: []string{"good"}}))
	if err != nil || v.Passed() || !v.Complete || len(v.Checks) != 2 || v.Checks[0].Passed || !v.Checks[1].Passed {
		t.Fatalf("%+v %v", v, err)
	}
	if out := v.Checks[1].Output; out.Head != "out err" || out.Tail != "" || out.Bytes != 7 {
		t.Fatalf("%+v", out)
	}
}

func TestKeeper(t *testing.T) {
	for _, size := range []int{1, 7, keepHead, keepTail - 1, keepTail, keepTail + 1, 3 * keepTail} {
		for _, total := range []int{0, 1, keepHead, keepHead + 1, keepHead + keepTail, keepHead + keepTail + 1, 5 * keepTail} {
			var all []byte
			for i := range total {
				all = append(all, byte(i%251))
			}
			k := &keeper{}
			for chunk := range slices.Chunk(all, size) {
				if n, err := k.Write(chunk); n != len(chunk) || err != nil {
					t.Fatal(n, err)
				}
			}
			out := k.output(0)
			head := all[:min(len(all), keepHead)]
			tail := all[len(head):]
			tail = tail[max(0, len(tail)-keepTail):]
			if out.Head != string(head) || out.Tail != string(tail) || out.Bytes != int64(total) {
				t.Fatalf("chunks of %d, %d bytes: %d + %d kept", size, total, len(out.Head), len(out.Tail))
			}
		}
	}
}

func commit(t *testing.T, repo *gitcmd.Repo, files map[string]string, parents ...gitcmd.Hash) gitcmd.Hash {
	t.Helper()
	var entries []gitcmd.TreeEntry
	for name, text := range files {
		blob, err := repo.HashObject(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, gitcmd.TreeEntry{Mode: gitcmd.ModeFile, Type: gitcmd.BlobObject, Hash: blob, Path: name})
	}
	tree, err := repo.MkTree(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := repo.CommitTree(t.Context(), gitcmd.NewCommit{Tree: tree, Parents: parents, Author: who, Committer: who, Message: "m\n"})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

var who = gitcmd.Identity{Name: "Engine", Email: "engine@example.com", When: time.Unix(1_700_000_000, 0).UTC()}

func TestMerge(t *testing.T) {
	ctx := t.Context()
	repo, err := gitcmd.Init(ctx, t.TempDir()+"/r.git", gitcmd.InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := commit(t, repo, map[string]string{"a": "1\n", "b": "1\n"})
	head := commit(t, repo, map[string]string{"a": "2\n", "b": "1\n"}, first)
	base := commit(t, repo, map[string]string{"a": "1\n", "b": "2\n"}, first)
	clash := commit(t, repo, map[string]string{"a": "3\n", "b": "1\n"}, first)

	c, err := Merge(ctx, repo, MergeOptions{Base: base, Head: head, Identity: who, Message: "merge\n"})
	if err != nil || c.Verify(ctx, repo) != nil {
		t.Fatal(err, c.Verify(ctx, repo))
	}
	for path, want := range map[string]string{"a": "2\n", "b": "2\n"} {
		if got, err := repo.FileAt(ctx, c.Tree, path, 100); err != nil || string(got) != want {
			t.Fatalf("%s is %q, %v", path, got, err)
		}
	}
	if made, err := repo.ReadCommit(ctx, c.Commit, 0); err != nil || made.Author.Name != "Engine" || made.Committer.Email != who.Email {
		t.Fatalf("%+v %v", made, err)
	}
	if again, err := Merge(ctx, repo, MergeOptions{Base: base, Head: head, Identity: who, Message: "merge\n"}); err != nil || again != c {
		t.Fatalf("the same merge again is %+v, %v", again, err)
	}

	var conflict *ConflictError
	if c, err := Merge(ctx, repo, MergeOptions{Base: clash, Head: head, Identity: who}); !errors.As(err, &conflict) || !slices.Equal(conflict.Paths, []string{"a"}) || c != (Candidate{}) {
		t.Fatalf("%+v %v", c, err)
	}
	var nothing *NothingError
	if _, err := Merge(ctx, repo, MergeOptions{Base: head, Head: first, Identity: who}); !errors.As(err, &nothing) {
		t.Fatal(err)
	}

	// A head that contains the base.
	merged, err := Merge(ctx, repo, MergeOptions{Base: first, Head: head, Identity: who, Message: "merge\n"})
	if err != nil || merged.Commit == head {
		t.Fatal(merged, err)
	}
	fast, err := Merge(ctx, repo, MergeOptions{Base: first, Head: head, FastForward: true})
	if err != nil || fast.Commit != head || fast.Tree != merged.Tree || fast.Verify(ctx, repo) != nil {
		t.Fatal(fast, err)
	}
	apart, err := Merge(ctx, repo, MergeOptions{Base: base, Head: head, FastForward: true, Identity: who, Message: "merge\n"})
	if err != nil || apart != c {
		t.Fatal(apart, err)
	}

	for name, bad := range map[string]Candidate{
		"tree":            {Base: base, Head: head, Commit: c.Commit, Tree: merged.Tree},
		"base":            {Base: first, Head: head, Commit: c.Commit, Tree: c.Tree},
		"head":            {Base: base, Head: clash, Commit: c.Commit, Tree: c.Tree},
		"head off base":   {Base: base, Head: head, Commit: head, Tree: merged.Tree},
		"commit is a rev": {Base: base, Head: head, Commit: "HEAD", Tree: c.Tree},
	} {
		if bad.Verify(ctx, repo) == nil {
			t.Errorf("%s: a candidate that lies is verified", name)
		}
	}
}
