package gitcmd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The comparison is our own; git's is the measure.
func TestDiffTreeIsGitsDiffTree(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	work := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	plainGit(t, work, "init", "-q", "--template=")
	rnd := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "a.b", "a-b", "b", "A", "é", "tab\tx", "nl\nx", "z"}
	var commits []Hash
	for range 6 {
		for range 12 {
			path := work
			for range 1 + rnd.IntN(3) {
				path = filepath.Join(path, names[rnd.IntN(len(names))])
			}
			switch rnd.IntN(5) {
			case 0:
				os.RemoveAll(path)
			case 1:
				os.RemoveAll(path)
				os.Symlink("x", path)
			case 2:
				os.RemoveAll(path)
				fallthrough
			default:
				if os.MkdirAll(filepath.Dir(path), 0o755) == nil {
					mode := os.FileMode(0o644)
					if rnd.IntN(4) == 0 {
						mode = 0o755
					}
					os.Remove(path)
					os.WriteFile(path, fmt.Appendf(nil, "%d", rnd.IntN(4)), mode)
				}
			}
		}
		plainGit(t, work, "add", "-A")
		plainGit(t, work, "commit", "-q", "--allow-empty", "-m", "x")
		commits = append(commits, Hash(plainGit(t, work, "rev-parse", "HEAD")))
	}
	plainGit(t, work, "push", "-q", r.Dir(), "HEAD:refs/heads/x")
	var pairs []TreePair
	for _, from := range commits {
		for _, to := range commits {
			pairs = append(pairs, TreePair{from, to})
		}
	}
	lists, err := r.DiffTrees(ctx, pairs, DiffOptions{})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i, p := range pairs {
		raw := plainGit(t, r.Dir(), "diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", string(p.From), string(p.To))
		var want []string
		fields := strings.Split(strings.TrimSuffix(raw, "\x00"), "\x00")
		for k := 0; k+1 < len(fields); k += 2 {
			want = append(want, fields[k]+" "+fields[k+1])
		}
		slices.Sort(want)
		var got []string
		null := func(h Hash) string {
			if h == "" {
				return r.nullHash()
			}
			return string(h)
		}
		for _, c := range lists[i] {
			got = append(got, fmt.Sprintf(":%s %s %s %s %c %s", c.OldMode, c.NewMode, null(c.OldHash), null(c.NewHash), c.Status, c.Path))
		}
		slices.Sort(got)
		total += len(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%s..%s:\ngot  %q\nwant %q", p.From, p.To, got, want)
		}
	}
	if total < 100 {
		t.Fatalf("only %d changes were compared", total)
	}
}

func TestDiffTreesEndsAtItsCaps(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t, InitOptions{})
	blob, err := r.HashObject(ctx, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	grow := func(leaf []TreeEntry, width, levels int) Hash {
		tree, err := r.MkTree(ctx, leaf)
		if err != nil {
			t.Fatal(err)
		}
		for range levels {
			var entries []TreeEntry
			for i := range width {
				entries = append(entries, TreeEntry{ModeTree, TreeObject, tree, fmt.Sprintf("d%d", i)})
			}
			if tree, err = r.MkTree(ctx, entries); err != nil {
				t.Fatal(err)
			}
		}
		return tree
	}
	file := []TreeEntry{{ModeFile, BlobObject, blob, "f"}}
	for name, c := range map[string]struct {
		tree Hash
		o    DiffOptions
	}{
		"changes": {grow(file, 10, 4), DiffOptions{MaxChanges: 999}},
		"depth":   {grow(file, 1, 30), DiffOptions{MaxDepth: 30}},
	} {
		if _, err := r.DiffTrees(ctx, []TreePair{{"", c.tree}}, c.o); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if lists, err := r.DiffTrees(ctx, []TreePair{{"", grow(file, 10, 3)}, {"", grow(file, 1, 30)}}, DiffOptions{MaxChanges: 1001, MaxDepth: 31}); err != nil || len(lists[0]) != 1000 {
		t.Errorf("at the caps: %v", err)
	}
	// Directories without a file have no changes to count.
	d := &differ{repo: r, objects: r.openObjects(ctx), max: 10, depth: 10, trees: 500}
	err = d.roots(TreePair{"", grow(nil, 10, 6)})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("empty directories: %v", err)
	}
	_ = d.objects.close(err)
	if _, err := r.DiffTree(ctx, blob, blob); err != nil {
		t.Errorf("equal ids: %v", err)
	}
	if _, err := r.DiffTree(ctx, r.EmptyTree(), blob); err == nil {
		t.Error("a blob was compared as a tree")
	}
	var missing *NotFoundError
	if _, err := r.DiffTree(ctx, r.EmptyTree(), Hash(strings.Repeat("1", 40))); !errors.As(err, &missing) {
		t.Errorf("a missing tree: %v", err)
	}
}

func FuzzParseTree(f *testing.F) {
	f.Add([]byte("100644 a\x0012345678901234567890"))
	f.Add([]byte("40000 b\x0012345678901234567890100644 c\x00short"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseTree(data, 20)
		if err != nil {
			return
		}
		for name, e := range entries {
			if name == "" || strings.Contains(name, "\x00") || len(e.hash) != 40 {
				t.Errorf("accepted %q %v", name, e)
			}
		}
	})
}
