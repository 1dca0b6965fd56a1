package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A commit changes many paths, and a crash must leave all of them changed or
// none. So everything is made ready beside the workspace, then one journal is
// renamed into its place, which is the moment the commit happens, and then it is
// carried out by renames that can be done again: each looks at what is there and
// does what is left. The next start goes on with a journal that it finds. When a
// rename fails the journal is marked as aborted and all are taken back, in the
// same way.

const (
	commitName    = "commit.json"
	commitVersion = 1
	// maxJournal caps what is read of one, in bytes.
	maxJournal = 1 << 30
)

// opKind is what one step does.
type opKind string

const (
	opPut    opKind = "put"    // brings something in, displacing what is there
	opRemove opKind = "remove" // displaces what is there
)

// op is one step. Paths are bytes below a root, From below its news.
type op struct {
	Kind opKind `json:"op"`
	Root int    `json:"root"`
	Path []byte `json:"path"`
	From []byte `json:"from,omitempty"`
	// Slot is the number that what is displaced gets among the root's olds; 0 for
	// nothing.
	Slot int `json:"slot,omitempty"`
	// OldIno and NewIno are the inodes: they tell what is done already.
	OldIno uint64 `json:"old_ino,omitempty"`
	NewIno uint64 `json:"new_ino,omitempty"`
}

// dirMode are the rights of a directory that a commit sets.
type dirMode struct {
	Root int    `json:"root"`
	Path []byte `json:"path"`
	Old  uint32 `json:"old"`
	New  uint32 `json:"new"`
	// Need says that it must be open to writing meanwhile, Fresh that it comes
	// with the commit.
	Need  bool `json:"need,omitempty"`
	Fresh bool `json:"fresh,omitempty"`
}

type commitJournal struct {
	Version int           `json:"version"`
	Abort   bool          `json:"abort,omitempty"`
	Roots   []journalRoot `json:"roots"`
	Ops     []op          `json:"ops"`
	Dirs    []dirMode     `json:"dirs,omitempty"`
	Entry   TrashEntry    `json:"entry"`
	// Spent are items of another entry that are used up by this commit.
	Spent []spent `json:"spent,omitempty"`
}

// journalRoot is a directory that is changed.
type journalRoot struct {
	Dir []byte `json:"dir"`
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
	// News is where the new things lie, on the host.
	News []byte `json:"news"`
	// Area is a directory in the root that takes the part of news and olds, where
	// the state directory lies on another file system.
	Area string `json:"area,omitempty"`
}

// commit is one being made or carried out.
type commit struct {
	state   string
	scratch string
	j       commitJournal
	roots   []commitRoot
	// left is why something of the commit's own is still there though it is over:
	// the next start removes it.
	left error
}

type commitRoot struct{ root, news, olds *os.File }

func (c *commit) trashDir() string { return filepath.Join(c.state, trashDirName, c.j.Entry.ID) }

// open opens what the journal names. root is one that is open already, or nil.
func (c *commit) open(root func(i int) *os.File) error {
	for i, r := range c.j.Roots {
		var cr commitRoot
		c.roots = append(c.roots, cr)
		at := &c.roots[i]
		if root != nil {
			at.root = root(i)
		}
		var err error
		if at.root == nil {
			if at.root, err = openRoot(string(r.Dir)); err != nil {
				return err
			}
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(at.root.Fd()), &st); err != nil {
			return err
		}
		if uint64(st.Dev) != r.Dev || st.Ino != r.Ino {
			return fmt.Errorf("%q is another directory now", r.Dir)
		}
		if r.Area == "" {
			if at.news, err = openRoot(string(r.News)); err != nil {
				return err
			}
			if at.olds, err = openRoot(filepath.Join(c.trashDir(), dataName)); err != nil {
				return err
			}
			continue
		}
		if at.news, err = openDirBelow(at.root, r.Area+"/new"); err != nil {
			return err
		}
		if at.olds, err = openDirBelow(at.root, r.Area+"/old"); err != nil {
			return err
		}
	}
	return nil
}

func openDirBelow(root *os.File, rel string) (*os.File, error) {
	fd, err := openBelow(root, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(root.Name(), rel)), nil
}

// close lets go of all but the roots that somebody else opened.
func (c *commit) close(keepRoots bool) {
	for _, r := range c.roots {
		for _, f := range []*os.File{r.news, r.olds} {
			if f != nil {
				f.Close()
			}
		}
		if r.root != nil && !keepRoots {
			r.root.Close()
		}
	}
}

// write makes the journal durable. With its rename the commit has happened.
func (c *commit) write() error {
	data, err := json.Marshal(c.j)
	if err != nil {
		return err
	}
	return writeDurable(c.scratch, commitName, data)
}

// carryOut does what the journal says, or takes it back. It may be called again
// after any crash.
func (c *commit) carryOut() error {
	if !c.j.Abort {
		err := c.forward()
		if err == nil {
			return c.finish()
		}
		c.j.Abort = true
		if markErr := c.write(); markErr != nil {
			return fmt.Errorf("%w; and it can't be taken back now: %v", err, markErr)
		}
		if backErr := c.backward(); backErr != nil {
			return fmt.Errorf("%w; and taking it back: %v", err, backErr)
		}
		return errors.Join(err, c.clear())
	}
	if err := c.backward(); err != nil {
		return err
	}
	if err := c.clear(); err != nil {
		return err
	}
	return errAborted
}

// errAborted is a commit that had failed before this process looked at it.
var errAborted = errors.New("the commit had failed, and was taken back")

func (c *commit) forward() error {
	if err := c.unlock(); err != nil {
		return err
	}
	for _, o := range c.j.Ops {
		if err := c.roots[o.Root].forward(o); err != nil {
			return fmt.Errorf("%s %.200q: %w", o.Kind, o.Path, err)
		}
	}
	if err := c.setModes(true); err != nil {
		return err
	}
	return c.bringHome()
}

func (c *commit) backward() error {
	var failed []error
	if err := c.unlock(); err != nil {
		failed = append(failed, err)
	}
	for i := len(c.j.Ops) - 1; i >= 0; i-- {
		o := c.j.Ops[i]
		if err := c.roots[o.Root].backward(o); err != nil {
			failed = append(failed, fmt.Errorf("take back %s %.200q: %w", o.Kind, o.Path, err))
		}
	}
	if err := c.setModes(false); err != nil {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// unlock gives the right to write to directories that have none.
func (c *commit) unlock() error {
	for _, d := range c.j.Dirs {
		if d.Need && !d.Fresh {
			if err := c.chmod(d, d.Old|0o700); err != nil {
				return fmt.Errorf("open %.200q to writing: %w", d.Path, err)
			}
		}
	}
	return nil
}

// setModes goes from the innermost out, as a closed one can't be passed.
func (c *commit) setModes(forward bool) error {
	for i := len(c.j.Dirs) - 1; i >= 0; i-- {
		d := c.j.Dirs[i]
		mode := d.Old
		if forward {
			mode = d.New
		} else if d.Fresh {
			continue // no longer there
		}
		if err := c.chmod(d, mode); err != nil {
			return fmt.Errorf("set the rights of %.200q: %w", d.Path, err)
		}
	}
	return nil
}

func (c *commit) chmod(d dirMode, mode uint32) error {
	fd, err := openBelow(c.roots[d.Root].root, string(d.Path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}

// parentOf opens the directory that a path lies in.
func parentOf(root *os.File, rel []byte) (fd int, name string, err error) {
	dir, name := splitRel(string(rel))
	fd, err = openBelow(root, dir, unix.O_PATH|unix.O_DIRECTORY)
	return fd, name, err
}

func inode(dirfd int, name string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return 0, nil
	}
	return st.Ino, err
}

func (r commitRoot) forward(o op) error {
	dir, name, err := parentOf(r.root, o.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	slot := strconv.Itoa(o.Slot)
	there, err := inode(dir, name)
	if err != nil {
		return err
	}
	if o.Kind == opRemove {
		if there != o.OldIno {
			if old, err := inode(int(r.olds.Fd()), slot); err != nil || old == 0 {
				return errors.Join(errChanged, err)
			}
			return nil // done
		}
		return move(dir, name, int(r.olds.Fd()), slot)
	}
	from, fromName, err := parentOf(r.news, o.From)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	waits, err := inode(from, fromName)
	if err != nil {
		return err
	}
	if waits == 0 {
		return nil // done
	}
	if o.Slot == 0 {
		return move(from, fromName, dir, name)
	}
	if there != o.NewIno {
		switch {
		case there == 0: // displaced already, without an exchange
			return move(from, fromName, dir, name)
		case there != o.OldIno:
			return errChanged
		}
		err := exchange(from, fromName, dir, name)
		if err == unix.EINVAL {
			// A file system that can't exchange: for a moment there is neither.
			if err := move(dir, name, int(r.olds.Fd()), slot); err != nil {
				return err
			}
			return move(from, fromName, dir, name)
		}
		if err != nil {
			return err
		}
	}
	return move(from, fromName, int(r.olds.Fd()), slot)
}

func (r commitRoot) backward(o op) error {
	dir, name, err := parentOf(r.root, o.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	there, err := inode(dir, name)
	if err != nil {
		return err
	}
	slot := strconv.Itoa(o.Slot)
	var old uint64
	if o.Slot != 0 {
		if old, err = inode(int(r.olds.Fd()), slot); err != nil {
			return err
		}
	}
	if o.Kind == opRemove {
		if old == 0 {
			return nil // not done, or taken back
		}
		return move(int(r.olds.Fd()), slot, dir, name)
	}
	from, fromName, err := parentOf(r.news, o.From)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	waits, err := inode(from, fromName)
	if err != nil {
		return err
	}
	switch {
	case o.Slot == 0:
		if there != o.NewIno || waits != 0 {
			return nil
		}
		return move(dir, name, from, fromName)
	case old != 0 && there == o.NewIno && waits == 0:
		if err := move(int(r.olds.Fd()), slot, from, fromName); err != nil {
			return err
		}
	case old != 0 && there == 0:
		return move(int(r.olds.Fd()), slot, dir, name)
	case there != o.NewIno:
		return nil
	}
	err = exchange(from, fromName, dir, name)
	if err == unix.EINVAL {
		return errors.Join(
			move(from, fromName, int(r.olds.Fd()), slot),
			move(dir, name, from, fromName),
			move(int(r.olds.Fd()), slot, dir, name))
	}
	return err
}

// move renames and never replaces. A directory can only be moved with the right
// to write to it, as its ".." changes.
func move(from int, name string, to int, toName string) error {
	err := unix.Renameat2(from, name, to, toName, unix.RENAME_NOREPLACE)
	if err != unix.EACCES {
		return err
	}
	return withRights(from, name, func() error {
		return unix.Renameat2(from, name, to, toName, unix.RENAME_NOREPLACE)
	}, err)
}

func exchange(from int, name string, to int, toName string) error {
	swap := func() error { return unix.Renameat2(from, name, to, toName, unix.RENAME_EXCHANGE) }
	err := swap()
	if err != unix.EACCES {
		return err
	}
	return withRights(to, toName, func() error { return withRights(from, name, swap, nil) }, err)
}

// withRights does something while a directory may be written to. The rights stay:
// those that matter are set at the end (see dirMode), and what goes to the trash
// has them noted.
func withRights(dirfd int, name string, do func() error, otherwise error) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if isDir(&st) && st.Mode&0o200 == 0 {
		if err := unix.Fchmodat(dirfd, name, st.Mode&0o7777|0o700, 0); err != nil {
			return err
		}
	} else if otherwise != nil && !isDir(&st) {
		return otherwise
	}
	return do()
}

// bringHome copies what was displaced from the areas to the trash.
func (c *commit) bringHome() error {
	for _, o := range c.j.Ops {
		r := c.j.Roots[o.Root]
		if r.Area == "" || o.Slot == 0 {
			continue
		}
		data, err := openRoot(filepath.Join(c.trashDir(), dataName))
		if err != nil {
			return err
		}
		slot := strconv.Itoa(o.Slot)
		err = copyTree(c.roots[o.Root].olds, slot, data, slot)
		data.Close()
		if err != nil {
			return fmt.Errorf("copy %.200q to the trash: %w", o.Path, err)
		}
	}
	return nil
}

// finish is for when all is changed: it makes that durable, writes the entry of
// the trash, and forgets the journal.
func (c *commit) finish() error {
	// What was held back goes along: until now it could have been taken back.
	err := os.Rename(filepath.Join(c.scratch, heldName), filepath.Join(c.trashDir(), heldName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if c.j.Entry.Since, err = timeAt(c.scratch); err != nil {
		return err
	}
	if err := writeEntry(c.state, c.j.Entry); err != nil {
		return err
	}
	// After the last change: on many file systems the first sync is for all.
	if err := c.sync(); err != nil {
		return err
	}
	for _, s := range c.j.Spent {
		if err := spendItems(c.state, s); err != nil {
			return err
		}
	}
	return c.forget()
}

// timeAt is the time that the file system of a directory gives to changes now.
func timeAt(dir string) (fileTime, error) {
	f, err := os.CreateTemp(dir, "time-")
	if err != nil {
		return fileTime{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	err = errors.Join(unix.Fstat(int(f.Fd()), &st), os.Remove(f.Name()))
	return ctimeOf(&st), err
}

// clear is for when all is as it was: nothing of the commit's own is to be left.
func (c *commit) clear() error {
	err := c.forget()
	if err == nil {
		c.left = errors.Join(c.left, Remove(c.trashDir()))
	}
	return err
}

// forget ends the commit: with its journal gone it is over.
func (c *commit) forget() error {
	if err := os.Remove(filepath.Join(c.scratch, commitName)); err != nil {
		return err
	}
	for i, r := range c.j.Roots {
		if r.Area != "" {
			c.left = errors.Join(c.left, removeBelow(int(c.roots[i].root.Fd()), r.Area))
		}
	}
	return nil
}

// maxSynced is how many directories are synced one by one: a few cost less than
// the whole file system.
const maxSynced = 64

func (c *commit) sync() error {
	dirs := map[string]int{}
	for _, o := range c.j.Ops {
		dir, _ := splitRel(string(o.Path))
		dirs[dir] = o.Root
	}
	if len(dirs) > maxSynced {
		for _, r := range c.roots {
			if err := unix.Syncfs(int(r.root.Fd())); err != nil {
				return err
			}
		}
		return nil
	}
	for dir, root := range dirs {
		d, err := openDirBelow(c.roots[root].root, dir)
		if errors.Is(err, unix.EACCES) {
			err = unix.Syncfs(int(c.roots[root].root.Fd()))
		} else if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil {
			return fmt.Errorf("sync %.200q: %w", dir, err)
		}
	}
	return nil
}

// newTrashID is a name that sorts by time.
func newTrashID(now time.Time) string {
	now = now.UTC()
	return fmt.Sprintf("%s-%06d%s", now.Format("20060102-150405"), now.Nanosecond()/1000, randomName())
}
