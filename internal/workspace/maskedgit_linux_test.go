package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestGitIsToldOfMaskedFilesFromEachWorkTree(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, slices.Concat(repo(".git"), repo("a/sub/.git"), []string{".env", "a/sub/conf/x.key", "b/mod/.git", "b/mod/.env", "secrets/file", "plain", "new\nline.key"})...)
	put(t, dir, "a/sub/.git/config", "[core]\n\texcludesFile = mine\n")
	l := live(t, dir, "*.key", "secrets")
	want := []string{".env", "a/sub/conf/x.key", "b/mod/.env", "conf/x.key"}
	if !slices.Equal(l.GitMasked, want) {
		t.Errorf("git is told of %q, want %q", l.GitMasked, want)
	}
	notes := strings.Join(l.Notes, "\n")
	if !strings.Contains(notes, "not told of 1 masked files") || !strings.Contains(notes, `"a/sub/.git" sets core.excludesfile itself`) {
		t.Errorf("notes %q", l.Notes)
	}
	if plain := live(t, t.TempDir()); plain.GitMasked != nil || plain.stagedBefore != nil {
		t.Errorf("without masks git is told of %q", plain.GitMasked)
	}
}

func TestGitIsToldOfALimitedNumberOfMaskedFiles(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for i := range maxGitMasked + 5 {
		names = append(names, fmt.Sprintf("d%d/.env", i))
	}
	write(t, dir, names...)
	l := live(t, dir)
	if len(l.GitMasked) != maxGitMasked || !strings.Contains(strings.Join(l.Notes, "\n"), "not told of 5 masked files") {
		t.Errorf("git is told of %d, notes %q", len(l.GitMasked), l.Notes)
	}
}

// What of masked paths is in git's index afterwards, committed or not.
func TestReviewNamesMaskedFilesInTheIndex(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	write(t, dir, "tracked.env/", ".env", "kept.key", "changed.key", "gone.key", "dir/deleted", "plain")
	git(t, dir, "add", "kept.key", "changed.key", "gone.key", "dir/deleted", "plain")
	git(t, dir, "commit", "-qm", "one")
	l := live(t, dir, "*.key", "./dir")
	// As if the mask were gone, which only tests can do.
	put(t, dir, "changed.key", "")
	put(t, dir, "plain", "changed")
	if err := os.Rename(filepath.Join(dir, "kept.key"), filepath.Join(dir, "kept.key2")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, ".env", "")
	git(t, dir, "add", "-f", ".env", "changed.key", "plain")
	git(t, dir, "commit", "-qm", "two")
	git(t, dir, "rm", "-q", "--cached", "gone.key", "dir/deleted")
	r, err := l.Review(ReviewOptions{HeldDir: filepath.Join(t.TempDir(), "held")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, string(f.Kind)+" "+f.Path+" "+f.Change+": "+f.Detail)
	}
	slices.Sort(got)
	const k, removed = string(KindMasked) + " ", " changed: it was taken out of git's index: a commit deletes it"
	expect(t, got, k+".env new: it is in git's index as an empty file", k+"changed.key changed: it is in git's index as an empty file", k+"dir/deleted"+removed, k+"gone.key"+removed)

	// An index that can't be read afterwards hides nothing.
	put(t, dir, ".git/index", "DIRC")
	r, err = l.Review(ReviewOptions{HeldDir: filepath.Join(t.TempDir(), "held")})
	if err != nil || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Path == ".git/index" && f.Kind == KindMasked }) {
		t.Errorf("found %v, %v", r.Findings, err)
	}
}
