package workspace

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// reviewAfter starts with the directory as it is, lets do change it, and
// returns what the review says, "kind path change" each.
func reviewAfter(t *testing.T, dir string, do func()) (Review, []string) {
	t.Helper()
	l := live(t, dir)
	do()
	r, err := l.Review(ReviewOptions{HeldDir: filepath.Join(t.TempDir(), "held")})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, string(f.Kind)+" "+f.Path+" "+f.Change)
		if f.By == "" && f.Detail == "" {
			t.Errorf("finding %q does not say why", f.Path)
		}
	}
	slices.Sort(lines)
	return r, lines
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// One file for each line of the catalogue, made from nothing.
func TestReviewFindsEveryKindOfFileThatRunsByItself(t *testing.T) {
	for name, want := range map[string]Kind{
		".vscode/tasks.json": KindEditor, ".vscode/settings.json": KindEditor, "sub/.vscode/launch.json": KindEditor, ".VSCode/Tasks.json": KindEditor,
		".idea/workspace.xml": KindEditor, ".idea/runConfigurations/x.xml": KindEditor, "x.code-workspace": KindEditor, ".run/a.run.xml": KindEditor,
		".zed/tasks.json": KindEditor, ".exrc": KindEditor, ".dir-locals.el": KindEditor,
		".claude/settings.json": KindAgent, ".claude/settings.local.json": KindAgent, ".claude/hooks/a/b.sh": KindAgent, ".mcp.json": KindAgent,
		".cursor/mcp.json": KindAgent, ".codex/config.toml": KindAgent, ".gemini/settings.json": KindAgent, ".github/hooks/pre.json": KindAgent,
		".devcontainer/devcontainer.json": KindContainer, ".devcontainer.json": KindContainer, ".devcontainer/x/devcontainer.json": KindContainer,
		".envrc": KindShell, "deep/down/.envrc": KindShell, "mise.toml": KindShell,
		".husky/pre-commit": KindHooks, ".githooks/pre-commit": KindHooks, ".pre-commit-config.yaml": KindHooks,
		".gitattributes": KindGitControl, "sub/.gitattributes": KindGitControl, ".gitmodules": KindGitControl, ".lfsconfig": KindGitControl,
		".yarnrc.yml": KindPackage, ".yarn/plugins/x.cjs": KindPackage, ".npmrc": KindPackage, ".cargo/config.toml": KindPackage, ".mvn/extensions.xml": KindPackage, ".pnpmfile.cjs": KindPackage,
		"eslint.config.js": KindLinter, ".pylintrc": KindLinter, ".gdbinit": KindDebugger, "venv/pyvenv.cfg": KindInterp,
	} {
		dir := t.TempDir()
		write(t, dir, append(repo(".git"), "main.go", ".vscode2/tasks.json", "node_modules/x/.npmrc")...)
		_, got := reviewAfter(t, dir, func() {
			write(t, dir, name, "other.go", "Makefile", "README.md", ".github/ISSUE_TEMPLATE/bug.md", ".vscode2/more.json", ".yarn/cache/x", ".cargo/registry/x", "node_modules/y/.npmrc", ".git/objects/ab/cdef", ".git/index", ".git/COMMIT_EDITMSG", ".git/refs/heads/new")
		})
		expect(t, got, string(want)+" "+name+" new")
	}
}

func TestReviewTellsChangedFromTouchedAndUnchanged(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".envrc", ".mcp.json", ".vscode/tasks.json", ".husky/pre-commit", ".husky/pre-push", "other", ".claude/settings.json", ".exrc -> other")
	_, got := reviewAfter(t, dir, func() {
		put(t, dir, ".envrc", "evil")
		put(t, dir, ".mcp.json", ".mcp.json") // same content
		if err := os.Rename(filepath.Join(dir, ".vscode/tasks.json"), filepath.Join(dir, "x")); err != nil {
			t.Fatal(err)
		}
		write(t, dir, ".vscode/tasks.json") // replaced by an equal file
		if err := os.Chmod(filepath.Join(dir, ".husky/pre-commit"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, ".claude/settings.json")); err != nil {
			t.Fatal(err)
		}
		write(t, dir, ".claude/settings.json -> ../other")
		put(t, dir, "other", "changed")
	})
	expect(t, got, "shell environment .envrc changed", "git hooks of the project .husky/pre-commit changed", "agent settings .claude/settings.json changed")
}

func TestReviewFindsALinkInThePlaceOfADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "harmless/tasks.json")
	_, got := reviewAfter(t, dir, func() { write(t, dir, ".vscode -> harmless", ".Claude -> harmless") })
	expect(t, got, "editor settings .vscode new", "agent settings .Claude new")
}

func TestReviewOfPackageScripts(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a/package.json", `{"name":"a","scripts":{"test":"x"},"version":"1"}`)
	put(t, dir, "b/package.json", `{"scripts":{"test":"x"}}`)
	put(t, dir, "c/package.json", `{"scripts":{}}`)
	_, got := reviewAfter(t, dir, func() {
		put(t, dir, "a/package.json", `{"version":"2", "scripts": {"test": "x"}, "name":"a"}`)
		put(t, dir, "b/package.json", `{"scripts":{"test":"x","postinstall":"evil"}}`)
		put(t, dir, "c/package.json", `{"scripts":`)
		put(t, dir, "d/package.json", `{"name":"d"}`)
		put(t, dir, "e/package.json", `{"scripts":{"prepare":"evil"}}`)
		put(t, dir, "node_modules/f/package.json", `{"scripts":{"prepare":"x"}}`)
	})
	expect(t, got, "package scripts b/package.json changed", "package scripts c/package.json changed", "package scripts e/package.json new")
}

func TestReviewFindsNewRepositories(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, append(repo("old/.git"), "main.go")...)
	_, got := reviewAfter(t, dir, func() {
		write(t, dir, slices.Concat(repo(".git"), repo("sub/.git"), repo("bare"), repo("sub/.git/modules/m"), repo("old/.git/modules/m"),
			[]string{"linked/.git", "half/.git/config", "seen/HEAD", "seen/objects", "redirect/HEAD", "redirect/commondir"})...)
	})
	expect(t, got, "new repository .git new", "new repository sub/.git new", "new repository bare new", "new repository old/.git/modules/m new",
		"new repository linked/.git new", "new repository half/.git new", "new repository redirect new")
}

func TestReviewOfAVirtualEnvironment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "v/pyvenv.cfg", "v/bin/python -> /usr/bin/python3", "v/bin/activate", "v/bin/tool")
	_, got := reviewAfter(t, dir, func() {
		if err := os.Remove(filepath.Join(dir, "v/bin/python")); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "v/bin/python", "v/bin/tool2", "bin/python")
		put(t, dir, "v/bin/activate", "evil")
	})
	expect(t, got, "virtual environment v/bin/python changed", "virtual environment v/bin/activate changed")
}

func TestReviewFindsLinksOutOfTheTree(t *testing.T) {
	dir := t.TempDir()
	real := resolved(dir)
	write(t, dir, "a/b/c/", "in", "old -> /etc", "moved -> /etc", "hop -> a/b/c")
	_, got := reviewAfter(t, dir, func() {
		if err := os.Remove(filepath.Join(dir, "moved")); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "moved -> /root", "abs -> /etc/shadow", "a/up -> ../../outside", "a/b/gone -> ../../../nowhere", "proc -> /proc/self/root",
			"workspace -> /workspace/in", // means another place on the host
			"a/in -> ../in", "a/b/in -> ../../in", "whole -> "+real+"/in", "sibling -> "+real+"-evil/x", "dangling -> nothing", "a/b/c/fine -> ../../../hop/../c",
			"a/through -> ../hop/../../../../x",
			"later -> nothing/../../x",                           // leads out once "nothing" is made
			"flat/deep/up -> ../..", "flat/wide -> deep/up/../y") // in by its words, out by the other link
	})
	expect(t, got, "link out of the tree moved changed", "link out of the tree abs new", "link out of the tree a/up new", "link out of the tree a/b/gone new", "link out of the tree proc new",
		"link out of the tree workspace new", "link out of the tree sibling new", "link out of the tree a/through new",
		"link out of the tree later new", "link out of the tree flat/wide new")
}

func TestReviewFindsNewSetIDFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "old", "plain")
	_, got := reviewAfter(t, dir, func() {
		write(t, dir, "d/evil", "d/sgid")
		for name, mode := range map[string]uint32{"d/evil": 0o4755, "d/sgid": 0o2755} {
			if err := unix.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	})
	expect(t, got, "set-id file d/evil new", "set-id file d/sgid new")
}

// What the run made under a masked name is looked at; what was covered is not.
func TestReviewIsNotFooledByMaskedNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "private/.envrc", "old.env/x", ".env")
	l, err := Live(Options{Dir: dir, Masks: []string{"private"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write(t, dir, append(repo("sub/.env/.git"), "sub/private/.envrc")...)
	r, err := l.Review(ReviewOptions{HeldDir: filepath.Join(t.TempDir(), "held")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, string(f.Kind)+" "+f.Path)
	}
	expect(t, got, "new repository sub/.env/.git", "shell environment sub/private/.envrc")
}

// A repository without some control files: they can't be mounted over, so the
// run can make them, and they are taken away.
func TestControlFilesMadeDuringTheRunAreHeldBack(t *testing.T) {
	dir, canary := t.TempDir(), filepath.Join(t.TempDir(), "canary")
	put(t, filepath.Dir(canary), "canary", "untouched")
	write(t, dir, ".git/HEAD", ".git/objects/", ".git/refs/", ".git/config")
	r, got := reviewAfter(t, dir, func() {
		write(t, dir, ".git/commondir", ".git/config.worktree", ".git/hooks/pre-commit", ".git/hooks/post-checkout -> "+canary, ".git/hooks/x.sample", ".git/info/attributes", ".git/objects/info/alternates", ".git/logs/HEAD")
		if err := os.Chmod(filepath.Join(dir, ".git/hooks/pre-commit"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(dir, ".git/hooks/fifo"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	expect(t, got, "git control file .git/commondir new", "git control file .git/config.worktree new", "git control file .git/hooks/pre-commit new", "git control file .git/hooks/post-checkout new",
		"socket, FIFO or device .git/hooks/fifo new", "git control file .git/info/attributes new", "git control file .git/objects/info/alternates new")
	for _, f := range r.Findings {
		if _, err := os.Lstat(filepath.Join(dir, f.Path)); !os.IsNotExist(err) {
			t.Errorf("%q is still there: %v", f.Path, err)
		}
		info, err := os.Lstat(f.HeldAt)
		if err != nil {
			t.Errorf("%q is not held: %v", f.Path, err)
			continue
		}
		if info.Mode().IsRegular() {
			if text, _ := os.ReadFile(f.HeldAt); string(text) != f.Path {
				t.Errorf("%q holds %q", f.HeldAt, text)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%q has mode %v", f.HeldAt, info.Mode())
			}
		}
	}
	for _, kept := range []string{".git/config", ".git/hooks/x.sample", ".git/logs/HEAD", ".git/HEAD"} {
		if _, err := os.Lstat(filepath.Join(dir, kept)); err != nil {
			t.Errorf("%q is gone: %v", kept, err)
		}
	}
	if text, _ := os.ReadFile(canary); string(text) != "untouched" {
		t.Errorf("the canary holds %q", text)
	}
}

func TestHooksReplacedByALinkAreHeldBackWithoutFollowingIt(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".git/HEAD", "evil/pre-commit")
	r, got := reviewAfter(t, dir, func() { write(t, dir, ".git/hooks -> ../evil") })
	expect(t, got, "git control file .git/hooks new")
	if _, err := os.Lstat(filepath.Join(dir, ".git/hooks")); !os.IsNotExist(err) {
		t.Errorf("the link is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "evil/pre-commit")); err != nil || r.Findings[0].HeldAt == "" {
		t.Errorf("what it led to was moved: %v", err)
	}
}

// The move between two file systems takes another way.
func TestHoldingBackCopiesAcrossFileSystems(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from, "file", "link -> /etc/shadow")
	if err := unix.Mkfifo(filepath.Join(from, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	held, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for name, want := range map[string]string{"file": "file", "link": "symbolic link to /etc/shadow\n", "fifo": ""} {
		if err := copyOut(int(dir.Fd()), name, held, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != want {
			t.Errorf("%s was copied as %q, %v", name, text, err)
		}
	}
}

func TestReviewFollowsPointedFilesThatMoved(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".git/HEAD", "scripts/hook.sh", "hookdir/pre-push")
	put(t, dir, ".git/config", "[core]\n\thooksPath = hookdir\n[include]\n\tpath = ../scripts/hook.sh\n")
	_, got := reviewAfter(t, dir, func() {
		// The mount goes with the directory; another one takes its place.
		for _, d := range []string{"scripts", "hookdir"} {
			if err := os.Rename(filepath.Join(dir, d), filepath.Join(dir, d+"2")); err != nil {
				t.Fatal(err)
			}
		}
		put(t, dir, "scripts/hook.sh", "evil")
		put(t, dir, "hookdir/pre-push", "hookdir/pre-push")
		put(t, dir, "hookdir/pre-commit", "evil")
	})
	expect(t, got, "git hooks of the project scripts/hook.sh changed", "git hooks of the project hookdir/pre-commit new")
}

func TestReviewSaysWhatItCouldNotSee(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "x")
	deep := func() {
		// Deeper than is looked into.
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Repeat("d", 250)
		for range maxPath/250 + 1 {
			if err := unix.Mkdirat(fd, name, 0o755); err != nil {
				t.Fatal(err)
			}
			next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			unix.Close(fd)
			if err != nil {
				t.Fatal(err)
			}
			fd = next
		}
		unix.Close(fd)
	}
	r, _ := reviewAfter(t, dir, deep)
	if len(r.Findings) != 1 || r.Findings[0].Kind != KindUnseen {
		t.Errorf("found %v", r.Findings)
	}
	var refused *DirError
	if _, err := Live(Options{Dir: dir}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "nested too deep") || !strings.Contains(err.Error(), `"dddd`) || !strings.Contains(refused.Hint(), "delete it") {
		t.Errorf("a start in a tree that can't be looked at whole: %v", err)
	}
}

func TestReviewGivesUpLoudly(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "x")
	l, err := Live(Options{Dir: dir, MaxEntries: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, n := range strings.Split("abcdefghijklm", "") {
		write(t, dir, n)
	}
	if r, err := l.Review(ReviewOptions{HeldDir: filepath.Join(t.TempDir(), "h")}); err == nil {
		t.Errorf("too many entries gave %v", r)
	}
	for _, bad := range []string{"", "relative", l.Dir, filepath.Join(l.Dir, "held")} {
		if _, err := l.Review(ReviewOptions{HeldDir: bad}); err == nil {
			t.Errorf("files may be held in %q", bad)
		}
	}
}

// A finding is data of a hostile tree: one plain line, whatever its name is.
func TestFindingsAreFitForATerminal(t *testing.T) {
	dir := t.TempDir()
	r, _ := reviewAfter(t, dir, func() { write(t, dir, "a\n\x1b[2J\u202eb\xff/.envrc") })
	if len(r.Findings) != 1 {
		t.Fatalf("found %v", r.Findings)
	}
	if line := r.Findings[0].String(); strings.ContainsAny(line, "\n\x1b") || strings.Contains(line, "\u202e") {
		t.Errorf("line %q", line)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}
