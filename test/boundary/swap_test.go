//go:build linux

package boundary

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/sandbox/sandboxtest"
)

// tree is all of a directory that a stray write, chmod, rename, mount or removal
// would show in.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		text := ""
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = string(content)
		}
		fmt.Fprintf(&b, "%s %o %d %d %d %v %q\n", p, st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSwapsLeadNobodyOut: a program in a workspace exchanges directories and files
// with links that lead out, over a thousand times, while other runs start, mask,
// are reviewed and cleared up in the same directory. Whoever follows a link on the
// way works on the canary: nothing of it is read, covered, changed or removed.
func TestSwapsLeadNobodyOut(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, canary := filepath.Join(base, "work"), filepath.Join(base, "canary")
	// The canary has everything that a run leaves to be taken away or looked at.
	const control = "mkdir -p .git/hooks; echo TOKEN=x >.env; echo plain >f; echo '[core]' >.git/config; echo true >.git/hooks/pre-commit; echo x >.envrc"
	shell(t, base, "mkdir -p work/d work/sub canary; cd canary; "+control+`; echo CANARY >>f; echo CANARY >>.env; mkfifo fifo; cd ..
		ln -s `+canary+` work/out; echo plain >work/d/f; ln -s ../../canary/f work/sub/link; echo own >work/sub/file; echo T=1 >work/sub/.env`)
	// What is protected can't be moved by the run that protects it: in the one
	// that swaps, this directory must have nothing yet.
	inside, err := os.Open(filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	copied := filepath.Join(dir, "swapper")
	text, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, text, 0o755); err != nil {
		t.Fatal(err)
	}
	before := tree(t, canary)

	// Runs that started before, and are reviewed while all is swapped.
	state := []string{"XDG_STATE_HOME=" + filepath.Join(base, "state")}
	type ended struct {
		got, said string
		status    int
	}
	const earlier = 4
	ends, ready := make(chan ended, earlier), filepath.Join(dir, "ready")
	for range earlier {
		go func() {
			var e ended
			e.got, e.said, e.status = confined(t, dir, state, "--live", "--",
				"sh", "-c", `echo >>ready; while ! test -e review; do sleep 0.02; done; cat d/f sub/link out/f 2>/dev/null; mkfifo sub/fifo d/fifo; echo y >d/.envrc; echo y >sub/.envrc; true`)
			ends <- e
		}()
	}
	for tries := 0; ; tries++ {
		if text, _ := os.ReadFile(ready); len(text) >= earlier {
			break
		}
		if tries > 1_000_000 {
			t.Fatal("the earlier runs do not start")
		}
	}
	swapping := exec.Command(program(t), "run", "--live", "--", "/workspace/swapper", sandboxtest.ProgramArgument, "swap", "stop", "d=out", "sub/file=sub/link")
	swapping.Dir = dir
	swapping.Env = append(os.Environ(), state...)
	var out, errs strings.Builder
	swapping.Stdout, swapping.Stderr = &out, &errs
	if err := swapping.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o644); err != nil {
			t.Error(err)
		}
	}
	// The control: whoever follows the names from outside reads the canary. It
	// also says when the swaps have begun.
	strayed := func(tries int) (n int) {
		for range tries {
			if b, err := os.ReadFile(filepath.Join(dir, "d/f")); err == nil && strings.Contains(string(b), "CANARY") {
				n++
			}
		}
		return n
	}
	leadsOut := func() {
		t.Helper()
		for tries := 0; strayed(100) == 0; tries++ {
			if tries > 1000 {
				stop()
				t.Fatalf("nothing is swapped: %s", errs.String())
			}
		}
	}
	leadsOut()
	shell(t, dir, "echo >review")
	for range earlier {
		e := <-ends
		if strings.Contains(e.got+e.said, "CANARY") || e.status != 0 && !strings.Contains(e.said, "confine: error: ") {
			t.Errorf("reviewed under swaps: %+v", e)
		}
	}
	// Starts, in a directory with much to protect.
	populate := exec.Command("/bin/sh", "-ec", "cd /proc/self/fd/3; rm -rf .git fifo .envrc; "+control)
	populate.ExtraFiles = []*os.File{inside}
	if out, err := populate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	statuses := map[int]int{}
	for range 20 {
		got, said, status := confined(t, dir, state, "--live", "--", "sh", "-c", `cat d/f d/.env sub/file sub/link sub/.env out/f out/.env 2>/dev/null; true`)
		if strings.Contains(got+said, "CANARY") {
			t.Errorf("the canary is read: %.300q %.300q", got, said)
		}
		// One that can't say what it would protect does not start.
		if status != 0 && !strings.Contains(said, "confine: error: ") {
			t.Errorf("status %d: %.300q", status, said)
		}
		statuses[status]++
	}
	leadsOut()
	stop()
	if err := swapping.Wait(); err != nil {
		t.Errorf("the one that swaps: %v: %s", err, errs.String())
	}
	swaps := 0
	if _, after, ok := strings.Cut(out.String(), `"what":"swaps","result":"`); ok {
		count, _, _ := strings.Cut(after, `"`)
		swaps, _ = strconv.Atoi(count)
	}
	if swaps < 1000 {
		t.Errorf("only %d swaps: %s", swaps, out.String())
	}
	if after := tree(t, canary); after != before {
		t.Errorf("the canary changed from\n%s to\n%s", before, after)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), base) {
		t.Errorf("a mount is left (%v)", err)
	}
	// At rest, it is a directory like any other.
	shell(t, dir, "find . -name fifo -delete")
	if got, said, status := confined(t, dir, state, "--live", "--", "sh", "-c", "cat sub/.env; cat stop; echo done"); status != 0 || got != "done\n" {
		t.Errorf("at rest: status %d, %q, %s", status, got, said)
	}
	t.Logf("%d swaps, statuses %v", swaps, statuses)
}
