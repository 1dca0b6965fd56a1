//go:build linux

package sandboxtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSearchFindsWhatIsThere in names, links and content, and never itself.
func TestSearchFindsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	keys := []string{"content-5d1c", "name-77aa02", "target-91bc", "absent-1122"}
	for name, text := range map[string]string{"a": "x" + keys[0], keys[1]: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nowhere/"+keys[2], filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	s := &search{found: map[int][]string{}, buf: make([]byte, fileCap)}
	for _, k := range keys {
		n, err := parseNeedle(hide(k))
		if err != nil {
			t.Fatal(err)
		}
		s.needles = append(s.needles, n)
	}
	s.tree(dir)
	for i, place := range []string{dir + "/a", "name " + dir + "/" + keys[1], "link " + dir + "/l"} {
		if len(s.found[i]) != 1 || s.found[i][0] != place {
			t.Errorf("%s: %q", keys[i], s.found[i])
		}
	}
	if len(s.found[3]) != 0 {
		t.Errorf("found what is not there: %q", s.found[3])
	}
	if _, err := parseNeedle(hide("short")); err == nil {
		t.Error("a needle of five bytes is taken")
	}
}

// TestSearchFindsMemory of a process that holds a key in the clear.
func TestSearchFindsMemory(t *testing.T) {
	key := []byte(strings.Repeat("heap-canary-", 3))
	n, err := parseNeedle(hide(string(key)))
	if err != nil {
		t.Fatal(err)
	}
	s := &search{needles: []needle{n}, found: map[int][]string{}, buf: make([]byte, fileCap)}
	s.process("/proc/self")
	if len(s.found[0]) == 0 || s.memory == 0 || len(key) == 0 {
		t.Errorf("not found in %d bytes", s.memory)
	}
}

func TestAddressesAreSeen(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"ffffffff81000000 T _text\n":       "addresses",
		"0000000000000000 T _text\n":       "no address",
		"00000000-00000000 : System RAM\n": "no address",
		"00001000-0009fbff : System RAM\n": "addresses",
		"\n":                               "no address",
	} {
		f := filepath.Join(dir, "f")
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := addresses(f); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
