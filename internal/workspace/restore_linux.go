package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// RestoreTrash brings displaced or held things back. It is a commit of its own: what
// it displaces is in the entry that it returns.
func RestoreTrash(o TrashOptions) (Committed, error) {
	state, err := makeState(o.StateDir)
	if err != nil {
		return Committed{}, fmt.Errorf("restore: %w", err)
	}
	o.StateDir = state
	e, err := ReadTrash(o.StateDir, o.ID)
	if err != nil {
		return Committed{}, err
	}
	if len(o.Paths) == 0 && e.Undone {
		return Committed{}, &SpentError{ID: e.ID}
	}
	r := &restore{TrashOptions: o, from: e, p: newPlan(o.StateDir, newTrashID(time.Now()))}
	r.p.entry.Undoes = e.ID
	defer r.p.close()
	for _, d := range e.Dirs {
		root, err := openRoot(string(d))
		if err != nil {
			return Committed{}, err
		}
		r.p.addRoot(root, filepath.Join(o.StateDir, trashDirName, e.ID))
		if err := lockTree(root, true, o.Waiting, o.Cancel); err != nil {
			return Committed{}, err
		}
		reconcileStages(o.StateDir, root)
	}
	if err := r.plan(); err != nil {
		return Committed{}, err
	}
	if len(r.changed) > 0 && !o.Force {
		return Committed{}, &ChangedSinceError{Paths: r.changed}
	}
	out := Committed{Changes: r.p.changesOf()}
	if o.DryRun || len(r.p.items) == 0 {
		return out, nil
	}
	scratch, err := r.p.newScratch()
	if err != nil {
		return Committed{}, fmt.Errorf("restore: %w", err)
	}
	if err := r.p.commit(scratch.Dir); err != nil {
		if unsettled(scratch.Dir) {
			return Committed{}, errors.Join(fmt.Errorf("restore: %w; it is not finished, and the next start of confine goes on with it", err), scratch.lock.Close())
		}
		return Committed{}, errors.Join(fmt.Errorf("restore: %w; the workspace is as it was", err), r.p.end(scratch))
	}
	out.Trash = r.p.entry.ID
	_ = r.p.end(scratch) // what can't be removed now, the next start removes
	return out, nil
}

type restore struct {
	TrashOptions
	from    TrashEntry
	p       *commitPlan
	changed []string
	spent   spent
}

func (r *restore) plan() error {
	r.spent = spent{ID: r.from.ID, Undone: len(r.Paths) == 0}
	if len(r.Paths) == 0 {
		for i, item := range r.from.Items {
			if item.Kind == ChangeHeld || item.Spent {
				continue
			}
			if err := r.item(i, ""); err != nil {
				return err
			}
		}
	}
	for _, p := range r.Paths {
		i, rest, ok := r.find(strings.TrimSuffix(p, "/"))
		if !ok {
			return &SpentError{ID: r.from.ID, Path: p}
		}
		if err := r.item(i, rest); err != nil {
			return err
		}
	}
	r.p.spent = []spent{r.spent}
	return nil
}

// find returns the item of a path, or the one it lies in with the rest.
func (r *restore) find(p string) (i int, rest string, ok bool) {
	for i, item := range r.from.Items {
		if item.Spent || item.Slot == 0 && item.Kind != ChangeNew && item.Kind != ChangeMode {
			continue
		}
		name := r.from.Name(i)
		if name == p {
			return i, "", true
		}
		if rest, ok := strings.CutPrefix(p, name+"/"); ok && item.Dir && item.Slot != 0 && !slices.Contains(strings.Split(rest, "/"), "..") {
			return i, rest, true
		}
	}
	return 0, "", false
}

// item takes one item back: what it displaced is brought in, what it brought
// goes.
func (r *restore) item(i int, rest string) error {
	item := r.from.Items[i]
	rel := joinAll(string(item.Path), rest)
	if defaultMasked(filepath.Base(rel)) {
		return fmt.Errorf("restore %.200q: a masked file is never restored; it is in %q", rel, r.from.Dir(r.StateDir, i))
	}
	root := r.p.roots[item.Root].root
	now, exists, err := statBelow(root, rel)
	if err != nil {
		return fmt.Errorf("restore %.200q: %w", rel, err)
	}
	if rest == "" {
		if changed, err := r.changedSince(item, rel, &now, exists, root); err != nil {
			return fmt.Errorf("restore %.200q: %w", rel, err)
		} else if changed {
			r.changed = append(r.changed, r.from.Name(i))
		}
		r.spent.Items = append(r.spent.Items, i)
	} else if exists {
		r.changed = append(r.changed, joinAll(r.from.Name(i), rest))
	}
	switch {
	case item.Kind == ChangeMode:
		if exists {
			r.p.setMode(item.Root, rel, now.Mode&0o7777, item.OldMode)
		}
		return nil
	case item.Kind == ChangeNew && item.Slot == 0:
		if exists {
			r.p.remove(item.Root, rel, &now)
		}
		return nil
	}
	part := dataName
	if item.Kind == ChangeHeld {
		part = heldName
	}
	from := joinAll(part+"/"+strconv.Itoa(item.Slot), rest)
	old := &now
	if !exists {
		old = nil
	}
	if err := r.p.put(item.Root, rel, from, old); err != nil {
		return fmt.Errorf("restore %.200q: %w", rel, err)
	}
	if rest == "" && item.Dir && item.Mode != 0 {
		r.p.freshMode(item.Root, rel, item.Mode)
	}
	return nil
}

func (r *restore) changedSince(item TrashItem, rel string, now *unix.Stat_t, exists bool, root *os.File) (bool, error) {
	switch item.Kind {
	case ChangeDeleted, ChangeHeld:
		return exists, nil
	case ChangeMode:
		return exists && now.Mode&0o7777 != item.Mode, nil
	}
	if !exists {
		return item.Kind == ChangeChanged, nil
	}
	if item.Root > 0 && filepath.Base(rel) == "index" || gitRefreshes(rel) {
		return false, nil
	}
	if now.Ino != item.Ino {
		return true, nil
	}
	if isDir(now) {
		changed, err := changedSince(root, rel, now, r.from.Since)
		if errors.Is(err, unix.EACCES) {
			err = nil // it is closed, as the commit may have left it
		}
		return changed, err
	}
	return now.Size != item.Bytes || mtimeOf(now) != item.Mtime, nil
}

// gitRefreshes is an index: git writes it anew when it only looks.
func gitRefreshes(rel string) bool {
	dir, name := splitRel(rel)
	return name == "index" && slices.Contains(strings.Split(dir, "/"), ".git")
}

func statBelow(root *os.File, rel string) (st unix.Stat_t, exists bool, err error) {
	if rel == "" {
		err := unix.Fstat(int(root.Fd()), &st)
		return st, err == nil, err
	}
	dir, name, err := parentOf(root, []byte(rel))
	if err != nil {
		return st, false, err
	}
	defer unix.Close(dir)
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return st, false, nil
	}
	return st, err == nil, err
}
