//go:build linux

package workspace

import (
	"fmt"
	"testing"
)

func TestParseGitConfig(t *testing.T) {
	for text, want := range map[string]string{
		"[core]\n\thooksPath = x\n":                      "[{core hookspath x}]",
		"[CORE] HooksPath=\"a b\" ; c\n":                 "[{core hookspath a b}]",
		"[include]\r\n path = a\\\\b\r\n":                "[{include path a\\b}]",
		"[includeIf \"gitdir:~/x]\"]\n path=y":           "[{includeif \"] } {includeif path y}]",
		"[filter \"x\"]\n clean = a \\\n b\n# clean = c": "[{filter clean a  b}]",
		"[alias.x]\nfoo\n":                               "[{alias foo }]",
		"":                                               "[]",
		"[":                                              "[]",
		"x = \"unclosed":                                 "[{ x unclosed}]",
		"[core]\nhooksPath = \"a#b\" # c\n":              "[{core hookspath a#b}]",
	} {
		if got := fmt.Sprint(parseGitConfig([]byte(text))); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzParseGitConfig(f *testing.F) {
	for _, seed := range []string{"[core]\n\thooksPath = x\n", "[a \"b]\"] c = \\\n\"", "[include]path=../x", "\\", "[alias]x = !sh ./a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, data []byte) { pointers(parseGitConfig(data)) })
}

func TestPackageScriptsAreComparedByMeaning(t *testing.T) {
	equal := func(a, b string) bool { return string(scriptsOf([]byte(a))) == string(scriptsOf([]byte(b))) }
	if !equal(`{"a":1,"scripts":{"x":"1","y":"2"}}`, `{ "scripts" : {"y":"2", "x":"1"} }`) {
		t.Error("the same scripts differ")
	}
	for _, other := range []string{`{"scripts":{"x":"1"}}`, `{"scripts":{"x":"1","y":"3"}}`, `{"scripts":[]}`, `{"SCRIPTS":{"z":"1"}}`, `{"scripts":{"x":"1","y":"2"},"scripts":{"z":""}}`, `x`, ``} {
		if equal(`{"scripts":{"x":"1","y":"2"}}`, other) {
			t.Errorf("%s has the same scripts", other)
		}
	}
}
