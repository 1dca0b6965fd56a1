//go:build linux

// Package boundary tests the shipped program against the real kernel, as
// whoever runs the tests: the suite is run once as root and once as an ordinary
// user.
package boundary

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the confine binary under test.
func program(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("CONFINE_TEST_BINARY"); p != "" {
		return p
	}
	p := filepath.Join(t.TempDir(), "confine")
	cmd := exec.Command("go", "build", "-o", p, "confine/cmd/confine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build confine: %v\n%s", err, out)
	}
	return p
}

// probeResult is what verify says of one probe.
type probeResult struct {
	Name, Group, Expected, Observed, Control string
	Held                                     bool
}

func readProbes(t *testing.T, out []byte) map[string]probeResult {
	t.Helper()
	var report struct{ Probes []probeResult }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %.500s", err, out)
	}
	probes := map[string]probeResult{}
	for _, p := range report.Probes {
		probes[p.Name] = p
	}
	if len(probes) != len(report.Probes) {
		t.Errorf("%d names for %d probes", len(probes), len(report.Probes))
	}
	return probes
}

func TestVerifyHoldsEveryProbe(t *testing.T) {
	out, err := exec.Command(program(t), "verify", "--json").Output()
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	probes := readProbes(t, out)
	if len(probes) < 70 {
		t.Errorf("only %d probes", len(probes))
	}
	for _, p := range probes {
		if !p.Held || p.Expected == "" || p.Observed == "" || p.Control == "" {
			t.Errorf("%+v", p)
		}
	}
}
