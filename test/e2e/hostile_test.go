package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"confine/internal/codehost"
	"confine/internal/engine"
)

// asSomeone is how the agents of these tests commit.
const asSomeone = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@y GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@y; "

// personGit is git as a person runs it.
func personGit(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=p", "GIT_AUTHOR_EMAIL=p@q", "GIT_COMMITTER_NAME=p", "GIT_COMMITTER_EMAIL=p@q"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *project) remote(t *testing.T) string {
	t.Helper()
	remote, err := p.host.Remote(t.Context(), codehost.Read)
	if err != nil {
		t.Fatal(err)
	}
	return remote.Path
}

// TestCommitsOutsideTheHead: what an agent committed and did not leave checked
// out is named and kept, whatever becomes of the rest.
func TestCommitsOutsideTheHead(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		state  engine.State
		reason string
	}{
		"another branch":          {asSomeone + "git checkout -qb side; echo x > side; git add -A; git commit -qm aside; git checkout -q -", engine.Failed, "refs/heads/side"},
		"stash":                   {asSomeone + "echo x >> sum.sh; git stash push -qm aside", engine.Failed, "refs/stash"},
		"beside leftover changes": {asSomeone + "b=HEAD; for i in 1 2 3; do b=$(git commit-tree -m aside -p $b 'HEAD^{tree}'); done; git update-ref refs/heads/side $b; sed -i 's/-/+/' sum.sh", engine.Merged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, c.script)
			rec, err := p.work(t, engine.UntilMerge)
			if rec.State != c.state || !strings.Contains(rec.Reason, c.reason) || (err == nil) != (c.state == engine.Merged) {
				t.Fatalf("%v: %s %q\n%s", err, rec.State, rec.Reason, p.log)
			}
			if len(rec.Others) == 0 || !strings.Contains(p.log.String(), "not in the agent's head") || rec.RescueOthers == "" {
				t.Fatalf("others %v in %q\n%s", rec.Others, rec.RescueOthers, p.log)
			}
			clone := filepath.Join(t.TempDir(), "clone.git")
			for _, args := range [][]string{{"clone", "-q", "--bare", p.remote(t), clone}, {"-C", clone, "fetch", "-q", rec.RescueOthers, "refs/heads/*:refs/rescue/*"}} {
				if out, err := personGit(t, args...); err != nil {
					t.Fatalf("git %q: %v\n%s", args, err, out)
				}
			}
			if log, err := personGit(t, "-C", clone, "log", "--format=%s", "--all"); err != nil || !strings.Contains(log, "aside") {
				t.Errorf("the rescue bundle holds %q, %v", log, err)
			}
			if out, err := personGit(t, "-C", p.remote(t), "cat-file", "-e", string(rec.Others[0].Commit)); err == nil {
				t.Errorf("the commits came to the code host: %s", out)
			}
		})
	}
}

// TestTreesThatGitRefuses: a commit whose tree no checkout can hold ends as a
// refusal that says what is wrong where, with the work kept.
func TestTreesThatGitRefuses(t *testing.T) {
	tree := func(mode, kind, name string) string {
		return asSomeone + "b=$(echo evil | git hash-object -w --stdin); t=$(printf '100644 blob %s\\tconfig\\n' $b | git mktree); " +
			"h=" + kind + "; t2=$(printf '" + mode + " " + name + "\\0' > /tmp/t; printf $(echo $h | sed 's/../\\\\x&/g') >> /tmp/t; git hash-object -w -t tree --literally --stdin < /tmp/t); " +
			"c=$(git commit-tree -m evil -p HEAD $t2); git update-ref HEAD $c"
	}
	for name, c := range map[string]struct{ script, path string }{
		"git directory":  {tree("40000", "$t", ".git"), `".git"`},
		"other case":     {tree("100644", "$b", ".Git"), `".Git"`},
		"trailing space": {tree("100644", "$b", ".GIT "), `".GIT "`},
		"short name":     {tree("100644", "$b", "git~1"), `"git~1"`},
		"slash":          {tree("100644", "$b", "a/b"), `"a/b"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProjectWith(t, []string{"bash", "-c", c.script}, nil)
			rec, err := p.work(t, engine.UntilMerge)
			var refused interface{ Refused() (string, string) }
			if rec.State != engine.Refused || !errors.As(err, &refused) {
				t.Fatalf("%v: %s %q\n%s", err, rec.State, rec.Reason, p.log)
			}
			if !strings.Contains(rec.Reason, "path "+c.path) || !strings.Contains(rec.Reason, "commit ") || len(rec.Findings) != 1 || rec.Findings[0].Commit == "" {
				t.Errorf("reason %q, findings %v", rec.Reason, rec.Findings)
			}
			if info, err := os.Stat(rec.Rescue); err != nil || info.Size() == 0 {
				t.Errorf("rescue %q: %v", rec.Rescue, err)
			}
			if p.tip(t) != rec.Base {
				t.Error("the base moved")
			}
		})
	}
}
