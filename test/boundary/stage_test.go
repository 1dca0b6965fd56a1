//go:build linux

package boundary

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// ownState gives a test a state directory of its own.
func ownState(t *testing.T) (state string, env []string) {
	t.Helper()
	state = t.TempDir()
	return filepath.Join(state, "confine"), []string{"XDG_STATE_HOME=" + state}
}

// confine runs any other command of the program.
func confine(t *testing.T, dir string, env []string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(program(t), args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// TestStagedWritesAreRealOnlyAtTheEnd: until the command has ended the directory is
// as it was, then it is as a live run would have left it; an undo takes all back.
func TestStagedWritesAreRealOnlyAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	_, env := ownState(t)
	const before = `git init -q -b main . && mkdir -p d/e && echo a >a && echo b >b && echo c >d/e/c && git add . && git commit -qm i && echo SECRET=1 >.env`
	const script = `echo new >n; echo more >>a; rm b; mv d moved; mkdir d; git add -A . && git commit -qm two; test ! -s .env`
	shell(t, dir, before)
	cmd := exec.Command(program(t), "run", "--stage", "--", "sh", "-c", script+"; echo done; read x")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "done\n" {
		t.Fatalf("%q, %v", line, err)
	}
	const look = `git log --format=%s; git status --short; cat a; ls; cat d/e/c moved/e/c 2>/dev/null || true`
	if text := shell(t, dir, look); text != "i\n?? .env\na\na\nb\nd\nc\n" {
		t.Errorf("while it runs the host has %q", text)
	}
	in.Close()
	_ = cmd.Wait()
	if text := shell(t, dir, look); text != "two\ni\n?? .env\na\nmore\na\nd\nmoved\nn\nc\n" {
		t.Errorf("then the host has %q", text)
	}
	if text := shell(t, dir, "git fsck --strict 2>&1; find . ! -user $(id -u) | head"); text != "" {
		t.Errorf("afterwards: %s", text)
	}
	if text, status := confine(t, dir, env, "undo"); status != 0 {
		t.Fatalf("undo: %d %s", status, text)
	}
	if text := shell(t, dir, look); text != "i\n?? .env\na\na\nb\nd\nc\n" {
		t.Errorf("after the undo the host has %q", text)
	}
	// Live is the control: the same script, and the same outcome.
	if _, errs, status := confined(t, dir, env, "--live", "--", "sh", "-c", script); status != 0 {
		t.Fatalf("live: %d %s", status, errs)
	}
	if text := shell(t, dir, look); text != "two\ni\n?? .env\na\nmore\na\nd\nmoved\nn\nc\n" {
		t.Errorf("live the host has %q", text)
	}
}

// TestStagedControlFilesAndMasks: what is read-only or masked live is so staged,
// whatever way a run tries; what it makes that a host tool would obey is not let
// in.
func TestStagedControlFilesAndMasks(t *testing.T) {
	dir := t.TempDir()
	_, env := ownState(t)
	shell(t, dir, `git init -q -b main . && echo a >a && git add a && git commit -qm i && echo SECRET=1 >.env && git init -q vendor/sub`)
	want := shell(t, dir, "cat .env .git/config; ls -A .git/hooks vendor/sub/.git/hooks")
	for _, c := range []struct {
		script string
		works  bool
	}{
		{"git config core.fsmonitor id", false},
		{"echo x >>.git/config", false},
		{"mv .git g", false},
		{"echo x >.git/hooks/pre-commit", false},
		{"mv vendor/sub/.git vendor/sub/g", false},
		{"mv vendor v 2>/dev/null; test -d v/sub/.git/hooks && echo x >v/sub/.git/hooks/pre-commit && test ! -e vendor/sub/.git", false},
		{"test -s .env", false},
		{"rm -f .env", false},
		{"mv .env e", false},
		{"setfattr -n user.overlay.opaque -v y . 2>/dev/null; python3 -c 'import os; os.mknod(\"w\", 0o020000)'", false},
		{"git status && echo b >b && git add b && git commit -qm b", true},
		{"python3 -c 'import os; os.mkfifo(\"pipe\")'", true},
		{"mkdir -p .vscode && echo '{}' >.vscode/tasks.json && echo evil >.envrc && ln -s /etc out", true},
	} {
		if out, errs, status := confined(t, dir, env, "--stage", "--", "sh", "-c", c.script); (status == 0) != c.works {
			t.Errorf("%s: status %d: %s%s", c.script, status, out, errs)
		}
		for _, name := range []string{".vscode/tasks.json", ".envrc", "out", "pipe", "w"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				t.Errorf("%s: %s came in", c.script, name)
			}
		}
	}
	if now := shell(t, dir, "cat .env .git/config; ls -A .git/hooks vendor/sub/.git/hooks"); now != want {
		t.Errorf("control files were\n%s, are\n%s", want, now)
	}
	if text := shell(t, dir, "git log --format=%s"); text != "b\ni\n" {
		t.Errorf("commits: %q", text)
	}
	// A repository can be emptied, but not of those, and it can be had back.
	if _, errs, _ := confined(t, dir, env, "--stage", "--", "rm", "-rf", ".git"); !strings.Contains(errs, "deleted") {
		t.Errorf("deleted: %s", errs)
	}
	if now := shell(t, dir, "cat .env .git/config; ls -A .git/hooks vendor/sub/.git/hooks; git log 2>&1 || true"); !strings.HasPrefix(now, want) || !strings.Contains(now, "not a git repository") {
		t.Errorf("after rm -rf .git: %s", now)
	}
	if text, status := confine(t, dir, env, "undo"); status != 0 {
		t.Errorf("undo: %d %s", status, text)
	}
	if text := shell(t, dir, "git log --format=%s; git fsck"); text != "b\ni\n" {
		t.Errorf("commits: %q", text)
	}
}

// TestStagedHeldBackComesInByName: by a restore, or beforehand by --release.
func TestStagedHeldBackComesInByName(t *testing.T) {
	dir := t.TempDir()
	_, env := ownState(t)
	script := `mkdir -p .vscode; echo '{}' >.vscode/tasks.json; echo x >code`
	out, _, status := confined(t, dir, env, "--stage", "--json", "--", "sh", "-c", script)
	var report struct {
		Staged struct {
			Trash   string
			Changes []struct{ Path, Change string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != 0 || report.Staged.Trash == "" {
		t.Fatalf("%d %v: %s", status, err, out)
	}
	if text := shell(t, dir, "ls -A . .vscode"); strings.Contains(text, "tasks.json") || !strings.Contains(text, "code") {
		t.Errorf("committed: %q", text)
	}
	if text, status := confine(t, dir, env, "trash", "restore", report.Staged.Trash, ".vscode/tasks.json"); status != 0 {
		t.Errorf("restore: %d %s", status, text)
	}
	if text := shell(t, dir, "cat .vscode/tasks.json"); text != "{}\n" {
		t.Errorf("restored: %q", text)
	}
	if _, errs, status := confined(t, dir, env, "--stage", "--release", ".envrc", "--", "sh", "-c", "echo a >.envrc; echo b >AGENTS.md"); status != 0 || !strings.Contains(errs, "AGENTS.md") {
		t.Errorf("released: %d %s", status, errs)
	}
	if text := shell(t, dir, "cat .envrc; ls"); text != "a\ncode\n" {
		t.Errorf("released: %q", text)
	}
}

// TestStagedRunKilled: of a run that is killed nothing is committed, the next start
// says so, and nothing of it is left.
func TestStagedRunKilled(t *testing.T) {
	dir := t.TempDir()
	state, env := ownState(t)
	shell(t, dir, "echo a >a")
	mark := uniqueSeconds(t)
	cmd := exec.Command(program(t), "run", "--stage", "--", "sh", "-c", "echo b >a; echo c >c; echo ready; sleep "+mark)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	noneLeft(t, mark)
	if text := shell(t, dir, "ls; cat a"); text != "a\na\n" {
		t.Errorf("the host has %q", text)
	}
	if _, errs, status := confined(t, dir, env, "--stage", "--", "true"); status != 0 || !strings.Contains(errs, "was killed; nothing of what it had written was committed") {
		t.Errorf("next start: %d %s", status, errs)
	}
	for _, d := range []string{"staged", "trash"} {
		if left, err := os.ReadDir(filepath.Join(state, d)); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v, %v", d, left, err)
		}
	}
}

// TestTwentyStagedRunsQueue: each sees what those before it committed.
func TestTwentyStagedRunsQueue(t *testing.T) {
	dir := t.TempDir()
	_, env := ownState(t)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			// Read, then write: two at once would lose a line.
			_, errs, status := confined(t, dir, env, "--stage", "--", "sh", "-c", fmt.Sprintf("x=$(cat log 2>/dev/null); printf '%%s\\n' $x %d >log.new; mv log.new log", i))
			if status != 0 {
				t.Errorf("%d: %d %s", i, status, errs)
			}
		})
	}
	group.Wait()
	if text := shell(t, dir, "sort -n log | tr '\\n' ' '"); text != "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 " {
		t.Errorf("log: %q", text)
	}
}

// TestStagedLinkedWorktree: the repository elsewhere is staged along with it.
func TestStagedLinkedWorktree(t *testing.T) {
	top := t.TempDir()
	_, env := ownState(t)
	shell(t, top, `git init -q -b main r && cd r && echo a >a && git add a && git commit -qm i && git worktree add -q ../w 2>/dev/null`)
	w := filepath.Join(top, "w")
	if _, errs, status := confined(t, w, env, "--stage", "--", "sh", "-c", "echo b >b && git add b && git -c user.name=a -c user.email=a@example.com commit -qm two"); status != 0 {
		t.Fatalf("%d %s", status, errs)
	}
	const look = "git log --format=%s -1; git status --short; git -C ../r fsck 2>&1; git -C ../r log --format=%s"
	if text := shell(t, w, look); text != "two\ni\n" {
		t.Errorf("committed: %q", text)
	}
	if text, status := confine(t, w, env, "undo"); status != 0 {
		t.Fatalf("undo: %d %s", status, text)
	}
	if text := shell(t, w, look); text != "i\ni\n" {
		t.Errorf("taken back: %q", text)
	}
}

// TestWhatShowsThroughStaged is what the documentation says of it.
func TestWhatShowsThroughStaged(t *testing.T) {
	dir := t.TempDir()
	_, env := ownState(t)
	shell(t, dir, "mkdir d; echo f >d/f; ln d/f d/g; chmod 755 .")
	for script, want := range map[string]string{
		`python3 -c 'import os; os.rename("d", "e")' 2>&1 | tail -1`:                              "EXDEV",
		`python3 -c 'import os; os.mkdir("n"); os.rename("n", "e"); print("new")' 2>&1 | tail -1`: "new",
		`python3 -c 'import os; os.rename("d/f", "f"); print("file")' 2>&1 | tail -1`:             "file",
		`mv d e && cat e/f && echo moved`:                                                         "moved",
		`echo x >>d/f; cmp -s d/f d/g || echo apart`:                                              "apart",
	} {
		out, errs, status := confined(t, dir, env, "--stage", "--", "sh", "-c", script)
		if want == "EXDEV" {
			want = "[Errno 18]"
		}
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %q %s", script, status, out, errs)
		}
		if text, status := confine(t, dir, env, "undo"); status != 0 && !strings.Contains(text, "no staged run") {
			t.Errorf("undo: %s", text)
		}
	}
}
