//go:build linux

package native

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// diskWatch measures what writable binds hold: the blocks of what has a name in
// them, and of files without one on the same file systems that a process of the
// sandbox holds open or mapped.
//
// What an ordinary user's engine may not look into, a directory without
// permissions, is taken for at most what its file system has grown by.
type diskWatch struct {
	root    int // the outer process
	limit   int64
	binds   []diskBind
	devices map[uint64]bool
	// mayFollow: map_files can be followed, which only root may.
	mayFollow bool
}

type diskBind struct {
	path string
	// start is what the file system had in use at the start.
	start int64
}

func newDiskWatch(root int, limit int64, mounts []preparedMount) *diskWatch {
	w := &diskWatch{root: root, limit: limit, devices: map[uint64]bool{}, mayFollow: os.Geteuid() == 0}
	for _, m := range mounts {
		written := m.Source
		switch {
		case m.Kind == boundary.Overlay:
			written = m.Stage
		case m.Kind != boundary.Bind || !m.Writable || !m.dir:
			continue
		}
		w.binds = append(w.binds, diskBind{written, fileSystemUse(written)})
		var st unix.Stat_t
		if unix.Stat(written, &st) == nil {
			w.devices[st.Dev] = true
		}
	}
	return w
}

func fileSystemUse(path string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// exceeded looks once; a look that is not needed any more ends early.
func (w *diskWatch) exceeded(quit <-chan struct{}) bool {
	sum := w.unnamed()
	for _, b := range w.binds {
		named, whole := w.named(b.path, w.limit-sum, quit)
		if !whole {
			named = max(named, fileSystemUse(b.path)-b.start)
		}
		if sum += named; sum > w.limit {
			return true
		}
	}
	return sum > w.limit
}

// named is what is below one bind; it stops counting beyond enough. whole is
// false if there was a directory that it could not look into.
func (w *diskWatch) named(path string, enough int64, quit <-chan struct{}) (sum int64, whole bool) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return 0, false
	}
	defer root.Close()
	whole = true
	linked := map[inode]bool{} // files with several names count once
	_ = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		select {
		case <-quit:
			return fs.SkipAll
		default:
		}
		if err != nil {
			whole = whole && os.IsNotExist(err)
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			sum += info.Size()
		} else if key := (inode{st.Dev, st.Ino}); st.Nlink < 2 || d.IsDir() || !linked[key] {
			linked[key] = st.Nlink > 1 && !d.IsDir() || linked[key]
			sum += st.Blocks * 512
		}
		if sum > enough {
			return fs.SkipAll
		}
		return nil
	})
	return sum, whole
}

// unnamed is what files without a name hold.
func (w *diskWatch) unnamed() (sum int64) {
	pids := processes(w.root)
	pids = pids[min(ownProcesses, len(pids)):]
	seen := map[inode]int64{}
	for _, pid := range pids {
		unnamedFiles(pid, func(f unnamedFile) {
			if w.devices[f.device] {
				seen[f.inode] = f.blocks
			}
		})
	}
	// Of a file that only a mapping holds, an ordinary user's engine sees no
	// more than how far the mapping reaches.
	for _, pid := range pids {
		w.mappedAlone(pid, seen)
	}
	for _, n := range seen {
		sum += n
	}
	return sum
}

func (w *diskWatch) mappedAlone(pid int, seen map[inode]int64) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	defer maps.Close()
	reach := map[inode]int64{}
	_ = eachMapping(maps, func(m mapping) {
		if _, open := seen[m.inode]; open || !strings.HasSuffix(m.name, " (deleted)") {
			return
		}
		if w.mayFollow {
			f, ok := statRegular(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/map_files/%s", pid, m.span))
			if ok && f.links == 0 && w.devices[f.device] {
				seen[f.inode] = f.blocks
			}
			return
		}
		if w.devices[m.inode.device] {
			reach[m.inode] = max(reach[m.inode], m.offset+m.size)
		}
	})
	for i, n := range reach {
		seen[i] = max(seen[i], n)
	}
}
