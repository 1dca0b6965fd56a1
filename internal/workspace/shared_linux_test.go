package workspace

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// linked makes a repository with two linked worktrees, without git.
func linked(t *testing.T) (base string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, base, repo("main/.git")...)
	for _, w := range []string{"one", "two"} {
		admin := "main/.git/worktrees/" + w
		write(t, base, admin+"/HEAD", admin+"/index", w+"/a")
		putFile(t, filepath.Join(base, admin, "commondir"), "../..\n")
		putFile(t, filepath.Join(base, admin, "gitdir"), filepath.Join(base, w, ".git")+"\n")
		putFile(t, filepath.Join(base, w, ".git"), "gitdir: "+filepath.Join(base, admin)+"\n")
	}
	return base
}

func putFile(t *testing.T, name, text string) {
	t.Helper()
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// shownAt is how the nearest mount shows a host path of a shared repository.
func shownAt(l *LiveWorkspace, p string) string {
	how, best := "absent", -1
	for _, m := range l.Mounts {
		if within(p, m.Target) && len(m.Target) > best && m.Target != "/" {
			best = len(m.Target)
			if how = "read-only"; m.Writable {
				how = "writable"
			}
		}
	}
	return how
}

func TestLinkedWorktreeBringsItsRepository(t *testing.T) {
	base := linked(t)
	l := live(t, filepath.Join(base, "one"))
	git := filepath.Join(base, "main/.git")
	for rel, want := range map[string]string{
		"objects/x": "writable", "refs/heads/x": "writable", "worktrees/one/index": "writable", "worktrees/one/HEAD": "writable",
		"config": "read-only", "hooks/x": "read-only", "worktrees/one/commondir": "read-only", "worktrees/one/gitdir": "read-only",
		"worktrees/two/index": "read-only", "worktrees/two/gitdir": "read-only", "worktrees/new": "read-only",
	} {
		if got := shownAt(l, filepath.Join(git, rel)); got != want {
			t.Errorf("%s is %s, want %s", rel, got, want)
		}
	}
	if got := shownAt(l, filepath.Join(base, "main/a")); got != "absent" {
		t.Errorf("the main worktree is %s", got)
	}
	if len(l.Notes) != 0 {
		t.Errorf("notes %q", l.Notes)
	}
	if !l.Overlaps(git) || l.Overlaps(filepath.Join(base, "two")) {
		t.Error("a lent directory could show the repository again")
	}
}

// TestLinkedWorktreeIsBelievedOnlyBothWays: the file in the workspace may be a
// run's; it shows nothing that does not name the workspace itself.
func TestLinkedWorktreeIsBelievedOnlyBothWays(t *testing.T) {
	for name, spoil := range map[string]func(base, admin string){
		"another worktree's state": func(base, _ string) {
			putFile(t, filepath.Join(base, "one/.git"), "gitdir: "+filepath.Join(base, "main/.git/worktrees/two")+"\n")
		},
		"any directory": func(base, _ string) { putFile(t, filepath.Join(base, "one/.git"), "gitdir: "+base+"\n") },
		"the repository itself": func(base, _ string) {
			putFile(t, filepath.Join(base, "one/.git"), "gitdir: "+filepath.Join(base, "main/.git")+"\n")
		},
		"another repository shared": func(base, admin string) { putFile(t, filepath.Join(admin, "commondir"), base+"\n") },
		"no way back":               func(_, admin string) { putFile(t, filepath.Join(admin, "gitdir"), "\n") },
		"in the workspace": func(base, _ string) {
			w := filepath.Join(base, "one")
			write(t, w, append(repo("r"), "r/worktrees/x/HEAD")...)
			putFile(t, filepath.Join(w, "r/worktrees/x/commondir"), "../..\n")
			putFile(t, filepath.Join(w, "r/worktrees/x/gitdir"), filepath.Join(w, ".git")+"\n")
			putFile(t, filepath.Join(w, ".git"), "gitdir: "+filepath.Join(w, "r/worktrees/x")+"\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := linked(t)
			spoil(base, filepath.Join(base, "main/.git/worktrees/one"))
			l := live(t, filepath.Join(base, "one"))
			if got := shownAt(l, filepath.Join(base, "main/.git/config")); got != "absent" || l.shared != nil {
				t.Errorf("the repository is %s", got)
			}
			if len(l.Notes) == 0 || !strings.Contains(l.Notes[0], "git does not work in the run") {
				t.Errorf("notes %q", l.Notes)
			}
		})
	}
}
