package workspace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// write makes files below dir: "a -> b" is a link, a name ending in "/" a
// directory, anything else a file with its name as content.
func write(t *testing.T, dir string, entries ...string) {
	t.Helper()
	for _, e := range entries {
		name, link, isLink := strings.Cut(e, " -> ")
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			err = os.Symlink(link, p)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		default:
			err = os.WriteFile(p, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	write(t, dir, filepath.Dir(name)+"/")
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// repo are the files of a repository's directory.
func repo(git string) []string {
	var out []string
	for _, f := range []string{"HEAD", "config", "hooks/pre-commit", "hooks/pre-push.sample", "info/exclude", "objects/pack/", "refs/heads/main"} {
		out = append(out, git+"/"+f)
	}
	return out
}

func live(t *testing.T, dir string, masks ...string) *LiveWorkspace {
	t.Helper()
	l, err := Live(Options{Dir: dir, Masks: masks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := boundary.Boundary{Version: boundary.Version, Tenant: "t", View: boundary.View{Mounts: l.Mounts, Workdir: "/"}}
	if err := b.Validate(); err != nil {
		t.Error(err)
	}
	return l
}

// seen says how a path of the workspace is seen inside: the last mount at or
// above it decides.
func seen(l *LiveWorkspace, rel string) string {
	how := "absent"
	for _, m := range l.Mounts {
		if !within(filepath.Join(Inside, rel), m.Target) {
			continue
		}
		switch {
		case m.Kind == boundary.Mask:
			how = "masked"
		case m.Source != filepath.Join(l.Dir, strings.TrimPrefix(m.Target, Inside)):
			how = "of another place: " + m.Source
		case m.Writable:
			how = "writable"
		default:
			how = "read-only"
		}
	}
	return how
}

func pinned(l *LiveWorkspace, rel string) bool {
	return slices.ContainsFunc(l.Mounts, func(m boundary.Mount) bool { return m.Target == filepath.Join(Inside, rel) && m.Writable })
}

func TestControlFilesOfEveryRepositoryAreReadOnly(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, slices.Concat(repo(".git"), repo("vendor/sub/.git"), repo("fixtures/bare"), repo(".git/modules/dep"), []string{
		"main.go", "config", "hooks/x",
		".git/config.worktree", ".git/worktrees/w/HEAD", ".git/worktrees/w/commondir", ".git/worktrees/w/gitdir",
		".git/objects/info/alternates", ".git/index", "dep/.git", "dep/code.c",
	})...)
	l := live(t, dir)
	for rel, want := range map[string]string{
		"main.go": "writable", "config": "writable", "hooks/x": "writable", "dep/code.c": "writable", "new": "writable",
		".git/index": "writable", ".git/HEAD": "writable", ".git/refs/heads/main": "writable", ".git/objects/pack": "writable",
		".git/config": "read-only", ".git/config.worktree": "read-only", ".git/hooks/pre-commit": "read-only", ".git/hooks/new": "read-only",
		".git/info/exclude": "read-only", ".git/objects/info/alternates": "read-only", ".git/objects/info": "writable",
		"vendor/sub/.git/config": "read-only", "vendor/sub/.git/hooks/new": "read-only", "vendor/sub/.git/index": "writable",
		"fixtures/bare/config": "read-only", "fixtures/bare/hooks": "read-only", "fixtures/bare/refs": "writable",
		".git/modules/dep/config": "read-only", ".git/modules/dep/hooks": "read-only", ".git/modules/dep/index": "writable",
		".git/worktrees/w/commondir": "read-only", ".git/worktrees/w/gitdir": "read-only", ".git/worktrees/w/index": "writable",
		"dep/.git": "read-only",
	} {
		if got := seen(l, rel); got != want {
			t.Errorf("%q is %s, want %s", rel, got, want)
		}
	}
	// What is a mount can't be moved away.
	for rel, want := range map[string]bool{".git": true, "vendor/sub/.git": true, "fixtures/bare": true, ".git/modules/dep": true,
		// Nor can what is above one, with all that is in it.
		"vendor/sub": true, "vendor": true, "fixtures": true, ".git/modules": true, ".git/worktrees": true, "dep": true,
		"hooks": false, ".git/objects": false, ".git/objects/info": false} {
		if pinned(l, rel) != want {
			t.Errorf("%q is a mount of its own: %v, want %v", rel, !want, want)
		}
	}
	if want := []string{Inside, Inside + "/.git/modules/dep", Inside + "/.git/worktrees/w", Inside + "/fixtures/bare", Inside + "/vendor/sub", Inside + "/dep"}; !slices.Equal(l.SafeDirectories, want) {
		t.Errorf("git trusts %q, want %q", l.SafeDirectories, want)
	}
	if len(l.Notes) != 1 || !strings.Contains(l.Notes[0], "borrows objects") {
		t.Errorf("notes %q", l.Notes)
	}
}

func TestWhatAConfigurationOrHookNamesIsReadOnly(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, append(repo(".git"), "scripts/hook.sh", "scripts/free.sh", "team.gitconfig", "more/inner.gitconfig", "team-hooks/pre-push", "tools/clean.py", "src/", ".git/hooks/commit-msg -> ../../scripts/hook.sh")...)
	put(t, dir, ".git/config", `[core]
	hooksPath = team-hooks
	worktree = ../src
[include] path = ../team.gitconfig
[remote "src"] url = ./src
[filter "x"]
	clean = "python3 ./tools/clean.py %f" # comment
[include]
	path = /nowhere
	path = ../../outside
[core]
	attributesFile = .
`)
	put(t, dir, "team.gitconfig", "[include]\npath = more/inner.gitconfig\n")
	l := live(t, dir)
	for rel, want := range map[string]string{
		"scripts/hook.sh": "read-only", "scripts/free.sh": "writable", "team.gitconfig": "read-only", "more/inner.gitconfig": "read-only",
		"team-hooks/pre-push": "read-only", "team-hooks/new": "read-only", "tools/clean.py": "read-only", "src/x": "writable", "tools/x": "writable",
	} {
		if got := seen(l, rel); got != want {
			t.Errorf("%q is %s, want %s", rel, got, want)
		}
	}
}

func TestMasksCoverWhatExists(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, append(repo(".git"),
		".env", ".env.local", ".ENV.prod", ".env.example", ".env.Sample", ".env.template", ".env.dist", ".envrc", "env", "a/b/.env", "a/b/c",
		"venv/.env/pyvenv.cfg", "venv/.env/bin/python", "dir/.env/key", "node_modules/x/.env",
		"config/real.txt", "config/.env -> real.txt", "out/.env -> /etc/hostname", "loop/.env -> .env", "dangling/.env -> nothing",
		"keys/a.key", "keys/deep/b.key", "keys/c.pub", ".git/refs/heads/x.key", "ab\ncd/\xff.key", "secret/deep/x", "secret/y")...)
	l := live(t, dir, "*.key", "secret", "keys/*.none")
	for rel, want := range map[string]string{
		".env": "masked", ".env.local": "masked", ".ENV.prod": "masked", "a/b/.env": "masked", "node_modules/x/.env": "masked", "dir/.env/key": "masked",
		".env.example": "writable", ".env.Sample": "writable", ".env.template": "writable", ".env.dist": "writable", ".envrc": "writable", "env": "writable", "a/b/c": "writable",
		"venv/.env/bin/python": "writable",
		"config/real.txt":      "masked", "config": "writable", "out/.env": "writable",
		"keys/a.key": "masked", "keys/deep/b.key": "masked", "keys/c.pub": "writable", ".git/refs/heads/x.key": "writable",
		"ab\ncd/\xff.key": "masked", "ab\ncd": "writable", "secret/deep/x": "masked", "secret/y": "masked", "secret": "masked",
	} {
		if got := seen(l, rel); got != want {
			t.Errorf("%q is %s, want %s", rel, got, want)
		}
	}
	if slices.Contains(l.Masked, "secret/y") {
		t.Error("a file below a masked directory is masked as well")
	}
}

func TestNothingIsMountedBelowAMaskedDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, append(repo("private/repo/.git"), "link/.env -> ../private/repo", "private/repo/x")...)
	l := live(t, dir, "private")
	if len(l.Mounts) != 2 {
		t.Errorf("mounts %v", l.Mounts)
	}
	l = live(t, dir) // the link masks what it leads to
	if got := seen(l, "private/repo/.git/config"); got != "masked" {
		t.Errorf("a repository that a masked link leads to is %s", got)
	}
	if n := len(l.Mounts); n != 3 || !pinned(l, "private") {
		t.Errorf("%d mounts: %v", n, l.Mounts)
	}
}

// TestWhatAMaskNamesStaysInItsPlace: moved away, another start's mask would
// cover nothing. A pattern that means a name in any directory needs no such care.
func TestWhatAMaskNamesStaysInItsPlace(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a/b/secret", "c/d/x.key", "e/f/.env", "g/h/deep.pem")
	l := live(t, dir, "a/b/secret", "*.key", "g/**/*.pem")
	for rel, want := range map[string]bool{"a": true, "a/b": true, "c": false, "c/d": false, "e/f": false, "g": true, "g/h": true} {
		if pinned(l, rel) != want {
			t.Errorf("%q is a mount of its own: %v, want %v", rel, !want, want)
		}
	}
	for _, rel := range []string{"a/b/secret", "c/d/x.key", "e/f/.env", "g/h/deep.pem"} {
		if got := seen(l, rel); got != "masked" {
			t.Errorf("%q is %s", rel, got)
		}
	}
}

func TestGlobs(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"*.key":          {"a.key b/c.key b/.key", "a.keys a.key/b"},
		"a/*.key":        {"a/x.key", "a/b/x.key b/a/x.key x.key"},
		"**/a/*.key":     {"a/x.key b/a/x.key", "a/b/x.key"},
		"a/**/x":         {"a/x a/b/x a/b/c/x", "x a/b b/a/x"},
		"**/a/**/b":      {"a/b x/a/y/a/z/b", "a b/a"},
		"./a/":           {"a", "b/a"},
		"[ab]":           {"a x/b", "c"},
		`\*`:             {"*", "a"},
		"**/x/**/x/**/y": {"x/x/y", "x/y"},
	} {
		g, err := parseGlob(pattern)
		if err != nil {
			t.Errorf("%q: %v", pattern, err)
			continue
		}
		for _, p := range strings.Fields(c.yes) {
			if !g.match(p) {
				t.Errorf("%q does not match %q", pattern, p)
			}
		}
		for _, p := range strings.Fields(c.no) {
			if g.match(p) {
				t.Errorf("%q matches %q", pattern, p)
			}
		}
	}
	for _, bad := range []string{"", "/", "/etc/passwd", "..", "../x", "a/../b", "a//b", "a**", "a/**", "**", "[", `a\`, "a\x00b", strings.Repeat("a", 1025)} {
		var wrong *GlobError
		if _, err := parseGlob(bad); !errors.As(err, &wrong) {
			t.Errorf("%.40q: %v, want a refusal", bad, err)
		}
		if _, err := Live(Options{Dir: t.TempDir(), Masks: []string{bad}}); !errors.As(err, &wrong) {
			t.Errorf("Live with %.40q: %v", bad, err)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, p := range []string{"*", "*.key", "**/a/**/b", "[a-", "a/./b", "\\"} {
		f.Add(p, "a/b/c.key")
	}
	f.Fuzz(func(t *testing.T, pattern, rel string) {
		if g, err := parseGlob(pattern); err == nil {
			g.match(rel)
			if g.match("") {
				t.Errorf("%q matches the root", pattern)
			}
		}
	})
}

func TestMaskedHardLinkStopsTheStart(t *testing.T) {
	for name, other := range map[string]string{"in the tree": "copy.txt", "outside": "../outside.txt"} {
		base := t.TempDir()
		dir := filepath.Join(base, "w")
		write(t, dir, ".env", "plain")
		if err := os.Link(filepath.Join(dir, "plain"), filepath.Join(dir, "plain2")); err != nil {
			t.Fatal(err)
		}
		live(t, dir) // a hard link to anything else is no matter
		if err := os.Link(filepath.Join(dir, ".env"), filepath.Join(dir, other)); err != nil {
			t.Fatal(err)
		}
		var refused *MaskError
		if _, err := Live(Options{Dir: dir}); !errors.As(err, &refused) || !slices.Equal(refused.Paths, []string{".env"}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSocketOrFIFOStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "run/", "a/b/", ".git/HEAD")
	live(t, dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "run/s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := unix.Mkfifo(filepath.Join(dir, "a/b/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var refused *ChannelError
	if _, err := Live(Options{Dir: dir}); !errors.As(err, &refused) || !slices.Equal(refused.Paths, []string{"a/b/fifo", "run/s"}) {
		t.Fatalf("start with a socket: %v", err)
	}
	if refused.Hint() == "" || !strings.Contains(refused.Error(), `"run/s"`) {
		t.Errorf("the refusal says %q", refused)
	}
	live(t, dir, "run", "a/b") // masked as a whole directory it can't be reached
	if _, err := Live(Options{Dir: dir, Masks: []string{"fifo", "s"}}); !errors.As(err, &refused) {
		t.Errorf("a mask of the socket itself, which can't be made: %v", err)
	}
}

func TestControlFileThatIsALinkStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".git/HEAD", ".git/hooks -> ../elsewhere", "elsewhere/pre-commit")
	var refused *ControlError
	if _, err := Live(Options{Dir: dir}); !errors.As(err, &refused) || !slices.Equal(refused.Paths, []string{".git/hooks"}) {
		t.Errorf("hooks as a link: %v", err)
	}
	dir = t.TempDir()
	write(t, dir, ".git -> elsewhere", "elsewhere/HEAD")
	if _, err := Live(Options{Dir: dir}); !errors.As(err, &refused) || !slices.Equal(refused.Paths, []string{".git"}) {
		t.Errorf(".git as a link: %v", err)
	}
}

func TestDangerousDirectoriesAreRefused(t *testing.T) {
	home := t.TempDir()
	write(t, home, "project/x", ".ssh/id", ".config/gh/x", ".config/nvim/x", "link -> .", "state/confine/x")
	real, err := filepath.EvalSymlinks(home)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Home: home, StateDir: filepath.Join(home, "state/confine")}
	for _, dir := range []string{"/", "/etc", "/etc/ssl", "/usr", "/usr/bin", "/proc/self", "/sys", "/dev", "/tmp", "/var/lib", home, home + "/.", home + "/link", filepath.Dir(real), home + "/.ssh", home + "/.config/gh", home + "/state", home + "/state/confine", home + "/state/confine/x/.."} {
		o.Dir = dir
		var refused *DirError
		if _, err := Live(o); !errors.As(err, &refused) || refused.Hint() == "" {
			t.Errorf("%q: %v, want a refusal", dir, err)
		}
	}
	for _, dir := range []string{home + "/project", home + "/.config/nvim", home + "/link/project"} {
		o.Dir = dir
		l, err := Live(o)
		if err != nil {
			t.Errorf("%q: %v", dir, err)
			continue
		}
		if strings.Contains(l.Dir, "link") || l.Mounts[0].Source != l.Dir {
			t.Errorf("%q is mounted from %q", dir, l.Dir)
		}
		l.Close()
	}
}

func TestLinksOutOfTheTreeMountNothing(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, "canary", "repo/.git/config", "repo/.git/HEAD")
	dir := t.TempDir()
	write(t, dir, "vendor -> "+outside, "sub/.git", ".env -> "+outside+"/canary")
	put(t, dir, "sub/.git", "gitdir: "+outside+"/repo/.git\n")
	put(t, dir, "r/.git/HEAD", "x")
	put(t, dir, "r/.git/objects/info/alternates", outside)
	put(t, dir, "r/.git/commondir", outside)
	for _, m := range live(t, dir).Mounts {
		if m.Kind == boundary.Bind && !within(m.Source, resolved(dir)) {
			t.Errorf("mount %+v leaves the directory", m)
		}
	}
}

func TestTooManyEntriesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		write(t, dir, fmt.Sprintf("d%d/f", i))
	}
	var refused *LimitError
	if _, err := Live(Options{Dir: dir, MaxEntries: 39}); !errors.As(err, &refused) {
		t.Errorf("40 entries, 39 allowed: %v", err)
	}
	if l, err := Live(Options{Dir: dir, MaxEntries: 40}); err != nil {
		t.Errorf("40 entries, 40 allowed: %v", err)
	} else {
		l.Close()
	}
}

func TestThousandsOfMasksStayWithinReason(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		put(t, dir, fmt.Sprintf("d/%d.key", i), "")
	}
	if l := live(t, dir, "*.key"); len(l.Masked) != 3000 {
		t.Errorf("%d masks", len(l.Masked))
	}
}

// readEntries must give what the standard library gives.
func TestReadEntriesAgreesWithTheStandardLibrary(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", "b/", "c -> a", "d\ne", "\xff\xfe", strings.Repeat("n", 255))
	for i := range 2000 {
		put(t, dir, fmt.Sprintf("f%d", i), "")
	}
	for _, p := range []string{dir, "/etc", "/dev", "/proc/self"} {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := readEntries(int(f.Fd()), make([]byte, 4096), 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadDir(p)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[os.FileMode]uint8{0: unix.DT_REG, os.ModeDir: unix.DT_DIR, os.ModeSymlink: unix.DT_LNK, os.ModeDevice: unix.DT_BLK, os.ModeDevice | os.ModeCharDevice: unix.DT_CHR, os.ModeSocket: unix.DT_SOCK, os.ModeNamedPipe: unix.DT_FIFO}
		have := map[string]uint8{}
		for _, e := range got {
			have[e.name] = e.kind
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d entries, want %d", p, len(got), len(want))
		}
		for _, e := range want {
			if have[e.Name()] != kinds[e.Type()] {
				t.Errorf("%s: %q is kind %d, want %v", p, e.Name(), have[e.Name()], e.Type())
			}
		}
	}
}

func BenchmarkLive(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		d := filepath.Join(dir, fmt.Sprintf("d%d/x", i))
		if err := os.MkdirAll(d, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 20 {
			if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("f%d.go", j)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		l, err := Live(Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}

// What this user can't read is closed to the run as well, unless the run could
// open it.
func TestDirectoryThatCantBeReadStopsTheStartIfItIsOurs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "mine/.env")
	l := live(t, dir)
	var refused *DirError
	if err := l.checkUnseen(&scan{unseen: map[string]error{"mine": unix.EACCES}}); !errors.As(err, &refused) || refused.Hint() == "" {
		t.Errorf("a directory of this user: %v", err)
	}
	if err := l.checkUnseen(&scan{unseen: map[string]error{"gone": unix.EIO}}); !errors.As(err, &refused) {
		t.Errorf("a directory that can't be looked at: %v", err)
	}
	if err := l.checkUnseen(&scan{}); err != nil {
		t.Errorf("the control: %v", err)
	}
}
