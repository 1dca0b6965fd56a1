package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemoveTakesEverythingAndNothingElse(t *testing.T) {
	base := t.TempDir()
	dir, canary := filepath.Join(base, "ws"), filepath.Join(base, "canary")
	write(t, base, "canary/file", "canary/dir/x")
	write(t, dir, "a/b/c/d/e", "empty/", "link -> "+canary, "a/up -> ../..", "confine-1/x/y", "confine-2", "a/confine-1/z/w", "closed/in/x", "nowrite/in/deep/x")
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"closed/in", "closed"} {
		if err := os.Chmod(filepath.Join(dir, d), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"nowrite/in/deep", "nowrite/in", "nowrite"} {
		if err := os.Chmod(filepath.Join(dir, d), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir); err != nil || exists(dir) {
		t.Errorf("remove: %v", err)
	}
	for _, p := range []string{"file", "dir/x"} {
		if text, err := os.ReadFile(filepath.Join(canary, p)); err != nil || string(text) != "canary/"+p {
			t.Errorf("outside, %q: %q, %v", p, text, err)
		}
	}
	if err := Remove(dir); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	write(t, base, "l -> canary")
	if err := Remove(filepath.Join(base, "l")); err != nil || !exists(canary+"/file") || exists(filepath.Join(base, "l")) {
		t.Errorf("a link: %v", err)
	}
}

// Deeper than there are descriptors, and than a path may be long.
func TestRemoveOfADeepTree(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	dir := filepath.Join(t.TempDir(), "ws")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 40)
	for range 500 {
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
	if err := Remove(dir); err != nil || exists(dir) {
		t.Errorf("remove: %v", err)
	}
}
