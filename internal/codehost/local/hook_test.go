//go:build unix

package local

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// plainGit is git as a person runs it, with none of confine's settings.
func plainGit(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=p", "GIT_AUTHOR_EMAIL=p@q", "GIT_COMMITTER_NAME=p", "GIT_COMMITTER_EMAIL=p@q"}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// person is a clone of the host with one new commit in HEAD.
func person(t *testing.T, h *Host) (git func(args ...string) string, push func(ref string) error) {
	t.Helper()
	dir := t.TempDir()
	git = func(args ...string) string {
		t.Helper()
		out, err := plainGit(t, dir, args...)
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return out
	}
	git("clone", "-q", h.path("repo.git"), ".")
	git("commit", "-q", "--allow-empty", "-m", "evil")
	return git, func(ref string) error {
		t.Helper()
		out, err := plainGit(t, dir, "push", "-q", "origin", "+HEAD:"+ref)
		if err != nil && !strings.Contains(out, "confine: ") {
			t.Fatalf("push to %s: refused by something else: %s", ref, out)
		}
		return err
	}
}

// A replacement of the base's tip showed the pusher's content under its name.
func TestPushTouchesBranchesAndTagsOnly(t *testing.T) {
	h := newHost(t)
	git, push := person(t, h)
	tip := git("rev-parse", "origin/main")
	for _, ref := range []string{"refs/replace/" + tip, "refs/notes/commits", "refs/confine/x", "refs/x/y", "refs/pull/1/head", "refs/remotes/origin/x"} {
		if push(ref) == nil {
			t.Errorf("a push to %s passes", ref)
		}
	}
	if out, err := plainGit(t, h.path("repo.git"), "for-each-ref", "refs/replace", "refs/notes", "refs/confine", "refs/x"); err != nil || out != "" {
		t.Errorf("refs on the host: %q, %v", out, err)
	}
	if out, err := plainGit(t, h.path("repo.git"), "log", "--format=%s", "main"); err != nil || strings.Contains(out, "evil") {
		t.Errorf("main shows %q, %v", out, err)
	}
	for _, ref := range []string{"refs/heads/work", "refs/heads/replace/x", "refs/tags/v1"} {
		if err := push(ref); err != nil {
			t.Errorf("control: a push to %s: %v", ref, err)
		}
	}
}

// A symbolic ref in the repository led around the protection of its target.
func TestSymbolicRefsAreNoWayAround(t *testing.T) {
	set := func(t *testing.T, h *Host, name, target string) {
		t.Helper()
		if out, err := plainGit(t, h.path("repo.git"), "symbolic-ref", name, target); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	t.Run("to the base", func(t *testing.T) {
		h := newHost(t)
		git, push := person(t, h)
		tip := git("rev-parse", "origin/main")
		set(t, h, "refs/heads/alias", "refs/heads/main")
		set(t, h, "refs/heads/alias2", "refs/heads/alias")
		set(t, h, "refs/tags/alias", "refs/heads/main")
		set(t, h, "refs/heads/new", "refs/heads/not-yet")
		for _, ref := range []string{"refs/heads/alias", "refs/heads/alias2", "refs/tags/alias", "refs/heads/new"} {
			if push(ref) == nil {
				t.Errorf("a push to %s passes", ref)
			}
		}
		if now, err := h.branch(t.Context(), base); err != nil || string(now) != tip {
			t.Errorf("main is %s, %v", now, err)
		}
		if err := push("refs/heads/work"); err != nil {
			t.Errorf("control: %v", err)
		}
	})
	t.Run("from the base", func(t *testing.T) {
		h := newHost(t)
		_, push := person(t, h)
		if out, err := plainGit(t, h.path("repo.git"), "branch", "-m", "main", "real"); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		set(t, h, "refs/heads/main", "refs/heads/real")
		for _, ref := range []string{"refs/heads/real", "refs/heads/main"} {
			if push(ref) == nil {
				t.Errorf("a push to %s passes", ref)
			}
		}
		if err := push("refs/heads/work"); err != nil {
			t.Errorf("control: %v", err)
		}
	})
}
