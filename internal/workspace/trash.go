package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// The trash is a directory of entries below the state directory, one for each
// commit: entry.json says what was done, data holds by number what was displaced,
// held what was not let in. An entry without entry.json belongs to a commit that
// is going on, or never happened.
const (
	trashDirName = "trash"
	entryName    = "entry.json"
	dataName     = "data"
	heldName     = "held"
	// maxEntry caps what is read of one, in bytes.
	maxEntry = 1 << 30
)

var trashID = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}-[0-9a-f]{12}$`)

// UnknownEntryError is an entry that the trash doesn't have.
type UnknownEntryError struct{ ID string }

func (e *UnknownEntryError) Error() string {
	return fmt.Sprintf("trash: there is no entry %.100q", e.ID)
}

// Hint says where to look.
func (e *UnknownEntryError) Hint() string { return "confine trash list shows what there is" }

// errVersion is a file of ours that is not understood.
var errVersion = errors.New("another version, or cut short")

func trashEntryDir(state, id string) (string, error) {
	if !trashID.MatchString(id) {
		return "", &UnknownEntryError{ID: id}
	}
	return filepath.Join(state, trashDirName, id), nil
}

// makeEntry makes the directory of an entry, for what is displaced.
func makeEntry(state, id string) error {
	dir, err := trashEntryDir(state, id)
	if err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(dir, dataName), 0o700)
}

func writeEntry(state string, e TrashEntry) error {
	dir, err := trashEntryDir(state, e.ID)
	if err != nil {
		return err
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return writeDurable(dir, entryName, data)
}

// ReadTrash reads one entry.
func ReadTrash(state, id string) (TrashEntry, error) {
	dir, err := trashEntryDir(state, id)
	if err != nil {
		return TrashEntry{}, err
	}
	f, err := os.Open(filepath.Join(dir, entryName))
	if errors.Is(err, os.ErrNotExist) {
		return TrashEntry{}, &UnknownEntryError{ID: id}
	}
	if err != nil {
		return TrashEntry{}, fmt.Errorf("read trash: %w", err)
	}
	defer f.Close()
	var e TrashEntry
	d := json.NewDecoder(io.LimitReader(f, maxEntry))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || e.Version != trashVersion || e.ID != id {
		return TrashEntry{}, fmt.Errorf("read trash entry %q: %w", id, errors.Join(err, errVersion))
	}
	return e, nil
}

// ListTrash returns all entries, the newest first. What can't be read is an error
// beside the rest.
func ListTrash(state string) ([]TrashEntry, error) {
	names, err := os.ReadDir(filepath.Join(state, trashDirName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list trash: %w", err)
	}
	var out []TrashEntry
	var failed []error
	var unknown *UnknownEntryError
	for _, n := range slices.Backward(names) {
		e, err := ReadTrash(state, n.Name())
		switch {
		case err == nil:
			out = append(out, e)
		case !errors.As(err, &unknown):
			failed = append(failed, err)
		}
	}
	return out, errors.Join(failed...)
}

// PurgeTrash deletes entries older than age, as their names say, and returns
// which.
func PurgeTrash(state string, age time.Duration) ([]string, error) {
	names, err := os.ReadDir(filepath.Join(state, trashDirName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("purge trash: %w", err)
	}
	limit := time.Now().Add(-age)
	var gone []string
	var failed []error
	for _, n := range names {
		if !trashID.MatchString(n.Name()) {
			continue
		}
		made, err := time.Parse("20060102-150405", n.Name()[:15])
		dir := filepath.Join(state, trashDirName, n.Name())
		if err != nil || made.After(limit) {
			continue
		}
		// Without its entry it belongs to a commit that may go on.
		if _, err := os.Lstat(filepath.Join(dir, entryName)); err != nil {
			continue
		}
		if err := DeleteTrash(state, n.Name()); err != nil {
			failed = append(failed, err)
			continue
		}
		gone = append(gone, n.Name())
	}
	return gone, errors.Join(failed...)
}

// DeleteTrash deletes one entry for good.
func DeleteTrash(state, id string) error {
	dir, err := trashEntryDir(state, id)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return &UnknownEntryError{ID: id}
	}
	if err := Remove(dir); err != nil {
		return fmt.Errorf("purge trash: %w", err)
	}
	return nil
}

// spent are items of an entry that are used up by a commit.
type spent struct {
	ID    string `json:"id"`
	Items []int  `json:"items"`
	// Undone marks the entry as a whole.
	Undone bool `json:"undone,omitempty"`
}

// spendItems notes that items of an entry were used up.
func spendItems(state string, s spent) error {
	e, err := ReadTrash(state, s.ID)
	if err != nil {
		var unknown *UnknownEntryError
		if errors.As(err, &unknown) {
			return nil // purged meanwhile
		}
		return err
	}
	for _, i := range s.Items {
		if i >= 0 && i < len(e.Items) {
			e.Items[i].Spent = true
		}
	}
	e.Undone = e.Undone || s.Undone
	return writeEntry(state, e)
}

// Dir is where a displaced or held item lies, or "" if nothing of it does.
func (e TrashEntry) Dir(state string, i int) string {
	item := e.Items[i]
	if item.Slot == 0 || item.Spent {
		return ""
	}
	part := dataName
	if item.Kind == ChangeHeld {
		part = heldName
	}
	return filepath.Join(state, trashDirName, e.ID, part, strconv.Itoa(item.Slot))
}

// Name is the path of an item as a person names it: below the workspace, or
// absolute in another root.
func (e TrashEntry) Name(i int) string {
	item := e.Items[i]
	if item.Root == 0 || item.Root >= len(e.Dirs) {
		if len(item.Path) == 0 {
			return "."
		}
		return string(item.Path)
	}
	return filepath.Join(string(e.Dirs[item.Root]), string(item.Path))
}

// TrashOptions say what of an entry comes back.
type TrashOptions struct {
	StateDir string
	// ID is the entry.
	ID string
	// Paths are what to bring back, as Name gives them, or paths below them; none
	// means all that was displaced, and what was new is taken away: an undo.
	Paths []string
	// Force goes on where what the commit put there was changed since.
	Force bool
	// DryRun only says what would be done.
	DryRun bool
	// Waiting is called once when another run has the workspace.
	Waiting func()
	// Cancel ends the waiting.
	Cancel <-chan struct{}
}

// ChangedSinceError are paths that are no longer as the commit left them.
type ChangedSinceError struct {
	Paths []string
}

func (e *ChangedSinceError) Error() string {
	return "restore: changed since: " + quoteSome(e.Paths)
}

// Hint says what to do.
func (e *ChangedSinceError) Hint() string {
	return "with --force what is there now goes to the trash"
}

// SpentError is an entry, or a path of it, of which nothing is left to restore.
type SpentError struct{ ID, Path string }

func (e *SpentError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("restore: entry %s was taken back already", e.ID)
	}
	return fmt.Sprintf("restore: entry %s holds no %.200q that is not restored already", e.ID, e.Path)
}

// Hint says where to look.
func (e *SpentError) Hint() string { return "confine trash show " + e.ID + " lists what it holds" }

// writeDurable writes a file that is there whole, or not, whatever ends this
// process. It is synced after it has its name: one write to the disk's own journal
// instead of two. So after a loss of power it may be there and cut short, but not
// once this has returned.
func writeDurable(dir, name string, data []byte) error {
	next := filepath.Join(dir, name+".new")
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = os.Rename(next, filepath.Join(dir, name))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
