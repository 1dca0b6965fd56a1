//go:build linux

package sandboxtest

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A needle is what is searched for. It is never held in the clear, so that what
// searches does not find itself.
type needle struct{ masked []byte }

const needleMask = 0x5a

// hide is a needle as an argument.
func hide(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] ^= needleMask
	}
	return hex.EncodeToString(b)
}

func parseNeedle(s string) (needle, error) {
	b, err := hex.DecodeString(s)
	if err == nil && len(b) < 6 {
		err = fmt.Errorf("needle of %d bytes", len(b))
	}
	return needle{b}, err
}

func (n needle) in(text []byte) bool {
	first := n.masked[0] ^ needleMask
	for i := 0; i+len(n.masked) <= len(text); i++ {
		if text[i] != first {
			continue
		}
		if func() bool {
			for j, c := range n.masked {
				if text[i+j]^needleMask != c {
					return false
				}
			}
			return true
		}() {
			return true
		}
	}
	return false
}

// search looks for needles and remembers where which was found.
type search struct {
	needles []needle
	found   map[int][]string
	files   int
	memory  int64
	buf     []byte
}

// fileCap is as much of one file as is looked at: devices never end.
const fileCap = 1 << 20

func (s *search) text(where string, b []byte) {
	for i, n := range s.needles {
		if !slices.Contains(s.found[i], where) && n.in(b) {
			s.found[i] = append(s.found[i], where)
		}
	}
}

// file searches a file and its name, and is not held up by what gives nothing.
func (s *search) file(path string) {
	s.text("name "+path, []byte(path))
	if target, err := os.Readlink(path); err == nil {
		s.text("link "+path, []byte(target))
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	n := 0
	for n < len(s.buf) {
		k, err := unix.Read(fd, s.buf[n:])
		if k <= 0 || err != nil {
			break
		}
		n += k
	}
	s.files++
	s.text(path, s.buf[:n])
}

// process searches all readable memory of a process.
func (s *search) process(dir string) {
	maps, err := os.ReadFile(dir + "/maps")
	if err != nil {
		return
	}
	mem, err := os.Open(dir + "/mem")
	if err != nil {
		return
	}
	defer mem.Close()
	for _, line := range strings.Split(string(maps), "\n") {
		from, rest, ok := strings.Cut(line, "-")
		to, rest, ok2 := strings.Cut(rest, " ")
		start, err1 := strconv.ParseUint(from, 16, 63)
		end, err2 := strconv.ParseUint(to, 16, 63)
		// The program's own text and the kernel's pages hold nothing of a run.
		if !ok || !ok2 || err1 != nil || err2 != nil || !strings.HasPrefix(rest, "rw") || end-start > 256<<20 {
			continue
		}
		for at := start; at < end; at += uint64(len(s.buf)) / 2 { // by halves, so that none is cut in two
			n, err := mem.ReadAt(s.buf[:min(uint64(len(s.buf)), end-at)], int64(at))
			if n > 0 {
				s.memory += int64(n)
				s.text(dir+"/mem", s.buf[:n])
			}
			if err != nil && err != io.EOF {
				break
			}
		}
	}
}

// notSearched are big trees of the host's system, in which nothing of a run is.
var notSearched = []string{"/usr", "/lib", "/lib64", "/bin", "/sbin"}

func (s *search) tree(root string) {
	_ = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // what can't be listed can't be read
		case d.IsDir() && slices.Contains(notSearched, p):
			return filepath.SkipDir
		case filepath.Base(p) == "mem" && strings.HasPrefix(p, "/proc/"), strings.HasSuffix(p, "/pagemap"):
			return nil
		case !d.IsDir():
			s.file(p)
		}
		return nil
	})
}

// trySearch searches everything that can be read for the needles. The first
// argument is "all", or the process to look at (the control); each other is a
// needle and the places, by the end of their names, where it may be.
func trySearch(args []string) (a Answer) {
	s := &search{found: map[int][]string{}, buf: make([]byte, fileCap)}
	var allowed [][]string
	for _, arg := range args[1:] {
		words := strings.Split(arg, ",")
		n, err := parseNeedle(words[0])
		if err != nil {
			a.neighbour(err)
			return a
		}
		s.needles, allowed = append(s.needles, n), append(allowed, words[1:])
	}
	if args[0] == "all" {
		s.tree("/")
		pids, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range pids {
			s.process(dir)
		}
	} else {
		dir := "/proc/" + args[0]
		for _, f := range []string{"environ", "cmdline", "mountinfo", "cgroup", "exe", "cwd"} {
			s.file(dir + "/" + f)
		}
		fds, _ := filepath.Glob(dir + "/fd/*")
		for _, f := range fds {
			// Its regular files: anything else of another process may answer never.
			if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
				s.file(f)
			}
		}
		s.process(dir)
	}
	for i := range s.needles {
		places := slices.DeleteFunc(s.found[i], func(p string) bool {
			return slices.ContainsFunc(allowed[i], func(end string) bool { return strings.HasSuffix(p, end) })
		})
		if len(places) == 0 {
			a.saw(fmt.Sprintf("needle %d", i), "nowhere")
			continue
		}
		for _, p := range places[:min(len(places), 8)] {
			a.saw(fmt.Sprintf("needle %d", i), "in "+p)
		}
	}
	if a.neighbour(nil); args[0] == "all" && (s.files < 50 || s.memory < 1<<20) {
		a.Neighbour = fmt.Sprintf("only %d files and %d bytes of memory could be searched", s.files, s.memory)
	}
	return a
}
