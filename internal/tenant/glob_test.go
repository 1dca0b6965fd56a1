package tenant

import (
	"slices"
	"strings"
	"testing"
)

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

func TestGlobAccepted(t *testing.T) {
	for _, text := range []string{"go.mod", ".github/**", "**/.github/**", "deploy/*.yml", "a/**/b/**/c", "?x", "**", "straße", ".gitignore", "a b"} {
		if glob, err := ParseGlob(text); err != nil || string(glob) != text {
			t.Errorf("ParseGlob(%q) = %q, %v", text, glob, err)
		}
	}
}

func FuzzParseGlob(f *testing.F) {
	for _, seed := range []string{"a/**/b", "/a", "a/", "..", ".git", "**", "[", "!a", "a//b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		glob, err := ParseGlob(text)
		if err != nil {
			if glob != "" {
				t.Errorf("%q is refused and %q", text, glob)
			}
			return
		}
		if string(glob) != text || strings.HasPrefix(text, "/") || slices.Contains(strings.Split(text, "/"), "..") {
			t.Errorf("%q is accepted as %q", text, glob)
		}
	})
}
