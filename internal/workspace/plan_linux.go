package workspace

import (
	"encoding/json"
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

// commitPlan collects what a commit will do, and starts it.
type commitPlan struct {
	state string
	roots []planRoot
	ops   []op
	dirs  map[dirKey]*dirMode
	spent []spent
	entry TrashEntry
	slots int
	items []TrashItem
	// itemOf is the number of the item of each op.
	itemOf []int
	// left is what commit.left is.
	left error
}

type planRoot struct {
	root *os.File
	news string
	// opened is whether the plan closes it.
	opened bool
}

type dirKey struct {
	root int
	rel  string
}

func newPlan(state, id string) *commitPlan {
	return &commitPlan{state: state, dirs: map[dirKey]*dirMode{}, entry: TrashEntry{Version: trashVersion, ID: id, Time: time.Now().UTC()}}
}

// addRoot adds a directory that is changed, and the one where what is new to it
// lies. The plan closes it.
func (p *commitPlan) addRoot(root *os.File, news string) {
	p.roots = append(p.roots, planRoot{root: root, news: news, opened: true})
}

func (p *commitPlan) close() {
	for _, r := range p.roots {
		if r.opened {
			r.root.Close()
		}
	}
}

func (p *commitPlan) slot() int {
	p.slots++
	return p.slots
}

// displaced are the facts of what goes to the trash.
func displaced(item TrashItem, old *unix.Stat_t) TrashItem {
	item.Dir, item.Bytes = isDir(old), old.Size
	if item.Dir {
		item.Bytes, item.Mode = 0, old.Mode&0o7777
	}
	return item
}

// put brings in what lies at from below the root's news, in the place of old.
func (p *commitPlan) put(root int, rel, from string, old *unix.Stat_t) error {
	news, err := openRoot(p.roots[root].news)
	if err != nil {
		return err
	}
	st, exists, err := statBelow(news, from)
	news.Close()
	if err != nil {
		return err
	}
	if !exists {
		return unix.ENOENT
	}
	o := op{Kind: opPut, Root: root, Path: []byte(rel), From: []byte(from), NewIno: st.Ino}
	item := TrashItem{Root: root, Path: o.Path, Kind: ChangeNew, Dir: isDir(&st), Ino: st.Ino, Mtime: mtimeOf(&st)}
	if old != nil {
		o.Slot, o.OldIno = p.slot(), old.Ino
		item = displaced(item, old)
		item.Kind, item.Slot = ChangeChanged, o.Slot
	}
	if !isDir(&st) {
		item.Bytes = st.Size
	}
	p.add(o, item)
	return nil
}

// remove takes away what is there.
func (p *commitPlan) remove(root int, rel string, old *unix.Stat_t) {
	o := op{Kind: opRemove, Root: root, Path: []byte(rel), Slot: p.slot(), OldIno: old.Ino}
	p.add(o, displaced(TrashItem{Root: root, Path: o.Path, Kind: ChangeDeleted, Slot: o.Slot}, old))
}

func (p *commitPlan) add(o op, item TrashItem) {
	p.ops = append(p.ops, o)
	p.itemOf = append(p.itemOf, len(p.items))
	p.items = append(p.items, item)
}

// setMode gives a directory that stays other rights.
func (p *commitPlan) setMode(root int, rel string, old, mode uint32) {
	p.dirs[dirKey{root, rel}] = &dirMode{Root: root, Path: []byte(rel), Old: old, New: mode}
	p.items = append(p.items, TrashItem{Root: root, Path: []byte(rel), Kind: ChangeMode, Mode: mode, OldMode: old, Dir: true})
}

// freshMode gives a directory that comes with the commit its rights in the end.
func (p *commitPlan) freshMode(root int, rel string, mode uint32) {
	p.dirs[dirKey{root, rel}] = &dirMode{Root: root, Path: []byte(rel), New: mode, Fresh: true}
}

func (p *commitPlan) changesOf() []Change {
	out := []Change{}
	for i := range p.items {
		e := TrashEntry{Items: p.items}
		for _, r := range p.roots {
			e.Dirs = append(e.Dirs, []byte(r.root.Name()))
		}
		out = append(out, Change{Path: e.Name(i), Kind: p.items[i].Kind, Why: p.items[i].Why})
	}
	return out
}

// need makes sure that the directories in which something is renamed can be
// written to, and those above them passed.
func (p *commitPlan) need() error {
	seen := map[dirKey]bool{}
	for _, o := range p.ops {
		for dir := dirOf(string(o.Path)); ; dir = dirOf(dir) {
			key := dirKey{o.Root, dir}
			if seen[key] {
				break
			}
			seen[key] = true
			mode, err := rightsOf(p.roots[o.Root].root, dir)
			if err != nil {
				return fmt.Errorf("look at %.200q: %w", dir, err)
			}
			d := p.dirs[key]
			if mode&0o700 != 0o700 || d != nil && d.New&0o700 != 0o700 {
				if d == nil {
					d = &dirMode{Root: o.Root, Path: []byte(dir), Old: mode, New: mode}
					p.dirs[key] = d
				}
				d.Need = true
			}
			if dir == "" {
				break
			}
		}
	}
	return nil
}

func rightsOf(root *os.File, rel string) (uint32, error) {
	fd, err := openBelow(root, rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Mode & 0o7777, err
}

// stageRecord says, from the start on, what a stage may leave elsewhere.
type stageRecord struct {
	Version int      `json:"version"`
	Trash   string   `json:"trash"`
	Dirs    [][]byte `json:"dirs"`
}

const recordName = "stage.json"

func areaName(id string) string { return ".confine-" + id }

// stagedDirName is below the state directory, one directory for each stage.
const stagedDirName = "staged"

// makeState makes the state directory and follows its links: from there on none is
// followed.
func makeState(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// newScratch makes the directory of a stage or a restore.
func (p *commitPlan) newScratch() (*Scratch, error) {
	dir := filepath.Join(p.state, stagedDirName)
	for _, d := range []string{dir, filepath.Join(p.state, trashDirName)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	// Until it is locked and has its record, a stage looks like one whose process is
	// gone.
	making, err := lockStages(dir, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer making.Close()
	s, err := NewScratch(dir)
	if err != nil {
		return nil, err
	}
	record := stageRecord{Version: commitVersion, Trash: p.entry.ID}
	for _, r := range p.roots {
		record.Dirs = append(record.Dirs, []byte(r.root.Name()))
	}
	data, err := json.Marshal(record)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Dir, recordName), data, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// commit carries the plan out, or leaves the workspace as it was and says why.
func (p *commitPlan) commit(scratch string) (err error) {
	c := &commit{state: p.state, scratch: scratch}
	c.j.Version, c.j.Entry, c.j.Spent = commitVersion, p.entry, p.spent
	written := false
	defer func() {
		if err != nil && !written {
			err = errors.Join(err, p.discard())
		}
	}()
	if err := makeEntry(p.state, p.entry.ID); err != nil {
		return err
	}
	if err := p.need(); err != nil {
		return err
	}
	for i := range p.roots {
		if err := p.prepareRoot(c, i); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	c.j.Ops, c.j.Entry.Items = p.ops, p.items
	for _, key := range p.sortedDirs() {
		c.j.Dirs = append(c.j.Dirs, *p.dirs[key])
	}
	p.entry = c.j.Entry
	defer c.close(true)
	if err := c.open(func(i int) *os.File { return p.roots[i].root }); err != nil {
		return err
	}
	written = true
	if err := c.write(); err != nil {
		// It may be in its place and not durable: then it must go first.
		removeErr := os.Remove(filepath.Join(scratch, commitName))
		written = removeErr != nil && !errors.Is(removeErr, os.ErrNotExist)
		return err
	}
	err = c.carryOut()
	p.left = c.left
	return err
}

// end removes what the commit was made in. What is left somewhere else is named
// there: then it stays, for the next start.
func (p *commitPlan) end(scratch *Scratch) error {
	if p.left != nil {
		return errors.Join(p.left, scratch.lock.Close())
	}
	return scratch.Remove()
}

func (p *commitPlan) sortedDirs() []dirKey {
	keys := make([]dirKey, 0, len(p.dirs))
	for k := range p.dirs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b dirKey) int {
		if a.root != b.root {
			return a.root - b.root
		}
		return strings.Compare(a.rel, b.rel)
	})
	return keys
}

// discard removes what was prepared for a commit that did not happen.
func (p *commitPlan) discard() error {
	failed := []error{Remove(filepath.Join(p.state, trashDirName, p.entry.ID))}
	for _, r := range p.roots {
		failed = append(failed, removeBelow(int(r.root.Fd()), areaName(p.entry.ID)))
	}
	return errors.Join(failed...)
}

// prepareRoot fills in where the news and olds of a root are. Where the trash
// can't be reached by a rename the new things are copied to a directory in the
// root first.
func (p *commitPlan) prepareRoot(c *commit, i int) error {
	r := p.roots[i]
	var st unix.Stat_t
	if err := unix.Fstat(int(r.root.Fd()), &st); err != nil {
		return err
	}
	j := journalRoot{Dir: []byte(r.root.Name()), Dev: uint64(st.Dev), Ino: st.Ino, News: []byte(r.news)}
	p.entry.Dirs = append(p.entry.Dirs, j.Dir)
	c.j.Entry.Dirs = p.entry.Dirs
	near, err := sameMount(r.root, filepath.Join(p.state, trashDirName, p.entry.ID))
	if err != nil {
		return err
	}
	if near {
		c.j.Roots = append(c.j.Roots, j)
		return p.syncNews(i)
	}
	j.Area = areaName(p.entry.ID)
	c.j.Roots = append(c.j.Roots, j)
	if !slices.ContainsFunc(p.ops, func(o op) bool { return o.Root == i }) {
		// Nothing to rename: but there is to be something to open.
		return p.makeArea(r.root, j.Area)
	}
	if err := p.makeArea(r.root, j.Area); err != nil {
		return err
	}
	return p.fillArea(i, j.Area)
}

func (p *commitPlan) makeArea(root *os.File, name string) error {
	mode, err := rightsOf(root, "")
	if err != nil {
		return err
	}
	if mode&0o300 != 0o300 && os.Geteuid() != 0 {
		return fmt.Errorf("%q can't be written to, and the state directory lies on another file system: set XDG_STATE_HOME to a directory beside the workspace", root.Name())
	}
	for _, d := range []string{"", "/new", "/old"} {
		if err := unix.Mkdirat(int(root.Fd()), name+d, 0o700); err != nil {
			return fmt.Errorf("make %q in %q: %w", name+d, root.Name(), err)
		}
	}
	return nil
}

// fillArea copies what is new to a root into its area, by numbers.
func (p *commitPlan) fillArea(i int, area string) error {
	news, err := openRoot(p.roots[i].news)
	if err != nil {
		return err
	}
	defer news.Close()
	to, err := openDirBelow(p.roots[i].root, area+"/new")
	if err != nil {
		return err
	}
	defer to.Close()
	for n := range p.ops {
		o := &p.ops[n]
		if o.Root != i || o.Kind != opPut {
			continue
		}
		name := strconv.Itoa(n)
		if err := copyTree(news, string(o.From), to, name); err != nil {
			return err
		}
		ino, err := inode(int(to.Fd()), name)
		if err != nil {
			return err
		}
		p.items[p.itemOf[n]].Ino = ino
		o.From, o.NewIno = []byte(name), ino
	}
	return to.Sync()
}

// syncNews makes the content of what comes in durable: the overlay it was written
// through did not.
func (p *commitPlan) syncNews(i int) error {
	news, err := openRoot(p.roots[i].news)
	if err != nil {
		return err
	}
	defer news.Close()
	var files []string
	for _, o := range p.ops {
		if o.Root == i && o.Kind == opPut {
			files = append(files, string(o.From))
		}
	}
	if len(files) == 0 {
		return nil
	}
	if len(files) > maxSynced {
		return unix.Syncfs(int(news.Fd()))
	}
	for _, rel := range files {
		st, _, err := statBelow(news, rel)
		if err != nil {
			return err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			return unix.Syncfs(int(news.Fd()))
		case unix.S_IFREG:
			if err := syncFile(news, rel); err != nil {
				return fmt.Errorf("sync %.200q: %w", rel, err)
			}
		}
	}
	return nil
}

func syncFile(root *os.File, rel string) error {
	fd, err := openBelow(root, rel, unix.O_RDONLY)
	if err == unix.EACCES {
		return unix.Syncfs(int(root.Fd()))
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), rel)
	return errors.Join(f.Sync(), f.Close())
}

// sameMount reports whether a rename from a directory to another can work.
func sameMount(a *os.File, dir string) (bool, error) {
	var x, y unix.Statx_t
	const mask = unix.STATX_MNT_ID
	if err := unix.Statx(int(a.Fd()), "", unix.AT_EMPTY_PATH, mask, &x); err != nil {
		return false, err
	}
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, mask, &y); err != nil {
		return false, err
	}
	if x.Mask&y.Mask&mask == 0 {
		return false, nil // a kernel that doesn't say: a copy always works
	}
	return x.Mnt_id == y.Mnt_id && x.Dev_major == y.Dev_major && x.Dev_minor == y.Dev_minor, nil
}
