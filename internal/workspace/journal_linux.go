package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A run that is killed with its engine ends without a review: what it planted
// would be the next run's "before". So the state a workspace was in is written
// down for as long as a run lasts, and the next start makes up for the review.

// journalDir is below the state directory, one file for each run.
const journalDir = "live"

// journalVersion changes with the meaning of a field: an older file is not
// understood, and said so.
const journalVersion = 1

// journal is what a review compares with. Paths are bytes: they need not be text.
type journal struct {
	Version    int            `json:"version"`
	Dir        []byte         `json:"dir"`
	Dev        uint64         `json:"dev"`
	Ino        uint64         `json:"ino"`
	Start      time.Time      `json:"start"`
	MaxEntries int            `json:"max_entries"`
	GitDirs    [][]byte       `json:"git_dirs,omitempty"`
	Controls   []savedControl `json:"controls,omitempty"`
	LinkOut    []savedLink    `json:"links_out,omitempty"`
	Unseen     [][]byte       `json:"unseen,omitempty"`
	Masked     [][]byte       `json:"masked,omitempty"`
	Pointed    [][]byte       `json:"pointed,omitempty"`
}

type savedLink struct{ Path, To []byte }

type savedControl struct {
	Path       []byte
	Kind, Mode uint32
	Size, Ino  int64
	Mtime      unix.Timespec
	Ctime      unix.Timespec
	Link       []byte
	Sum        []byte // nil: not summarised
}

// Record writes down what Review will compare with, so that Reconcile can do it
// if this process is killed. Close takes the record away.
func (l *LiveWorkspace) Record(stateDir string) error {
	fail := func(err error) error { return fmt.Errorf("record the state of the workspace: %w", err) }
	dir := filepath.Join(stateDir, journalDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(l.root.Fd()), &st); err != nil {
		return fail(err)
	}
	data, err := json.Marshal(l.before.save(journal{
		Version: journalVersion, Dir: []byte(l.Dir), Dev: uint64(st.Dev), Ino: st.Ino, Start: l.start, MaxEntries: l.maxEntries,
	}))
	if err != nil {
		return fail(err)
	}
	// Locked before it has its name: nobody takes it for a dead run's.
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return fail(err)
	}
	name := filepath.Join(dir, strings.TrimPrefix(filepath.Base(f.Name()), ".new-")+".json")
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		f.Close()
		return fail(errors.Join(err, os.Remove(f.Name())))
	}
	l.journal, l.journalName = f, name
	if l.shared != nil {
		return l.shared.Record(stateDir)
	}
	return nil
}

// forget takes the record away: its review is made, or nothing was run. After a
// review that failed it stays, for the next start to try again.
func (l *LiveWorkspace) forget() error {
	if l.journal == nil {
		return nil
	}
	var err error
	if !l.reviewFailed {
		err = os.Remove(l.journalName)
	}
	l.journal.Close() // lets go of the lock
	l.journal = nil
	return err
}

func (s *scan) save(j journal) journal {
	for _, rel := range sortedKeys(s.gitDirs) {
		j.GitDirs = append(j.GitDirs, []byte(rel))
	}
	for _, rel := range sortedKeys(s.controls) {
		st := s.controls[rel].stamp
		c := savedControl{Path: []byte(rel), Kind: st.kind, Mode: st.mode, Size: st.size, Ino: st.ino, Mtime: st.mtime, Ctime: st.ctime, Link: []byte(st.link)}
		if st.summarised {
			c.Sum = st.sum[:]
		}
		j.Controls = append(j.Controls, c)
	}
	for _, rel := range sortedKeys(s.linkOut) {
		j.LinkOut = append(j.LinkOut, savedLink{[]byte(rel), []byte(s.linkOut[rel])})
	}
	for _, rel := range sortedKeys(s.unseen) {
		j.Unseen = append(j.Unseen, []byte(rel))
	}
	for _, t := range s.masked {
		j.Masked = append(j.Masked, []byte(t.rel))
	}
	for _, rel := range s.pointed {
		j.Pointed = append(j.Pointed, []byte(rel))
	}
	return j
}

func (j journal) scan(root *os.File) *scan {
	s := newScan(root, string(j.Dir), masks{})
	for _, rel := range j.GitDirs {
		s.gitDirs[string(rel)] = true
	}
	for _, c := range j.Controls {
		st := stamp{kind: c.Kind, mode: c.Mode, size: c.Size, ino: c.Ino, mtime: c.Mtime, ctime: c.Ctime, link: string(c.Link)}
		st.summarised = copy(st.sum[:], c.Sum) == len(st.sum)
		s.controls[string(c.Path)] = control{stamp: st}
	}
	for _, link := range j.LinkOut {
		s.linkOut[string(link.Path)] = string(link.To)
	}
	for _, rel := range j.Unseen {
		s.unseen[string(rel)] = unix.EACCES
	}
	for _, rel := range j.Masked {
		s.masked = append(s.masked, target{rel: string(rel)})
	}
	for _, rel := range j.Pointed {
		s.pointed = append(s.pointed, string(rel))
	}
	return s
}

// Reconcile reviews the workspaces of runs whose process is gone, and forgets
// them. A workspace that another run is using now is left for later.
func Reconcile(stateDir string, o ReviewOptions) ([]Earlier, error) {
	out := reconcileStages(stateDir, nil)
	dir := filepath.Join(stateDir, journalDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for killed runs: %w", err)
	}
	var dead []*LiveWorkspace
	var busy []string
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if !strings.HasSuffix(e.Name(), ".json") {
			removeStale(name)
			continue
		}
		l, alive, err := openJournal(name)
		switch {
		case err != nil:
			out = append(out, Earlier{Dir: name, Err: err})
		case alive:
			busy = append(busy, l.Dir)
		case l != nil:
			dead = append(dead, l)
		}
	}
	for _, l := range dead {
		if slices.ContainsFunc(busy, func(dir string) bool { return within(dir, l.Dir) || within(l.Dir, dir) }) {
			l.journal.Close()
			continue
		}
		out = append(out, l.makeUp(o))
	}
	return out, nil
}

// removeStale takes away what was killed while it wrote its record: it had
// started nothing yet.
func removeStale(name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = os.Remove(name)
	}
}

// openJournal reads one record. Alive says that its run goes on.
func openJournal(name string) (l *LiveWorkspace, alive bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	keep := false
	defer func() {
		if !keep {
			f.Close()
		}
	}()
	lockErr := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	var j journal
	if err := json.NewDecoder(f).Decode(&j); err != nil || j.Version != journalVersion {
		if lockErr != nil {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("a killed run's record can't be read (%w): look at its workspace yourself, then delete the file", errors.Join(err, errVersion))
	}
	l = &LiveWorkspace{Dir: string(j.Dir), maxEntries: j.MaxEntries, start: j.Start, journal: f, journalName: name}
	if lockErr != nil {
		return l, true, nil
	}
	keep = true
	l.saved = &j
	return l, false, nil
}

// makeUp is the review that was missed.
func (l *LiveWorkspace) makeUp(o ReviewOptions) Earlier {
	e := Earlier{Dir: l.Dir}
	fd, err := unix.Openat2(unix.AT_FDCWD, l.Dir, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		l.root = os.NewFile(uintptr(fd), l.Dir)
		defer l.root.Close()
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && (uint64(st.Dev) != l.saved.Dev || st.Ino != l.saved.Ino) {
			err = unix.ENOENT
		}
	}
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		// The directory is gone, or another one has its place: nothing to see.
		e.Err = l.forget()
		return e
	}
	if err == nil {
		l.before = l.saved.scan(l.root)
		e.Review, err = l.Review(o)
	}
	l.reviewFailed = err != nil
	e.Err = errors.Join(err, l.forget())
	return e
}
