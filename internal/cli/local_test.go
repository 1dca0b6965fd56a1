package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"confine/internal/gitcmd"
)

// Links and named pipes were left out without a word, and .env was taken in.
func TestLocalInitSaysWhatItLeavesOut(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"a.txt", "dir/b.txt", ".env", "dir/.env.local", ".env.example", ".envrc", "environment", "inner/.git/HEAD", "inner/x", ".git/HEAD"} {
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.txt", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(from, "dir/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(t.TempDir(), "host")
	got := confine("local", "init", host, "--from", from)
	if got.status != ExitDone || got.stdout != "local:"+host+"\n" {
		t.Fatalf("%+v", got)
	}
	want := []string{".env", ".envrc", "dir/.env.local", "dir/pipe", "inner/.git", "link"}
	for _, name := range want {
		if !strings.Contains(got.stderr, "confine: left out \""+name+"\": ") {
			t.Errorf("%s is not named: %s", name, got.stderr)
		}
	}
	if strings.Count(got.stderr, "\n") != len(want) {
		t.Errorf("more is named: %s", got.stderr)
	}
	repo, err := gitcmd.Open(t.Context(), filepath.Join(host, "repo.git"))
	if err != nil {
		t.Fatal(err)
	}
	tip, err := repo.RevParse(t.Context(), "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := repo.LsTree(t.Context(), tip, gitcmd.LsTreeOptions{Recursive: true})
	var names []string
	for _, e := range entries {
		names = append(names, e.Path)
	}
	if err != nil || !slices.Equal(names, []string{".env.example", "a.txt", "dir/b.txt", "environment", "inner/x"}) {
		t.Errorf("the first commit holds %q, %v", names, err)
	}

	got = confine("local", "init", filepath.Join(t.TempDir(), "host"), "--from", from, "--json")
	var out struct {
		LeftOut []leftOutFile `json:"left_out"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &out); err != nil || got.stderr != "" || len(out.LeftOut) != len(want) || out.LeftOut[0].Path != ".env" {
		t.Errorf("%v: %+v", err, got)
	}
}

// A bad repository ended with three statuses, by how it was bad.
func TestBadLocalHostHasOneStatus(t *testing.T) {
	dir := t.TempDir()
	make := func(name string) string {
		host := filepath.Join(dir, name)
		from := filepath.Join(t.TempDir(), "from")
		if err := os.MkdirAll(from, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, "a"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := confine("local", "init", host, "--from", from); got.status != ExitDone {
			t.Fatalf("%+v", got)
		}
		return host
	}
	broken := make("broken")
	if err := os.WriteFile(filepath.Join(broken, "host.yaml"), []byte("version: 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for host, hint := range map[string]string{
		filepath.Join(dir, "none"): "confine local init", empty: "confine local init", broken: "correct the file",
	} {
		config := filepath.Join(t.TempDir(), "c.yaml")
		text := "version: 1\ntenant: t\nrepo: {url: \"local:" + host + "\"}\nview: {host: true}\nagent: {kind: command, command: [\"true\"]}\ngate: {t: {run: \"true\"}}\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for want, args := range map[int][]string{
			ExitRefused: {"work", "--config", config, "--issue", "1", "--state", t.TempDir()},
			ExitUsage:   {"local", "issue", host, "--title", "x", "--author", "a"},
		} {
			got := confine(args...)
			if got.status != want || !strings.Contains(got.stderr, "confine: hint: ") || !strings.Contains(got.stderr, hint) {
				t.Errorf("%s %q: %+v", filepath.Base(host), args[0], got)
			}
		}
	}
	good := make("good")
	if got := confine("local", "issue", good, "--title", "x", "--author", "a"); got.status != ExitDone {
		t.Errorf("control: %+v", got)
	}
}
