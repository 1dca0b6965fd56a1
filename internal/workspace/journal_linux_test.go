package workspace

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// TestRecordKeepsWhatAReviewCompares, names that are no text included.
func TestRecordKeepsWhatAReviewCompares(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	write(t, dir, slices.Concat(repo(".git"), []string{".envrc", "odd\xff/.envrc", "out\xfe -> /etc", ".env", "package.json"})...)
	l := live(t, dir)
	if err := l.Record(state); err != nil {
		t.Fatal(err)
	}
	same, alive, err := openJournal(l.journalName)
	if err != nil || !alive || same.Dir != l.Dir {
		t.Errorf("a living run's record: %+v %v %v", same, alive, err)
	}
	// The process is gone: its lock with it.
	l.journal.Close()
	dead, alive, err := openJournal(l.journalName)
	if err != nil || alive || dead == nil {
		t.Fatalf("a dead run's record: %+v %v %v", dead, alive, err)
	}
	defer dead.journal.Close()
	got := dead.saved.scan(nil)
	if !reflect.DeepEqual(got.gitDirs, l.before.gitDirs) || !reflect.DeepEqual(got.linkOut, l.before.linkOut) || len(got.controls) != len(l.before.controls) {
		t.Errorf("%+v\nwant %+v", got, l.before)
	}
	for rel, c := range l.before.controls {
		if !got.controls[rel].stamp.same(c.stamp) || got.controls[rel].stamp != c.stamp {
			t.Errorf("%q: %+v, want %+v", rel, got.controls[rel].stamp, c.stamp)
		}
	}
	if len(got.masked) != 1 || got.masked[0].rel != ".env" || dead.start.Sub(l.start) != 0 {
		t.Errorf("masked %+v, start %v", got.masked, dead.start)
	}
}

// TestReconcileForgetsADirectoryThatIsGone and one that another has the name of.
func TestReconcileForgetsADirectoryThatIsGone(t *testing.T) {
	for name, after := range map[string]func(dir string) error{
		"gone":     os.RemoveAll,
		"replaced": func(dir string) error { return os.Rename(filepath.Join(filepath.Dir(dir), "other"), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			base, state := t.TempDir(), t.TempDir()
			dir := filepath.Join(base, "w")
			write(t, base, "w/a", "other/.envrc")
			l := live(t, dir)
			if err := l.Record(state); err != nil {
				t.Fatal(err)
			}
			l.journal.Close()
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := after(dir); err != nil {
				t.Fatal(err)
			}
			found, err := Reconcile(state, ReviewOptions{HeldDir: filepath.Join(t.TempDir(), "held")})
			if err != nil || len(found) != 1 || len(found[0].Findings) != 0 || found[0].Err != nil {
				t.Errorf("%+v %v", found, err)
			}
			if left, _ := os.ReadDir(filepath.Join(state, journalDir)); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}
