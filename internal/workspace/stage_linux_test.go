package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stageOf stages a directory and returns where an overlay would put what is
// written: the tests write what one leaves there, in its own marks.
func stageOf(t *testing.T, dir, state string, release ...string) (*LiveWorkspace, *Stage, string) {
	t.Helper()
	l, err := Live(Options{Dir: dir, StateDir: state, Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s, err := l.Stage(StageOptions{StateDir: state, Release: release, HostUID: uint32(os.Geteuid()), HostGID: uint32(os.Getegid())})
	if err != nil {
		t.Fatal(err)
	}
	return l, s, filepath.Join(s.scratch.Dir, "0/upper")
}

// deleted is the mark of a deletion.
func deleted(t *testing.T, upper string, names ...string) {
	t.Helper()
	for _, n := range names {
		write(t, upper, filepath.Dir(n)+"/")
		if err := unix.Mknod(filepath.Join(upper, n), unix.S_IFCHR, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func mark(t *testing.T, name, attribute, value string) {
	t.Helper()
	if err := unix.Setxattr(name, attribute, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// tree is all of a directory as text: names, kinds, rights and content.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	err := filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		line := fmt.Sprintf("%q %v", rel, info.Mode())
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %.60q", data)
		case info.Mode()&os.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			line += " -> " + to
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// sample is a directory, and fill what a run writes to it: every kind of change.
func sample(t *testing.T) (dir, state string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, state = filepath.Join(top, "w"), filepath.Join(top, "state")
	write(t, dir, "kept", "gone", "changed", "dir/a", "dir/b", "same", "link -> kept", "tree/x/y", "opaque/old", "closed/in", "was/f", "kind", ".env", "sub/.env", "sub/f")
	for name, mode := range map[string]os.FileMode{"closed": 0o555, "dir": 0o755} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = Remove(dir), Remove(state) })
	return dir, state
}

func fill(t *testing.T, dir, upper string) {
	t.Helper()
	put(t, upper, "changed", "changed by the run")
	put(t, upper, "new", "new")
	write(t, upper, "fresh/deep/file", "fresh/link -> ../kept", "dir/c")
	deleted(t, upper, "gone", "dir/b", "tree", "closed/in", "sub/f")
	write(t, upper, "opaque/new")
	mark(t, filepath.Join(upper, "opaque"), "user.overlay.opaque", "y")
	mark(t, filepath.Join(upper, "changed"), "user.overlay.origin", "")
	put(t, upper, "closed/out", "out")
	if err := os.Symlink("new", filepath.Join(upper, "link")); err != nil {
		t.Fatal(err)
	}
	put(t, upper, "was", "a file now")
	write(t, upper, "kind/now/a/directory")
	for name, mode := range map[string]os.FileMode{"closed": 0o511, "dir": 0o750, "fresh/deep": 0o500} {
		if err := os.Chmod(filepath.Join(upper, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	// A file that was opened for writing, and nothing else.
	from, err := os.ReadFile(filepath.Join(dir, "same"))
	if err == nil {
		put(t, upper, "same", string(from))
	}
	info, statErr := os.Stat(filepath.Join(dir, "same"))
	if err := errors.Join(err, statErr); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(upper, "same"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

const afterSample = `"." drwxr-xr-x
".env" -rw-r--r-- ".env"
"changed" -rw-r--r-- "changed by the run"
"closed" dr-x--x--x
"closed/out" -rw-r--r-- "out"
"dir" drwxr-x---
"dir/a" -rw-r--r-- "dir/a"
"dir/c" -rw-r--r-- "dir/c"
"fresh" drwxr-xr-x
"fresh/deep" dr-x------
"fresh/deep/file" -rw-r--r-- "fresh/deep/file"
"fresh/link" Lrwxrwxrwx -> ../kept
"kept" -rw-r--r-- "kept"
"kind" drwxr-xr-x
"kind/now" drwxr-xr-x
"kind/now/a" drwxr-xr-x
"kind/now/a/directory" -rw-r--r-- "kind/now/a/directory"
"link" Lrwxrwxrwx -> new
"new" -rw-r--r-- "new"
"opaque" drwxr-xr-x
"opaque/new" -rw-r--r-- "opaque/new"
"same" -rw-r--r-- "same"
"sub" drwxr-xr-x
"sub/.env" -rw-r--r-- "sub/.env"
"was" -rw-r--r-- "a file now"`

func kinds(changes []Change) map[string]ChangeKind {
	out := map[string]ChangeKind{}
	for _, c := range changes {
		out[c.Path] = c.Kind
	}
	return out
}

func nothingLeft(t *testing.T, state string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(state, stagedDirName))
	if err != nil || len(left) != 0 {
		t.Errorf("left of stages: %v, %v", left, err)
	}
}

func TestCommitBringsAllKindsOfChangesAndUndoTakesThemBack(t *testing.T) {
	dir, state := sample(t)
	before := tree(t, dir)
	_, s, upper := stageOf(t, dir, state)
	fill(t, dir, upper)
	if now := tree(t, dir); now != before {
		t.Fatalf("changed before the commit:\n%s", now)
	}
	done, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if now := tree(t, dir); now != afterSample {
		t.Errorf("committed:\n%s", now)
	}
	want := map[string]ChangeKind{
		"changed": ChangeChanged, "new": ChangeNew, "fresh": ChangeNew, "dir/c": ChangeNew, "gone": ChangeDeleted, "dir/b": ChangeDeleted, "tree": ChangeDeleted,
		"closed/in": ChangeDeleted, "closed/out": ChangeNew, "sub/f": ChangeDeleted, "opaque": ChangeChanged, "link": ChangeChanged, "was": ChangeChanged, "kind": ChangeChanged,
		"dir": ChangeMode, "closed": ChangeMode,
	}
	if got := kinds(done.Changes); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("changes: %v\nwant %v", got, want)
	}
	nothingLeft(t, state)
	s.l.Close()

	undone, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash})
	if err != nil {
		t.Fatal(err)
	}
	if now := tree(t, dir); now != before {
		t.Errorf("taken back:\n%s\nwant\n%s", now, before)
	}
	nothingLeft(t, state)
	var spent *SpentError
	if _, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash}); !errors.As(err, &spent) {
		t.Errorf("taken back twice: %v", err)
	}
	if _, err := RestoreTrash(TrashOptions{StateDir: state, ID: undone.Trash}); err != nil {
		t.Fatal(err)
	}
	if now := tree(t, dir); now != afterSample {
		t.Errorf("the undo undone:\n%s", now)
	}
}

func TestCommitOnAnotherFileSystemThanTheTrash(t *testing.T) {
	dir, _ := sample(t)
	state, err := os.MkdirTemp("/dev/shm", "confine-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Remove(state) })
	var a, b unix.Stat_t
	if unix.Stat(dir, &a) != nil || unix.Stat(state, &b) != nil || a.Dev == b.Dev {
		// Then what is under test is the case that is tested elsewhere.
		t.Log("temporary files and /dev/shm are on one file system here")
	}
	before := tree(t, dir)
	_, s, upper := stageOf(t, dir, state)
	fill(t, dir, upper)
	done, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if now := tree(t, dir); now != afterSample {
		t.Errorf("committed:\n%s", now)
	}
	nothingLeft(t, state)
	s.l.Close()
	if _, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash}); err != nil {
		t.Fatal(err)
	}
	if now := tree(t, dir); now != before {
		t.Errorf("taken back:\n%s\nwant\n%s", now, before)
	}
}

func TestStagedHoldsBackWhatTheHostWouldRun(t *testing.T) {
	for _, release := range [][]string{nil, {".vscode", "AGENTS.md", ".env.local", "out"}} {
		dir, state := sample(t)
		put(t, dir, "package.json", `{"scripts":{"test":"true"}}`)
		write(t, dir, repo(".git")...)
		_, s, upper := stageOf(t, dir, state, release...)
		put(t, upper, "package.json", `{"scripts":{"postinstall":"evil"}}`)
		write(t, upper, ".vscode/tasks.json", "AGENTS.md", "code.go", ".env.local", "out -> ../../etc/passwd", "sub/in -> ../kept", ".git/refs/heads/x", "vendor/.git/HEAD", "vendor/.git/config", "vendor/code.go")
		// One half of a repository's directory is there already.
		write(t, dir, "half/objects/", "half/refs/")
		write(t, upper, "half/HEAD", "half/config")
		if err := unix.Mkfifo(filepath.Join(upper, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		done, err := s.Commit()
		if err != nil {
			t.Fatal(err)
		}
		got := kinds(done.Changes)
		for name, held := range map[string]bool{
			"package.json": true, ".vscode/tasks.json": release == nil, "AGENTS.md": release == nil, "out": release == nil, ".env.local": true, "pipe": true, "vendor/.git": true, "half/HEAD": true, "half/config": true,
			"code.go": false, "sub/in": false, ".git/refs/heads/x": false, "vendor": false, ".vscode": false,
		} {
			if (got[name] == ChangeHeld) != held {
				t.Errorf("released %v: %q is %q, held back: want %v", release, name, got[name], held)
			}
			_, err := os.Lstat(filepath.Join(dir, name))
			if name != "package.json" && (err != nil) != held {
				t.Errorf("released %v: %q: %v, held back: %v", release, name, err, held)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, "vendor/code.go")); err != nil {
			t.Errorf("beside what was held back: %v", err)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "package.json")); strings.Contains(string(text), "evil") {
			t.Error("the scripts came in")
		}
		s.l.Close()
		if release != nil {
			continue
		}
		// To name it is to let it in; what a mask would cover never.
		if _, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash, Paths: []string{"AGENTS.md", "vendor/.git"}}); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "AGENTS.md")); err != nil || string(text) != "AGENTS.md" {
			t.Errorf("restored: %q, %v", text, err)
		}
		if _, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash, Paths: []string{".env.local"}}); err == nil || !strings.Contains(err.Error(), "never restored") {
			t.Errorf("a masked name: %v", err)
		}
	}
}

func TestCommitKeepsWhatWasChangedOutsideMeanwhile(t *testing.T) {
	dir, state := sample(t)
	_, s, upper := stageOf(t, dir, state)
	// Until the clock of the file system has moved on.
	for at := s.since; !s.since.before(at); {
		var err error
		if at, err = timeAt(state); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, "changed", "by a person")
	put(t, dir, "tree/x/z", "by a person")
	put(t, dir, "both", "by a person")
	put(t, upper, "changed", "by the run")
	put(t, upper, "both", "by the run")
	put(t, upper, "kept", "by the run")
	deleted(t, upper, "tree", "gone")
	done, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]ChangeKind{"changed": ChangeHeld, "tree": ChangeHeld, "both": ChangeHeld, "kept": ChangeChanged, "gone": ChangeDeleted}
	if got := kinds(done.Changes); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("changes: %v\nwant %v", got, want)
	}
	for name, text := range map[string]string{"changed": "by a person", "tree/x/z": "by a person", "both": "by a person", "kept": "by the run"} {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != text {
			t.Errorf("%q is %q", name, got)
		}
	}
}

func TestMarksThatAreNotKnownEndTheCommit(t *testing.T) {
	for attribute, value := range map[string]string{
		"user.overlay.redirect": "/etc", "user.overlay.metacopy": "", "user.overlay.whiteout": "y", "user.overlay.opaque": "x", "user.overlay.new": "1",
	} {
		dir, state := sample(t)
		before := tree(t, dir)
		_, s, upper := stageOf(t, dir, state)
		put(t, upper, "changed", "x")
		write(t, upper, "dir/")
		mark(t, filepath.Join(upper, "dir"), attribute, value)
		var kept *KeptError
		if _, err := s.Commit(); !errors.As(err, &kept) || !errors.Is(err, errMark) {
			t.Errorf("%s: %v", attribute, err)
			continue
		}
		if now := tree(t, dir); now != before {
			t.Errorf("%s: changed:\n%s", attribute, now)
		}
		if text, err := os.ReadFile(filepath.Join(kept.Dir, "0/upper/changed")); string(text) != "x" {
			t.Errorf("%s: the work is not kept: %v", attribute, err)
		}
		// The next start must not take it for a killed run's.
		if e := reconcileStages(state, nil); len(e) != 0 {
			t.Errorf("%s: reconciled %v", attribute, e)
		}
	}
	// The same without an unknown mark, and with one that the run set itself.
	dir, state := sample(t)
	_, s, upper := stageOf(t, dir, state)
	put(t, upper, "changed", "x")
	mark(t, filepath.Join(upper, "changed"), "user.overlay.overlay.redirect", "/etc")
	if _, err := s.Commit(); err != nil {
		t.Error(err)
	}
	if n, _ := unix.Listxattr(filepath.Join(dir, "changed"), nil); n != 0 {
		t.Errorf("attributes came along: %d bytes", n)
	}
}

func TestMaskedChildrenStay(t *testing.T) {
	dir, state := sample(t)
	_, s, upper := stageOf(t, dir, state)
	// No overlay would leave this, as a mask keeps its directory.
	deleted(t, upper, "sub")
	deleted(t, upper, "gone")
	done, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if got := kinds(done.Changes); got["sub"] != ChangeHeld || got["gone"] != ChangeDeleted {
		t.Errorf("changes: %v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub/.env")); err != nil {
		t.Error(err)
	}
}

func TestUndoStopsAtWhatWasChangedSince(t *testing.T) {
	dir, state := sample(t)
	_, s, upper := stageOf(t, dir, state)
	put(t, upper, "changed", "by the run")
	put(t, upper, "new", "new")
	deleted(t, upper, "gone")
	done, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	s.l.Close()
	put(t, dir, "changed", "by a person, later")
	var since *ChangedSinceError
	if _, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash}); !errors.As(err, &since) || !slices.Equal(since.Paths, []string{"changed"}) {
		t.Fatalf("undo: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "gone")); err == nil {
		t.Error("a part of it was done")
	}
	dry, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash, Force: true, DryRun: true})
	if err != nil || len(dry.Changes) != 3 || dry.Trash != "" {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	forced, err := RestoreTrash(TrashOptions{StateDir: state, ID: done.Trash, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	e, err := ReadTrash(state, forced.Trash)
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range e.Items {
		if string(item.Path) == "changed" {
			if text, _ := os.ReadFile(e.Dir(state, i)); string(text) != "by a person, later" {
				t.Errorf("what was there is lost: %q", text)
			}
		}
	}
}

func TestTrashIsPurgedByAge(t *testing.T) {
	dir, state := sample(t)
	_, s, upper := stageOf(t, dir, state)
	deleted(t, upper, "gone")
	done, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := PurgeTrash(state, TrashAge); err != nil || len(gone) != 0 {
		t.Errorf("a new entry: %v, %v", gone, err)
	}
	old := newTrashID(time.Now().Add(-TrashAge - time.Hour))
	if err := os.Rename(filepath.Join(state, trashDirName, done.Trash), filepath.Join(state, trashDirName, old)); err != nil {
		t.Fatal(err)
	}
	if gone, err := PurgeTrash(state, TrashAge); err != nil || !slices.Equal(gone, []string{old}) {
		t.Errorf("an old entry: %v, %v", gone, err)
	}
	for _, id := range []string{"../../etc", "", "x", done.Trash} {
		var unknown *UnknownEntryError
		if err := DeleteTrash(state, id); !errors.As(err, &unknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestStateDirectoryBehindALink(t *testing.T) {
	dir, state := sample(t)
	link := state + "-link"
	if err := errors.Join(os.Mkdir(state, 0o700), os.Symlink(state, link)); err != nil {
		t.Fatal(err)
	}
	_, s, upper := stageOf(t, dir, link)
	deleted(t, upper, "gone")
	done, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	s.l.Close()
	if _, err := RestoreTrash(TrashOptions{StateDir: link, ID: done.Trash}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "gone")); err != nil {
		t.Error(err)
	}
}

func TestStagedRunsQueue(t *testing.T) {
	dir, state := sample(t)
	first, s, upper := stageOf(t, dir, state)
	put(t, upper, "changed", "1")
	waits, got := make(chan bool, 1), make(chan error, 1)
	go func() {
		l, err := Live(Options{Dir: dir, StateDir: state, Exclusive: true, Waiting: func() { waits <- true }})
		if err == nil {
			text, _ := os.ReadFile(filepath.Join(dir, "changed"))
			if string(text) != "1" {
				err = fmt.Errorf("it sees %q", text)
			}
			l.Close()
		}
		got <- err
	}()
	<-waits
	cancel := make(chan struct{})
	close(cancel)
	if _, err := Live(Options{Dir: dir, Cancel: cancel}); !errors.Is(err, errCancelled) {
		t.Errorf("a live run beside it: %v", err)
	}
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
	// Live ones share it.
	a, err := Live(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Live(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
}
