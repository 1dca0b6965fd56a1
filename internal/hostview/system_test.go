package hostview

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"confine/internal/boundary"
)

var mergedHost = []string{
	"/usr/bin/bash", "/usr/lib/os-release", "/usr/share/zoneinfo/Europe/Berlin",
	"/bin -> usr/bin", "/sbin -> usr/sbin", "/usr/sbin/", "/lib -> usr/lib", "/lib64 -> usr/lib64", "/usr/lib64/", "/library/secret",
	"/etc/os-release -> ../usr/lib/os-release", "/etc/localtime -> /usr/share/zoneinfo/Europe/Berlin",
	"/etc/passwd", "/etc/shadow", "/etc/gshadow", "/etc/gitconfig", "/etc/npmrc", "/etc/sudoers", "/etc/hosts", "/etc/resolv.conf",
	"/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d/a.conf", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/sshd_config",
	"/etc/ssl/openssl.cnf", "/etc/ssl/certs/ca.pem", "/etc/ssl/private/key.pem", "/etc/services", "/etc/rpc", "/etc/magic",
	"/etc/alternatives/java -> /usr/bin/java", "/etc/java-17-openjdk/net.properties", "/etc/python3.11/sitecustomize.py",
	"/etc/cron.d/job", "/root/.ssh/id_rsa", "/home/u/.env", "/var/lib/secret", "/opt/app/x", "/srv/data",
}

func showSystem(t *testing.T, root string, o Options) (Part, Report) {
	t.Helper()
	o.root = root
	part, report, err := System(o)
	if err != nil {
		t.Fatal(err)
	}
	return part, report
}

// validate holds a part against the shared rules and the driver's: every path
// is made once.
func validate(t *testing.T, p Part) {
	t.Helper()
	b := boundary.Boundary{Version: boundary.Version, Tenant: "t", View: boundary.View{Workdir: "/"}}
	p.AddTo(&b.View)
	if err := b.Validate(); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	once := func(at string) {
		if seen[at] {
			t.Errorf("%q is made twice", at)
		}
		seen[at] = true
	}
	for _, m := range p.Mounts {
		once(m.Target)
	}
	for _, f := range p.Files {
		once(f.Path)
	}
	for _, l := range p.Links {
		once(l.Path)
	}
}

func TestSystemShowsExactlyTheTables(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	part, report := showSystem(t, root, Options{UID: 1000, GID: 100})
	validate(t, part)
	allowed := []string{"/usr", "/tmp", "/var/tmp", "/run", "/home/agent", "/etc/ssl/certs", "/etc/alternatives", "/etc/java-17-openjdk", "/etc/python3.11"}
	if len(part.Mounts) != len(allowed) {
		t.Errorf("%d mounts, want %d: %v", len(part.Mounts), len(allowed), part.Mounts)
	}
	for _, target := range allowed {
		m := mountAt(part.Mounts, target)
		if m.Kind == "" {
			t.Errorf("%q is not shown", target)
		}
		if m.Writable {
			t.Errorf("%q is writable", target)
		}
		if m.Kind == boundary.Bind && m.Source != root+target {
			t.Errorf("%q shows %q", target, m.Source)
		}
	}
	for _, p := range []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/npmrc", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/sshd_config", "/etc/ssl/private/key.pem", "/etc/cron.d/job"} {
		if _, ok := fileAt(part.Files, p); ok {
			t.Errorf("%q is shown", p)
		}
	}
	for _, p := range []string{"/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d/a.conf", "/etc/ssl/openssl.cnf", "/etc/services"} {
		if text, ok := fileAt(part.Files, p); !ok || text != p {
			t.Errorf("%q is not copied: %q", p, text)
		}
	}
	for _, p := range []string{"/etc/passwd", "/etc/gitconfig", "/etc/hosts", "/etc/resolv.conf"} {
		if text, ok := fileAt(part.Files, p); !ok || text == p {
			t.Errorf("%q is the host's own or missing: %q", p, text)
		}
	}
	for p, want := range map[string]string{
		"/bin": "/usr/bin", "/lib64": "/usr/lib64", "/etc/os-release": "/usr/lib/os-release", "/etc/localtime": "/usr/share/zoneinfo/Europe/Berlin",
		"/library": "", "/var/run": "/run",
	} {
		if got := linkAt(part.Links, p); got != want {
			t.Errorf("link %q leads to %q, want %q", p, got, want)
		}
	}
	if len(report.Skipped) != 0 {
		t.Errorf("skipped %v", report.Skipped)
	}
}

func TestSystemOfAHostWithoutMergedUsr(t *testing.T) {
	root := newTestHost(t, "/usr/bin/x", "/bin/sh", "/lib/ld.so", "/sbin -> /other", "/other/init")
	part, _ := showSystem(t, root, Options{})
	for target, source := range map[string]string{"/bin": "/bin", "/lib": "/lib", "/sbin": "/other"} {
		if m := mountAt(part.Mounts, target); m.Kind != boundary.Bind || m.Source != root+source || m.Writable {
			t.Errorf("%q shows %+v, want %q read-only", target, m, source)
		}
	}
	if _, _, err := System(Options{root: newTestHost(t, "/bin/sh")}); err == nil {
		t.Error("a host without /usr was shown")
	}
}

func TestSystemLeavesOutWhatNotEveryoneMayRead(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	if err := os.Chmod(root+"/etc/services", 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root+"/etc/java-17-openjdk", 0o700); err != nil {
		t.Fatal(err)
	}
	part, report := showSystem(t, root, Options{})
	if _, ok := fileAt(part.Files, "/etc/services"); ok {
		t.Error("a file of mode 640 was copied")
	}
	if _, ok := fileAt(part.Files, "/etc/rpc"); !ok {
		t.Error("its neighbour was not")
	}
	if mountAt(part.Mounts, "/etc/java-17-openjdk").Kind != "" {
		t.Error("a directory of mode 700 is shown")
	}
	if len(report.Skipped) != 2 {
		t.Errorf("report says %v", report.Skipped)
	}
}

func TestSystemBindsLargeFiles(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	writeFile(t, root+"/etc/mime.types", strings.Repeat("x", copyBytes+1), 0o644)
	writeFile(t, root+"/etc/magic", strings.Repeat("x", copyBytes), 0o644)
	part, _ := showSystem(t, root, Options{})
	if m := mountAt(part.Mounts, "/etc/mime.types"); m.Kind != boundary.Bind || m.Writable {
		t.Errorf("a large file is %+v", m)
	}
	if text, _ := fileAt(part.Files, "/etc/magic"); len(text) != copyBytes {
		t.Errorf("a file of the largest size has %d bytes", len(text))
	}
}

func TestSystemLeavesOutMavenSettingsWithAPassword(t *testing.T) {
	for text, shown := range map[string]bool{
		"<settings><!-- <password>example\n</password> --></settings>":                  true,
		"<settings><server><password>hunter2</password></server></settings>":            false,
		"<!-- a --><passphrase>x</passphrase><!-- b -->":                                false,
		"<settings>" + strings.Repeat(" ", settingsBytes) + "<password>x</password>":    false,
		"<settings><!-- a --><privateKey>/k</privateKey><!-- <password> --></settings>": false,
	} {
		root := newTestHost(t, append(mergedHost, "/etc/maven/logging/x")...)
		writeFile(t, root+"/etc/maven/settings.xml", text, 0o644)
		part, _ := showSystem(t, root, Options{})
		if got := mountAt(part.Mounts, "/etc/maven").Kind != ""; got != shown {
			t.Errorf("settings %.60q: shown %v, want %v", text, got, shown)
		}
	}
}

func TestAccountsNameEachIDOnce(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	for _, c := range []struct {
		uid, gid      uint32
		passwd, group string
	}{
		{1000, 100, "root:0 agent:1000 nobody:65534", "root:0 agent:100 nogroup:65534"},
		{0, 0, "root:0 nobody:65534", "root:0 nogroup:65534"},
		{65534, 65534, "root:0 agent:65534", "root:0 agent:65534"},
		{1000, 0, "root:0 agent:1000 nobody:65534", "root:0 nogroup:65534"},
	} {
		part, _ := showSystem(t, root, Options{UID: c.uid, GID: c.gid})
		for p, want := range map[string]string{"/etc/passwd": c.passwd, "/etc/group": c.group} {
			text, _ := fileAt(part.Files, p)
			var got []string
			for line := range strings.Lines(text) {
				fields := strings.Split(line, ":")
				got = append(got, fields[0]+":"+strings.TrimSpace(fields[2]))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("uid %d gid %d: %s holds %v, want %s", c.uid, c.gid, p, got, want)
			}
		}
	}
}

func TestResolvConfFollowsTheNetwork(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	for network, want := range map[boundary.Network]bool{boundary.NetworkOff: false, boundary.NetworkCaptured: true} {
		part, _ := showSystem(t, root, Options{Network: network})
		text, _ := fileAt(part.Files, "/etc/resolv.conf")
		if got := strings.Contains(text, "nameserver 127.0.0.1\n"); got != want {
			t.Errorf("network %q: resolv.conf is %q", network, text)
		}
	}
}

// git itself reads what was written for it, hostile values included.
func TestGitConfigIsReadByGitAsGiven(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	name := `O"Brien \ ; # [core] $(id)`
	part, _ := showSystem(t, root, Options{SafeDirectories: []string{"/workspace", `/a "b" \c`}, Git: GitIdentity{Name: name, Email: "o@example.com"}})
	text, _ := fileAt(part.Files, "/etc/gitconfig")
	file := filepath.Join(t.TempDir(), "config")
	writeFile(t, file, text, 0o600)
	out, err := exec.Command("git", "config", "--file", file, "--null", "--list").Output()
	if err != nil {
		t.Fatalf("git: %v, file %q", err, text)
	}
	want := "safe.directory\n/workspace\x00safe.directory\n/a \"b\" \\c\x00user.name\n" + name + "\x00user.email\no@example.com\x00"
	if string(out) != want {
		t.Errorf("git reads %q, want %q", out, want)
	}
	part, _ = showSystem(t, root, Options{})
	if text, _ := fileAt(part.Files, "/etc/gitconfig"); text != "" {
		t.Errorf("without options gitconfig holds %q", text)
	}
}

func TestSystemRefusesOptionsThatAreNoPathOrLine(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	for name, o := range map[string]Options{
		"newline in a path":  {SafeDirectories: []string{"/a\n[core]\n\tfsmonitor = id"}},
		"relative path":      {SafeDirectories: []string{"a"}},
		"all":                {SafeDirectories: []string{"*"}},
		"newline in a name":  {Git: GitIdentity{Name: "a\nb"}},
		"newline in address": {Git: GitIdentity{Email: "a\rb"}},
		"unclean home":       {Home: "/a/../b"},
		"negative size":      {TmpBytes: -1},
	} {
		o.root = root
		if _, _, err := System(o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, _, err := System(Options{root: root, SafeDirectories: []string{"/a"}, Git: GitIdentity{Name: "Ö"}, Home: "/h"}); err != nil {
		t.Errorf("plain values: %v", err)
	}
}

func TestHomeIsPrivateUnlessGiven(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	part, _ := showSystem(t, root, Options{UID: 7})
	if m := mountAt(part.Mounts, "/home/agent"); m.Kind != boundary.Tmpfs || m.Mode != 0o700 {
		t.Errorf("home is %+v", m)
	}
	part, _ = showSystem(t, root, Options{UID: 0, Home: "/state/home"})
	if m := mountAt(part.Mounts, "/root"); m.Kind != boundary.Bind || m.Source != "/state/home" || !m.Writable {
		t.Errorf("given home is %+v", m)
	}
}

// The host the test runs on is a real one.
func TestSystemOfThisHostIsValid(t *testing.T) {
	part, _, err := System(Options{UID: 1000, GID: 1000})
	if err != nil {
		t.Fatal(err)
	}
	validate(t, part)
	for _, m := range part.Mounts {
		if m.Kind != boundary.Bind {
			continue
		}
		real, err := filepath.EvalSymlinks(m.Source)
		if err != nil || real != m.Source {
			t.Errorf("source %q is %q in full, %v", m.Source, real, err)
		}
	}
}

// git itself takes the patterns for exactly the paths, whatever is in them.
func TestGitLeavesMaskedFilesAlone(t *testing.T) {
	root := newTestHost(t, mergedHost...)
	names := []string{".env", "a b/.env", " lead", "trail ", `back\slash`, `quo"te`, "st*ar", "qu?estion", "[set]", "#hash", "!bang", "é/ü.key", "tab'quote", "-dash", "$(touch x)`id`;"}
	part, _ := showSystem(t, root, Options{GitMasked: names})
	dir, files := t.TempDir(), t.TempDir()
	config, _ := fileAt(part.Files, "/etc/gitconfig")
	for _, name := range []string{gitExcludes, gitAttributes} {
		text, ok := fileAt(part.Files, name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		writeFile(t, filepath.Join(files, filepath.Base(name)), text, 0o600)
		config = strings.ReplaceAll(config, name, filepath.Join(files, filepath.Base(name)))
	}
	writeFile(t, filepath.Join(files, "config"), config, 0o600)
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM="+filepath.Join(files, "config"),
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := git(args...)
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return out
	}
	must("init", "-q")
	neighbours := []string{"star", "stxar", "question", "s", "a b/env", "sub/.env", "lead", "backslash", "plain"}
	for i, n := range append(slices.Clone(names), neighbours...) {
		text := "" // as the mask shows it
		if i >= len(names) {
			text = "x"
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, n)), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, n), text, 0o644)
	}
	must("add", "-A")
	got := strings.Split(strings.TrimSuffix(must("ls-files", "-z"), "\x00"), "\x00")
	slices.Sort(got)
	slices.Sort(neighbours)
	if !slices.Equal(got, neighbours) {
		t.Errorf("git added %q, want %q", got, neighbours)
	}
	for _, n := range names {
		if out, err := git("add", "-f", "--", ":(literal)"+n); err == nil || !strings.Contains(out, "is masked") {
			t.Errorf("git added %q by force: %v: %s", n, err, out)
		}
	}
	// Tracked ones: with content first, then as the mask shows them.
	for _, n := range names {
		writeFile(t, filepath.Join(dir, n), "secret of "+n, 0o644)
	}
	must("add", "-f", "-A")
	must("commit", "-qm", "one")
	for _, n := range names {
		writeFile(t, filepath.Join(dir, n), "", 0o644)
	}
	writeFile(t, filepath.Join(dir, "plain"), "changed", 0o644)
	must("add", "-A")
	must("commit", "-qam", "two")
	if out := must("diff", "--name-only", "HEAD~1", "HEAD"); out != "plain\n" {
		t.Errorf("git committed a change of %q", out)
	}
	if out := must("status", "--porcelain"); out != "" {
		t.Errorf("afterwards git sees %q", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("a name was run")
	}
	for _, bad := range []string{"", "/a", "a//b", "../a", "a\nb"} {
		if _, _, err := System(Options{root: root, GitMasked: []string{bad}}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
