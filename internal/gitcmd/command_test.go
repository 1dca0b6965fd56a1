package gitcmd

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestEveryCallIsHardened(t *testing.T) {
	t.Setenv("GIT_DIR", "/nonexistent")
	t.Setenv("GIT_EXTERNAL_DIFF", "touch owned")
	t.Setenv("CANARY", "from the engine")
	var calls []Call
	ctx := Observe(t.Context(), func(c Call) { calls = append(calls, c) })
	r, err := Init(ctx, filepath.Join(t.TempDir(), "r.git"), InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Refs(ctx, "refs"); err != nil {
		t.Fatal(err)
	}
	if len(calls) < 3 {
		t.Fatalf("%d calls observed", len(calls))
	}
	for _, c := range calls {
		for _, want := range []string{"core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never", "credential.helper=", "safe.bareRepository=explicit", "transfer.fsckObjects=true", "http.followRedirects=false"} {
			if i := slices.Index(c.Args, want); i < 1 || c.Args[i-1] != "-c" {
				t.Errorf("%q lacks -c %s", c.Args, want)
			}
		}
		for _, want := range []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", "GIT_PROTOCOL_FROM_USER=0", "HOME=/dev/null"} {
			if !slices.Contains(c.Env, want) {
				t.Errorf("environment lacks %s", want)
			}
		}
		for _, v := range c.Env {
			if strings.Contains(v, "CANARY") || strings.Contains(v, "nonexistent") || strings.Contains(v, "owned") {
				t.Errorf("environment holds %q of ours", v)
			}
		}
		if !filepath.IsAbs(c.Program) {
			t.Errorf("program %q", c.Program)
		}
	}
}

// The repository's own config and hooks are the engine's, but nothing there may
// start a program either: one mistake must not be enough.
func TestRepositoryConfigStartsNothing(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	base := addCommit(t, r, map[string]string{"a.txt": "1\n", ".gitattributes": "* filter=x diff=x merge=x\n"})
	ours := addCommit(t, r, map[string]string{"a.txt": "2\n", ".gitattributes": "* filter=x diff=x merge=x\n"}, base)
	theirs := addCommit(t, r, map[string]string{"a.txt": "3\n", ".gitattributes": "* filter=x diff=x merge=x\n"}, base)
	owned := filepath.Join(t.TempDir(), "owned")
	touch := "touch " + owned + " #"
	for _, key := range []string{"core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.alternateRefsCommand", "core.gitProxy",
		"diff.external", "diff.x.textconv", "diff.x.command", "filter.x.clean", "filter.x.smudge", "filter.x.process", "gpg.program", "credential.helper", "sequence.editor"} {
		plainGit(t, r.Dir(), "--git-dir="+r.Dir(), "config", key, touch)
	}
	hooks := filepath.Join(r.Dir(), "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"reference-transaction", "pre-push", "post-update", "update", "pre-receive", "pre-auto-gc", "post-index-change"} {
		if err := os.WriteFile(filepath.Join(hooks, hook), []byte("#!/bin/sh\ntouch "+owned+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.Dir(), "info-attributes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exists := func() bool { _, err := os.Lstat(owned); return err == nil }
	remote := newRepo(t, InitOptions{})
	if err := r.UpdateRef(ctx, RefUpdate{Ref: "refs/heads/main", New: ours}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.DiffTree(ctx, base, ours); err != nil {
		t.Fatal(err)
	}
	if _, err := r.MergeTree(ctx, ours, theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := r.HashObject(ctx, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if res, err := r.Push(ctx, Push{To: Remote{Path: remote.Dir()}, Ref: "refs/heads/main", New: ours}); err != nil || res.Outcome != PushDone {
		t.Fatalf("push = %+v, %v", res, err)
	}
	if exists() {
		t.Fatal("a program named by the repository ran")
	}
	// Control: git as a person starts it runs them.
	plainGit(t, r.Dir(), "--git-dir="+r.Dir(), "update-ref", "refs/heads/control", string(ours))
	if !exists() {
		t.Fatal("control: the hook does not work, so the test proves nothing")
	}
}

func TestReplaceObjectsAreNotFollowed(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	shown := addCommit(t, r, map[string]string{"a": "harmless"})
	real := addCommit(t, r, map[string]string{"a": "hostile"})
	if err := r.UpdateRef(ctx, RefUpdate{Ref: Ref("refs/replace/" + string(real)), New: shown}); err != nil {
		t.Fatal(err)
	}
	if out := plainGit(t, r.Dir(), "--git-dir="+r.Dir(), "cat-file", "blob", string(real)+":a"); out != "harmless" {
		t.Fatalf("control: the replacement does not work: %q", out)
	}
	if text, err := r.FileAt(ctx, real, "a", 100); err != nil || string(text) != "hostile" {
		t.Errorf("FileAt = %q, %v: what is reviewed is not what is pushed", text, err)
	}
}

// blockingReader never ends.
type blockingReader struct{ ctx context.Context }

func (b blockingReader) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func TestTimeLimitEndsGit(t *testing.T) {
	r := newRepo(t, InitOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := r.HashObject(ctx, blockingReader{ctx})
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("HashObject of an endless stream: %v", err)
	}
	_, err = r.run(t.Context(), command{op: "hash-object", args: []string{"--stdin"}, stdin: blockingReader{ctx: t.Context()}, time: 100 * time.Millisecond})
	if !errors.Is(err, ErrTimeLimit) {
		t.Errorf("own time limit: %v", err)
	}
}

func TestOutputCapEndsGit(t *testing.T) {
	r := newRepo(t, InitOptions{})
	h, err := r.HashObject(t.Context(), strings.NewReader(strings.Repeat("x", 100_000)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.CatFile(t.Context(), h, CatOptions{Type: BlobObject, Max: 99_999}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("blob over its cap: %v", err)
	}
	if text, err := r.CatFile(t.Context(), h, CatOptions{Type: BlobObject, Max: 100_000}); err != nil || len(text) != 100_000 {
		t.Errorf("blob at its cap: %d bytes, %v", len(text), err)
	}
}

func TestBrokenInputIsNoShortInput(t *testing.T) {
	r := newRepo(t, InitOptions{})
	broken := errors.New("the disk broke")
	_, err := r.HashObject(t.Context(), io.MultiReader(strings.NewReader("half"), errorReader{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("HashObject of a stream that breaks: %v", err)
	}
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"git version 2.39.5\n":               {2, 39, 5},
		"git version 2.50.1 (Apple Git-155)": {2, 50, 1},
		"git version 2.54.rc1":               {2, 54, 0},
		"git version 2.40.0.windows.1":       {2, 40, 0},
	} {
		if got, err := parseVersion(text); err != nil || got != want {
			t.Errorf("parseVersion(%q) = %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "git version", "git version x.y", "2.39.5", "git version 2"} {
		if v, err := parseVersion(bad); err == nil {
			t.Errorf("parseVersion(%q) = %v", bad, v)
		}
	}
	if !(Version{2, 39, 5}).AtLeast(Oldest) || (Version{2, 37, 9}).AtLeast(Oldest) || (Version{1, 99, 0}).AtLeast(Oldest) {
		t.Error("AtLeast is wrong")
	}
}

// The process-starting packages: gitcmd for git outside a sandbox, sandbox for
// everything untrusted, kernel for its probes of this host.
var mayStartProcesses = []string{"internal/gitcmd", "internal/sandbox", "internal/kernel"}

func TestNoOtherPackageStartsGit(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") && rel != "." {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if name == "os/exec" && !slices.ContainsFunc(mayStartProcesses, func(p string) bool { return strings.HasPrefix(rel, p+"/") }) &&
				!strings.HasPrefix(rel, "internal/tools/") && !strings.HasPrefix(rel, "bench/") {
				t.Errorf("%s imports os/exec: git outside a sandbox is started by gitcmd, everything else by sandbox", rel)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Fatalf("only %d files walked", files)
	}
}
