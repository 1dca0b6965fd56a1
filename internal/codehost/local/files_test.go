//go:build unix

package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"confine/internal/codehost"
	"confine/internal/codehost/codehosttest"
	"confine/internal/gitcmd"
)

// TestDamagedFiles damages each kind of file: one error that names it, from
// every call that reads it.
func TestDamagedFiles(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	repo, first := engineRepo(t, h)
	head := codehosttest.Commit(t, repo, "a", first)
	if _, err := repo.Push(ctx, gitcmd.Push{To: gitcmd.Remote{Path: h.path("repo.git")}, Ref: "refs/heads/a", New: head}); err != nil {
		t.Fatal(err)
	}
	issue, err := h.AddIssue(ctx, NewIssue{Title: "t", Author: "sam"})
	if err != nil || issue != 1 {
		t.Fatal(issue, err)
	}
	read, err := h.Issue(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	steps := []func() error{
		func() error {
			_, err := h.AddComment(ctx, NewComment{Thread: codehost.Thread{Issue: 1}, Author: "sam", Body: "x"})
			return err
		},
		func() error {
			_, err := h.Claim(ctx, codehost.Claim{Issue: 1, Key: "k", Revision: read.Revision})
			return err
		},
		func() error {
			_, _, err := h.OpenPull(ctx, codehost.NewPull{Key: "k", Head: "refs/heads/a", ExpectedHead: head, Base: base, Title: "t"})
			return err
		},
		func() error {
			return h.AddReview(ctx, NewReview{Pull: 1, By: "mia", Verdict: codehost.Approved, Head: head})
		},
		func() error {
			_, err := h.SetStatus(ctx, codehost.Status{Commit: head, Context: "c", State: codehost.Success})
			return err
		},
	}
	// The claim was read before the comment came: do it last in effect.
	steps[0], steps[1] = steps[1], steps[0]
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	readIssue := func() error { _, err := h.Issue(ctx, 1); return err }
	readPull := func() error { _, err := h.Pull(ctx, 1); return err }
	readStatus := func() error { _, err := h.Statuses(ctx, head); return err }
	readProtection := func() error { _, err := h.Protection(ctx, base); return err }
	reopen := func() error { _, err := Open(ctx, h.dir, OpenOptions{}); return err }
	status := "statuses/" + string(head) + ".json"
	tests := []struct {
		file, text string
		read       func() error
		want       string
	}{
		{"issues/1.md", "title: x\n", readIssue, "line 1: want `---`"},
		{"issues/1.md", "---\ntitle: x\n", readIssue, "no end"},
		{"issues/1.md", "---\ntitle: [\n---\n", readIssue, "line "},
		{"issues/1.md", "---\ntitle: x\nauthor: sam\nassignee: y\n---\n", readIssue, "unknown field"},
		{"issues/1.md", "---\ntitle: x\ntitle: y\nauthor: sam\n---\n", readIssue, "line "},
		{"issues/1.md", "---\ntitle: x\nauthor: sam\nstate: merged\n---\n", readIssue, "neither open nor closed"},
		{"issues/1.md", "---\ntitle: x\n---\n", readIssue, "author"},
		{"issues/1.md", "---\nauthor: sam\n---\n", readIssue, "title"},
		{"issues/1.md", "---\ntitle: x\nauthor: sam\ncreated: yesterday\n---\n", readIssue, "created"},
		{"issues/1.md", "---\ntitle: x\nauthor: sam\nlabels: [{name: a, who: b}]\n---\n", readIssue, "unknown field"},
		{"issues/1.md", "---\ntitle: \xff\nauthor: sam\n---\n", readIssue, "UTF-8"},
		{"issues/1.md", strings.Repeat("x", maxFile+1), readIssue, "larger than"},
		{"comments/issue-1/1.md", "---\ncreated: \"2026-01-01T00:00:00Z\"\n---\nx", readIssue, "author"},
		{"claims/1.json", "{\"key\":", readIssue, ""},
		{"claims/1.json", "{}", readIssue, "key"},
		{"claims/1.json", "{\"key\":\"a\"} {}", readIssue, "after the value"},
		{"pulls/1.md", "---\ntitle: x\nauthor: confine\nstate: won\nhead: a\nbase: main\n---\n", readPull, "state"},
		{"pulls/1.md", "---\ntitle: x\nauthor: confine\nstate: open\nhead: -a\nbase: main\n---\n", readPull, "head"},
		{"pulls/1.md", "---\ntitle: x\nauthor: confine\nstate: merged\nhead: a\nbase: main\n---\n", readPull, "parse object id"},
		{"reviews/pull-1/1.yaml", "by: mia\nverdict: great\nhead: " + string(head), readPull, "verdict"},
		{"reviews/pull-1/1.yaml", "by: mia\nverdict: approved\nhead: main", readPull, "head"},
		{status, "[{\"context\":\"c\",\"state\":\"won\",\"by\":\"x\",\"at\":\"2026-01-01T00:00:00Z\"}]", readStatus, "status state"},
		{status, "[{\"context\":\"c\",\"state\":\"success\"},{\"context\":\"c\",\"state\":\"failure\"}]", readStatus, "one context"},
		{"people.yaml", "mia: owner\n", readIssue, "none of none, read"},
		{"people.yaml", "mia: read\nmia: admin\n", readIssue, "line 2"},
		{"protection.yaml", "branches: {main: {required_check: [x]}}\n", readProtection, "unknown field"},
		{"protection.yaml", "branches: {-x: {}}\n", readProtection, "dash"},
		{"host.yaml", "version: 9\n", reopen, "version 9"},
		{"host.yaml", "version: 1\n---\nversion: 1\n", reopen, "more than one document"},
	}
	for _, test := range tests {
		path := h.path(test.file)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := test.read(); err != nil {
			t.Fatalf("before: %v", err)
		}
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err = test.read()
		var file *FileError
		if !errors.As(err, &file) || file.Path != path || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 800 || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s with %.60q: got %v, want a line about the file that says %q", test.file, test.text, err, test.want)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFilesThatOthersControl: what somebody else could have written, or that
// leads elsewhere, is not read.
func TestFilesThatOthersControl(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	mustWrite(t, secret, "---\ntitle: canary\nauthor: sam\n---\n", 0o600)
	for name, spoil := range map[string]func(path string) error{
		"symbolic link":  func(path string) error { os.Remove(path); return os.Symlink(secret, path) },
		"pipe":           func(path string) error { os.Remove(path); return syscall.Mkfifo(path, 0o600) },
		"directory":      func(path string) error { os.Remove(path); return os.Mkdir(path, 0o700) },
		"world-writable": func(path string) error { return os.Chmod(path, 0o666) },
	} {
		h := newHost(t)
		if _, err := h.AddIssue(t.Context(), NewIssue{Title: "t", Author: "sam"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Issue(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := spoil(h.path("issues", "1.md")); err != nil {
			t.Fatal(err)
		}
		var file *FileError
		if issue, err := h.Issue(t.Context(), 1); !errors.As(err, &file) {
			t.Errorf("%s: got %+v, %v", name, issue, err)
		}
	}
	h := newHost(t)
	if _, err := Open(t.Context(), h.dir, OpenOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "issues", "reviews", "repo.git"} {
		if err := os.Chmod(h.path(dir), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), h.dir, OpenOptions{}); err == nil || !strings.Contains(err.Error(), "everyone may write it") {
			t.Errorf("%s is writable by all: %v", dir, err)
		}
		if err := os.Chmod(h.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIssueOfAPerson reads what an editor leaves, and who vouches for what.
func TestIssueOfAPerson(t *testing.T) {
	h := newHost(t)
	text := "---\r\ntitle: Sum is wrong\r\nauthor: sam\r\nlabels:\r\n  - bug\r\n  - {name: agent, by: mia, at: \"2026-03-02T00:00:00Z\"}\r\n---\r\nno empty line before\r\n"
	mustWrite(t, h.path("issues", "7.md"), text, 0o600)
	mustWrite(t, h.path("issues", "7.md~"), "backup", 0o600)
	mustWrite(t, h.path("issues", ".7.md.swp"), "swap", 0o600)
	when := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(h.path("issues", "7.md"), when, when); err != nil {
		t.Fatal(err)
	}
	issue, err := h.Issue(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if issue.State != codehost.Open || issue.Body != "no empty line before\r\n" || !issue.CreatedAt.Equal(when) || len(issue.Labels) != 2 {
		t.Fatalf("got %+v", issue)
	}
	if by := issue.Labels[0].By; by.Name != "sam" || by.Permission != codehost.PermissionRead {
		t.Fatalf("a plain label was put by %+v, want the author with no more than he may", by)
	}
	agent := issue.Labels[1]
	if agent.By.Permission != codehost.PermissionWrite || !issue.VouchedAt(agent.At) {
		t.Fatalf("label %+v vouches for the text", agent)
	}
	later := when.Add(48 * time.Hour)
	if err := os.Chtimes(h.path("issues", "7.md"), later, later); err != nil {
		t.Fatal(err)
	}
	if issue, err = h.Issue(t.Context(), 7); err != nil || issue.VouchedAt(issue.Labels[1].At) {
		t.Fatalf("an edit after the label is vouched for (%v)", err)
	}
	if n, err := h.AddIssue(t.Context(), NewIssue{Title: "next", Author: "sam"}); err != nil || n != 8 {
		t.Fatalf("the next issue is %d, %v; want 8", n, err)
	}
}

// TestMarkerOfAnother: a person's file says that it is the engine's comment.
func TestMarkerOfAnother(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	if _, err := h.AddIssue(ctx, NewIssue{Title: "t", Author: "sam"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(h.path("comments", "issue-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	theirs := "---\nauthor: sam\nmarker: confine/summary\n---\n\nmine"
	mustWrite(t, h.path("comments", "issue-1", "1.md"), theirs, 0o600)
	c, result, err := h.UpsertComment(ctx, codehost.CommentEdit{Thread: codehost.Thread{Issue: 1}, Marker: "confine/summary", Body: "ours"})
	if err != nil || result.Outcome != codehost.Done || c.ID != "2" {
		t.Fatal(c, result, err)
	}
	if data, err := os.ReadFile(h.path("comments", "issue-1", "1.md")); err != nil || string(data) != theirs {
		t.Fatalf("the comment became %q, %v", data, err)
	}
}

// TestMergeRecordLost: the push arrived and the record was not written.
func TestMergeRecordLost(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	repo, first := engineRepo(t, h)
	head := codehosttest.Commit(t, repo, "a", first)
	if _, err := repo.Push(ctx, gitcmd.Push{To: gitcmd.Remote{Path: h.path("repo.git")}, Ref: "refs/heads/a", New: head}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.OpenPull(ctx, codehost.NewPull{Key: "k", Head: "refs/heads/a", ExpectedHead: head, Base: base, Title: "t"}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(h.path("pulls", "1.md"))
	if err != nil {
		t.Fatal(err)
	}
	req := codehost.MergeRequest{Pull: 1, ExpectedHead: head, ExpectedBase: first, Commit: head, Objects: repo}
	if got, err := h.Merge(ctx, req); err != nil || got.Outcome != codehost.Done {
		t.Fatal(got, err)
	}
	mustWrite(t, h.path("pulls", "1.md"), string(before), 0o600)
	if p, err := h.Pull(ctx, 1); err != nil || p.State != codehost.Open {
		t.Fatal(p.State, err)
	}
	// Another merge came in between, too.
	next := codehosttest.Commit(t, repo, "b", head)
	if err := h.repo.Fetch(ctx, gitcmd.Remote{Path: repo.Dir()}); err == nil {
		t.Fatal("a fetch of nothing passes")
	}
	pushed, err := repo.Push(ctx, gitcmd.Push{To: gitcmd.Remote{Path: h.path("repo.git")}, Ref: "refs/heads/b", New: next})
	if err != nil || pushed.Outcome != gitcmd.PushDone {
		t.Fatal(pushed, err)
	}
	if err := h.repo.UpdateRef(ctx, gitcmd.RefUpdate{Ref: base, New: next, Old: head}); err != nil {
		t.Fatal(err)
	}
	got, err := h.Merge(ctx, req)
	if err != nil || got.Outcome != codehost.Already || got.Landed != head {
		t.Fatalf("got %+v, %v; want already", got, err)
	}
	if p, err := h.Pull(ctx, 1); err != nil || p.State != codehost.Merged {
		t.Fatal(p.State, err)
	}
}

// TestNumbersGivenOnce: a file that appears under a number is not overwritten.
func TestNumbersGivenOnce(t *testing.T) {
	h := newHost(t)
	path := h.path("issues", "1.md")
	if err := saveNew(path, []byte("a"), h.now()); err != nil {
		t.Fatal(err)
	}
	if err := saveNew(path, []byte("b"), h.now()); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("got %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "a" {
		t.Fatalf("the file holds %q", data)
	}
	entries, err := os.ReadDir(h.path("issues"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v %v", entries, err)
	}
	if _, err := Open(t.Context(), t.TempDir(), OpenOptions{}); err == nil || !strings.Contains(err.Error(), "no host.yaml") {
		t.Fatalf("an empty directory opens: %v", err)
	}
	if _, err := Init(t.Context(), h.dir, InitOptions{First: nil}); err == nil {
		t.Fatal("a host was made over another")
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, seed := range []string{"", "---", "---\n---", "---\n\n---\n\nx", "---\na: b\n---\nx", "---\r\na: b\r\n---\r\n\r\nx", "---\na: |\n  ---\n---\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		matter, body, err := splitMarkdown(data)
		if err == nil && (len(matter)+len(body) > len(data) || !strings.HasSuffix(string(data), body)) {
			t.Fatalf("%q becomes %q and %q", data, matter, body)
		}
	})
}

// FuzzFrontMatter: whatever a title is, it comes back, and stays a title.
func FuzzFrontMatter(f *testing.F) {
	for _, seed := range []string{"x", "no", "0x10", "a: b", "# x", "'", `"`, "\\", "{}", "*a", "&a", "- x", "x\u2028y", "\u0085", "\ufeffx", "~", "1e3", "<<", "\U0001f44d", "---"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, title string) {
		if strings.TrimSpace(title) == "" || codehost.CheckLine("title", title, 1000) != nil {
			return
		}
		m := newFrontMatter()
		m.text("title", title)
		m.text("author", "sam")
		m.list("labels", []string{title, "x"})
		front, body, err := splitMarkdown(m.with("---\nbody"))
		if err != nil || body != "---\nbody" {
			t.Fatalf("%q: %q %v", title, body, err)
		}
		var got issueMatter
		if err := decodeYAML(front, &got); err != nil {
			t.Fatalf("%q: %v in\n%s", title, err, front)
		}
		if got.Title != title || got.Author != "sam" || len(got.Labels) != 2 || got.Labels[0].Name != title {
			t.Fatalf("%q came back as %+v", title, got)
		}
	})
}
