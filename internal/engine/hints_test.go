package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"confine/internal/boundary"
	"confine/internal/gate"
	"confine/internal/sandbox"
)

func TestLastLines(t *testing.T) {
	long := strings.Repeat("a long line of output\n", 1000) + "the last"
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"nothing":      {"", []string{}},
		"plain":        {"one\ntwo\n", []string{"one", "two"}},
		"no newline":   {"one\ntwo", []string{"one", "two"}},
		"empty end":    {"one\n\n\n", []string{"one"}},
		"control":      {"\x1b[31mred\x1b[0m\x07\n\x1b]0;title\x07x\n", []string{"red", "x"}},
		"hidden signs": {"a\u202eb\n", []string{"ab"}},
	} {
		if got := lastLines([]byte(c.in)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	got := lastLines([]byte(long))
	if len(got) != shownLines || got[shownLines-1] != "the last" || got[0] != "a long line of output" {
		t.Errorf("%d lines: %q", len(got), got)
	}
	if got := lastLines([]byte(strings.Repeat("x", 1<<20))); len(got) != 1 || len(got[0]) > shownLine+8 {
		t.Errorf("%d lines, the first of %d bytes", len(got), len(got[0]))
	}
}

func TestOutputEnd(t *testing.T) {
	if got := outputEnd(gate.Output{Head: "one\ntw", Tail: "o\n", Bytes: 8}); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("whole: %q", got)
	}
	if got := outputEnd(gate.Output{Head: "one\n", Tail: "nine\n", Bytes: 100}); !slices.Equal(got, []string{"nine"}) {
		t.Errorf("apart: %q", got)
	}
}

// TestAgentHint: each cause has the one thing that mends it.
func TestAgentHint(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	seen, hidden := filepath.Join(dir, "seen"), filepath.Join(dir, "hidden")
	for name, text := range map[string]string{
		seen + "/script": "#! /nope -x\n", seen + "/binary": "\x7fELF", seen + "/odd": "#!\n", hidden + "/tool": "#!/bin/sh\n",
		seen + "/hostile": "#!/no\x1b[31mpe\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(hidden+"/tool", seen+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(seen+"/gone", seen+"/dangling"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", hidden)
	view := boundary.View{Mounts: []boundary.Mount{{Kind: boundary.Bind, Source: seen, Target: "/tools"}, {Kind: boundary.Bind, Source: seen, Target: seen}}}
	for name, c := range map[string]struct {
		command string
		start   sandbox.StartError
		want    []string
	}{
		"interpreter":      {command: "/tools/script", want: []string{`"/nope"`, "view.ro"}},
		"by its name":      {command: "script", want: []string{`"/tools/script"`, `"/nope"`}},
		"loader":           {command: "/tools/binary", want: []string{"loader", "view.ro"}},
		"no interpreter":   {command: "/tools/odd", want: []string{"loader", "view.ro"}},
		"hostile":          {command: "/tools/hostile", want: []string{`"/nope"`}},
		"link out of view": {command: seen + "/link", want: []string{"is a link", hidden, "view.ro"}},
		"dangling link":    {command: seen + "/dangling", want: []string{"nowhere"}},
		"not in view":      {command: hidden + "/tool", want: []string{hidden, "view.ro"}},
		"on the host only": {command: "tool", want: []string{hidden, "view.ro", "view.path"}},
		"nowhere":          {command: "/no/such", want: []string{"agent.command"}},
		"nowhere, by name": {command: "no-such", want: []string{"agent.command"}},
		"may not be run":   {command: "/tools/script", start: sandbox.StartError{NotExecutable: true}, want: []string{"chmod a+rx", "/tools/script"}},
	} {
		got := agentHint(view, "/usr/none:/tools", c.command, &c.start)
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q does not say %q", name, got, w)
			}
		}
		if strings.Contains(got, "--ro") || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
