package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nest makes directories in each other and returns the deepest, open.
func nest(t *testing.T, dir, name string, levels int) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range levels {
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	return fd
}

func at(t *testing.T, fd int, name, text string) {
	t.Helper()
	out, err := unix.Openat(fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err == nil {
		_, err = unix.Write(out, []byte(text))
		unix.Close(out)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// 3000 directories in each other, some with another beside them: the path is half
// again as long as the kernel takes. test/boundary has more.
func TestReviewSeesTheEndOfADeepTree(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { _ = Remove(filepath.Join(dir, "d")) })
	write(t, dir, repo(".git")...)
	before := openDescriptors(t)
	const levels = 3000
	r, _ := reviewAfter(t, dir, func() {
		end := nest(t, dir, "d", levels)
		defer unix.Close(end)
		at(t, end, ".envrc", "evil")
		if err := errors.Join(unix.Mkfifoat(end, "fifo", 0o600), unix.Symlinkat("/etc/shadow", end, "link"), unix.Mkdirat(end, ".git", 0o755), unix.Mkdirat(end, ".git/refs", 0o755)); err != nil {
			t.Fatal(err)
		}
		at(t, end, ".git/config", "evil")
		// Something beside each of some levels, so that many wait.
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		for range levels / 2 {
			if err == nil {
				err = unix.Mkdirat(fd, "e", 0o755)
			}
			next, openErr := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			unix.Close(fd)
			if err = errors.Join(err, openErr); err != nil {
				t.Fatal(err)
			}
			fd = next
		}
		unix.Close(fd)
	})
	deep := strings.Repeat("d/", levels)
	var got []string
	for _, f := range r.Findings {
		name, ok := strings.CutPrefix(f.Path, deep)
		if !ok {
			t.Errorf("found %.100q", f.Path)
		}
		got = append(got, string(f.Kind)+" "+name)
		if f.Kind == KindSpecial && f.HeldAt == "" {
			t.Error("the FIFO was not taken away")
		}
	}
	slices.Sort(got)
	expect(t, got, "shell environment .envrc", "socket, FIFO or device fifo", "link out of the tree link", "new repository .git")
	var refused *DirError
	if _, err := Live(Options{Dir: dir}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "too long for a mount") {
		t.Errorf("a repository that can't be protected: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "d/d"), filepath.Join(dir, "kept")); err != nil {
		t.Fatal(err)
	}
	fd := nest(t, dir, "p", levels-500) // without anything to protect it is no hindrance
	unix.Close(fd)
	t.Cleanup(func() { _, _ = Remove(filepath.Join(dir, "kept")), Remove(filepath.Join(dir, "p")) })
	l, err := Live(Options{Dir: dir, Masks: []string{"./kept"}})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	// reviewAfter's own and its repository, both locked, are open until the end of the
	// test.
	if after := openDescriptors(t); after > before+2 {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// A walk that ends early lets go of what it holds too.
func TestWalkThatGivesUpLeavesNoDescriptor(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { _ = Remove(filepath.Join(dir, "d")) })
	unix.Close(nest(t, dir, "d", 3000))
	before := openDescriptors(t)
	for _, most := range []int{100, 1500, 2500, 2999} {
		var refused *LimitError
		if _, err := Live(Options{Dir: dir, MaxEntries: most}); !errors.As(err, &refused) {
			t.Errorf("%d: %v", most, err)
		}
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// Each directory is visited once, with its path, and few are open at once.
func TestWalkVisitsEachDirectoryOnceWithFewOpen(t *testing.T) {
	dir := t.TempDir()
	want := map[string]bool{"": true}
	name := strings.Repeat("n", 200)
	var rel string
	t.Cleanup(func() { _ = Remove(filepath.Join(dir, name)) })
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range 100 {
		for i := range 5 {
			if err == nil {
				err = unix.Mkdirat(fd, strconv.Itoa(i), 0o755)
			}
			want[join(rel, strconv.Itoa(i))] = true
		}
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		next, openErr := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err = errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
		fd, rel = next, join(rel, name)
		want[rel] = true
	}
	unix.Close(fd)
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	before, most := openDescriptors(t), 0
	s := newScan(root, dir, masks{})
	w := &walk{root: root, maxEntries: 10_000, closed: func(rel string, err error) error { return err }, visit: func(d *directory) (map[string]bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !want[d.rel] {
			t.Errorf("%.50q was not made, or visited twice", d.rel)
		}
		delete(want, d.rel)
		list, err := os.ReadDir("/proc/self/fd")
		most = max(most, len(list)-before)
		return nil, err
	}}
	if err := w.run(); err != nil || len(want) > 0 {
		t.Errorf("%v, %d were not visited", err, len(want))
	}
	// 20 kB of path: ten bases for each of at most eight goroutines.
	if most > 90 || most < 2 {
		t.Errorf("%d descriptors were open at once", most)
	}
}

func TestReviewTakesSpecialFilesAway(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, append(repo(".git"), "sub/", "closed/", "old")...)
	fifo := func(name string) {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, got := reviewAfter(t, dir, func() {
		fifo("a")
		fifo(".envrc") // a control file too, named once
		fifo(".git/objects/pack/x")
		fifo("closed/b")
		if err := unix.Mknod(filepath.Join(dir, "sub/sock"), unix.S_IFSOCK|0o600, 0); err != nil {
			t.Fatal(err)
		}
		// The only device that a process without rights can make.
		if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "old"), unix.AT_FDCWD, filepath.Join(dir, "new"), unix.RENAME_WHITEOUT); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "closed"), 0o500); err != nil {
			t.Fatal(err)
		}
	})
	const k = string(KindSpecial)
	expect(t, got, k+" a new", k+" .envrc new", k+" .git/objects/pack/x new", k+" closed/b new", k+" sub/sock new", k+" old new")
	for _, f := range r.Findings {
		if _, err := os.Lstat(filepath.Join(dir, f.Path)); !os.IsNotExist(err) {
			t.Errorf("%q is still there: %v", f.Path, err)
		}
		if _, err := os.Lstat(f.HeldAt); err != nil {
			t.Errorf("%q is not held: %v", f.Path, err)
		}
		if f.Path == "old" && f.Detail != "character device 0:0" {
			t.Errorf("the whiteout is called %q", f.Detail)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "closed")); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("the directory's mode is %v, %v", info, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(text) != "old" {
		t.Errorf("the neighbour holds %q, %v", text, err)
	}
	l, err := Live(Options{Dir: dir})
	if err != nil {
		t.Fatalf("the next start: %v", err)
	}
	l.Close()
}

// Where they can't be moved to, they are removed: they hold nothing.
func TestSpecialFilesThatCantBeMovedAreRemoved(t *testing.T) {
	dir, other := t.TempDir(), "/dev/shm"
	held, err := os.MkdirTemp(other, "confine-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(held) })
	write(t, dir, "x")
	l := live(t, dir)
	if err := unix.Mkfifo(filepath.Join(dir, "a"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := l.Review(ReviewOptions{HeldDir: held})
	if err != nil || len(r.Findings) != 1 || r.Findings[0].HeldAt != "" || r.Findings[0].Detail != "FIFO, removed" {
		t.Errorf("found %v, %v", r.Findings, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
