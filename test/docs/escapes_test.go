package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEscapesNameWhatExists: what the page of published escapes says holds is a
// probe or a test that is there.
func TestEscapesNameWhatExists(t *testing.T) {
	out, err := exec.Command(program(t), "verify", "--list", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Probes []struct{ Name string } }
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, p := range list.Probes {
		known[p.Name] = true
	}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/escapes.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			if named++; !known[m[1]] {
				t.Errorf("%q is no probe and no test", m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d names", named)
	}
}
