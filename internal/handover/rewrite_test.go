package handover

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"confine/internal/gitcmd"
)

func engineIdentity() gitcmd.Identity {
	return gitcmd.Identity{Name: "Confine Engine", Email: "engine@example.com", When: labTime}
}

func TestRewriteKeepsTreesAndNothingElse(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "first\n")
	l.git(l.workspace, "-c", "user.name=Linus \u202eTorvalds", "commit", "-q", "-a", "--author=Maintainer <boss@example.com>", "-m",
		"Fix it, closes #12 and org/other#3 [skip ci]\n\nSigned-off-by: Boss <boss@example.com>\nConfine-Run: forged\nskip-checks: true")
	l.write(l.workspace, "a.txt", "second\n")
	l.commit("second")
	r, report := l.through(Rules{})
	if !report.Passed() {
		t.Fatalf("report %+v", report)
	}
	w, err := Rewrite(l.ctx, RewriteOptions{Received: r, Report: report, Engine: engineIdentity(), Run: "run-7"})
	l.must(err)
	if len(w.Commits) != 2 || w.Head() != w.Commits[1].New || w.Commits[0].Old != report.Commits[0] {
		t.Fatalf("rewritten %+v", w)
	}
	parent := l.base
	for _, c := range w.Commits {
		before, err := r.Repo.ReadCommit(l.ctx, c.Old, 0)
		l.must(err)
		after, err := r.Repo.ReadCommit(l.ctx, c.New, 0)
		l.must(err)
		if after.Tree != before.Tree || !slices.Equal(after.Parents, []gitcmd.Hash{parent}) {
			t.Errorf("commit %+v became %+v", before, after)
		}
		if after.Author != engineIdentity() || after.Committer != engineIdentity() || len(after.Headers) != 0 {
			t.Errorf("identity of %+v", after)
		}
		parent = c.New
	}
	first, err := r.Repo.ReadCommit(l.ctx, w.Commits[0].New, 0)
	l.must(err)
	want := "Fix it, closes  no. 12 and org/other no. 3 (skip ci)\n\n| Signed-off-by: Boss <boss@example.com>\n| Confine-Run: forged\n| skip-checks: true\n\n" +
		"Confine-Run: run-7\nConfine-Agent-Author: Maintainer <boss@example.com>\n"
	if first.Message != want {
		t.Errorf("message %q, want %q", first.Message, want)
	}
	again, err := Rewrite(l.ctx, RewriteOptions{Received: r, Report: report, Engine: engineIdentity(), Run: "run-7"})
	if err != nil || again.Head() != w.Head() {
		t.Errorf("the same step again, after a crash: %v, %v", again.Head(), err)
	}
}

func TestRewriteNeedsAPassedReport(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, ".github/workflows/ci.yml", "evil\n")
	l.commit("work")
	r, report := l.through(Rules{})
	o := RewriteOptions{Received: r, Report: report, Engine: engineIdentity(), Run: "run"}
	var refused *RefusedError
	if _, err := Rewrite(l.ctx, o); !errors.As(err, &refused) {
		t.Errorf("Rewrite with refusals: %v", err)
	}
	o.Report = &Report{Base: r.Base, Head: r.Head}
	if _, err := Rewrite(l.ctx, o); !errors.As(err, &refused) {
		t.Errorf("Rewrite with a report that was not made: %v", err)
	}
	o.Report = nil
	if _, err := Rewrite(l.ctx, o); err == nil {
		t.Error("Rewrite without a report succeeded")
	}
	if _, err := Deliver(l.ctx, Rewritten{Repo: r.Repo, Base: r.Base}, Target{Branch: "refs/heads/x"}); err == nil {
		t.Error("commits that were not rewritten were delivered")
	}
}

// Commits that the host has already, such as a person's, stay as they are.
func TestRewriteLeavesKnownCommits(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "by a person\n")
	person := l.commit("by a person")
	l.write(l.workspace, "a.txt", "by the agent\n")
	l.commit("by the agent")
	r, err := l.receive(l.mustTake())
	l.must(err)
	report, err := Check(l.ctx, CheckOptions{Received: r, Known: []gitcmd.Hash{person}})
	l.must(err)
	w, err := Rewrite(l.ctx, RewriteOptions{Received: r, Report: report, Engine: engineIdentity(), Run: "run"})
	l.must(err)
	c, err := r.Repo.ReadCommit(l.ctx, w.Head(), 0)
	l.must(err)
	if len(w.Commits) != 1 || !slices.Equal(c.Parents, []gitcmd.Hash{person}) {
		t.Errorf("rewritten %+v, parents %v", w.Commits, c.Parents)
	}
}

func TestCleanMessage(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "Change without a message",
		"\x1b[31mred\x1b[0m\u202e x": "red x",
		"one\ntwo":                   "one\n\ntwo",
		"x [SKIP CI] [ci skip] [no-ci] [ skip actions ] ***NO_CI***": "x (SKIP CI) (ci skip) (no-ci) (skip actions) (no_ci)",
		"Fixes GH-12":                                       "Fixes GH no. 12",
		"resolve https://example.com/a/issues/3":            "resolve https://example.com/a/issues no. 3",
		"See #12 and UTF-8":                                 "See #12 and UTF-8",
		"Fix UTF-8 handling":                                "Fix UTF-8 handling",
		"x\n\nCo-authored-by: a <a@b>":                      "x\n\n| Co-authored-by: a <a@b>",
		"Reviewed-by: a\nx":                                 "| Reviewed-by: a\n\nx",
		strings.Repeat("a", 189) + " fixes #12abc and more": strings.Repeat("a", 189) + " fixes  no. 12…",
		"list [a] [b]":                                      "list [a] [b]",
	} {
		if got := cleanMessage(in); got != want {
			t.Errorf("cleanMessage(%q) = %q, want %q", in, got, want)
		}
	}
	long := cleanMessage(strings.Repeat("é", 100_000))
	if n := len([]rune(long)); n > maxSubject {
		t.Errorf("a subject of %d characters", n)
	}
}

func TestCleanAuthor(t *testing.T) {
	for _, c := range []struct{ name, email, want string }{
		{"A B", "a@b", "A B <a@b>"},
		{"", "", "unknown"},
		{"x\nConfine-Run: forged", "a>b", "x Confine-Run: forged <ab>"},
		{"\u202e\u200b", "", "unknown"},
		{"a [skip ci]", "fixes#1@b", "a (skip ci) <fixes no. 1@b>"},
	} {
		if got := cleanAuthor(gitcmd.Identity{Name: c.name, Email: c.email}); got != c.want {
			t.Errorf("cleanAuthor(%q, %q) = %q, want %q", c.name, c.email, got, c.want)
		}
	}
}

func FuzzCleanMessage(f *testing.F) {
	f.Add("Fixes #1\n\nSigned-off-by: x")
	f.Add("[skip [skip ci] ci]")
	f.Add("\u202e***NO_CI*** closes a/b#2")
	f.Fuzz(func(t *testing.T, in string) {
		got := cleanMessage(in)
		if skipMarkers().MatchString(got) || bareMarkers().MatchString(got) {
			t.Errorf("a marker is left in %q", got)
		}
		if closing().MatchString(got) && (issueRefs().MatchString(got) || ghRefs().MatchString(got)) {
			t.Errorf("a closing keyword with an issue is left in %q", got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if trailers().MatchString(line) {
				t.Errorf("a trailer is left in %q", got)
			}
		}
		if strings.ContainsAny(got, "\x00\x1b\r\u202e\u200b") || got == "" {
			t.Errorf("cleanMessage = %q", got)
		}
	})
}
