package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"confine/internal/workspace"
)

// A run that leaves a thousand of one kind does not hide the one of another.
func TestManyFindingsOfOneKindHideNoOther(t *testing.T) {
	var list []workspace.Finding
	for i := range 1000 {
		list = append(list, workspace.Finding{Kind: workspace.KindEditor, Path: fmt.Sprintf("d%d/.exrc", i), Change: "new"})
	}
	list = append(list, workspace.Finding{Kind: workspace.KindShell, Path: ".envrc", Change: "new"})
	var out bytes.Buffer
	state := t.TempDir()
	f := &frame{Process: Process{Stderr: &out, Env: []string{"XDG_STATE_HOME=" + state}}}
	printFindings(f, list)
	if n := strings.Count(out.String(), "\n"); n != maxShown+3 {
		t.Errorf("%d lines: %s", n, out.String())
	}
	for _, want := range []string{`".envrc"`, "editor settings: 980 more", "the whole list is in"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
	files, _ := filepath.Glob(filepath.Join(state, "confine/held/*/review.json"))
	if len(files) != 1 {
		t.Fatalf("kept in %q", files)
	}
	data, err := os.ReadFile(files[0])
	var kept []workspace.Finding
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil || len(kept) != len(list) {
		t.Errorf("%d were kept, %v", len(kept), err)
	}
	out.Reset()
	printFindings(f, list[:maxShown])
	if n := strings.Count(out.String(), "\n"); n != maxShown {
		t.Errorf("%d lines for %d findings", n, maxShown)
	}
}
