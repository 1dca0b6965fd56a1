package gitcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersionAnswers: each wrong answer says what happened, and what mends it.
func TestVersionAnswers(t *testing.T) {
	if v, err := judgeVersion("/g", []byte("git version 2.38.0\n"), nil); err != nil || v != Oldest {
		t.Errorf("the oldest that will do: %v %v", v, err)
	}
	for name, c := range map[string]struct {
		out        string
		err        error
		says, hint string
	}{
		"too old": {out: "git version 2.37.9\n", says: "version 2.37.9 is too old, 2.38 is the oldest", hint: "install git 2.38 or later in one of /usr/local/sbin /usr/local/bin"},
		"nothing": {says: `"/g" printed nothing`, hint: `mend or replace "/g"`},
		"slow":    {err: &Error{Op: "version", Cause: ErrTimeLimit}, says: `"/g" did not answer within 5s`, hint: `mend or replace "/g"`},
		"broken":  {err: errors.New("exit status 3"), says: "exit status 3", hint: `mend or replace "/g"`},
		"another": {out: "hello", says: `"hello" is none`, hint: `mend or replace "/g"`},
	} {
		_, err := judgeVersion("/g", []byte(c.out), c.err)
		var missing *MissingError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), c.says) || !strings.Contains(missing.Hint(), c.hint) {
			t.Errorf("%s: %v", name, err)
		}
		if c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: the cause is lost: %v", name, err)
		}
	}
}

// TestGitElsewhereIsNamed: a git that PATH has and that is not used is no riddle.
func TestGitElsewhereIsNamed(t *testing.T) {
	dir := t.TempDir()
	if text := notFound(dir + ":relative").Error(); strings.Contains(text, "in PATH") || !strings.Contains(text, "none in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin") {
		t.Errorf("none anywhere: %s", text)
	}
	git := filepath.Join(dir, "git")
	if err := os.WriteFile(git, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if text := notFound("/nowhere:" + dir).Error(); !strings.Contains(text, fmt.Sprintf("%q is in PATH and not used", git)) {
		t.Errorf("elsewhere: %s", text)
	}
}
