package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChainFindsChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Redact("hunter2secret")
	for _, text := range []string{"one", "two hunter2secret", "three"} {
		if err := l.Append(Event{Kind: "test", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	head := l.Head()
	l.Close()
	b, _ := os.ReadFile(path)
	if strings.Contains(string(b), "hunter2") {
		t.Error("a registered secret was written")
	}
	if got, err := Verify(strings.NewReader(string(b))); err != nil || got != head {
		t.Errorf("untouched: %q %v", got, err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	for name, text := range map[string]string{
		"changed":  strings.Replace(string(b), "three", "thr33", 1),
		"removed":  lines[0] + lines[2],
		"inserted": lines[0] + lines[0] + lines[1],
		"cut line": string(b[:len(b)-9]),
	} {
		var d *DamageError
		if _, err := Verify(strings.NewReader(text)); !errors.As(err, &d) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l, err = Open(path); err != nil || l.Head() != head {
		t.Errorf("opened again: %v", err)
	}
}
