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
	kept, err := runs.Interrupted(func(r *Run) (bool, error) {
		seen = append(seen, r.ID)
		return true, r.Save(map[string]string{"state": "interrupted"})
	})
	if err != nil || len(kept) != 1 || kept[0].ID != "2-dead" {
		t.Fatalf("%v: kept %v", err, kept)
	}
	// What is kept is locked, until it is let go of.
	count := func() (n int) {
		if _, err := runs.Interrupted(func(*Run) (bool, error) { n++; return false, nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 0 {
		t.Errorf("%d runs are free", n)
	}
	kept[0].Close()
	if n := count(); n != 1 {
		t.Errorf("%d runs are free", n)
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
