//go:build linux

package toolchains

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const pageName = "../../docs/reference/toolchains.md"

// TestPage holds the reference page to the table. With CONFINE_UPDATE set it
// writes the page.
func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- Generated from test/toolchains. Edit the table there instead. -->\n\n# Toolchains\n\n")
	b.WriteString("What runs in the default boundary, unchanged. Each line is a test that starts\n`confine run` on a small real project, with writes live and staged, as root and as an\nordinary user.\n\n")
	b.WriteString("| what | run | staged |\n| --- | --- | --- |\n")
	for _, r := range rows {
		staged := "the same"
		if r.stagedShows != "" {
			staged = r.stagedShows
		}
		if r.liveOnly != "" {
			staged = "not run: " + r.liveOnly
		}
		flags := ""
		if len(r.flags) > 0 {
			flags = " (with `" + strings.Join(r.flags, " ") + "`)"
		}
		fmt.Fprintf(&b, "| %s | %s%s | %s |\n", r.name, r.what, flags, staged)
	}
	if os.Getenv("CONFINE_UPDATE") != "" {
		if err := os.WriteFile(pageName, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(pageName)
	if err != nil || string(page) != b.String() {
		t.Errorf("%s differs from the table (%v): CONFINE_UPDATE=1 go test ./test/toolchains -run TestPage writes it", pageName, err)
	}
}
