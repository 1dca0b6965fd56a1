//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"confine/internal/boundary"
	"confine/internal/kernel"
)

// TestGroups runs with whatever this host grants: as root the whole life of a
// group, as another user the named refusal.
func TestGroups(t *testing.T) {
	h, err := Discover()
	if err != nil {
		var m *kernel.MissingError
		if !errors.As(err, &m) || m.Fix == "" || os.Geteuid() == 0 {
			t.Fatalf("discover: %v", err)
		}
		return
	}
	g, err := h.Make("t", boundary.Limits{Memory: 64 << 20, Pids: 5, MilliCPU: 500})
	if err != nil {
		t.Fatal(err)
	}
	dirs := g.dirs
	for _, d := range dirs {
		if _, err := os.Stat(d); err != nil {
			t.Error(err)
		}
	}
	if g.OOMKills() != 0 || g.PidsHit() != 0 {
		t.Error("a new group has counted something")
	}
	// A live maker's group stays, a dead one's goes.
	dead := filepath.Join(filepath.Dir(g.dir("pids")), "confine-a-b-"+deadMaker(h.maker)+"-1")
	if err := os.Mkdir(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	h.sweep()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("a dead maker's group: %v", err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	for _, d := range dirs {
		if _, err := os.Stat(d); !os.IsNotExist(err) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// deadMaker is this process's name with another start time.
func deadMaker(m string) string { return m + "9" }
