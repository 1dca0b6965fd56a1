//go:build unix

package mergeauthority

import (
	"strings"
	"testing"

	"confine/internal/gitcmd"
	"confine/internal/merge"
)

func TestMeasure(t *testing.T) {
	repo, err := gitcmd.Init(t.Context(), t.TempDir()+"/r.git", gitcmd.InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tree := func(files map[string]string, modes map[string]gitcmd.Mode) gitcmd.Hash {
		var entries []gitcmd.TreeEntry
		for name, text := range files {
			blob, err := repo.HashObject(t.Context(), strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			mode := gitcmd.ModeFile
			if m, ok := modes[name]; ok {
				mode = m
			}
			entries = append(entries, gitcmd.TreeEntry{Mode: mode, Type: gitcmd.BlobObject, Hash: blob, Path: name})
		}
		hash, err := repo.MkTree(t.Context(), entries)
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	base := map[string]string{"a": "1\n2\n3\n", "b": "x\n"}
	for name, test := range map[string]struct {
		to    map[string]string
		modes map[string]gitcmd.Mode
		want  merge.Change
	}{
		"same":        {to: base},
		"one line":    {to: map[string]string{"a": "1\n2!\n3\n", "b": "x\n"}, want: merge.Change{Lines: 2, Files: 1}},
		"both ends":   {to: map[string]string{"a": "0\n1\n2\n3\n4\n", "b": "x\n"}, want: merge.Change{Lines: 2, Files: 1}},
		"removed":     {to: map[string]string{"a": "1\n2\n3\n"}, want: merge.Change{Lines: 1, Files: 1}},
		"renamed":     {to: map[string]string{"a": "1\n2\n3\n", "c": "x\n"}, want: merge.Change{Lines: 2, Files: 2}},
		"mode":        {to: base, modes: map[string]gitcmd.Mode{"b": gitcmd.ModeExec}, want: merge.Change{Files: 1}},
		"link":        {to: base, modes: map[string]gitcmd.Mode{"b": gitcmd.ModeSymlink}, want: merge.Change{Files: 1, Opaque: 1}},
		"binary":      {to: map[string]string{"a": "1\n2\n3\n", "b": "x\x00\n"}, want: merge.Change{Files: 1, Opaque: 1}},
		"large":       {to: map[string]string{"a": "1\n2\n3\n", "b": strings.Repeat("x", maxFileBytes+1)}, want: merge.Change{Files: 1, Opaque: 1}},
		"long line":   {to: map[string]string{"a": "1\n2\n3\n", "b": "x\n", "c": strings.Repeat("y", 10*merge.LineBytes)}, want: merge.Change{Lines: 10, Files: 1}},
		"no line end": {to: map[string]string{"a": "1\n2\n3", "b": "x\n"}, want: merge.Change{Lines: 2, Files: 1}},
	} {
		got, err := measure(t.Context(), repo, tree(base, nil), tree(test.to, test.modes))
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, test.want)
		}
	}
}

// plainEdits is the textbook's table.
func plainEdits(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		diagonal := 0
		for j := range b {
			up := row[j+1]
			if a[i] == b[j] {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			diagonal = up
		}
	}
	return len(a) + len(b) - 2*row[len(b)]
}

func FuzzEdits(f *testing.F) {
	f.Add("a b c", "a c")
	f.Add("", "x y")
	f.Add("a b c a b b a", "c b a b a c")
	f.Fuzz(func(t *testing.T, from, to string) {
		if len(from)+len(to) > 400 {
			return
		}
		a, b := strings.Split(from, ""), strings.Split(to, "")
		if got, want := edits(a, b), plainEdits(a, b); got != want {
			t.Fatalf("%q to %q takes %d, want %d", from, to, got, want)
		}
	})
}

// TestEditsOfUnlikeTexts: past the cap every line counts, and time stays small.
func TestEditsOfUnlikeTexts(t *testing.T) {
	var a, b []string
	for range 100_000 {
		a, b = append(a, "a"), append(b, "b")
	}
	if got := edits(a, b); got != 200_000 {
		t.Fatal(got)
	}
}
