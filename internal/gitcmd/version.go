package gitcmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// ProbeVersion asks the installed git for its version. It returns a
// *MissingError when there is none, or one that is too old.
func ProbeVersion(ctx context.Context) (Version, error) {
	out, _, err := (&Repo{}).output(ctx, command{op: "version", noRepo: true})
	if err != nil {
		return Version{}, err
	}
	v, err := parseVersion(string(out))
	if err != nil {
		return Version{}, err
	}
	if !v.AtLeast(Oldest) {
		return v, &MissingError{
			Feature: fmt.Sprintf("git %s or later (%s is installed)", Oldest, v),
			hint:    "install a later git; 2.50.1 or a version with the same fixes is advised",
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
