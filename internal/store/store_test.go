package store

import (
	"testing"
)

func TestInterruptedFindsDeadRunsOnly(t *testing.T) {
	runs, err := OpenRuns(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	alive, err := runs.Create("1-alive")
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	dead, err := runs.Create("2-dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Save(map[string]string{"state": "running"}); err != nil {
		t.Fatal(err)
	}
	dead.Close()
	if _, err := runs.Create("1-alive"); err == nil {
		t.Error("the same run was created twice")
	}
	var seen []string
	if err := runs.Interrupted(func(r *Run) error {
		seen = append(seen, r.ID)
		return r.Save(map[string]string{"state": "interrupted"})
	}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[0] != "2-dead" {
		t.Errorf("interrupted: %v", seen)
	}
	var rec map[string]string
	if err := runs.Load("2-dead", &rec); err != nil || rec["state"] != "interrupted" {
		t.Errorf("%v %v", rec, err)
	}
	for _, bad := range []string{"", "../x", ".hidden", "a/b"} {
		if err := runs.Load(bad, &rec); err == nil {
			t.Errorf("id %q was accepted", bad)
		}
	}
}
