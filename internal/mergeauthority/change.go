//go:build unix

package mergeauthority

import (
	"bytes"
	"context"
	"errors"

	"confine/internal/gitcmd"
	"confine/internal/merge"
)

// The caps of measuring a change. What is beyond counts as more than it is.
const (
	maxMeasured  = 2000    // files that are read
	maxFileBytes = 1 << 20 // a larger file has no lines to count
	maxEdits     = 3000    // of one file; beyond, all its lines count
)

// measure counts what would land: every path of the tree that differs from the
// base. Renames count as removed and added.
func measure(ctx context.Context, repo *gitcmd.Repo, base, tree gitcmd.Hash) (merge.Change, error) {
	diff, err := repo.DiffTree(ctx, base, tree)
	if err != nil {
		return merge.Change{}, err
	}
	change := merge.Change{Files: len(diff)}
	for i, c := range diff {
		if i >= maxMeasured {
			change.Opaque++
			continue
		}
		lines, ok, err := changedLines(ctx, repo, c)
		if err != nil {
			return merge.Change{}, err
		}
		if ok {
			change.Lines += lines
		} else {
			change.Opaque++
		}
	}
	return change, nil
}

// changedLines counts the lines of one path; ok is false where it has none.
func changedLines(ctx context.Context, repo *gitcmd.Repo, c gitcmd.Change) (n int, ok bool, err error) {
	if c.OldHash == c.NewHash {
		return 0, plain(c.OldMode) && plain(c.NewMode), nil // only the mode changed
	}
	var sides [2][]string
	for i, side := range []struct {
		mode gitcmd.Mode
		hash gitcmd.Hash
	}{{c.OldMode, c.OldHash}, {c.NewMode, c.NewHash}} {
		if side.hash == "" {
			continue
		}
		if !plain(side.mode) {
			return 0, false, nil
		}
		data, err := repo.CatFile(ctx, side.hash, gitcmd.CatOptions{Type: gitcmd.BlobObject, Max: maxFileBytes})
		if errors.Is(err, gitcmd.ErrTooLarge) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return 0, false, nil
		}
		sides[i] = splitLines(data)
	}
	return edits(sides[0], sides[1]), true, nil
}

func plain(m gitcmd.Mode) bool { return m == gitcmd.ModeFile || m == gitcmd.ModeExec }

// splitLines parts a text into lines, and a long line into several, so that a
// change can't hide in one.
func splitLines(data []byte) []string {
	var lines []string
	for line := range bytes.Lines(data) {
		for len(line) > merge.LineBytes {
			lines = append(lines, string(line[:merge.LineBytes]))
			line = line[merge.LineBytes:]
		}
		lines = append(lines, string(line))
	}
	return lines
}

// edits counts removed plus added lines of the shortest way from a to b (Myers'
// greedy algorithm); all lines that differ where that is longer than maxEdits.
func edits(a, b []string) int {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	n, m := len(a), len(b)
	limit := min(n+m, maxEdits)
	// far[k+limit+1] is how much of a is used on the diagonal k, on which that
	// much less k of b is.
	far := make([]int, 2*limit+3)
	at := func(k int) *int { return &far[k+limit+1] }
	for d := 0; d <= limit; d++ {
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || (k != d && *at(k - 1) < *at(k + 1)) {
				x = *at(k + 1)
			} else {
				x = *at(k - 1) + 1
			}
			for x < n && x-k < m && x-k >= 0 && a[x] == b[x-k] {
				x++
			}
			*at(k) = x
			if x >= n && x-k >= m {
				return d
			}
		}
	}
	return n + m
}
