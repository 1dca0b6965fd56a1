package workspace

import (
	"fmt"
	"time"
)

// StageOptions say how writes are staged.
type StageOptions struct {
	// StateDir is where stages and the trash are kept.
	StateDir string
	// HostUID and HostGID are who the run is on the host. Where confine runs as
	// root what is written belongs to them until it is committed.
	HostUID, HostGID uint32
	// Release are patterns of files that are committed though some program of the
	// host runs or obeys them by itself.
	Release []string
	// Command is what is run, for whoever looks into the trash.
	Command []string
}

// ChangeKind says what a commit did to a path.
type ChangeKind string

// The kinds of changes.
const (
	ChangeNew     ChangeKind = "new"
	ChangeChanged ChangeKind = "changed"
	ChangeDeleted ChangeKind = "deleted"
	ChangeMode    ChangeKind = "mode"
	// ChangeHeld was not committed: it waits in the trash.
	ChangeHeld ChangeKind = "held"
)

// Change is one path that a commit changed. A directory that is new, deleted or
// replaced as a whole is one.
type Change struct {
	// Path is below the workspace, or absolute in the repository of a linked
	// worktree. It comes from a hostile tree.
	Path string     `json:"path"`
	Kind ChangeKind `json:"change"`
	// Why is the reason for which it was held.
	Why string `json:"why,omitempty"`
}

// Committed is what became of a stage.
type Committed struct {
	Review
	Changes []Change `json:"changes"`
	// Trash names the entry of the trash that holds what was displaced or held;
	// empty when nothing was changed.
	Trash string `json:"trash,omitempty"`
}

// KeptError is a stage that was not committed: of the workspace nothing changed,
// and what the run wrote is still there.
type KeptError struct {
	// Dir holds what was written, as an overlay's upper directory.
	Dir string
	// Unsettled is a commit that could be neither finished nor taken back now: the
	// next start does that.
	Unsettled bool
	Err       error
}

func (e *KeptError) Error() string {
	if e.Unsettled {
		return fmt.Sprintf("commit staged writes: %v; the commit is not finished, and the next start of confine goes on with it; what the run wrote is in %q", e.Err, e.Dir)
	}
	return fmt.Sprintf("commit staged writes: %v; the workspace is as it was, and what the run wrote is in %q", e.Err, e.Dir)
}

func (e *KeptError) Unwrap() error { return e.Err }

// Hint says what to do with it.
func (e *KeptError) Hint() string {
	if e.Unsettled {
		return "mend the cause, then start confine run in that directory"
	}
	return "mend the cause and run again, or copy what you need from that directory, then delete it"
}

// NestedMountError is a workspace with another file system mounted in it, which
// an overlay does not show.
type NestedMountError struct{ Dir, At string }

func (e *NestedMountError) Error() string {
	return fmt.Sprintf("stage writes to %q: another file system is mounted in it, at %.200q, which an overlay does not show", e.Dir, e.At)
}

// Hint says what to do.
func (e *NestedMountError) Hint() string {
	return "unmount it, start in a directory without mounts below it, or let writes be real: --live"
}

// trashVersion changes with the meaning of a field.
const trashVersion = 1

// TrashAge is how long the trash keeps an entry.
const TrashAge = 30 * 24 * time.Hour

// TrashEntry is what one commit displaced, and what it held back.
type TrashEntry struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	// Dirs are the workspace and, of a linked worktree, its repository.
	Dirs    [][]byte    `json:"dirs"`
	Command []string    `json:"command,omitempty"`
	Items   []TrashItem `json:"items"`
	// Undoes is the entry that this commit took back, Undone whether this one was
	// taken back.
	Undoes string `json:"undoes,omitempty"`
	Undone bool   `json:"undone,omitempty"`
	// Since is the file system's own time when the commit was done.
	Since fileTime `json:"since"`
}

// fileTime is a time as a file system says it.
type fileTime struct {
	Sec  int64 `json:"sec"`
	Nsec int64 `json:"nsec"`
}

func (t fileTime) before(u fileTime) bool {
	return t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec
}

// TrashItem is one path of an entry. Path and Why come from a hostile tree.
type TrashItem struct {
	Root int        `json:"root"`
	Path []byte     `json:"path"`
	Kind ChangeKind `json:"change"`
	Why  string     `json:"why,omitempty"`
	// Slot is its number in the entry's directory data (displaced) or held.
	Slot int  `json:"slot"`
	Dir  bool `json:"dir,omitempty"`
	// Bytes is the size of a file.
	Bytes int64 `json:"bytes,omitempty"`
	// Ino and Mtime are of what was put in its place: they tell whether it is
	// still the same.
	Ino   uint64   `json:"ino,omitempty"`
	Mtime fileTime `json:"mtime,omitzero"`
	// Mode and OldMode are the new and the old rights of a directory, Mode those
	// that a displaced directory gets again.
	Mode    uint32 `json:"mode,omitempty"`
	OldMode uint32 `json:"old_mode,omitempty"`
	// Spent says that it was restored: nothing of it is left here.
	Spent bool `json:"spent,omitempty"`
}

// NothingToUndoError is a directory in which nothing was committed that was not
// taken back.
type NothingToUndoError struct{ Dir string }

func (e *NothingToUndoError) Error() string {
	return fmt.Sprintf("undo: no staged run changed %.300q, or each was taken back", e.Dir)
}

// Hint says where to look.
func (e *NothingToUndoError) Hint() string {
	return "confine trash list shows what there is; writes of live runs are not kept"
}
