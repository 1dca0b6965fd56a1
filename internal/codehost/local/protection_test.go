//go:build unix

package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"confine/internal/codehost"
	"confine/internal/codehost/codehosttest"
	"confine/internal/gitcmd"
)

const base gitcmd.Ref = "refs/heads/main"

// engineRepo is a repository with the host's base in it.
func engineRepo(t *testing.T, h *Host) (*gitcmd.Repo, gitcmd.Hash) {
	t.Helper()
	repo, err := gitcmd.Init(t.Context(), t.TempDir()+"/engine.git", gitcmd.InitOptions{})
	if err == nil {
		err = repo.Fetch(t.Context(), gitcmd.Remote{Path: h.path("repo.git")}, gitcmd.FetchRef{From: base, To: "refs/confine/base"})
	}
	if err != nil {
		t.Fatal(err)
	}
	first, err := repo.RevParse(t.Context(), "refs/confine/base")
	if err != nil {
		t.Fatal(err)
	}
	return repo, first
}

func mustWrite(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	os.Remove(path)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestProtectionIsReadTruthfully takes each part of the protection away: it must
// be said, and a direct push must in fact pass where the hook is what is
// missing, or the test would hold without it.
func TestProtectionIsReadTruthfully(t *testing.T) {
	tests := map[string]struct {
		spoil  func(t *testing.T, h *Host)
		want   string
		passes bool
	}{
		"hook missing": {func(t *testing.T, h *Host) { os.Remove(h.path("repo.git", "hooks", "pre-receive")) }, "hook is missing", true},
		"hook changed": {func(t *testing.T, h *Host) {
			mustWrite(t, h.path("repo.git", "hooks", "pre-receive"), "#!/bin/sh\nexit 0\n", 0o700)
		}, "not the one that confine wrote", true},
		"hook not executable": {func(t *testing.T, h *Host) { os.Chmod(h.path("repo.git", "hooks", "pre-receive"), 0o600) }, "not executable", true},
		"hook is a link": {func(t *testing.T, h *Host) {
			path := h.path("repo.git", "hooks", "pre-receive")
			if err := os.Rename(path, path+".real"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("pre-receive.real", path); err != nil {
				t.Fatal(err)
			}
		}, "pre-receive hook", false},
		"hooks elsewhere": {func(t *testing.T, h *Host) {
			f, err := os.OpenFile(h.path("repo.git", "config"), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fmt.Fprintf(f, "[core]\n\thooksPath = /nowhere\n")
		}, "leave the hook in force", true},
		"another list": {func(t *testing.T, h *Host) {
			mustWrite(t, h.path("repo.git", "confine", "protected"), "refs/heads/other\n", 0o600)
		}, "list of branches", true},
		"no list": {func(t *testing.T, h *Host) { os.Remove(h.path("repo.git", "confine", "protected")) }, "list of branches", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			if p, err := h.Protection(t.Context(), base); err != nil || !p.Exists {
				t.Fatalf("before: %+v %v", p, err)
			}
			test.spoil(t, h)
			p, err := h.Protection(t.Context(), base)
			if err != nil {
				t.Fatal(err)
			}
			if p.Exists || p.RequirePR || p.BaseCheck != "" || !slices.ContainsFunc(p.Unknown, func(s string) bool { return strings.Contains(s, test.want) }) {
				t.Fatalf("got %+v, want it to say %q", p, test.want)
			}
			repo, first := engineRepo(t, h)
			next := codehosttest.Commit(t, repo, "next", first)
			result, err := repo.Push(t.Context(), gitcmd.Push{To: gitcmd.Remote{Path: h.path("repo.git")}, Ref: base, New: next, Old: first})
			if err != nil {
				t.Fatal(err)
			}
			if passed := result.Outcome == gitcmd.PushDone; passed != test.passes {
				t.Fatalf("a direct push is %s, passes should be %v", result.Outcome, test.passes)
			}
		})
	}
}

// TestGrantServesOneUpdateOnce tries a grant on every update but its own.
func TestGrantServesOneUpdateOnce(t *testing.T) {
	h := newHost(t)
	repo, first := engineRepo(t, h)
	good := codehosttest.Commit(t, repo, "good", first)
	bad := codehosttest.Commit(t, repo, "bad", first)
	const token = "TOKEN"
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s\n", token, first, good, base))
	grant := func(text string) { mustWrite(t, h.path("repo.git", "confine", "grant"), text+"\n", 0o600) }
	push := func(token string, new, old gitcmd.Hash) gitcmd.PushOutcome {
		t.Helper()
		result, err := repo.Push(t.Context(), gitcmd.Push{
			To: gitcmd.Remote{Path: h.path("repo.git")}, Ref: base, New: new, Old: old, Rewrite: true, HookToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if result.Outcome == gitcmd.PushRefused && !strings.Contains(result.Reason, "pre-receive hook declined") {
			t.Fatalf("refused by something else: %s", result.Reason)
		}
		return result.Outcome
	}
	refused := func(why, token string, new gitcmd.Hash) {
		t.Helper()
		if got := push(token, new, first); got != gitcmd.PushRefused {
			t.Fatalf("%s: push is %s", why, got)
		}
	}
	refused("no grant", token, good)
	grant("")
	refused("empty grant and no token", "", good)
	refused("empty grant", token, good)
	grant(hex.EncodeToString(sum[:]))
	refused("no token", "", good)
	refused("another token", token+"x", good)
	refused("another commit", token, bad)
	refused("a delete", token, "")
	refused("shell in the token", "$(touch owned)`id`'\"", good)
	if got := push(token, good, first); got != gitcmd.PushDone {
		t.Fatalf("the granted update is %s", got)
	}
	if _, err := os.Lstat(h.path("repo.git", "confine", "grant")); !os.IsNotExist(err) {
		t.Fatalf("the grant is still there: %v", err)
	}
	// Back, by someone with the repository itself: the same update again.
	if err := h.repo.UpdateRef(t.Context(), gitcmd.RefUpdate{Ref: base, New: first, Old: good}); err != nil {
		t.Fatal(err)
	}
	refused("the grant a second time", token, good)
}

// TestHookScript runs the hook as git does, with what a push by confine never
// sends.
func TestHookScript(t *testing.T) {
	const (
		zero  = "0000000000000000000000000000000000000000"
		one   = "1111111111111111111111111111111111111111"
		token = "TOKEN"
	)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s\n", token, zero, one, base))
	good := fmt.Sprintf("%s %s %s\n", zero, one, base)
	free := fmt.Sprintf("%s %s refs/heads/free\n", zero, one)
	tests := map[string]struct {
		list, updates string
		passes        bool
	}{
		"the granted update":        {string(base) + "\n", good, true},
		"a list without line end":   {string(base), good + free, false},
		"with a second update":      {string(base) + "\n", good + free, false},
		"after another update":      {string(base) + "\n", free + good, false},
		"twice":                     {string(base) + "\n", good + good, false},
		"others":                    {string(base) + "\n", free + strings.ReplaceAll(free, "free", "main2"), true},
		"two protected":             {"refs/heads/free\n" + string(base) + "\n", good + free, false},
		"a name that is a pattern":  {"refs/heads/f.ee\n", good + free, true},
		"a name with a shell in it": {string(base) + "\n", zero + " " + one + " refs/heads/$(touch${IFS}owned)`id`\n", true},
		"a name that git refuses":   {"refs/heads/*\n", free, false},
		"no list":                   {"", free, false},
		"neither branch nor tag":    {string(base) + "\n", zero + " " + one + " refs/replace/" + one + "\n", false},
		"beside a free branch":      {string(base) + "\n", free + zero + " " + one + " refs/notes/x\n", false},
		"tag":                       {string(base) + "\n", zero + " " + one + " refs/tags/v1\n", true},
	}
	for name, test := range tests {
		dir := t.TempDir()
		if out, err := plainGit(t, dir, "init", "-q", "--bare", "--template="); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if err := os.Mkdir(dir+"/confine", 0o700); err != nil {
			t.Fatal(err)
		}
		if test.list != "" {
			mustWrite(t, dir+"/confine/protected", test.list, 0o600)
		}
		mustWrite(t, dir+"/confine/grant", hex.EncodeToString(sum[:])+"\n", 0o600)
		mustWrite(t, dir+"/hook", string(hook), 0o700)
		cmd := exec.Command("/bin/sh", dir+"/hook")
		cmd.Dir, cmd.Env = dir, []string{"GIT_DIR=.", "CONFINE_PUSH_TOKEN=" + token}
		cmd.Stdin = strings.NewReader(test.updates)
		out, err := cmd.CombinedOutput()
		if (err == nil) != test.passes || (err != nil && !strings.HasPrefix(string(out), "confine: ")) {
			t.Errorf("%s: %v %q", name, err, out)
		}
		if _, err := os.Lstat(dir + "/owned"); err == nil {
			t.Errorf("%s: ran a command", name)
		}
	}
}

func TestConfigText(t *testing.T) {
	for _, good := range []string{
		"", "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
		"[core]\r\n\tbare = true\r\n# note\n; note\n[receive]\ndenyNonFastForwards = true\n",
		"[extensions]\n\tobjectformat = sha256\n", "[gc]\n\tauto\n",
	} {
		if err := checkConfigText(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"[core]\nhooksPath = /x", "[CORE]\n\tHOOKSPATH=/x", "[core] hooksPath = /x", "[core]hooksPath=x]",
		"[include]\npath = x", "[includeIf \"gitdir:/\"]\npath = x", "[core \"x\"]\nbare = true", "[core.x]\nbare=true",
		"hooksPath = /x", "[core]\nbare = tr\\\nue\nhooksPath = x", "[core]\nbare = \"true\nhooksPath = /x\"",
		"[receive]\nprocReceiveRefs = refs/heads", "[extensions]\nworktreeConfig = true", "[core]\nworktree = /x",
		"[core]\nbare = true # x\\\n", "[", "[]x",
	} {
		if err := checkConfigText(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// TestMergeOfUnprotectedBranch: the branch needs no grant, and the lease holds
// all the same.
func TestMergeOfUnprotectedBranch(t *testing.T) {
	h := newHost(t)
	repo, first := engineRepo(t, h)
	ctx := t.Context()
	head := codehosttest.Commit(t, repo, "a", first)
	for ref, hash := range map[gitcmd.Ref]gitcmd.Hash{"refs/heads/dev": first, "refs/heads/a": head} {
		if _, err := repo.Push(ctx, gitcmd.Push{To: gitcmd.Remote{Path: h.path("repo.git")}, Ref: ref, New: hash}); err != nil {
			t.Fatal(err)
		}
	}
	p, _, err := h.OpenPull(ctx, codehost.NewPull{Key: "k", Head: "refs/heads/a", ExpectedHead: head, Base: "refs/heads/dev", Title: "t"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Merge(ctx, codehost.MergeRequest{Pull: p.Number, ExpectedHead: head, ExpectedBase: first, Commit: head, Objects: repo})
	if err != nil || got.Outcome != codehost.Done {
		t.Fatalf("%s %v", got.Result, err)
	}
	if _, err := os.Lstat(h.path("repo.git", "confine", "grant")); !os.IsNotExist(err) {
		t.Fatalf("the grant is still there: %v", err)
	}
}
