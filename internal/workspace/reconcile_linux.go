package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockStages locks the directory of all stages: shared by those who make one, for one
// who looks for what is left.
func lockStages(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
}

// reconcileStages goes on with the commits of processes that are gone, and
// discards the stages of those that had none. With a root, which the caller has
// locked, it looks at the stages of that workspace only; without one at all whose
// workspace nobody uses.
func reconcileStages(state string, root *os.File) []Earlier {
	state, err := filepath.EvalSymlinks(state)
	if err != nil {
		return nil // there never was one
	}
	dir := filepath.Join(state, stagedDirName)
	how := unix.LOCK_EX
	if root == nil {
		how |= unix.LOCK_NB // what is missed now, the next start finds
	}
	looking, err := lockStages(dir, how)
	if err != nil {
		return nil // there never was one, or somebody else looks
	}
	defer looking.Close()
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []Earlier
	for _, n := range names {
		if !n.IsDir() || !strings.HasPrefix(n.Name(), scratchPrefix) {
			continue
		}
		at := filepath.Join(dir, n.Name())
		lock, err := lockDir(at)
		if err != nil {
			continue // its process lives
		}
		if e, done := reconcileStage(state, at, root); done {
			out = append(out, e...)
		}
		lock.Close()
	}
	return out
}

func reconcileStage(state, scratch string, root *os.File) (out []Earlier, done bool) {
	var record stageRecord
	if err := readJSON(filepath.Join(scratch, recordName), &record); err != nil {
		// Killed before it began.
		if Remove(scratch) == nil {
			return nil, true
		}
		return nil, false
	}
	if len(record.Dirs) == 0 || root != nil && string(record.Dirs[0]) != root.Name() {
		return nil, false
	}
	if root == nil {
		for _, d := range record.Dirs {
			r, err := openRoot(string(d))
			if err != nil {
				continue
			}
			defer r.Close()
			if unix.Flock(int(r.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
				return nil, false
			}
		}
	}
	e := Earlier{Dir: string(record.Dirs[0])}
	c := &commit{state: state, scratch: scratch}
	err := readJSON(filepath.Join(scratch, commitName), &c.j)
	switch {
	// One that was cut short by a loss of power was never acted on.
	case errors.Is(err, os.ErrNotExist), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Note = "a run there was killed; nothing of what it had written was committed"
		if _, err := os.Lstat(filepath.Join(state, trashDirName, record.Trash, entryName)); err == nil {
			e.Note = "a run there was killed just after its writes were committed"
		} else if trashID.MatchString(record.Trash) {
			e.Err = Remove(filepath.Join(state, trashDirName, record.Trash))
		}
		e.Err = errors.Join(e.Err, removeAreas(record), Remove(scratch))
		return []Earlier{e}, true
	case err != nil || c.j.Version != commitVersion:
		e.Err = fmt.Errorf("the journal of a commit can't be read (%w): what was to be committed is in %q", errors.Join(err, errVersion), scratch)
		return []Earlier{e}, true
	}
	defer c.close(false)
	if err = c.open(nil); err == nil {
		err = c.carryOut()
	}
	if c.left != nil {
		e.Err = fmt.Errorf("clean up after a commit: %w", c.left)
		return []Earlier{e}, true
	}
	e.Note = "a run there was killed while its writes were committed: the commit was completed"
	if errors.Is(err, errAborted) {
		e.Note, err = "a run there was killed when its commit had failed: the commit was taken back", nil
	}
	if err != nil {
		// With the journal still there the next start tries again.
		at := scratch
		if c.j.Abort {
			at = keepStage(scratch)
		}
		e.Note, e.Err = "", fmt.Errorf("go on with a commit that was cut short: %w: what was to be committed is in %q", err, at)
		return []Earlier{e}, true
	}
	e.Err = errors.Join(removeAreas(record), Remove(scratch))
	return []Earlier{e}, true
}

// keepStage takes a stage out of those that the next start discards, and returns
// where it is now. One with a journal stays.
func keepStage(scratch string) string {
	if unsettled(scratch) {
		return scratch
	}
	kept := filepath.Join(filepath.Dir(scratch), "kept-"+strings.TrimPrefix(filepath.Base(scratch), scratchPrefix))
	if os.Rename(scratch, kept) != nil {
		return scratch
	}
	return kept
}

// unsettled reports whether there is a journal to go on with.
func unsettled(scratch string) bool {
	_, err := os.Lstat(filepath.Join(scratch, commitName))
	return err == nil
}

func removeAreas(record stageRecord) error {
	var failed []error
	for _, d := range record.Dirs {
		r, err := openRoot(string(d))
		if err != nil {
			continue // it is gone, and the area with it
		}
		failed = append(failed, removeBelow(int(r.Fd()), areaName(path.Base(record.Trash))))
		r.Close()
	}
	return errors.Join(failed...)
}

func readJSON(name string, into any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxJournal))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
