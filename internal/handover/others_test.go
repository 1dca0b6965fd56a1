package handover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"confine/internal/gitcmd"
)

// fetchOthers gives the subjects of all commits in the bundle of others, as the
// person sees them who fetches from it.
func (l *lab) fetchOthers(e Export) string {
	l.t.Helper()
	if e.OthersPath == "" {
		l.t.Fatalf("no bundle of others: %+v", e)
	}
	dir := filepath.Join(l.t.TempDir(), "person.git")
	l.git("/", "clone", "-q", "--bare", l.lent.Dir(), dir)
	l.git(dir, "fetch", "-q", e.OthersPath, "refs/heads/*:refs/heads/*")
	return l.git(dir, "log", "--all", "--not", string(l.base), "--format=%s")
}

// Commits that are not in HEAD were dropped without a word.
func TestCommitsElsewhereAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		make func(l *lab)
		ref  string
	}{
		"branch": {func(l *lab) {
			l.git(l.workspace, "checkout", "-q", "-b", "side")
			l.write(l.workspace, "side.txt", "x\n")
			l.commit("aside")
			l.git(l.workspace, "checkout", "-q", "main")
		}, "refs/heads/side"},
		"packed branch": {func(l *lab) {
			l.git(l.workspace, "checkout", "-q", "-b", "side")
			l.commit("aside")
			l.git(l.workspace, "checkout", "-q", "main")
			l.git(l.workspace, "pack-refs", "--all")
		}, "refs/heads/side"},
		"stash": {func(l *lab) {
			l.write(l.workspace, "a.txt", "aside\n")
			l.git(l.workspace, "stash", "push", "-q", "-m", "aside")
		}, "refs/stash"},
		"second stash": {func(l *lab) {
			l.write(l.workspace, "a.txt", "aside\n")
			l.git(l.workspace, "stash", "push", "-q", "-m", "aside")
			l.write(l.workspace, "a.txt", "later\n")
			l.git(l.workspace, "stash", "push", "-q", "-m", "later")
		}, "refs/stash"},
		"annotated tag": {func(l *lab) {
			l.git(l.workspace, "checkout", "-q", "--detach")
			l.commit("aside")
			l.git(l.workspace, "tag", "-a", "-m", "x", "v1")
			l.git(l.workspace, "checkout", "-q", "main")
		}, "refs/tags/v1"},
		"remote": {func(l *lab) {
			h := l.git(l.workspace, "commit-tree", "-m", "aside", "-p", "HEAD", "HEAD^{tree}")
			l.git(l.workspace, "update-ref", "refs/remotes/origin/x", h)
		}, "refs/remotes/origin/x"},
		"other work tree": {func(l *lab) {
			l.git(l.workspace, "worktree", "add", "-q", "--detach", filepath.Join(l.t.TempDir(), "w"))
			h := l.git(l.workspace, "commit-tree", "-m", "aside", "-p", "HEAD", "HEAD^{tree}")
			l.must(os.WriteFile(filepath.Join(l.workspace, ".git/worktrees/w/HEAD"), []byte(h+"\n"), 0o644))
		}, "worktrees/w/HEAD"},
		"unrelated history": {func(l *lab) {
			h := l.git(l.workspace, "commit-tree", "-m", "aside", "HEAD^{tree}")
			l.git(l.workspace, "update-ref", "refs/heads/root", h)
		}, "refs/heads/root"},
	} {
		for _, head := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " beside work"}[head], func(t *testing.T) {
				l := newLab(t)
				c.make(l)
				if head {
					l.write(l.workspace, "b.txt", "work\n")
					l.commit("work")
				}
				e := l.mustTake()
				if want := map[bool]Kind{false: Nothing, true: Bundle}[head]; e.Kind != want || len(e.Broken) > 0 || len(e.OthersLost) > 0 {
					t.Fatalf("export = %+v", e)
				}
				if len(e.Others) == 0 || e.Others[0].Name != c.ref || e.Others[0].Commits < 1 {
					t.Fatalf("others = %v", e.Others)
				}
				if log := l.fetchOthers(e); !strings.Contains(log, "aside") || strings.Contains(log, "work") {
					t.Errorf("the bundle of others holds %q", log)
				}
				if head {
					// Control: what HEAD holds is delivered, and nothing else.
					r, err := l.receive(e)
					l.must(err)
					list, err := r.Repo.RevList(l.ctx, gitcmd.RevListOptions{Include: []gitcmd.Hash{r.Head}, Exclude: []gitcmd.Hash{l.base}})
					if err != nil || len(list) != 1 {
						t.Errorf("%v, %v", list, err)
					}
					for _, other := range e.Others {
						if kind, _, err := r.Repo.TypeOf(l.ctx, other.Commit); err == nil {
							t.Errorf("%s %s was delivered too", kind, other)
						}
					}
				}
				kept, err := RescueOthers(RescueOptions{Dir: filepath.Join(l.engine, "rescue"), Run: "run-1", Export: e})
				if err != nil || filepath.Base(kept) != "run-1.others.bundle" {
					t.Errorf("rescue = %q, %v", kept, err)
				}
			})
		}
	}
	t.Run("a commit without a name", func(t *testing.T) {
		l := newLab(t)
		l.git(l.workspace, "checkout", "-q", "--detach")
		l.commit("aside")
		l.git(l.workspace, "checkout", "-q", "main")
		e := l.mustTake()
		if len(e.Others) != 1 || e.Others[0].Name != "the log of HEAD" || !strings.Contains(l.fetchOthers(e), "aside") {
			t.Fatalf("export = %+v", e)
		}
	})
	t.Run("neighbours", func(t *testing.T) {
		l := newLab(t)
		l.write(l.workspace, "b.txt", "work\n")
		l.commit("older")
		l.git(l.workspace, "tag", "old", "HEAD~1")
		l.git(l.workspace, "branch", "contained")
		l.commit("amended")
		l.git(l.workspace, "commit", "-q", "--amend", "--allow-empty", "-m", "work")
		if e := l.mustTake(); e.Kind != Bundle || len(e.Others) != 0 || e.OthersPath != "" {
			t.Errorf("export = %+v", e)
		}
	})
	t.Run("hostile names and values", func(t *testing.T) {
		l := newLab(t)
		h := l.git(l.workspace, "commit-tree", "-m", "aside", "-p", "HEAD", "HEAD^{tree}")
		l.write(l.workspace, ".git/refs/heads/$(touch "+filepath.Base(l.owned)+")\x1b[31m", h+"\n")
		l.write(l.workspace, ".git/refs/heads/gone", strings.Repeat("1", 40)+"\n")
		l.write(l.workspace, ".git/refs/heads/--option", "--all\n")
		l.must(os.Symlink("/etc/passwd", filepath.Join(l.workspace, ".git/refs/heads/link")))
		e := l.mustTake()
		if len(e.Others) != 1 || e.Others[0].Commit != gitcmd.Hash(h) || strings.ContainsRune(e.Others[0].String(), 0x1b) {
			t.Errorf("export = %+v", e)
		}
		l.notOwned()
	})
	t.Run("broken branch beside a good one", func(t *testing.T) {
		l := newLab(t)
		good := l.git(l.workspace, "commit-tree", "-m", "aside", "-p", "HEAD", "HEAD^{tree}")
		bad := l.gitIn(l.workspace, "tree "+strings.Repeat("2", 40)+"\nparent "+string(l.base)+"\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nbad\n",
			"hash-object", "-w", "-t", "commit", "--literally", "--stdin")
		l.git(l.workspace, "update-ref", "refs/heads/good", good)
		l.write(l.workspace, ".git/refs/heads/bad", bad+"\n")
		e := l.mustTake()
		if len(e.Others) != 2 || strings.Join(e.OthersLost, ",") != "unreadable" || !strings.Contains(l.fetchOthers(e), "aside") {
			t.Errorf("export = %+v", e)
		}
	})
	t.Run("more bytes than allowed", func(t *testing.T) {
		l := newLab(t)
		l.git(l.workspace, "checkout", "-q", "-b", "side")
		noise := make([]byte, 200<<10)
		for i, x := 0, uint32(1); i < len(noise); i++ {
			x = x*1664525 + 1013904223
			noise[i] = byte(x >> 24)
		}
		l.write(l.workspace, "noise", string(noise))
		l.commit("aside")
		l.git(l.workspace, "checkout", "-q", "main")
		l.write(l.workspace, "b.txt", "work\n")
		l.commit("work")
		e := l.mustTake(func(o *ExportOptions) { o.MaxBytes = 50 << 10 })
		if e.Kind != Bundle || len(e.Others) != 1 || e.OthersPath != "" || strings.Join(e.OthersLost, ",") != "large" {
			t.Errorf("export = %+v", e)
		}
	})
}

// A head whose tree no index can hold was taken for no work at all, or for a
// broken repository.
func TestRefusalOfATreeNamesCommitAndPath(t *testing.T) {
	for name, c := range map[string]struct {
		tree func(l *lab, x, sub string) string
		path string
	}{
		".git":           {func(l *lab, x, sub string) string { return l.rawTree([3]string{"100644", ".git", x}) }, ".git"},
		".git directory": {func(l *lab, x, sub string) string { return l.rawTree([3]string{"40000", ".git", sub}) }, ".git"},
		"deep .git": {func(l *lab, x, sub string) string {
			return l.rawTree([3]string{"40000", "dir", l.rawTree([3]string{"40000", ".git", sub})})
		}, "dir/.git"},
		".Git":             {func(l *lab, x, sub string) string { return l.rawTree([3]string{"100644", ".Git", x}) }, ".Git"},
		".GIT and a space": {func(l *lab, x, sub string) string { return l.rawTree([3]string{"100644", ".GIT ", x}) }, ".GIT "},
		"git~1":            {func(l *lab, x, sub string) string { return l.rawTree([3]string{"100644", "git~1", x}) }, "git~1"},
		"hidden character": {func(l *lab, x, sub string) string { return l.rawTree([3]string{"100644", ".g\u200cit", x}) }, ".g\u200cit"},
		"parent":           {func(l *lab, x, sub string) string { return l.rawTree([3]string{"40000", "..", sub}) }, ".."},
		"slash":            {func(l *lab, x, sub string) string { return l.rawTree([3]string{"100644", "a/b", x}) }, "a/b"},
		"twice": {func(l *lab, x, sub string) string {
			return l.rawTree([3]string{"100644", "a", x}, [3]string{"100644", "a", x})
		}, "a"},
		"file and directory": {func(l *lab, x, sub string) string {
			return l.rawTree([3]string{"100644", "a", x}, [3]string{"40000", "a", sub})
		}, "a"},
		"order": {func(l *lab, x, sub string) string {
			return l.rawTree([3]string{"100644", "b", x}, [3]string{"100644", "a", x})
		}, "a"},
		"mode":         {func(l *lab, x, sub string) string { return l.rawTree([3]string{"100666", "a", x}) }, "a"},
		"modules link": {func(l *lab, x, sub string) string { return l.rawTree([3]string{"120000", ".gitmodules", x}) }, ".gitmodules"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			x := l.blob("x\n")
			sub := l.rawTree([3]string{"100644", "config", x})
			l.write(l.workspace, "good.txt", "good\n")
			l.commit("good")
			bad := l.git(l.workspace, "commit-tree", "-m", "bad", "-p", "HEAD", c.tree(l, x, sub))
			later := l.git(l.workspace, "commit-tree", "-m", "later", "-p", bad, "HEAD^{tree}")
			for at, head := range map[string]string{"at the head": bad, "in between": later} {
				l.git(l.workspace, "update-ref", "HEAD", head)
				e := l.mustTake()
				if e.Kind != Bundle || e.Head == "" || len(e.Broken) > 1 || len(e.Broken) == 1 && e.Broken[0] != "index" {
					t.Fatalf("%s: export = %+v", at, e)
				}
				_, err := l.receive(e)
				var refusal *Refusal
				if !errors.As(err, &refusal) || refusal.Rule != RuleObjects {
					t.Fatalf("%s: Receive = %v", at, err)
				}
				if refusal.Commit != gitcmd.Hash(bad) || refusal.Path != c.path {
					t.Errorf("%s: the refusal does not name commit %s and path %q: %s", at, bad[:12], c.path, refusal)
				}
				if kept, err := Rescue(RescueOptions{Dir: filepath.Join(l.engine, "rescue"), Run: "run-1", Export: e}); err != nil || kept == "" {
					t.Errorf("%s: rescue = %q, %v", at, kept, err)
				}
			}
			if left, err := filepath.Glob(filepath.Join(l.engine, "q-*", "*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	t.Run("a tree that is cut off", func(t *testing.T) {
		l := newLab(t)
		tree := l.gitIn(l.workspace, "100644 a\x00short", "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
		bad := l.git(l.workspace, "commit-tree", "-m", "bad", "-p", "HEAD", tree)
		l.git(l.workspace, "update-ref", "HEAD", bad)
		e := l.mustTake()
		if e.Kind != Bundle {
			t.Fatalf("export = %+v", e)
		}
		_, err := l.receive(e)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Rule != RuleObjects {
			t.Errorf("Receive = %v", err)
		}
	})
	t.Run("uncommitted work beside it", func(t *testing.T) {
		l := newLab(t)
		bad := l.git(l.workspace, "commit-tree", "-m", "bad", "-p", "HEAD", l.rawTree([3]string{"100644", ".git", l.blob("x\n")}))
		l.git(l.workspace, "update-ref", "HEAD", bad)
		l.write(l.workspace, "b.txt", "left over\n")
		e := l.mustTake()
		if len(e.Others) != 1 || e.Others[0].Name != "uncommitted changes" || !strings.Contains(l.fetchOthers(e), "Leftover changes") {
			t.Errorf("export = %+v", e)
		}
	})
}
