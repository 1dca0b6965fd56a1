// Package docs holds the documentation to the shipped program: links lead
// somewhere, configs are accepted, flags exist, and what is marked to be run
// ("sh test" after the fence) runs as it stands, block after block in one empty
// directory.
//
// It does not judge whether a sentence is true. scripts/test runs it as root and
// as an ordinary user.
package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// program is the confine binary under test.
func program(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("CONFINE_TEST_BINARY"); p != "" {
		return p
	}
	p := filepath.Join(t.TempDir(), "confine")
	cmd := exec.Command("go", "build", "-o", p, "confine/cmd/confine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build confine: %v\n%s", err, out)
	}
	return p
}

// page is one Markdown file.
type page struct {
	name   string // from the root
	text   string
	blocks []block
}

// block is one fenced block.
type block struct {
	line int
	info string // after the fence
	text string
}

// pages reads every page of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".md") {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		p := page{name: name, text: string(data)}
		p.blocks, err = blocks(p.text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 8 {
		t.Fatalf("only %d pages found", len(all))
	}
	return all
}

func blocks(text string) ([]block, error) {
	var all []block
	var open *block
	for i, line := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{line: i + 2, info: strings.TrimSpace(info)}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: block without an end", open.line)
	}
	return all, nil
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			count++
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(p.name), target)); err != nil {
				t.Errorf("%s: link to %s: %v", p.name, m[1], err)
			}
		}
	}
	if count == 0 {
		t.Error("no link found")
	}
}

// completion is what a fragment of a config needs to be a config.
var completion = []string{
	"version: 1\n",
	"tenant: docs\n",
	"repo: {url: \"local:/srv/docs\", until: pr}\n",
	"view: {host: true}\n",
	"agent: {kind: command, command: [my-agent]}\n",
	"gate: {check: {run: make check}}\n",
}

// complete adds the top-level fields that a fragment lacks.
func complete(fragment string) string {
	for _, part := range completion {
		field, _, _ := strings.Cut(part, ":")
		if !strings.HasPrefix(fragment, field+":") && !strings.Contains(fragment, "\n"+field+":") {
			fragment += part
		}
	}
	return fragment
}

func TestConfigsAreAccepted(t *testing.T) {
	confine := program(t)
	check := func(config string) (string, error) {
		file := filepath.Join(t.TempDir(), "tenant.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(confine, "config", "check", file).CombinedOutput()
		return string(out), err
	}
	if out, err := check(complete("no_such_field: 1\n")); err == nil || !strings.Contains(out, "no_such_field") {
		t.Fatalf("control: a wrong config was accepted: %s", out)
	}
	count := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.info != "yaml" {
				continue
			}
			// The reference shows one field at a time, cut off from those above
			// it; package cli makes and checks those.
			if strings.HasPrefix(p.name, "docs/reference/") {
				continue
			}
			count++
			if out, err := check(complete(b.text)); err != nil {
				t.Errorf("%s:%d: %v\n%s", p.name, b.line, err, out)
			}
		}
	}
	if count == 0 {
		t.Error("no config found")
	}
}

var flag = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)

// TestFlagsExist looks at every command line that begins with confine.
func TestFlagsExist(t *testing.T) {
	confine := program(t)
	helps := map[string]string{}
	help := func(command string) string {
		if _, ok := helps[command]; !ok {
			out, err := exec.Command(confine, append(strings.Fields(command), "--help")...).CombinedOutput()
			if err != nil {
				t.Errorf("confine %s --help: %v\n%s", command, err, out)
			}
			helps[command] = string(out)
		}
		return helps[command]
	}
	count := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if word, _, _ := strings.Cut(b.info, " "); word != "sh" {
				continue
			}
			for _, line := range strings.Split(b.text, "\n") {
				command, flags, ok := commandLine(line)
				if !ok {
					continue
				}
				count++
				text := help(command)
				for _, f := range flags {
					if !strings.Contains(text, f+" ") {
						t.Errorf("%s:%d: confine %s has no flag %s", p.name, b.line, command, f)
					}
				}
			}
		}
	}
	if count < 5 {
		t.Errorf("only %d command lines found", count)
	}
}

// commandLine returns the command and confine's own flags of a line that begins
// with confine.
func commandLine(line string) (command string, flags []string, ok bool) {
	line, ok = strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "bin/"), "confine ")
	if !ok {
		return "", nil, false
	}
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " -- ")
	fields := strings.Fields(line)
	command = fields[0]
	if len(fields) > 1 && (command == "config" || command == "local" || command == "trash") {
		command += " " + fields[1]
	}
	for _, f := range flag.FindAllStringSubmatch(line, -1) {
		flags = append(flags, f[1])
	}
	return command, flags, true
}

// shown is what the reader of a page must get to see.
var shown = map[string][]string{
	"docs/how-to/allow-a-host.md": {
		"refused connections:", `github.com:443 by "git-remote-http": not listed`, "--net github.com:443", "refused, as listed",
	},
	"docs/how-to/undo-a-run.md": {
		"committed: 1 new, 1 changed, 1 deleted", "one\ntwo", "taken back", "shell environment", "use nix",
	},
	"docs/tutorial/first-run.md": {
		"made inside", "tenant.yaml: ok", "that is the issue", "gate     passed",
		"confine: Greet with all letters", `echo "hello, world"`,
	},
}

// TestBlocksRun runs the blocks marked "sh test" of each page.
func TestBlocksRun(t *testing.T) {
	confine := program(t)
	seen := map[string]bool{}
	for _, p := range pages(t) {
		var script strings.Builder
		for _, b := range p.blocks {
			if b.info == "sh test" {
				fmt.Fprintf(&script, "echo '## line %d'\n%s", b.line, b.text)
			}
		}
		if script.Len() == 0 {
			continue
		}
		seen[p.name] = true
		t.Run(p.name, func(t *testing.T) {
			out, err := runScript(t, confine, script.String())
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if len(shown[p.name]) == 0 {
				t.Error("nothing is said about what the blocks show")
			}
			for _, word := range shown[p.name] {
				if !strings.Contains(out, word) {
					t.Errorf("output lacks %q\n%s", word, out)
				}
			}
			if strings.Contains(out, "secret") {
				t.Errorf("a masked file was read\n%s", out)
			}
		})
	}
	for name := range shown {
		if !seen[name] {
			t.Errorf("%s has no block to run any more", name)
		}
	}
}

// TestAScriptThatFailsIsSeen is the control of TestBlocksRun.
func TestAScriptThatFailsIsSeen(t *testing.T) {
	out, err := runScript(t, program(t), "echo before\nconfine no-such-command\necho after\n")
	if err == nil || !strings.Contains(out, "before") || strings.Contains(out, "after") {
		t.Errorf("error %v, output %q", err, out)
	}
}

func runScript(t *testing.T, confine, script string) (string, error) {
	t.Helper()
	work := t.TempDir()
	bin := filepath.Join(work, "bin")
	dir := filepath.Join(work, "dir")
	for _, d := range []string{bin, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(confine, filepath.Join(bin, "confine")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+work)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
