package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is the version of the installed git.
type Version struct{ Major, Minor, Patch int }

// Oldest is the oldest git that this package drives: merge-tree --write-tree
// appeared in 2.38.
var Oldest = Version{Major: 2, Minor: 38}

// AtLeast reports whether v is w or later.
func (v Version) AtLeast(w Version) bool {
	if v.Major != w.Major {
		return v.Major > w.Major
	}
	if v.Minor != w.Minor {
		return v.Minor > w.Minor
	}
	return v.Patch >= w.Patch
}

// short leaves out the last number, which says nothing where every one will do.
func (v Version) short() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// versionTime is how long git may take for its version.
const versionTime = 5 * time.Second

// ProbeVersion asks the installed git for its version, for five seconds at most.
// It returns a *MissingError when there is none, or one that is too old.
func ProbeVersion(ctx context.Context) (Version, error) {
	git, err := program()
	if err != nil {
		return Version{}, err
	}
	out, _, err := (&Repo{}).output(ctx, command{op: "version", noRepo: true, time: versionTime})
	return judgeVersion(git, out, err)
}

// judgeVersion reads the answer of a git that was asked for its version.
func judgeVersion(git string, out []byte, err error) (Version, error) {
	broken := func(cause error) (Version, error) {
		return Version{}, &MissingError{Feature: "git", Err: cause, hint: fmt.Sprintf("mend or replace %.200q", git)}
	}
	switch {
	case errors.Is(err, ErrTimeLimit):
		return broken(fmt.Errorf("read git version: %.200q did not answer within %v: %w", git, versionTime, err))
	case err != nil:
		return broken(fmt.Errorf("read git version: %w", err))
	case len(out) == 0:
		return broken(fmt.Errorf("read git version: %.200q printed nothing", git))
	}
	v, err := parseVersion(string(out))
	if err != nil {
		return broken(err)
	}
	if !v.AtLeast(Oldest) {
		return v, &MissingError{
			Feature: "git", Err: fmt.Errorf("use git: version %s is too old, %s is the oldest that will do", v, Oldest.short()),
			hint: installHint,
		}
	}
	return v, nil
}

// parseVersion reads "git version 2.39.5 (some vendor)".
func parseVersion(text string) (Version, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "git version ")
	bad := fmt.Errorf("read git version: %.60q is none", text)
	if !ok {
		return Version{}, bad
	}
	rest, _, _ = strings.Cut(rest, " ")
	parts := strings.Split(rest, ".")
	if len(parts) < 2 {
		return Version{}, bad
	}
	var n [3]int
	for i := 0; i < len(parts) && i < 3; i++ {
		value, err := strconv.Atoi(parts[i])
		if err != nil && i == 2 {
			break // a release candidate: 2.54.rc1 counts as 2.54.0
		}
		if err != nil || value < 0 {
			return Version{}, bad
		}
		n[i] = value
	}
	return Version{n[0], n[1], n[2]}, nil
}
