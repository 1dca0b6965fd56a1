package handover

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"confine/internal/gitcmd"
)

// forge writes objects that git would not write by itself into the workspace,
// and returns the bundle of a commit of that tree on the base.
func (l *lab) forge(tree string) []byte {
	l.t.Helper()
	c := l.git(l.workspace, "commit-tree", "-m", "forged", "-p", string(l.base), tree)
	return l.bundle(gitcmd.Hash(c))
}

// bundle is one that git itself makes, as an agent could.
func (l *lab) bundle(head gitcmd.Hash) []byte {
	l.t.Helper()
	l.git(l.workspace, "update-ref", "refs/heads/forged", string(head))
	path := filepath.Join(l.t.TempDir(), "b")
	l.git(l.workspace, "bundle", "create", "-q", path, "refs/heads/forged", "^"+string(l.base))
	data, err := os.ReadFile(path)
	l.must(err)
	return data
}

func (l *lab) blob(text string) string {
	l.t.Helper()
	return l.gitIn(l.workspace, text, "hash-object", "-w", "--stdin")
}

// rawTree writes a tree object byte by byte, checked by nothing.
func (l *lab) rawTree(entries ...[3]string) string {
	l.t.Helper()
	var b bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %s\x00", e[0], e[1])
		for i := 0; i < len(e[2]); i += 2 {
			var c byte
			_, err := fmt.Sscanf(e[2][i:i+2], "%02x", &c)
			l.must(err)
			b.WriteByte(c)
		}
	}
	return l.gitIn(l.workspace, b.String(), "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
}

func (l *lab) receiveBytes(data []byte) (Received, error) {
	l.t.Helper()
	dir, err := os.MkdirTemp(l.engine, "q-*")
	l.must(err)
	r, err := Receive(l.ctx, ReceiveOptions{Bundle: bytes.NewReader(data), Lent: l.lent, Base: l.base, Dir: filepath.Join(dir, "q.git")})
	if err != nil {
		if left, dirErr := os.ReadDir(dir); dirErr != nil || len(left) != 0 {
			l.t.Errorf("a refused bundle left %v, %v", left, dirErr)
		}
	}
	return r, err
}

// E5: objects that git's bundle import lets through. Each is refused by the
// strict check, with the object's id, and nothing is imported.
func TestReceiveRefusesInvalidObjects(t *testing.T) {
	l := newLab(t)
	x := l.blob("x\n")
	y := l.blob("y\n")
	sub := l.rawTree([3]string{"100644", "config", x})
	evilModules := l.blob("[submodule \"x\"]\n\tpath = x\n\turl = -u./p\n")
	before := snapshot(t, l.lent.Dir())
	for name, tree := range map[string]string{
		".git":             l.rawTree([3]string{"100644", ".git", x}),
		".git directory":   l.rawTree([3]string{"40000", ".git", sub}),
		".GIT":             l.rawTree([3]string{"100644", ".GIT", x}),
		"git~1":            l.rawTree([3]string{"100644", "git~1", x}),
		"..":               l.rawTree([3]string{"40000", "..", sub}),
		".":                l.rawTree([3]string{"40000", ".", sub}),
		"hidden character": l.rawTree([3]string{"100644", ".g\u200cit", x}),
		"slash in a name":  l.rawTree([3]string{"100644", "a/b", x}),
		"twice":            l.rawTree([3]string{"100644", "a", x}, [3]string{"100644", "a", y}),
		"wrong order":      l.rawTree([3]string{"100644", "b", x}, [3]string{"100644", "a", y}),
		"odd mode":         l.rawTree([3]string{"100666", "a", x}),
		"modules link":     l.rawTree([3]string{"120000", ".gitmodules", x}),
		"modules option":   l.rawTree([3]string{"100644", ".gitmodules", evilModules}),
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			var refusal *Refusal
			_, err := l.receiveBytes(l.forge(tree))
			if !errors.As(err, &refusal) || refusal.Rule != RuleObjects {
				t.Fatalf("Receive = %v", err)
			}
			// The id of the tree, or of the file that is to blame.
			if !strings.Contains(refusal.Detail, tree[:12]) && !strings.Contains(refusal.Detail, evilModules[:12]) {
				t.Errorf("the refusal does not name the object %s: %s", tree, refusal)
			}
		})
	}
	l.t = t
	if snapshot(t, l.lent.Dir()) != before {
		t.Error("the lent repository changed")
	}
	r, err := l.receiveBytes(l.forge(l.rawTree([3]string{"100644", "a", x}, [3]string{"100755", "b", y})))
	if err != nil {
		t.Errorf("control: %v", err)
	}
	if kind, _, err := r.Repo.TypeOf(l.ctx, r.Head); err != nil || kind != gitcmd.CommitObject {
		t.Errorf("control: head is %v, %v", kind, err)
	}
}

// E5: old history with faults that strict checks refuse does not block a run.
func TestOldFaultsInTheBaseDoNotBlock(t *testing.T) {
	l := newLab(t)
	x := l.blob("x\n")
	padded := l.rawTree([3]string{"040000", "dir", l.rawTree([3]string{"100644", "f", x})})
	base := l.git(l.workspace, "commit-tree", "-m", "old", padded)
	// The lent repository is the engine's: it got this history long ago.
	l.git(l.workspace, "update-ref", "refs/heads/old", base)
	l.git(l.workspace, "push", "-q", l.lent.Dir(), "refs/heads/old")
	l.base = gitcmd.Hash(base)
	good := l.rawTree([3]string{"40000", "dir", l.rawTree([3]string{"100644", "f", x})}, [3]string{"100644", "new", x})
	r, err := l.receiveBytes(l.forge(good))
	if err != nil {
		t.Fatal(err)
	}
	if report, err := Check(l.ctx, CheckOptions{Received: r}); err != nil || !report.Passed() {
		t.Errorf("report %+v, %v", report, err)
	}
	// Neighbour: the same fault in a new object is refused.
	var refusal *Refusal
	again := l.rawTree([3]string{"040000", "dir", l.rawTree([3]string{"100644", "g", x})})
	if _, err := l.receiveBytes(l.forge(again)); !errors.As(err, &refusal) || refusal.Rule != RuleObjects {
		t.Errorf("a new tree with a padded mode: %v", err)
	}
}

func TestReceiveRefusesBrokenBundles(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "new\n")
	head := l.commit("work")
	good := l.bundle(head)
	if _, err := l.receiveBytes(good); err != nil {
		t.Fatalf("control: %v", err)
	}
	replace := func(old, with string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("the bundle holds no %q", old)
		}
		return bytes.Replace(good, []byte(old), []byte(with), 1)
	}
	other := strings.Repeat("1", 40)
	flipped := bytes.Clone(good)
	flipped[len(flipped)-40] ^= 1
	for name, c := range map[string]struct {
		data []byte
		rule Rule
	}{
		"empty":                {nil, RuleBundle},
		"no bundle":            {[]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00"), RuleBundle},
		"version 1":            {replace("# v2 git", "# v1 git"), RuleBundle},
		"a filter":             {replace("# v2 git bundle\n", "# v3 git bundle\n@filter=blob:none\n"), RuleBundle},
		"capability in v2":     {replace("# v2 git bundle\n", "# v2 git bundle\n@object-format=sha1\n"), RuleBundle},
		"other object format":  {replace("# v2 git bundle\n", "# v3 git bundle\n@object-format=sha256\n"), RuleBundle},
		"two refs":             {replace(string(head)+" ", string(head)+" refs/heads/b\n"+string(head)+" "), RuleBundle},
		"unknown prerequisite": {replace("-"+string(l.base), "-"+other), RuleBundle},
		"head not in it":       {replace("\n"+string(head)+" ", "\n"+other+" "), RuleBundle},
		"short id":             {replace("-"+string(l.base), "-"+string(l.base)[:39]), RuleBundle},
		"cut header":           {good[:60], RuleBundle},
		"cut pack":             {good[:len(good)-25], RuleObjects},
		"cut pack header":      {good[:bytes.Index(good, []byte("PACK"))+8], RuleBundle},
		"flipped bit":          {flipped, RuleObjects},
		"no pack":              {append(bytes.Clone(good[:bytes.Index(good, []byte("PACK"))]), "HACK\x00\x00\x00\x02\x00\x00\x00\x00"...), RuleBundle},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			var refusal *Refusal
			if _, err := l.receiveBytes(c.data); !errors.As(err, &refusal) || refusal.Rule != c.rule {
				t.Errorf("Receive = %v, want %s", err, c.rule)
			}
		})
	}
	l.t = t
	limits := func(o ReceiveOptions) error {
		o.Bundle, o.Lent, o.Base, o.Dir = bytes.NewReader(good), l.lent, l.base, filepath.Join(t.TempDir(), "q.git")
		_, err := Receive(l.ctx, o)
		return err
	}
	for name, o := range map[string]ReceiveOptions{"bytes": {MaxBytes: int64(len(good)) - 1}, "objects": {MaxObjects: 2}} {
		var refusal *Refusal
		if err := limits(o); !errors.As(err, &refusal) || refusal.Rule != RuleBytes {
			t.Errorf("cap of %s: %v", name, err)
		}
	}
	if err := limits(ReceiveOptions{MaxBytes: int64(len(good)), MaxObjects: 3}); err != nil {
		t.Errorf("at the caps: %v", err)
	}
}

// A fault of the stream must not read as a fault of the bundle, nor be lost.
func TestReceiveTellsABrokenStream(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "new\n")
	good := l.bundle(l.commit("work"))
	broken := errors.New("the disk broke")
	for _, n := range []int{10, len(good) - 10} {
		_, err := Receive(l.ctx, ReceiveOptions{Bundle: io.MultiReader(bytes.NewReader(good[:n]), brokenReader{broken}), Lent: l.lent, Base: l.base, Dir: filepath.Join(t.TempDir(), "q.git")})
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

// No git of the engine is ever told of a directory that the agent writes, and
// the quarantine borrows from the engine's repository alone.
func TestHostGitNeverSeesTheWorkspace(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "new\n")
	l.commit("work")
	l.calls = nil
	r, report := l.through(Rules{})
	w, err := Rewrite(l.ctx, RewriteOptions{Received: r, Report: report, Engine: engineIdentity(), Run: "run-1"})
	l.must(err)
	target := filepath.Join(l.engine, "target.git")
	to, err := gitcmd.Init(l.ctx, target, gitcmd.InitOptions{})
	l.must(err)
	l.must(to.Fetch(l.ctx, gitcmd.Remote{Path: l.lent.Dir()}, gitcmd.FetchRef{From: "refs/heads/main", To: "refs/heads/main"}))
	l.must(CopyTo(l.ctx, w, to, "refs/confine/candidate"))
	res, err := Deliver(l.ctx, w, Target{Remote: gitcmd.Remote{Path: target}, Branch: "refs/heads/confine/issue-1"})
	if err != nil || res.Outcome != gitcmd.PushDone {
		t.Errorf("Deliver = %+v, %v", res, err)
	}
	if len(l.calls) < 15 {
		t.Fatalf("only %d calls of git were observed", len(l.calls))
	}
	for _, call := range l.calls {
		text := fmt.Sprintf("%q %q %q", call.Args, call.Env, call.Dir)
		if strings.Contains(text, l.workspace) || strings.Contains(text, "agent-workspace") {
			t.Errorf("git was told of the workspace: %s", text)
		}
	}
	alternates, err := r.Repo.Alternates()
	if err != nil || len(alternates) != 1 || alternates[0] != l.lent.ObjectsDir() {
		t.Errorf("the quarantine borrows from %q, %v", alternates, err)
	}
	// The workspace is such a directory: control of the search above.
	if !strings.Contains(l.workspace, "agent-workspace") {
		t.Error("control: the workspace has another name")
	}
}

func FuzzBundleHeader(f *testing.F) {
	id := strings.Repeat("a", 40)
	f.Add([]byte("# v2 git bundle\n-" + id + " subject\n" + id + " refs/heads/x\n\nPACK"))
	f.Add([]byte("# v3 git bundle\n@object-format=sha256\n" + strings.Repeat("b", 64) + " HEAD\n\n"))
	f.Add([]byte("# v3 git bundle\n@filter=blob:none\n\n"))
	f.Add([]byte("# v2 git bundle\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(data), 16)
		h, err := ReadBundleHeader(in)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Errorf("error %v is no refusal", err)
			}
			return
		}
		if _, err := gitcmd.ParseHash(string(h.Head)); err != nil || h.Ref == "" {
			t.Errorf("accepted the head %q of %q", h.Head, h.Ref)
		}
		// What follows is the pack, from its first byte.
		rest, err := io.ReadAll(in)
		if err != nil || !bytes.HasSuffix(data, append([]byte("\n\n"), rest...)) {
			t.Errorf("the header ends elsewhere")
		}
	})
}
