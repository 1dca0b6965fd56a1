//go:build linux

package boundary

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// reviewed runs a script in dir by `confine run --json` and returns what the
// review of its live writes says: "kind path" each, sorted.
func reviewed(t *testing.T, dir string, flags []string, script string) []string {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	out, errs, status := confined(t, dir, []string{"XDG_STATE_HOME=" + state}, append(append([]string{"--json", "--live"}, flags...), "--", "sh", "-ec", script)...)
	var report struct {
		Stdout, Stderr string
		Review         []struct {
			Kind, Path string
			HeldAt     string `json:"held_at"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != 0 {
		t.Fatalf("status %d, %v: %.500s %.500s", status, err, out, errs)
	}
	var found []string
	for _, f := range report.Review {
		found = append(found, f.Kind+" "+f.Path)
		if f.HeldAt != "" {
			if _, err := os.Lstat(f.HeldAt); err != nil {
				t.Errorf("%s is not held: %v", f.Path, err)
			}
		}
	}
	slices.Sort(found)
	return found
}

func expectReview(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the review lists\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// A todo list of a rebase was not listed, and `git rebase --continue` outside ran
// what it says.
func TestPlantedRebaseIsListed(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, `git init -q -b main . && echo a >a && git add a && git commit -qm one && echo b >a && git commit -qam two`)
	got := reviewed(t, dir, nil, `git -c user.name=a -c user.email=a@example.com -c sequence.editor='sed -i 1iedit\ HEAD' rebase -q -i HEAD~1 >/dev/null 2>&1 || true
		test -d .git/rebase-merge || mkdir .git/rebase-merge
		echo "exec touch planted" >.git/rebase-merge/git-rebase-todo`)
	if !slices.Contains(got, "unfinished git operation .git/rebase-merge/git-rebase-todo") {
		t.Errorf("the review lists %q", got)
	}
}

func TestWhatAgentsAndToolsObeyIsListed(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, `git init -q -b main . && echo a >a && git add a && git commit -qm one`)
	got := reviewed(t, dir, nil, `mkdir -p .hg .jj/repo .mise gradle/wrapper .github/workflows .cursor/rules
		for f in CLAUDE.md AGENTS.md .hg/hgrc .jj/repo/config.toml .mise/config.toml .tool-versions rust-toolchain.toml gradle/wrapper/gradle-wrapper.properties bunfig.toml .dir-locals-2.el .cursorrules .cursor/rules/a.mdc .github/workflows/ci.yml .github/copilot-instructions.md; do echo x >$f; done
		echo x >plain.md; git add a`)
	expectReview(t, got, "agent instructions CLAUDE.md", "agent instructions AGENTS.md", "agent instructions .cursorrules", "agent instructions .github/copilot-instructions.md", "agent settings .cursor/rules/a.mdc",
		"version control settings .hg/hgrc", "version control settings .jj/repo/config.toml", "shell environment .mise/config.toml", "shell environment .tool-versions", "choice of a toolchain rust-toolchain.toml",
		"package manager settings gradle/wrapper/gradle-wrapper.properties", "package manager settings bunfig.toml", "editor settings .dir-locals-2.el", "pipeline of the code host .github/workflows/ci.yml")
}

// A FIFO or socket that a run left was not listed, and no run started there again.
func TestSpecialFilesOfARunAreTakenAway(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "echo a >a")
	const make = `mkfifo fifo; mkdir sub; mkfifo sub/fifo; chmod 500 sub
		perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && bind(S, sockaddr_un("sock")) or die $!;
			$a="a"; $b="b"; my $n=` + "`uname -m`" + ` =~ /aarch64/ ? 276 : 316; syscall($n, -100, $a, -100, $b, 4) == 0 or die $!'
		test -c a`
	const k = "socket, FIFO or device "
	expectReview(t, reviewed(t, dir, nil, make), k+"fifo", k+"sub/fifo", k+"sock", k+"a")
	if left := shell(t, dir, "find . -type p -o -type s -o -type c"); left != "" {
		t.Errorf("left behind: %q", left)
	}
	expectReview(t, reviewed(t, dir, nil, "test -s b"))
	shell(t, dir, "chmod 700 sub")
}

// A deep tree made the review slow, and no run started there again.
func TestDeepTreesAreReviewed(t *testing.T) {
	t.Parallel() // mostly waiting
	dir := t.TempDir()
	begin := time.Now()
	got := reviewed(t, dir, nil, `perl -e 'for (1..6000) { mkdir "d" or die $!; chdir "d" or die $! } open F, ">.envrc" or die $!'`)
	if len(got) != 1 || !strings.HasPrefix(got[0], "shell environment d/d/d") || !strings.HasSuffix(got[0], "/d/.envrc") {
		t.Errorf("the review lists %.200q", got)
	}
	expectReview(t, reviewed(t, dir, nil, "test -d d/d"))
	t.Logf("%v for both", time.Since(begin))
	shell(t, dir, "rm -rf d")
}

// git add -A staged masked files as empty ones.
func TestMaskedFilesAreNotAdded(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, `git init -q -b main . && mkdir conf sub && echo T=1 >tracked.key && echo a >a && echo other >other.key.txt && git add . && git commit -qm one
		echo S=1 >.env && echo k >conf/x.key && git init -q sub && echo S=2 >sub/.env && cp .git/index /tmp/$$ && rm /tmp/$$`)
	commit := `git -c user.name=a -c user.email=a@example.com commit -q`
	got := reviewed(t, dir, []string{"--mask", "*.key"}, `test ! -s .env; test ! -s tracked.key; echo b >a; echo n >new; git add -A . ':!sub' && `+commit+` -m two && echo c >a && `+commit+` -am three
		(cd sub && echo s >s && git add -A && `+commit+` -m s)
		! git add -f .env 2>err; grep -q masked err; rm err`)
	expectReview(t, got)
	if out := shell(t, dir, "git status --porcelain; git diff --stat HEAD~2 HEAD --name-only; git show HEAD:tracked.key; git -C sub ls-files; cat .env conf/x.key sub/.env tracked.key"); out != "?? .env\n?? conf/\n?? sub/\na\nnew\nT=1\ns\nS=1\nk\nS=2\nT=1\n" {
		t.Errorf("outside git says %q", out)
	}
	// What gets around that is named: here the object of another file.
	got = reviewed(t, dir, []string{"--mask", "*.key"}, `git update-index --add --cacheinfo 100644,$(git hash-object -w a),.env && git rm -q --cached tracked.key`)
	expectReview(t, got, "masked file in git .env", "masked file in git tracked.key")
}
