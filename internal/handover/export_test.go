package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
)

func TestTakeBringsCommitsAndLeftovers(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "one\ntwo\nthree\n")
	committed := l.commit("work")
	l.write(l.workspace, "left\nover é.txt", "left over\n")
	l.write(l.workspace, "ignored/cache", "x")
	l.write(l.workspace, "setup/tool", "x")
	l.must(os.Remove(filepath.Join(l.workspace, "docs/guide.md")))
	nested := filepath.Join(l.workspace, "vendor/sub\nx")
	l.must(os.MkdirAll(nested, 0o755))
	l.git(nested, "init", "-q")
	l.write(nested, "n.txt", "nested\n")
	before := snapshot(t, l.workspace)
	e := l.mustTake(func(o *ExportOptions) { o.Exclude = []string{"setup"} })
	if snapshot(t, l.workspace) != before {
		t.Error("the export changed the workspace")
	}
	if e.Kind != Bundle || !e.Leftovers || e.Incomplete || len(e.Broken)+len(e.Tampered) != 0 || !slices.Equal(e.Nested, []string{"vendor/sub?x"}) {
		t.Errorf("export = %+v", e)
	}
	r, err := l.receive(e)
	l.must(err)
	changes, err := r.Repo.DiffTree(l.ctx, l.base, r.Head)
	l.must(err)
	var got []string
	for _, c := range changes {
		got = append(got, string(c.Status)+" "+c.Path)
	}
	if want := []string{"M a.txt", "D docs/guide.md", "A left\nover é.txt"}; !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
	list, err := r.Repo.RevList(l.ctx, gitcmd.RevListOptions{Include: []gitcmd.Hash{r.Head}, Exclude: []gitcmd.Hash{l.base}})
	if err != nil || len(list) != 2 || list[0] != committed {
		t.Errorf("commits %v, %v", list, err)
	}
	e = l.mustTake(func(o *ExportOptions) { o.Leftovers = false })
	if e.Head != committed || e.Leftovers {
		t.Errorf("export without leftovers = %+v", e)
	}
}

func TestTakeNothing(t *testing.T) {
	l := newLab(t)
	e := l.mustTake()
	if e.Kind != Nothing || e.Path != "" || e.Head != l.base {
		t.Errorf("export of an untouched workspace = %+v", e)
	}
	if files, err := os.ReadDir(filepath.Join(l.engine, "spool")); err != nil || len(files) != 0 {
		t.Errorf("the spool holds %v, %v", files, err)
	}
}

func TestTakeMakesTheNarrowBoundary(t *testing.T) {
	l := newLab(t)
	l.mustTake(func(o *ExportOptions) {
		o.Boundary.Env = []string{"SECRET=x"}
		o.Boundary.Network = boundary.NetworkCaptured
	})
	b := l.driver.last
	if b.Network != boundary.NetworkOff || slices.Contains(b.Env, "SECRET=x") || b.Limits.Time == 0 || b.Limits.Output == 0 {
		t.Errorf("boundary = %+v", b)
	}
	for _, m := range b.View.Mounts {
		if m.Writable || !m.NoExec {
			t.Errorf("mount %+v is writable or executable", m)
		}
	}
	for _, target := range []string{"/workspace", "/lent/x", "/scratch", "/confine"} {
		_, err := l.take(func(o *ExportOptions) {
			o.Boundary.View.Mounts = []boundary.Mount{{Kind: boundary.Tmpfs, Target: target}}
		})
		if err == nil {
			t.Errorf("a base view that uses %s was accepted", target)
		}
	}
	if _, err := l.take(func(o *ExportOptions) { o.Spool = filepath.Join(l.workspace, "spool") }); err == nil {
		t.Error("a spool in the workspace was accepted")
	}
	if _, err := l.take(func(o *ExportOptions) { o.Exclude = []string{"../x"} }); err == nil {
		t.Error("an excluded path above the workspace was accepted")
	}
}

// E1: every key of a repository's config that starts a program, hooks and
// attributes. Nothing of the agent's runs, not even inside.
func TestHostileConfigRunsNothing(t *testing.T) {
	l := newLab(t)
	touch := "touch " + l.owned + " #"
	l.write(l.workspace, ".gitattributes", "* filter=x diff=x merge=x\n")
	l.write(l.workspace, "a.txt", "changed\n")
	l.commit("work")
	for _, key := range []string{"core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.gitProxy", "core.askPass", "core.alternateRefsCommand",
		"diff.external", "diff.x.textconv", "diff.x.command", "filter.x.clean", "filter.x.smudge", "filter.x.process", "merge.x.driver",
		"gpg.program", "gpg.ssh.program", "credential.helper", "sequence.editor", "uploadpack.packObjectsHook", "remote.origin.uploadpack", "remote.origin.receivepack", "user.email"} {
		l.git(l.workspace, "config", key, touch)
	}
	l.git(l.workspace, "config", "core.hooksPath", filepath.Join(l.workspace, "hooks"))
	l.git(l.workspace, "config", "remote.origin.url", "ext::sh -c 'touch "+l.owned+"'")
	l.git(l.workspace, "config", "include.path", filepath.Join(l.workspace, "more.cfg"))
	l.write(l.workspace, "more.cfg", "[core]\n\tfsmonitor = "+touch+"\n")
	for _, hook := range []string{"pre-commit", "post-commit", "reference-transaction", "pre-push", "post-checkout", "post-index-change", "commit-msg"} {
		for _, dir := range []string{"hooks", ".git/hooks"} {
			l.write(l.workspace, dir+"/"+hook, "#!/bin/sh\ntouch "+l.owned+"\n")
			l.must(os.Chmod(filepath.Join(l.workspace, dir, hook), 0o755))
		}
	}
	l.write(l.workspace, "a.txt", "changed again\n")
	r, report := l.through(Rules{})
	l.notOwned()
	if !has(report.Refusals, RuleGitFile, ".gitattributes") {
		t.Errorf("refusals %v", report.Refusals)
	}
	if _, err := r.Repo.RevParse(l.ctx, headRef); err != nil {
		t.Error(err)
	}
	// Control: the config is armed.
	l.tryGit(l.workspace, "status", "--porcelain")
	if _, err := os.Lstat(l.owned); err != nil {
		t.Error("control: git in the workspace ran nothing, so the test proves nothing")
	}
}

// E2: files that send git to another directory. The commits come out by our own
// reading where they can, the run is marked.
func TestTamperedMetadata(t *testing.T) {
	for _, c := range []struct {
		name             string
		change           func(l *lab)
		broken, tampered string
		commits          int
	}{
		{"commondir", func(l *lab) {
			l.must(os.CopyFS(filepath.Join(l.workspace, "e"), os.DirFS(filepath.Join(l.workspace, ".git"))))
			l.git(l.workspace, "config", "-f", "e/config", "core.fsmonitor", "touch "+l.owned)
			l.write(l.workspace, ".git/commondir", filepath.Join(l.workspace, "e")+"\n")
		}, "", "commondir", 2},
		{"worktree config", func(l *lab) {
			l.git(l.workspace, "config", "extensions.worktreeConfig", "true")
			l.git(l.workspace, "config", "-f", ".git/config.worktree", "core.fsmonitor", "touch "+l.owned)
		}, "", "config.worktree", 2},
		{"git file", func(l *lab) {
			l.must(os.Rename(filepath.Join(l.workspace, ".git"), filepath.Join(l.workspace, "ignored")))
			l.git(l.workspace, "config", "-f", "ignored/config", "core.fsmonitor", "touch "+l.owned)
			l.write(l.workspace, ".git", "gitdir: ignored\n")
		}, "file", "", 1},
		{"link", func(l *lab) {
			l.must(os.Rename(filepath.Join(l.workspace, ".git"), filepath.Join(l.workspace, "ignored")))
			l.git(l.workspace, "config", "-f", "ignored/config", "core.fsmonitor", "touch "+l.owned)
			l.must(os.Symlink("ignored", filepath.Join(l.workspace, ".git")))
		}, "link", "", 1},
		{"missing", func(l *lab) { l.must(os.RemoveAll(filepath.Join(l.workspace, ".git"))) }, "missing", "", 1},
		{"objects gone", func(l *lab) { l.must(os.RemoveAll(filepath.Join(l.workspace, ".git/objects"))) }, "objects", "", 1},
		{"objects emptied", func(l *lab) {
			l.must(os.RemoveAll(filepath.Join(l.workspace, ".git/objects")))
			l.must(os.Mkdir(filepath.Join(l.workspace, ".git/objects"), 0o755))
		}, "history", "", 1},
		{"head is prose", func(l *lab) { l.write(l.workspace, ".git/HEAD", "$(touch "+l.owned+")\n") }, "head", "", 1},
		{"head leads out", func(l *lab) {
			l.write(l.workspace, "ignored/x", l.git(l.workspace, "rev-parse", "HEAD")+"\n")
			l.write(l.workspace, ".git/HEAD", "ref: refs/heads/../../../ignored/x\n")
		}, "head", "", 1},
		{"head is an option", func(l *lab) { l.write(l.workspace, ".git/HEAD", "--upload-pack=touch\n") }, "head", "", 1},
		{"head is binary", func(l *lab) { l.write(l.workspace, ".git/HEAD", strings.Repeat("\x00\xff\n", 100_000)) }, "head", "", 1},
		{"packed ref", func(l *lab) { l.git(l.workspace, "pack-refs", "--all") }, "", "", 2},
		{"detached", func(l *lab) { l.git(l.workspace, "checkout", "-q", "--detach") }, "", "", 2},
		{"replaced objects", func(l *lab) {
			l.git(l.workspace, "replace", "HEAD", string(l.base))
		}, "", "refs/replace", 2},
		{"other branch", func(l *lab) { l.git(l.workspace, "checkout", "-q", "-b", "feature/x.y_z") }, "", "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.write(l.workspace, "a.txt", "committed\n")
			l.commit("work")
			l.write(l.workspace, "b.txt", "left over\n")
			c.change(l)
			e := l.mustTake()
			if e.Kind != Bundle || strings.Join(e.Broken, ",") != c.broken || strings.Join(e.Tampered, ",") != c.tampered {
				t.Fatalf("export = %+v", e)
			}
			r, err := l.receive(e)
			l.must(err)
			list, err := r.Repo.RevList(l.ctx, gitcmd.RevListOptions{Include: []gitcmd.Hash{r.Head}, Exclude: []gitcmd.Hash{l.base}})
			if err != nil || len(list) != c.commits {
				t.Errorf("%d commits, %v; want %d", len(list), err, c.commits)
			}
			for name, want := range map[string]string{"a.txt": "committed\n", "b.txt": "left over\n"} {
				if text, err := r.Repo.FileAt(l.ctx, r.Head, name, 100); err != nil || string(text) != want {
					t.Errorf("%s = %q, %v", name, text, err)
				}
			}
			l.notOwned()
		})
	}
}

func TestTakeKeepsAnArchiveWhereGitFails(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "changed\n")
	l.write(l.workspace, "new.txt", "new\n")
	l.driver.path = t.TempDir()
	l.write(l.driver.path, "git", "#!/bin/sh\n[ \"$1\" = pack-objects ] && exit 1\nPATH=${PATH#*:}\nexec git \"$@\"\n")
	l.must(os.Chmod(filepath.Join(l.driver.path, "git"), 0o755))
	e := l.mustTake()
	if e.Kind != Archive || !slices.Equal(e.Broken, []string{"history", "git"}) {
		t.Fatalf("export = %+v", e)
	}
	out := filepath.Join(t.TempDir(), "out")
	l.must(os.Mkdir(out, 0o755))
	untar(t, e.Path, out)
	for name, want := range map[string]string{"a.txt": "changed\n", "new.txt": "new\n"} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(text) != want {
			t.Errorf("%s in the archive = %q, %v", name, text, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(out, "docs")); err == nil {
		t.Error("the archive holds files that did not change")
	}
	// It is kept, and nothing else can be done with it.
	path, err := Rescue(RescueOptions{Dir: filepath.Join(l.engine, "rescue"), Run: "run-1", Export: e})
	if err != nil || filepath.Base(path) != "run-1.tar" {
		t.Errorf("Rescue = %q, %v", path, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() != e.Size {
		t.Errorf("rescue file %v, %v", info, err)
	}
	var refusal *Refusal
	if _, err := l.receive(e); !errors.As(err, &refusal) || refusal.Rule != RuleBundle {
		t.Errorf("an archive was received: %v", err)
	}
	if path, err := Rescue(RescueOptions{Dir: filepath.Join(l.engine, "rescue"), Run: "run-1", Export: e}); err != nil || filepath.Base(path) != "run-1.1.tar" {
		t.Errorf("second Rescue = %q, %v", path, err)
	}
	if _, err := Rescue(RescueOptions{Dir: filepath.Join(l.engine, "rescue"), Run: "../x", Export: e}); err == nil {
		t.Error("a run id that leads out was accepted")
	}
}

// What git could not add: files that it may not read are reported, every other
// reason keeps an archive instead of a commit with holes.
func TestTakeTellsWhyGitLeftFilesOut(t *testing.T) {
	for said, want := range map[string]Kind{
		"error: open(\"x\"): Permission denied\nerror: unable to index file 'x'": Bundle,
		"error: invalid path '.GIT/x'\nerror: unable to add '.GIT/x' to index":   Bundle,
		"error: file write error: No space left on device":                       Archive,
		"fatal: out of memory":                   Archive,
		"error: open(\"x\"): Input/output error": Archive,
	} {
		l := newLab(t)
		l.write(l.workspace, "a.txt", "changed\n")
		l.driver.path = t.TempDir()
		l.write(l.driver.path, "said", said+"\n")
		l.write(l.driver.path, "git", "#!/bin/sh\nhere=${PATH%%:*}\nPATH=${PATH#*:}\n[ \"$1\" = add ] && { git \"$@\"; cat \"$here/said\" >&2; exit 1; }\nexec git \"$@\"\n")
		l.must(os.Chmod(filepath.Join(l.driver.path, "git"), 0o755))
		if e := l.mustTake(); e.Kind != want || (want == Bundle) != e.Incomplete {
			t.Errorf("%s: export = %+v", said, e)
		}
	}
}

func TestTakeStopsAtItsCap(t *testing.T) {
	l := newLab(t)
	noise := make([]byte, 300_000)
	x := uint32(1)
	for i := range noise {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	l.write(l.workspace, "noise", string(noise))
	var refusal *Refusal
	if _, err := l.take(func(o *ExportOptions) { o.MaxBytes = 100_000 }); !errors.As(err, &refusal) || refusal.Rule != RuleBytes {
		t.Errorf("export over its cap: %v", err)
	}
	if files, err := os.ReadDir(filepath.Join(l.engine, "spool")); err != nil || len(files) != 0 {
		t.Errorf("the spool holds %v, %v", files, err)
	}
	if e := l.mustTake(func(o *ExportOptions) { o.MaxBytes = 400_000 }); e.Kind != Bundle {
		t.Errorf("control: %+v", e)
	}
}

func TestReportOfTheInsideIsNotBelieved(t *testing.T) {
	base := gitcmd.Hash(strings.Repeat("a", 40))
	head := strings.Repeat("b", 40)
	good := "confine-export 1\nnote leftovers\nnested x\nhead " + head + "\npayload bundle 5\n"
	write := func(report, payload string) error {
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r := &receiver{file: f, left: 100}
		for i := range len(report) { // byte by byte: a report may be cut anywhere
			if _, err := r.Write([]byte(report[i : i+1])); err != nil {
				return err
			}
		}
		if _, err := r.Write([]byte("\n" + payload)); err != nil {
			return err
		}
		_, err = r.finish(base)
		return err
	}
	if err := write(good, "12345"); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, c := range map[string][2]string{
		"cut payload":   {good, "1234"},
		"long payload":  {good, "123456"},
		"over the cap":  {strings.Replace(good, " 5\n", " 200\n", 1), strings.Repeat("x", 200)},
		"other version": {strings.Replace(good, "export 1", "export 2", 1), "12345"},
		"unknown line":  {strings.Replace(good, "note leftovers", "noted", 1), "12345"},
		"unknown note":  {strings.Replace(good, "note leftovers", "note broken everything", 1), "12345"},
		"short head":    {strings.Replace(good, head, head[:39], 1), "12345"},
		"no head":       {strings.Replace(good, "head "+head+"\n", "", 1), "12345"},
		"other kind":    {strings.Replace(good, "bundle", "program", 1), "12345"},
		"nothing":       {strings.Replace(good, "bundle 5", "nothing 0", 1), ""},
		"second end":    {good + "payload bundle 5\n", "12345"},
		"signed size":   {strings.Replace(good, " 5\n", " +5\n", 1), "12345"},
		"endless":       {"confine-export 1\n" + strings.Repeat("nested x\n", 100_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := write(c[0], c[1]); err == nil {
				t.Error("was accepted")
			}
		})
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add("confine-export 1\nnote leftovers\nhead " + strings.Repeat("b", 40) + "\npayload bundle 5\n")
	f.Add("confine-export 1\npayload archive -1\n")
	f.Fuzz(func(t *testing.T, text string) {
		base := gitcmd.Hash(strings.Repeat("a", 40))
		e, size, err := parseReport(strings.NewReader(text), base)
		if err != nil {
			return
		}
		if size < -1 || (e.Kind == Bundle && (size <= 0 || e.Head == "")) || (e.Kind != Bundle && e.Kind != Nothing && e.Kind != Archive) {
			t.Errorf("accepted %+v, %d", e, size)
		}
		if s := fmt.Sprint(e.Nested); strings.ContainsAny(s, "\x1b\x00\u202e") {
			t.Errorf("nested paths hold %q", s)
		}
	})
}
