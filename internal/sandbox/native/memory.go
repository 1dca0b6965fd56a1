//go:build linux

package native

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// memoryWatch measures what a sandbox holds where no control group does. Each
// kind of memory has one place where it is counted:
//
//   - what a process has to itself, and its page tables: by process
//   - files in the view's tmpfs mounts, open, mapped or unlinked, and the inodes
//     of empty ones: by the file system's own count (statfs)
//   - memfd and secretmem files that are open anywhere: by their blocks, once an inode
//   - System V segments and messages, attached or not: by the namespace's list
//   - shared mappings of what is none of these: by their proportional size
//
// A page of the last kind is known by the device and inode of its mapping, so
// that a memfd that is both open and mapped, or a mapped file of /tmp, is left to
// the line above.
type memoryWatch struct {
	root  int // the outer process
	limit int64
	tmpfs []*os.File
	// shm, msg and sem are the lists of the sandbox's own IPC namespace: they were
	// opened in it, and that is what they show (ipc/util.c).
	shm, msg, sem *os.File
	// lowest is the least shared memory that the host had so far: what is more
	// now is the most that the sandbox can have.
	lowest int64
	looks  int
	// notBefore spaces looks that cost much.
	notBefore time.Time
}

// preciseShare is how much longer than a look at every mapping the next one
// waits: it takes no more than one part in so many of one processor.
const preciseShare = 10

// inodeBytes is what a tmpfs inode and its name take of the kernel's memory.
const inodeBytes = 1 << 10

func newMemoryWatch(root int, limit int64, handed []*os.File) *memoryWatch {
	n := len(handed) - len(ipcLists())
	w := &memoryWatch{root: root, limit: limit, tmpfs: handed[:n], lowest: math.MaxInt64}
	w.growth()
	if n < len(handed) {
		w.shm, w.msg, w.sem = handed[n], handed[n+1], handed[n+2]
	}
	return w
}

func (w *memoryWatch) close() {
	for _, f := range append(w.tmpfs, w.shm, w.msg, w.sem) {
		f.Close() // of nil, an error and no more
	}
}

// exceeded looks in steps, cheap ones first: each step's sum is an upper bound,
// and the first that is within the limit ends the look. The last one is exact
// but for what package documentation and threat model name.
func (w *memoryWatch) exceeded() bool {
	w.looks++
	pids := processes(w.root)
	if len(pids) <= ownProcesses {
		return false
	}
	pids = pids[ownProcesses:]
	var own, mapped int64
	for _, pid := range pids {
		m := processMemory(pid)
		own, mapped = own+m.own+m.tables, mapped+m.shared
	}
	segments, attached := w.ipc()
	fixed := w.files() + segments
	grown, known := w.growth()
	// Another program may free what this sandbox takes, so the host's number
	// alone is not trusted for long.
	if known && own+fixed+mapped+grown <= w.limit && w.looks%fullEvery != 0 {
		return false
	}
	held := map[inode]int64{}
	for _, pid := range pids {
		unnamedFiles(pid, func(f unnamedFile) { held[f.inode] = f.memory() })
	}
	for _, n := range held {
		fixed += n
	}
	if own+fixed+mapped <= w.limit && own+max(fixed, grown) <= w.limit {
		return false
	}
	start := time.Now()
	if start.Before(w.notBefore) {
		return false
	}
	own, mapped, unseen := mappedMemory(pids, held, attached)
	w.notBefore = time.Now().Add(preciseShare * time.Since(start))
	// Pages that a program made the kernel take out of its page tables are in
	// no process's numbers. Their mapping is there, and the host's shared
	// memory grew by them.
	hidden := max(0, min(unseen, grown-fixed-mapped))
	return own+fixed+mapped+hidden > w.limit
}

// files is what the view's tmpfs mounts hold.
func (w *memoryWatch) files() (sum int64) {
	for _, f := range w.tmpfs {
		var st unix.Statfs_t
		if unix.Fstatfs(int(f.Fd()), &st) == nil {
			sum += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*inodeBytes
		}
	}
	return sum
}

// ipc is what System V segments, messages and semaphores hold, and which segments there are:
// a mapping of one has its id as inode.
func (w *memoryWatch) ipc() (sum int64, segments map[uint64]bool) {
	segments = map[uint64]bool{}
	for _, f := range listFields(w.shm) {
		// key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap
		if len(f) < 16 {
			continue
		}
		if id, err := strconv.ParseUint(f[1], 10, 64); err == nil {
			segments[id] = true
		}
		rss, _ := strconv.ParseInt(f[14], 10, 64)
		swap, _ := strconv.ParseInt(f[15], 10, 64)
		sum += rss + swap
	}
	for _, f := range listFields(w.msg) {
		// key msqid perms cbytes qnum …
		if len(f) < 5 {
			continue
		}
		n, _ := strconv.ParseInt(f[3], 10, 64)
		count, _ := strconv.ParseInt(f[4], 10, 64)
		sum += n + count*messageBytes + inodeBytes/2
	}
	for _, f := range listFields(w.sem) {
		// key semid perms nsems … A namespace may have a billion of them.
		if len(f) < 4 {
			continue
		}
		n, _ := strconv.ParseInt(f[3], 10, 64)
		sum += n*semaphoreBytes + inodeBytes/2
	}
	return sum, segments
}

// messageBytes is what the kernel adds to each message (struct msg_msg).
const messageBytes = 64

// semaphoreBytes is one semaphore (struct sem, a cache line).
const semaphoreBytes = 64

// listFields reads a list of /proc/sysvipc from its beginning, without its head.
func listFields(f *os.File) (out [][]string) {
	if f == nil {
		return nil
	}
	s := bufio.NewScanner(io.NewSectionReader(f, 0, 64<<20))
	s.Scan()
	for s.Scan() {
		out = append(out, strings.Fields(s.Text()))
	}
	return out
}

type memory struct{ own, shared, tables int64 }

// processMemory is what everybody may read of a process.
func processMemory(pid int) (m memory) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m
	}
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "RssAnon", "VmSwap":
			m.own += kilobytes(value)
		case "VmPTE":
			m.tables = kilobytes(value)
		case "RssShmem":
			m.shared += kilobytes(value)
		}
	}
	return m
}

func kilobytes(value []byte) int64 {
	n, _ := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB"))), 10, 64)
	return n << 10
}

// hostShared is the shared memory of the whole host, in tmpfs files and all the
// others.
func hostShared() (n int64, ok bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("Shmem:")); ok {
			return kilobytes(v), true
		}
	}
	return 0, false
}

// growth is what the host's shared memory has grown by since it was least: no less
// than what this sandbox has of it, unless another program freed some meanwhile.
func (w *memoryWatch) growth() (n int64, ok bool) {
	now, ok := hostShared()
	if !ok {
		return 0, false
	}
	w.lowest = min(w.lowest, now)
	return now - w.lowest, true
}

// mappedMemory goes through every mapping of the processes. own is what they have
// to themselves, where children that share pages with their parent count each
// once; shared is that of shared memory that neither open files nor segments
// account for; unseen is how much larger those mappings are than what of them is
// in page tables.
func mappedMemory(pids []int, held map[inode]int64, segments map[uint64]bool) (own, shared, unseen int64) {
	type size struct{ reach, seen int64 }
	sizes := map[inode]size{}
	for _, pid := range pids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
		if err == nil {
			err = eachMapping(f, func(m mapping) {
				_, open := held[m.inode]
				switch {
				case m.inode == inode{}:
					own += m.pss
				case m.inode.device != shmDevice() || open || segments[m.inode.number] && strings.HasPrefix(m.name, "/SYSV"):
					own += m.anonymous
				default:
					own += m.anonymous
					part := max(0, m.pss-m.anonymous)
					shared += part
					s := sizes[m.inode]
					sizes[m.inode] = size{max(s.reach, m.offset+m.size), s.seen + part}
				}
			})
			f.Close()
		}
		m := processMemory(pid)
		own += m.tables
		if err != nil {
			// Gone, or a program whose file may not be read.
			own, shared = own+m.own, shared+m.shared
		}
	}
	for _, s := range sizes {
		unseen += max(0, s.reach-s.seen)
	}
	return own, shared, unseen
}

// shmDevice is the kernel's own mount that memfd files, shared anonymous memory
// and System V segments lie in.
var shmDevice = sync.OnceValue(func() uint64 {
	fd, err := unix.MemfdCreate("confine", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Dev
})
