package handover

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"confine/internal/gitcmd"
	"confine/internal/leak"
)

func TestCheckPassesAnOrdinaryChange(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, "a.txt", "new\n")
	l.write(l.workspace, "src/main é.go", "package main\n")
	l.commit("work")
	l.write(l.workspace, "go.mod", "module x\n")
	l.commit("more")
	_, report := l.through(Rules{})
	if !report.Passed() || len(report.Commits) != 2 || len(report.Changes) != 3 || len(report.Approvals) != 0 || !has(report.Notes, RulePath, "go.mod") {
		t.Errorf("report %+v", report)
	}
	if (&Report{}).Passed() || (*Report)(nil).Passed() {
		t.Error("a report that was not made passed")
	}
}

// E7: names that a guard misreads. Each is found as what it is, in the commit
// that made it, also when a later commit takes it back.
func TestCheckFindsProtectedPaths(t *testing.T) {
	names := []string{".github/workflows/é.yml", ".github/workflows/a\tb.yml", ".github/workflows/a\"b.yml", ".github/workflows/x\n.yml",
		".GitHub/workflows/a.yml", ".gitlab-ci.yml", "sub/Jenkinsfile", "sub/.GITLAB-CI.YML", ".circleci/config.yml", ".forgejo/x", "azure-pipelines.yml"}
	l := newLab(t)
	l.write(l.workspace, "a.txt", "neighbour\n")
	for _, name := range names {
		l.write(l.workspace, name, "evil\n")
	}
	bad := l.commit("add")
	for _, name := range names {
		l.must(os.Remove(filepath.Join(l.workspace, name)))
	}
	l.commit("take back")
	_, report := l.through(Rules{})
	for _, name := range names {
		i := slices.IndexFunc(report.Refusals, func(r Refusal) bool { return r.Rule == RulePath && r.Path == name })
		if i < 0 || report.Refusals[i].Commit != bad || report.Refusals[i].Field == "" {
			t.Errorf("%q: refusals %v", name, report.Refusals)
			continue
		}
		one := &Report{Refusals: report.Refusals[i : i+1]}
		if text := (&RefusedError{one}).Error(); strings.ContainsAny(text, "\n\t\x1b") {
			t.Errorf("the error holds control characters: %q", text)
		}
	}
	if has(report.Refusals, RulePath, "a.txt") {
		t.Error("the neighbour is refused")
	}
}

func TestCheckFindsEveryKindOfChange(t *testing.T) {
	const ci = ".github/workflows/ci.yml"
	for name, change := range map[string]func(l *lab){
		"edit":   func(l *lab) { l.write(l.workspace, ci, "evil\n") },
		"delete": func(l *lab) { l.must(os.Remove(filepath.Join(l.workspace, ci))) },
		"mode":   func(l *lab) { l.must(os.Chmod(filepath.Join(l.workspace, ci), 0o755)) },
		"rename": func(l *lab) {
			l.must(os.Rename(filepath.Join(l.workspace, ci), filepath.Join(l.workspace, "docs/ci.yml")))
		},
		"rename to": func(l *lab) {
			l.must(os.Rename(filepath.Join(l.workspace, "docs/guide.md"), filepath.Join(l.workspace, ci)))
		},
		"link": func(l *lab) {
			l.must(os.Remove(filepath.Join(l.workspace, ci)))
			l.must(os.Symlink("../../docs", filepath.Join(l.workspace, ci)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			change(l)
			l.commit("work")
			_, report := l.through(Rules{})
			if !has(report.Refusals, RulePath, ci) {
				t.Errorf("refusals %v", report.Refusals)
			}
		})
	}
	t.Run("directory replaced by a link", func(t *testing.T) {
		l := newLab(t)
		l.must(os.RemoveAll(filepath.Join(l.workspace, ".github")))
		l.must(os.Symlink("docs", filepath.Join(l.workspace, ".github")))
		l.commit("work")
		_, report := l.through(Rules{AllowSymlinks: true})
		if !has(report.Refusals, RulePath, ".github") || !has(report.Approvals, RuleSymlink, ".github") {
			t.Errorf("report %v %v", report.Refusals, report.Approvals)
		}
	})
}

func TestProtection(t *testing.T) {
	p, err := NewProtection(ProtectOptions{
		Refuse: []string{"secrets/**", "*.sql"}, Approval: []string{"go.mod", "docs/api/*.md", ".github/dependabot.yml"}, Free: []string{".github/dependabot.yml"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Tier{
		"secrets/a/b": TierRefuse, "secrets": TierRefuse, "Secrets/x": TierRefuse, "x/secrets/a": TierFree,
		"db/x.SQL": TierRefuse, "go.mod": TierApproval, "sub/go.mod": TierApproval, "go.sum": TierNote, "go.mods": TierFree,
		"docs/api/x.md": TierApproval, "docs/api/v1/x.md": TierFree, ".github/dependabot.yml": TierApproval, ".github/x": TierRefuse,
		"package.json": TierNote, ".vscode/tasks.json": TierApproval, "x/.envrc": TierApproval, "src/main.go": TierFree, "K.txt": TierFree,
		".g\u200dithub/workflows/x": TierRefuse, ".gıthub/x": TierFree,
	} {
		if v := p.Decide(path); v.Tier != want || (want != TierFree && (v.Field == "" || v.Pattern == "")) {
			t.Errorf("Decide(%q) = %+v, want %q", path, v, want)
		}
	}
	for _, bad := range []string{"", "/abs", "a//b", "../x", "a/**b", "[a", "./x"} {
		if _, err := NewProtection(ProtectOptions{Note: []string{bad}}); err == nil {
			t.Errorf("the pattern %q was accepted", bad)
		}
	}
	// The built-in patterns parse, which the zero value of Rules relies on.
	if p, err := NewProtection(ProtectOptions{}); err != nil || p.Decide(".github/x").Tier != TierRefuse {
		t.Errorf("built-in patterns: %v", err)
	}
	if d := (Rules{}).withDefaults(); d.Protection.Decide("Jenkinsfile").Tier != TierRefuse {
		t.Error("the zero value of Rules protects nothing")
	}
}

// E4: submodules and the files that steer git.
func TestCheckRefusesSubmodulesAndGitFiles(t *testing.T) {
	l := newLab(t)
	l.write(l.workspace, ".gitmodules", "[submodule \"x\"]\n\tpath = \"x\\r\"\n\turl = https://example.com/x\n")
	l.write(l.workspace, "sub/.GitAttributes", "* filter=x\n")
	l.write(l.workspace, ".lfsconfig", "[lfs]\n\turl = https://evil.example\n")
	l.write(l.workspace, "gitattributes", "neighbour\n")
	l.git(l.workspace, "update-index", "--add", "--cacheinfo", "160000,"+string(l.base)+",mod")
	l.git(l.workspace, "add", "-A", "--", ".gitmodules", "sub", ".lfsconfig", "gitattributes")
	l.git(l.workspace, "commit", "-q", "-m", "work")
	_, report := l.through(Rules{})
	for rule, paths := range map[Rule][]string{RuleGitFile: {".gitmodules", "sub/.GitAttributes", ".lfsconfig"}, RuleSubmodule: {"mod"}} {
		for _, p := range paths {
			if !has(report.Refusals, rule, p) {
				t.Errorf("%s %s is not refused: %v", rule, p, report.Refusals)
			}
		}
	}
	if has(report.Refusals, RuleGitFile, "gitattributes") {
		t.Error("the neighbour is refused")
	}
	_, report = l.through(Rules{AllowGitFiles: true, AllowSubmodules: true})
	if !report.Passed() || !has(report.Approvals, RuleSubmodule, "mod") || !has(report.Approvals, RuleGitFile, ".lfsconfig") {
		t.Errorf("allowed, they need an approval: %v %v", report.Refusals, report.Approvals)
	}
}

func TestCheckRefusesLinks(t *testing.T) {
	l := newLab(t)
	l.must(os.Symlink(".github/workflows", filepath.Join(l.workspace, "docs2")))
	l.must(os.Symlink("/etc/passwd", filepath.Join(l.workspace, "p")))
	l.commit("work")
	_, report := l.through(Rules{})
	if !has(report.Refusals, RuleSymlink, "docs2") || !has(report.Refusals, RuleSymlink, "p") {
		t.Errorf("refusals %v", report.Refusals)
	}
}

// E8: content that is only in a merge, or off the first parent.
func TestCheckSeesMerges(t *testing.T) {
	l := newLab(t)
	w := l.workspace
	l.git(w, "checkout", "-q", "-b", "side")
	l.write(w, ".github/workflows/side.yml", "evil\n")
	l.commit("side")
	l.git(w, "rm", "-q", ".github/workflows/side.yml")
	l.commit("side back")
	l.git(w, "checkout", "-q", "main")
	l.write(w, "a.txt", "main\n")
	l.commit("main")
	l.git(w, "merge", "-q", "--no-commit", "--no-ff", "side")
	l.write(w, ".github/workflows/only-in-merge.yml", "evil\n")
	merge := l.commit("merge")
	for _, rules := range []Rules{{}, {AllowMerges: true}} {
		_, report := l.through(rules)
		for _, p := range []string{".github/workflows/side.yml", ".github/workflows/only-in-merge.yml"} {
			if !has(report.Refusals, RulePath, p) {
				t.Errorf("merges allowed %v: %s is not refused: %v", rules.AllowMerges, p, report.Refusals)
			}
		}
		list := report.Refusals
		if rules.AllowMerges {
			list = report.Approvals
		}
		if !slices.ContainsFunc(list, func(r Refusal) bool { return r.Rule == RuleMerge && r.Commit == merge }) {
			t.Errorf("merges allowed %v: the merge is not named: %v", rules.AllowMerges, list)
		}
	}
}

func TestCheckRefusesUnrelatedRoots(t *testing.T) {
	l := newLab(t)
	w := l.workspace
	l.git(w, "checkout", "-q", "--orphan", "other")
	l.commit("root")
	l.git(w, "checkout", "-q", "main")
	l.git(w, "merge", "-q", "--allow-unrelated-histories", "-s", "ours", "-m", "merge", "other")
	_, report := l.through(Rules{AllowMerges: true})
	if !slices.ContainsFunc(report.Refusals, func(r Refusal) bool { return r.Rule == RuleRoot }) {
		t.Errorf("refusals %v", report.Refusals)
	}
}

// E13: history below the base rewritten, extra refs.
func TestCheckRefusesARewrittenBase(t *testing.T) {
	for name, change := range map[string]func(l *lab){
		"amended": func(l *lab) { l.git(l.workspace, "commit", "-q", "--amend", "-m", "base, amended") },
		"reset":   func(l *lab) { l.git(l.workspace, "reset", "-q", "--hard", "HEAD~1") },
		"new root": func(l *lab) {
			l.git(l.workspace, "checkout", "-q", "--orphan", "fresh")
			l.commit("root")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			change(l)
			l.write(l.workspace, "b.txt", "work\n")
			l.commit("work")
			_, report := l.through(Rules{})
			if report.Passed() || len(report.Refusals) != 1 || report.Refusals[0].Rule != RuleBase {
				t.Errorf("refusals %v", report.Refusals)
			}
		})
	}
	t.Run("extra refs stay behind", func(t *testing.T) {
		l := newLab(t)
		l.write(l.workspace, "b.txt", "work\n")
		l.commit("work")
		l.git(l.workspace, "tag", "v9")
		l.git(l.workspace, "notes", "add", "-m", "x")
		l.git(l.workspace, "branch", "evil")
		l.git(l.workspace, "config", "remote.origin.push", "+refs/*:refs/*")
		r, report := l.through(Rules{})
		refs, err := r.Repo.Refs(l.ctx, "refs")
		if err != nil || len(refs) != 1 || refs[0].Ref != headRef || !report.Passed() {
			t.Errorf("refs in quarantine %v, %v; %v", refs, err, report.Refusals)
		}
	})
}

// E14: secrets in a middle commit, in every place that is published.
func TestCheckFindsSecrets(t *testing.T) {
	key := "AKIA" + "IOSFODNN7EXAMPLE"
	token := "ghp_" + strings.Repeat("a1B2", 9)
	known := "correct-horse-battery-staple-42"
	l := newLab(t)
	file := func(name, text string) { l.write(l.workspace, name, text) }
	want := map[string]string{ // path: what it is a case of
		"k.txt": "added, removed by the next commit", "bin": "in a binary", "wide": "in UTF-16", "b64": "in base64", "big": "over two windows",
		"dir/[secret].txt": "in a file name", ".env.test": "in a tracked file", "ln": "in a link", "id": "a private key",
		"known1": "the tenant's own", "known2": "without its first characters", "known3": "reversed", "known4": "in hexadecimal", "known5": "in base64",
	}
	file("a.txt", "neighbour "+strings.Repeat("harmless words ", 50)+"\n")
	file("k.txt", "first "+key+"\n")
	file("bin", "\x00\x01\xff"+key+"\xfe\x00")
	file("wide", strings.Join(strings.Split(key, ""), "\x00")+"\x00\n")
	file("b64", base64.StdEncoding.EncodeToString([]byte("token = "+token)))
	file("big", strings.Repeat("x ", (leak.WindowBytes+leak.OverlapBytes-20)/2)+token+"\n")
	file("dir/"+key+".txt", "x\n")
	file(".env.test", "KEY=nothing\nAWS="+key+"\n")
	file("id", "-----BEGIN OPENSSH "+"PRIVATE KEY-----\nx\n")
	file("known1", "pw: "+known+"\n")
	file("known2", "pw: "+known[6:]+"\n")
	file("known3", "24-elpats-yrettab-esroh-tcerroc\n")
	file("known4", fmt.Sprintf("%x", known))
	file("known5", base64.URLEncoding.EncodeToString([]byte("ab"+known+"cd")))
	l.must(os.Symlink(token, filepath.Join(l.workspace, "ln")))
	bad := l.commit("harmless")
	l.must(os.Remove(filepath.Join(l.workspace, "k.txt")))
	message := l.commit("the key is " + key)
	l.git(l.workspace, "commit", "-q", "--allow-empty", "--author=x "+key+" <a@b>", "-m", "x")
	author := gitcmd.Hash(l.git(l.workspace, "rev-parse", "HEAD"))
	r, report := l.through(Rules{KnownSecrets: []string{known}, AllowSymlinks: true})
	find := func(commit gitcmd.Hash, path string) bool {
		return slices.ContainsFunc(report.Refusals, func(r Refusal) bool {
			return r.Rule == RuleSecret && r.Commit == commit && r.Path == path
		})
	}
	for path, what := range want {
		if !find(bad, path) {
			t.Errorf("%s (%s) is not found: %v", path, what, report.Refusals)
		}
	}
	if !find(message, "") || !find(author, "") {
		t.Errorf("in a message %v, in an author %v", find(message, ""), find(author, ""))
	}
	if has(report.Refusals, RuleSecret, "a.txt") {
		t.Error("the neighbour is refused")
	}
	for _, s := range []string{key, token, known} {
		if text := fmt.Sprintf("%v %v %v", report.Refusals, report.Approvals, report.Notes); strings.Contains(text, s) {
			t.Errorf("the report shows the secret: %s", text)
		}
	}
	if _, err := Rewrite(l.ctx, RewriteOptions{Received: r, Report: report, Engine: engineIdentity(), Run: "x"}); err == nil {
		t.Error("it was rewritten all the same")
	}
}

func TestSecretsOfTheBaseAreOnlyNoted(t *testing.T) {
	key := "AKIA" + "IOSFODNN7EXAMPLE"
	l := newLab(t)
	l.write(l.workspace, "fixture.txt", key+"\n")
	l.base = l.commit("base with a test key")
	l.git(l.workspace, "push", "-q", l.lent.Dir(), "HEAD:refs/heads/main2")
	l.write(l.workspace, "fixture.txt", key+"\nmore\n")
	l.commit("work")
	_, report := l.through(Rules{})
	if !report.Passed() || !has(report.Notes, RuleSecret, "fixture.txt") {
		t.Errorf("refusals %v, notes %v", report.Refusals, report.Notes)
	}
	l.write(l.workspace, "fixture.txt", key+"\nAKIA"+"QQQQQQQQQQQQQQQQ\n")
	l.commit("another key")
	if _, report = l.through(Rules{}); !has(report.Refusals, RuleSecret, "fixture.txt") {
		t.Errorf("a second key in that file: %v", report.Refusals)
	}
}

func TestCheckCaps(t *testing.T) {
	l := newLab(t)
	for i := range 3 {
		l.write(l.workspace, fmt.Sprintf("f%d.txt", i), strings.Repeat("x\n", 1000*(i+1)))
		l.commit("work")
	}
	for name, c := range map[string]struct {
		rules Rules
		rule  Rule
		path  string
	}{
		"commits":    {Rules{MaxCommits: 2}, RuleCommits, ""},
		"files":      {Rules{MaxFiles: 2}, RuleFiles, ""},
		"file bytes": {Rules{MaxFileBytes: 5999}, RuleFileBytes, "f2.txt"},
		"bytes":      {Rules{MaxBytes: 11_999}, RuleBytes, ""},
	} {
		if _, report := l.through(c.rules); report.Passed() || len(report.Refusals) != 1 || !has(report.Refusals, c.rule, c.path) {
			t.Errorf("%s: %v", name, report.Refusals)
		}
	}
	if _, report := l.through(Rules{MaxCommits: 3, MaxFiles: 3, MaxFileBytes: 6000, MaxBytes: 12_000}); !report.Passed() {
		t.Errorf("at the caps: %v", report.Refusals)
	}
}

func TestCheckFindsCaseCollisions(t *testing.T) {
	l := newLab(t)
	w := l.workspace
	l.write(w, "A.txt", "x\n")
	l.write(w, "Docs/other.md", "x\n")
	l.write(w, "caf\u00e9", "x\n")
	l.write(w, "cafe\u0301", "x\n")
	l.write(w, "b.txt", "neighbour\n")
	l.commit("work")
	_, report := l.through(Rules{})
	for _, p := range []string{"A.txt", "Docs/other.md", "caf\u00e9", "cafe\u0301"} {
		if !has(report.Refusals, RuleCase, p) {
			t.Errorf("%q is not refused: %v", p, report.Refusals)
		}
	}
	if has(report.Refusals, RuleCase, "b.txt") {
		t.Error("the neighbour is refused")
	}
	t.Run("a rename that changes case", func(t *testing.T) {
		l := newLab(t)
		l.git(l.workspace, "mv", "docs/guide.md", "docs/Guide.md")
		l.commit("rename")
		if _, report := l.through(Rules{}); !report.Passed() {
			t.Errorf("refusals %v", report.Refusals)
		}
	})
}

func TestFoldMeets(t *testing.T) {
	for _, pair := range [][2]string{{"README", "readme"}, {"caf\u00e9", "CAFE\u0301"}, {"\u212aernel", "kernel"}, {"stra\u00dfe", "STRASSE"}, {"Jenkins\ufb01le", "jenkinsfile"}, {"\u13a4", "\uab74"}, {".g\u200cit", ".git"}, {"\u017fub", "SUB"}} {
		if Fold(pair[0]) != Fold(pair[1]) {
			t.Errorf("%q and %q do not meet: %q, %q", pair[0], pair[1], Fold(pair[0]), Fold(pair[1]))
		}
	}
	if Fold("a") == Fold("b") || Fold("i") == Fold("\u0131") {
		t.Error("different names meet")
	}
}

func TestOddNames(t *testing.T) {
	for _, good := range []string{"a", "a/b.c", "é/ü.md", "日本語.txt", ".gitignore", "git~10", "x.git", ".github/x", "a b"} {
		if why := oddName(good); why != "" {
			t.Errorf("%q: %s", good, why)
		}
	}
	for _, bad := range []string{"", "a//b", "a/../b", "./a", ".git/x", "a/.GIT", ".git./x", ".git /x", ".git::$INDEX_ALLOCATION/x", "GIT~1", "a\\b", "a\nb", "a\tb", "a\x1b",
		"a\u202eb", "a\u200db", ".g\u200cit", "\xff", strings.Repeat("a/", 200) + "b", strings.Repeat("a", 2000)} {
		if oddName(bad) == "" {
			t.Errorf("%q is taken for a good name", bad)
		}
	}
	for p, want := range map[string]bool{".gitmodules": true, "a/.GitModules": true, ".gitattributes ": true, "GITMOD~1": true, ".lfsconfig:x": true, "gitmodules": false, ".gitmodules.txt": false, ".gitignore": false} {
		if isGitFile(p) != want {
			t.Errorf("isGitFile(%q) = %v", p, !want)
		}
	}
}

// A tree whose subtree it names many times over unfolds to more entries than
// there are atoms: the check ends at its caps, and nothing passes.
func TestTreeBomb(t *testing.T) {
	l := newLab(t)
	tree := l.rawTree([3]string{"100644", "f", l.blob("x\n")})
	for range 9 {
		var entries [][3]string
		for i := range 10 {
			entries = append(entries, [3]string{"40000", fmt.Sprintf("d%d", i), tree})
		}
		tree = l.rawTree(entries...)
	}
	r, err := l.receiveBytes(l.forge(tree))
	if err != nil {
		t.Fatal(err)
	}
	report, err := Check(l.ctx, CheckOptions{Received: r})
	if report.Passed() {
		t.Errorf("a tree bomb passed: %v", err)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a/**/b", "a/x/b")
	f.Add("*.go", "x/y.go")
	f.Add("**", "")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		g, err := ParseGlob(pattern)
		if err != nil {
			return
		}
		if g.match(Fold(path)) && !g.match(Fold(path+"/below")) && path != "" {
			t.Errorf("%q matches %q and nothing below it", pattern, path)
		}
	})
}

func FuzzFold(f *testing.F) {
	f.Add("Straße/.GİT")
	f.Add("e\u0301\u200d")
	f.Add("\xf7\u017d")
	f.Add("\u13a4 \ufb05 \u212a \u1e9e")
	f.Fuzz(func(t *testing.T, s string) {
		once := Fold(s)
		if again := Fold(once); again != once {
			t.Errorf("Fold(%q) = %q, folded again %q", s, once, again)
		}
	})
}
