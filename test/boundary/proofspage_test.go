//go:build linux

package boundary

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const proofsPage = "../../docs/reference/proofs.md"

// TestProofsPage holds the reference of the proofs to what there is: every probe,
// and the layers without which TestVerifySeesEachLayerThatIsLeftOut saw it fail.
// With CONFINE_UPDATE set it writes the page.
func TestProofsPage(t *testing.T) {
	out, err := exec.Command(program(t), "verify", "--list", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Probes []struct{ Name, Group, Expected string }
	}
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	without := map[string][]string{}
	for _, w := range weakenings {
		for _, p := range w.probes {
			without[p] = append(without[p], "`"+w.name+"`")
		}
	}
	var b strings.Builder
	b.WriteString("<!-- Generated from test/boundary. Edit the probes and the table there instead. -->\n\n# Proofs\n\n")
	b.WriteString(`The probes of ` + "`confine verify`" + `: each is an attempt inside a real sandbox, with a control that
works without the layer and a neighbouring action that still works.

The last column names layers that a test build can leave out, one at a time, and whose
lack the probe was seen to notice. ` + "`call:NAME`" + ` is one system call let through. The program
that is shipped has no such switch. A dash means that no single switch opens it: what is
tried is not in the view at all, or is held by several layers at once.
`)
	group, seen, dashes := "", map[string]bool{}, 0
	for _, p := range list.Probes {
		if p.Group != group {
			group = p.Group
			fmt.Fprintf(&b, "\n## %s\n\n| probe | holds when | fails without |\n| --- | --- | --- |\n", group)
		}
		layers := strings.Join(without[p.Name], " ")
		if layers == "" {
			layers = "–"
			dashes++
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.Name, p.Expected, layers)
		seen[p.Name] = true
	}
	for p := range without {
		if !seen[p] {
			t.Errorf("no probe is called %q", p)
		}
	}
	fmt.Fprintf(&b, "\n%d probes, %d of them seen to fail with one layer left out; %d layers and calls.\n", len(list.Probes), len(list.Probes)-dashes, len(weakenings))
	if os.Getenv("CONFINE_UPDATE") != "" {
		if err := os.WriteFile(proofsPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(proofsPage)
	if err != nil || string(page) != b.String() {
		t.Errorf("%s differs from the probes (%v): CONFINE_UPDATE=1 go test ./test/boundary -run TestProofsPage writes it", proofsPage, err)
	}
}
