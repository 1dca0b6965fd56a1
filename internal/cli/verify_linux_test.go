package cli

import (
	"slices"
	"testing"

	"confine/internal/sandbox/sandboxtest"
)

// TestProbeGroups: the groups that --group names and offers are those there are.
func TestProbeGroups(t *testing.T) {
	var found []string
	for _, p := range append(sandboxtest.Probes(), workspaceProbes()...) {
		if !slices.Contains(found, p.Group) {
			found = append(found, p.Group)
		}
	}
	slices.Sort(found)
	want := slices.Sorted(slices.Values(probeGroups))
	if !slices.Equal(found, want) {
		t.Errorf("probes come in %q, the command knows %q", found, want)
	}
}
