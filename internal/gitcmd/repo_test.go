package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var testTime = time.Unix(1_700_000_000, 0).UTC()

func testIdentity() Identity {
	return Identity{Name: "Test Engine", Email: "engine@example.com", When: testTime}
}

func newRepo(t *testing.T, o InitOptions) *Repo {
	t.Helper()
	r, err := Init(t.Context(), filepath.Join(t.TempDir(), "r.git"), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// addCommit writes a commit whose tree holds exactly these files.
func addCommit(t *testing.T, r *Repo, files map[string]string, parents ...Hash) Hash {
	t.Helper()
	var entries []TreeEntry
	for name, text := range files {
		h, err := r.HashObject(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, TreeEntry{Mode: ModeFile, Type: BlobObject, Hash: h, Path: name})
	}
	tree, err := r.MkTree(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.CommitTree(t.Context(), NewCommit{Tree: tree, Parents: parents, Author: testIdentity(), Committer: testIdentity(), Message: "message\n"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// plainGit runs git as a person or an attacker would, apart from the package.
func plainGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + searchPath, "HOME=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestReadWhatWasWritten(t *testing.T) {
	for _, format := range []ObjectFormat{SHA1, SHA256} {
		t.Run(string(format), func(t *testing.T) {
			ctx := t.Context()
			r := newRepo(t, InitOptions{Format: format})
			base := addCommit(t, r, map[string]string{"a.txt": "one\n", "tab\tname\nnewline é": "odd\n"})
			head := addCommit(t, r, map[string]string{"a.txt": "two\n"}, base)
			if err := r.UpdateRef(ctx, RefUpdate{Ref: "refs/heads/main", New: head}); err != nil {
				t.Fatal(err)
			}
			if got, err := r.RevParse(ctx, "refs/heads/main"); err != nil || got != head {
				t.Errorf("RevParse = %q, %v", got, err)
			}
			var missing *NotFoundError
			if _, err := r.RevParse(ctx, "refs/heads/mai"); !errors.As(err, &missing) {
				t.Errorf("RevParse of a prefix of a name: %v, want not found", err)
			}
			if head2, err := r.Head(ctx); err != nil || head2 != "refs/heads/main" {
				t.Errorf("Head = %q, %v", head2, err)
			}
			c, err := r.ReadCommit(ctx, head, 0)
			if err != nil || !slices.Equal(c.Parents, []Hash{base}) || c.Message != "message\n" || c.Author != testIdentity() {
				t.Errorf("ReadCommit = %+v, %v", c, err)
			}
			changes, err := r.DiffTree(ctx, base, head)
			if err != nil || len(changes) != 2 || changes[0].Path != "a.txt" || changes[0].Status != 'M' || changes[1].Path != "tab\tname\nnewline é" || changes[1].NewHash != "" {
				t.Errorf("DiffTree = %+v, %v", changes, err)
			}
			if all, err := r.DiffTree(ctx, r.EmptyTree(), base); err != nil || len(all) != 2 {
				t.Errorf("DiffTree from the empty tree = %+v, %v", all, err)
			}
			if text, err := r.FileAt(ctx, base, "a.txt", 100); err != nil || string(text) != "one\n" {
				t.Errorf("FileAt = %q, %v", text, err)
			}
			if _, err := r.FileAt(ctx, head, "b.txt", 100); !errors.As(err, &missing) {
				t.Errorf("FileAt of a missing file: %v", err)
			}
			if list, err := r.RevList(ctx, RevListOptions{Include: []Hash{head}}); err != nil || !slices.Equal(list, []Hash{base, head}) {
				t.Errorf("RevList = %v, %v", list, err)
			}
			if list, err := r.RevList(ctx, RevListOptions{Include: []Hash{head}, Exclude: []Hash{base}, Max: 1}); err != nil || !slices.Equal(list, []Hash{head}) {
				t.Errorf("RevList with a base = %v, %v", list, err)
			}
			if _, err := r.RevList(ctx, RevListOptions{Include: []Hash{head}, Max: 1}); !errors.Is(err, ErrTooLarge) {
				t.Errorf("RevList over its cap: %v", err)
			}
			if ok, err := r.IsAncestor(ctx, base, head); err != nil || !ok {
				t.Errorf("IsAncestor = %v, %v", ok, err)
			}
			if ok, err := r.IsAncestor(ctx, head, base); err != nil || ok {
				t.Errorf("IsAncestor backwards = %v, %v", ok, err)
			}
			if typ, size, err := r.TypeOf(ctx, head); err != nil || typ != CommitObject || size < 100 {
				t.Errorf("TypeOf = %v %v %v", typ, size, err)
			}
			absent := Hash(strings.Repeat("1", len(head)))
			if _, _, err := r.TypeOf(ctx, absent); !errors.As(err, &missing) {
				t.Errorf("TypeOf a missing object: %v", err)
			}
		})
	}
}

func TestUpdateRefHoldsTheOldValue(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	one := addCommit(t, r, map[string]string{"a": "1"})
	two := addCommit(t, r, map[string]string{"a": "2"}, one)
	const ref = Ref("refs/heads/x")
	var moved *MovedError
	if err := r.UpdateRef(ctx, RefUpdate{Ref: ref, New: two, Old: one}); !errors.As(err, &moved) {
		t.Errorf("update of a missing ref with an old value: %v", err)
	}
	if err := r.UpdateRef(ctx, RefUpdate{Ref: ref, New: one}); err != nil {
		t.Fatal(err)
	}
	if err := r.UpdateRef(ctx, RefUpdate{Ref: ref, New: two}); !errors.As(err, &moved) {
		t.Errorf("creation of an existing ref: %v", err)
	}
	if err := r.UpdateRef(ctx, RefUpdate{Ref: ref, New: two, Old: one}); err != nil {
		t.Errorf("update with the right old value: %v", err)
	}
	if err := r.UpdateRef(ctx, RefUpdate{Ref: ref, Old: one}); !errors.As(err, &moved) {
		t.Errorf("deletion with a wrong old value: %v", err)
	}
	if err := r.UpdateRef(ctx, RefUpdate{Ref: ref}); err == nil || errors.As(err, &moved) {
		t.Errorf("neither value: %v", err)
	}
	if err := r.UpdateRef(ctx, RefUpdate{Ref: ref, Old: two}); err != nil {
		t.Errorf("deletion: %v", err)
	}
}

func TestMergeTree(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	base := addCommit(t, r, map[string]string{"a": "1\n", "b": "1\n"})
	ours := addCommit(t, r, map[string]string{"a": "2\n", "b": "1\n"}, base)
	theirs := addCommit(t, r, map[string]string{"a": "1\n", "b": "2\n"}, base)
	clash := addCommit(t, r, map[string]string{"a": "3\n", "b": "1\n"}, base)
	m, err := r.MergeTree(ctx, ours, theirs)
	if err != nil || !m.Clean() {
		t.Fatalf("MergeTree = %+v, %v", m, err)
	}
	if text, err := r.FileAt(ctx, m.Tree, "b", 10); err != nil || string(text) != "2\n" {
		t.Errorf("merged b = %q, %v", text, err)
	}
	m, err = r.MergeTree(ctx, ours, clash)
	if err != nil || m.Clean() || !slices.Equal(m.Conflicts, []string{"a"}) {
		t.Errorf("MergeTree with a conflict = %+v, %v", m, err)
	}
	root := addCommit(t, r, map[string]string{"z": "1\n"})
	if m, err := r.MergeTree(ctx, ours, root); err == nil {
		t.Errorf("merge of unrelated histories = %+v", m)
	}
}

func TestPackTravels(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	base := addCommit(t, r, map[string]string{"a": strings.Repeat("line\n", 500)})
	head := addCommit(t, r, map[string]string{"a": strings.Repeat("line\n", 500) + "more\n"}, base)
	other := addCommit(t, r, map[string]string{"secret": "another branch"}, base)
	var pack bytes.Buffer
	if err := r.PackObjects(ctx, &pack, PackOptions{Include: []Hash{base}}); err != nil {
		t.Fatal(err)
	}
	lent := newRepo(t, InitOptions{})
	if err := lent.IndexPack(ctx, &pack, IndexPackOptions{Trusted: true}); err != nil {
		t.Fatal(err)
	}
	var missing *NotFoundError
	if _, _, err := lent.TypeOf(ctx, other); !errors.As(err, &missing) {
		t.Errorf("the closure of base brought another branch: %v", err)
	}
	var thin bytes.Buffer
	if err := r.PackObjects(ctx, &thin, PackOptions{Include: []Hash{head}, Exclude: []Hash{base}, Thin: true}); err != nil {
		t.Fatal(err)
	}
	thinBytes := thin.Bytes()
	quarantine := newRepo(t, InitOptions{Alternates: []*Repo{lent}})
	if err := quarantine.IndexPack(ctx, bytes.NewReader(thinBytes), IndexPackOptions{MaxBytes: int64(len(thinBytes)) - 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("pack over its cap: %v", err)
	}
	if err := quarantine.IndexPack(ctx, bytes.NewReader(thinBytes), IndexPackOptions{MaxObjects: 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("pack with too many objects: %v", err)
	}
	if err := quarantine.IndexPack(ctx, bytes.NewReader(thinBytes[:len(thinBytes)-30]), IndexPackOptions{}); err == nil {
		t.Error("a truncated pack was imported")
	}
	if _, _, err := quarantine.TypeOf(ctx, head); !errors.As(err, &missing) {
		t.Errorf("a refused pack left objects: %v", err)
	}
	if err := quarantine.IndexPack(ctx, bytes.NewReader(thinBytes), IndexPackOptions{MaxBytes: int64(len(thinBytes))}); err != nil {
		t.Errorf("pack at its cap: %v", err)
	}
	if ok, err := quarantine.IsAncestor(ctx, base, head); err != nil || !ok {
		t.Errorf("history in the quarantine: %v, %v", ok, err)
	}
	// Without the objects that its deltas and links need, it is refused.
	if err := newRepo(t, InitOptions{}).IndexPack(ctx, bytes.NewReader(thinBytes), IndexPackOptions{}); err == nil {
		t.Error("a pack was imported without its base")
	}
}

func TestOpenRefusesWhatOthersMayWrite(t *testing.T) {
	ctx := t.Context()
	open := func(change func(dir string)) error {
		r := newRepo(t, InitOptions{})
		change(r.Dir())
		_, err := Open(ctx, r.Dir())
		return err
	}
	if err := open(func(string) {}); err != nil {
		t.Fatalf("control: %v", err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(string){
		"directory": func(d string) { must(os.Chmod(d, 0o777)) },
		"config":    func(d string) { must(os.Chmod(filepath.Join(d, "config"), 0o666)) },
		"objects":   func(d string) { must(os.Chmod(filepath.Join(d, "objects"), 0o777)) },
		"parent":    func(d string) { must(os.Chmod(filepath.Dir(d), 0o777)) },
		"commondir": func(d string) { must(os.WriteFile(filepath.Join(d, "commondir"), []byte("../x\n"), 0o600)) },
		"config link": func(d string) {
			must(os.Rename(filepath.Join(d, "config"), filepath.Join(d, "c2")))
			must(os.Symlink("c2", filepath.Join(d, "config")))
		},
		"worktree config": func(d string) { must(os.WriteFile(filepath.Join(d, "config.worktree"), nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			var unsafe *UnsafeError
			if err := open(change); !errors.As(err, &unsafe) {
				t.Errorf("Open = %v, want an UnsafeError", err)
			}
		})
	}
	if err := open(func(d string) { must(os.Chmod(filepath.Dir(d), 0o777|os.ModeSticky)) }); err != nil {
		t.Errorf("a sticky parent, as /tmp: %v", err)
	}
	if _, err := Open(ctx, "relative"); err == nil {
		t.Error("a relative path was opened")
	}
}

func TestZeroRepoRefuses(t *testing.T) {
	var r Repo
	if _, err := r.RevParse(context.Background(), "refs/heads/main"); err == nil {
		t.Error("a repository that was not opened answered")
	}
}

func TestParseRef(t *testing.T) {
	for _, good := range []string{"refs/heads/main", "refs/heads/confine/issue-12", "refs/tags/v1.2.3", "refs/heads/é"} {
		if _, err := ParseRef(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "main", "HEAD", "refs/heads/", "refs/heads", "refs/heads/-x", "refs/heads/a..b", "refs/heads/a.lock", "refs/heads/.a",
		"refs/heads/a b", "refs/heads/a\n", "refs/heads/a:b", "refs/heads/a^", "refs/heads/*", "refs/heads/a//b", "refs/heads/a.", "refs/heads/@{1}",
		"refs/heads/a\\b", "+refs/heads/a", "refs/heads/a\u202eb", "refs/heads/a\u200db", "refs/heads/\xff", "refs/heads/" + strings.Repeat("a", 400)} {
		if _, err := ParseRef(bad); err == nil {
			t.Errorf("ParseRef(%q) succeeded", bad)
		}
	}
}

func TestParseHash(t *testing.T) {
	if _, err := ParseHash(strings.Repeat("a1", 20)); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "HEAD", "a1b2c3d", strings.Repeat("A1", 20), strings.Repeat("g1", 20), strings.Repeat("0", 40), strings.Repeat("a", 41), "-" + strings.Repeat("a", 39)} {
		if _, err := ParseHash(bad); err == nil {
			t.Errorf("ParseHash(%q) succeeded", bad)
		}
	}
}

func TestReadObjectsStreams(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	var hashes []Hash
	for _, text := range []string{"one\n", "", strings.Repeat("large", 100_000)} {
		h, err := r.HashObject(ctx, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, h)
	}
	var sizes []int64
	err := r.ReadObjects(ctx, hashes, 0, func(o Object, content io.Reader) error {
		sizes = append(sizes, o.Size)
		return nil // what f leaves is skipped
	})
	if err != nil || !slices.Equal(sizes, []int64{4, 0, 500_000}) {
		t.Errorf("sizes %v, %v", sizes, err)
	}
	stop := errors.New("enough")
	if err := r.ReadObjects(ctx, hashes, 0, func(Object, io.Reader) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a reader that stops: %v", err)
	}
	if err := r.ReadObjects(ctx, hashes, 1000, func(Object, io.Reader) error { return nil }); !errors.Is(err, ErrTooLarge) {
		t.Errorf("objects over the cap: %v", err)
	}
	var missing *NotFoundError
	if err := r.ReadObjects(ctx, []Hash{Hash(strings.Repeat("1", 40))}, 0, func(Object, io.Reader) error { return nil }); !errors.As(err, &missing) {
		t.Errorf("a missing object: %v", err)
	}
}
