package tenant

import (
	"strings"
	"testing"
)

func TestGlobMatch(t *testing.T) {
	tests := []struct {
		glob string
		yes  []string
		no   []string
	}{
		{"go.mod", []string{"go.mod", "tools/go.mod", "GO.MOD", "go.mod/x"}, []string{"go.mod2", "xgo.mod", "go_mod"}},
		{".github/**", []string{".github/workflows/ci.yml", ".GitHub/x", ".github"}, []string{"x/.github/y", ".github2/x"}},
		{"**/.github/**", []string{".github/x", "a/b/.github/x"}, []string{"a/github/x"}},
		{"deploy", []string{"deploy", "deploy/a/b", "x/deploy/a"}, []string{"deployed"}},
		{"deploy/*.yml", []string{"deploy/a.yml", "deploy/a.yml/b"}, []string{"deploy/a/b.yml", "x/deploy/a.yml"}},
		{"a/**/b", []string{"a/b", "a/x/b", "a/x/y/b", "a/b/c"}, []string{"a", "a/x", "b"}},
		{"a/**/b/**/c", []string{"a/b/c", "a/x/b/b/y/c", "a/b/x/b/c"}, []string{"a/c", "a/b/d"}},
		{"?x", []string{"ax", "éx"}, []string{"x", "aax"}},
		{"*.go", []string{"a.go", "d/a.go", ".go"}, []string{"a.gox", "go"}},
		{"**", []string{"a", "a/b"}, nil},
		{"straße", []string{"STRAßE"}, []string{"strasse"}},
		{"a*b*c", []string{"abc", "axbxc", "abcbc"}, []string{"ab", "acb"}},
	}
	for _, test := range tests {
		glob, err := ParseGlob(test.glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range test.yes {
			if !glob.Match(name) {
				t.Errorf("%q does not match %q", glob, name)
			}
		}
		for _, name := range test.no {
			if glob.Match(name) {
				t.Errorf("%q matches %q", glob, name)
			}
		}
	}
	if Glob("").Match("a") || Glob("").Match("") {
		t.Error("the zero glob matches")
	}
}

func TestGlobRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "is empty",
		"/a":                      `write "a"`,
		"a/":                      `write "a/**"`,
		"a//b":                    `write "a/b"`,
		"./a":                     `write "a"`,
		"../a":                    "leaves the repository",
		"a/../b":                  "leaves the repository",
		".git/x":                  "git keeps no path",
		"x/.GIT":                  "git keeps no path",
		"a/**/**":                 "write one **",
		"a**":                     "inside of a name",
		"!a":                      "can't take something out",
		"[ab]":                    "are not accepted",
		"{a,b}":                   "are not accepted",
		`a\b`:                     "are not accepted",
		strings.Repeat("a", 1025): "longer than",
	} {
		if glob, err := ParseGlob(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseGlob(%q) = %q, %v, want %q", text, glob, err, want)
		}
	}
}

func TestTiers(t *testing.T) {
	p := Protect{Refuse: []Glob{"a/**"}, Approval: []Glob{"**/x", "b"}, Note: []Glob{"**"}}
	for name, want := range map[string]Tier{"a/x": TierRefuse, "c/x": TierApproval, "b/y": TierApproval, "c/y": TierNote} {
		if got, glob := p.Tier(name); got != want || glob == "" {
			t.Errorf("%s: %q by %q, want %q", name, got, glob, want)
		}
	}
	if got, glob := (Protect{}).Tier("a"); got != Unprotected || glob != "" {
		t.Errorf("zero protect: %q by %q", got, glob)
	}
}

// slow is the meaning of a pattern, written down without regard to time.
func slow(pattern, components []string) bool {
	if len(pattern) == 0 {
		return len(components) == 0
	}
	if pattern[0] == "**" {
		return slow(pattern[1:], components) || len(components) > 0 && slow(pattern, components[1:])
	}
	return len(components) > 0 && slowName([]rune(pattern[0]), []rune(components[0])) && slow(pattern[1:], components[1:])
}

func slowName(pattern, name []rune) bool {
	if len(pattern) == 0 {
		return len(name) == 0
	}
	if pattern[0] == '*' {
		return slowName(pattern[1:], name) || len(name) > 0 && slowName(pattern, name[1:])
	}
	return len(name) > 0 && (pattern[0] == '?' || strings.EqualFold(string(pattern[0]), string(name[0]))) && slowName(pattern[1:], name[1:])
}

func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{{"a/**/b", "a/x/b"}, {"*a*b*", "xaxbx"}, {"**/x/**", "x"}, {"a?c", "abc"}, {"**", ""}, {"\u212a", "k"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 24 || len(name) > 40 {
			return
		}
		glob, err := ParseGlob(pattern)
		if err != nil {
			return
		}
		parts := strings.Split(pattern, "/")
		if len(parts) == 1 && pattern != "**" {
			parts = []string{"**", pattern}
		}
		components := strings.Split(name, "/")
		want := false
		for n := 1; n <= len(components); n++ {
			want = want || slow(parts, components[:n])
		}
		if got := glob.Match(name); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}
