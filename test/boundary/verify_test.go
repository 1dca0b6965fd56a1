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

// TestVerifyReport: what an audit asks for, in a file that is never written over
// by accident.
func TestVerifyReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	args := []string{"verify", "--group", "workspace", "--probe", "host-*", "--report", file}
	if out, err := exec.Command(program(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Format  string
		Held    bool
		Program struct{ Version, SHA256 string }
		Host    struct {
			Kernel    string
			Abilities []struct{ Name string }
		}
		Boundary struct{ Version int }
		Weaker   struct{ Allowed []string } `json:"weaker_forms"`
		Probes   []probeResult
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if r.Format != "confine-verify/1" || !r.Held || len(r.Program.SHA256) != 64 || r.Host.Kernel == "" || len(r.Host.Abilities) < 10 || r.Boundary.Version == 0 || len(r.Weaker.Allowed) != 1 {
		t.Errorf("%.600s", data)
	}
	if len(r.Probes) != 1 || r.Probes[0].Name != "host-socket" || r.Probes[0].Control == "" {
		t.Errorf("probes: %+v", r.Probes)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := exec.Command(program(t), args...).Run(); err == nil {
		t.Error("a report was written over another")
	}
	if out, err := exec.Command(program(t), append(args, "--force")...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
