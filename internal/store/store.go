// Package store keeps the engine's durable state: one directory for each run,
// with a record that is replaced whole, and a lock that is held as long as the
// run's process lives.
//
// It promises that a record is the last one saved or the one before, never a
// part, and that Interrupted finds exactly the runs whose process is gone. It does
// not know what is in a record.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Runs is the directory of all runs.
type Runs struct{ dir string }

// OpenRuns opens it, and makes it if need be.
func OpenRuns(dir string) (*Runs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open runs: %w", err)
	}
	return &Runs{dir}, nil
}

// Run is one run's directory, locked.
type Run struct {
	ID, Dir string
	lock    *os.File
}

// Create makes the directory of a new run and locks it.
func (r *Runs) Create(id string) (*Run, error) {
	dir := filepath.Join(r.dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	// It waits: Interrupted may be looking at it.
	return lock(id, dir, 0)
}

func lock(id, dir string, flags int) (*Run, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run %s: %w", id, err)
	}
	// A kernel lock: it goes with the process, however that ends.
	err = unix.EINTR
	for err == unix.EINTR {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|flags)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock run %s: %w", id, err)
	}
	return &Run{ID: id, Dir: dir, lock: f}, nil
}

// Close lets go of the lock.
func (r *Run) Close() error { return r.lock.Close() }

const recordName = "record.json"

// Save replaces the run's record.
func (r *Run) Save(record any) error {
	b, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return fmt.Errorf("save record of run %s: %w", r.ID, err)
	}
	if err := replace(r.Dir, recordName, append(b, '\n')); err != nil {
		return fmt.Errorf("save record of run %s: %w", r.ID, err)
	}
	return nil
}

// replace writes a file that is there whole or not at all.
func replace(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, "."+name+".")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Load reads the record of a run, whether it is alive or not.
func (r *Runs) Load(id string, record any) error {
	if id == "" || strings.ContainsAny(id, "/\x00") || id[0] == '.' {
		return fmt.Errorf("load run %q: not a run's id", id)
	}
	b, err := os.ReadFile(filepath.Join(r.dir, id, recordName))
	if err != nil {
		return fmt.Errorf("load run %s: %w", id, err)
	}
	if err := json.Unmarshal(b, record); err != nil {
		return fmt.Errorf("load run %s: %w", id, err)
	}
	return nil
}

// List names all runs, oldest first: ids begin with their time.
func (r *Runs) List() ([]string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			ids = append(ids, e.Name())
		}
	}
	sort.Strings(ids)
	return ids, nil
}

// Interrupted calls f with each run whose process is gone, locked, and returns
// those that f keeps, still locked: the caller closes them, after an error too.
func (r *Runs) Interrupted(f func(*Run) (keep bool, err error)) ([]*Run, error) {
	ids, err := r.List()
	if err != nil {
		return nil, err
	}
	var kept []*Run
	for _, id := range ids {
		run, err := lock(id, filepath.Join(r.dir, id), unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return kept, err
		}
		keep, err := f(run)
		if keep && err == nil {
			kept = append(kept, run)
			continue
		}
		run.Close()
		if err != nil {
			return kept, err
		}
	}
	return kept, nil
}
