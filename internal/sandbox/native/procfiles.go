//go:build linux

package native

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// inode is a file, whatever its name.
type inode struct{ device, number uint64 }

// unnamedFile is a regular file without a name that a process holds open.
type unnamedFile struct {
	inode
	size, blocks int64 // in bytes
	links        uint32
	secret       bool // of memfd_secret: it has one link, and a name nowhere
}

// memory is what of the file is memory that no tmpfs mount accounts for.
func (f unnamedFile) memory() int64 {
	switch {
	case f.secret:
		return f.size // the kernel counts no blocks of these
	case f.device == shmDevice():
		return f.blocks
	}
	return 0
}

// secretLink is how the kernel names a file of memfd_secret. One that a program
// gave this name in its root directory does not exist: that is read-only.
const secretLink = "/secretmem (deleted)"

// unnamedFiles shows the files without a name that a process has open.
func unnamedFiles(pid int, visit func(unnamedFile)) {
	path := fmt.Sprintf("/proc/%d/fd", pid)
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	link := make([]byte, 64)
	for _, name := range names {
		// A server with thousands of sockets has none of these to ask about.
		n, err := unix.Readlinkat(int(dir.Fd()), name, link)
		if err != nil || n == 0 || link[0] != '/' {
			continue
		}
		f, ok := statRegular(int(dir.Fd()), name)
		f.secret = string(link[:n]) == secretLink
		if ok && (f.links == 0 || f.secret) {
			visit(f)
		}
	}
}

// statRegular follows a link of /proc to a regular file. It takes what the kernel
// knows already: a file server that does not answer does not hold the look.
func statRegular(dir int, name string) (f unnamedFile, ok bool) {
	var st unix.Statx_t
	const mask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_SIZE | unix.STATX_BLOCKS
	if unix.Statx(dir, name, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, mask, &st) != nil {
		return f, false
	}
	return unnamedFile{
		inode: inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino},
		size:  int64(st.Size), blocks: int64(st.Blocks) * 512, links: st.Nlink,
	}, st.Mode&unix.S_IFMT == unix.S_IFREG
}

// mapping is one mapping of a process, with numbers only from smaps.
type mapping struct {
	span                string // as map_files names it
	inode               inode
	name                string // escaped by the kernel
	size, offset        int64
	rss, pss, anonymous int64
}

// eachMapping reads /proc/PID/smaps or /proc/PID/maps. Only what the processes
// chose themselves, a name at the end of a line, is in it beside the kernel's
// words, and the kernel writes its newlines as \012.
func eachMapping(r io.Reader, visit func(mapping)) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 16<<10), 64<<10)
	var m mapping
	some := false
	for s.Scan() {
		line := s.Bytes()
		if len(line) == 0 {
			continue
		}
		if line[0] < 'A' || line[0] > 'Z' { // addresses are in lower case
			if some {
				visit(m)
			}
			m, some = parseMapping(string(line))
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "Pss":
			m.pss = kilobytes(value)
		case "Anonymous":
			m.anonymous = kilobytes(value)
		case "Swap":
			m.anonymous += kilobytes(value)
			m.pss += kilobytes(value)
		}
	}
	if some {
		visit(m)
	}
	return s.Err()
}

// parseMapping reads `from-to perms offset major:minor inode   name`.
func parseMapping(line string) (m mapping, ok bool) {
	f := strings.Fields(line)
	if len(f) < 5 {
		return m, false
	}
	from, to, ok := strings.Cut(f[0], "-")
	major, minor, ok2 := strings.Cut(f[3], ":")
	if !ok || !ok2 {
		return m, false
	}
	var bad error
	hex := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 16, 64)
		if err != nil {
			bad = err
		}
		return n
	}
	m.span = f[0]
	m.size, m.offset = int64(hex(to)-hex(from)), int64(hex(f[2]))
	m.inode.device = unix.Mkdev(uint32(hex(major)), uint32(hex(minor)))
	number, err := strconv.ParseUint(f[4], 10, 64)
	m.inode.number = number
	if len(f) > 5 {
		m.name = strings.Join(f[5:], " ")
	}
	return m, bad == nil && err == nil
}
