package workspace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

// What git writes is read as git lists it, in every version and both hashes.
func TestIndexIsReadAsGitListsIt(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "3", "4"} {
			dir := t.TempDir()
			git(t, dir, "init", "-q", "--object-format", format)
			for i := range 70 {
				write(t, dir, strings.Repeat("x", i)+"f", fmt.Sprintf("dir/%d/é %d", i%7, i))
			}
			git(t, dir, "add", ".")
			write(t, dir, "intended") // extended flags, which version 2 has not
			git(t, dir, "add", "-N", "intended")
			git(t, dir, "update-index", "--index-version", version)
			data, err := os.ReadFile(filepath.Join(dir, ".git/index"))
			if err != nil {
				t.Fatal(err)
			}
			idLen := map[string]int{"sha1": 20, "sha256": 32}[format]
			var got []string
			if err := readIndex(data, idLen, func(e indexEntry) {
				got = append(got, fmt.Sprintf("%o %s %d\t%s", e.mode, e.id, e.stage, e.path))
			}); err != nil {
				t.Errorf("%s, version %s: %v", format, version, err)
			}
			want := strings.Split(strings.TrimSuffix(git(t, dir, "ls-files", "-z", "--stage"), "\x00"), "\x00")
			if !slices.Equal(got, want) {
				t.Errorf("%s, version %s: read %d entries, git lists %d: %.300q", format, version, len(got), len(want), got)
			}
			if err := readIndex(data, 52-idLen, func(indexEntry) {}); err == nil {
				t.Errorf("%s, version %s: is read with ids of the other length", format, version)
			}
			if err := readIndex(data[:len(data)-30], idLen, func(indexEntry) {}); err == nil {
				t.Errorf("%s, version %s: is read though it is cut off", format, version)
			}
		}
	}
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	write(t, dir, "a")
	git(t, dir, "add", ".")
	git(t, dir, "update-index", "--split-index")
	data, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	if err != nil {
		t.Fatal(err)
	}
	if err := readIndex(data, 20, func(indexEntry) {}); err != errSplit {
		t.Errorf("a split index: %v", err)
	}
}

func FuzzReadIndex(f *testing.F) {
	entry := strings.Repeat("\x00", 60) + "\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"+entry+strings.Repeat("\x00", 20)), 20)
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"+strings.Repeat("\x00", 62)+"\x80\x00a\x00"), 20)
	f.Add([]byte("DIRC\x00\x00\x00\x02\xff\xff\xff\xff"), 32)
	f.Fuzz(func(t *testing.T, data []byte, idLen int) {
		if idLen != 20 && idLen != 32 {
			return
		}
		total := 0
		_ = readIndex(data, idLen, func(e indexEntry) {
			if e.path == "" || strings.Contains(e.path, "\x00") || len(e.id) != 2*idLen {
				t.Errorf("entry %+v", e)
			}
			total++
		})
		if total > len(data)/40 {
			t.Errorf("%d entries out of %d bytes", total, len(data))
		}
	})
}
