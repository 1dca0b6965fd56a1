package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stamp tells a file's state. Two stamps of one file that was not touched are
// equal; same compares two that may have been.
type stamp struct {
	kind       uint32
	mode       uint32
	size, ino  int64
	mtime      unix.Timespec
	ctime      unix.Timespec
	link       string
	sum        [sha256.Size]byte
	summarised bool
}

func (s stamp) same(t stamp) bool {
	if s == t {
		return true
	}
	if s.kind != t.kind || s.mode != t.mode {
		return false
	}
	if s.kind == unix.S_IFLNK {
		return s.link == t.link
	}
	return s.summarised && t.summarised && s.sum == t.sum
}

// maxControlBytes is the largest control file whose content is compared; a
// larger one counts as changed when its times do.
const maxControlBytes = 1 << 20

func takeStamp(dirfd int, name string, scripts bool) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return stamp{}, err
	}
	out := stamp{kind: st.Mode & unix.S_IFMT, mode: st.Mode & 0o7111, size: st.Size, ino: int64(st.Ino), mtime: st.Mtim, ctime: st.Ctim}
	switch out.kind {
	case unix.S_IFLNK:
		link, err := readLinkAt(dirfd, name)
		if err != nil {
			return stamp{}, err
		}
		out.link = link
	case unix.S_IFREG:
		if data, ok := readSmall(dirfd, name); ok {
			if scripts {
				data = scriptsOf(data)
			}
			out.sum, out.summarised = sha256.Sum256(data), true
		}
	}
	return out, nil
}

// readSmall reads a regular file of an open directory; not ok when it can't be
// read or is too large.
func readSmall(dirfd int, name string) ([]byte, bool) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxControlBytes {
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(f, maxControlBytes+1))
	return data, err == nil && len(data) <= maxControlBytes
}

// scriptsOf is the part of a package.json that a package manager runs. What is
// not understood counts whole, so that any change of it is seen.
func scriptsOf(data []byte) []byte {
	var file struct {
		Scripts map[string]json.RawMessage `json:"scripts"`
	}
	// The decoder of this package takes "SCRIPTS" for "scripts" too and the last
	// of two equal keys: it sees at least as much as a package manager does.
	if err := json.Unmarshal(data, &file); err != nil {
		return data
	}
	text, err := json.Marshal(file.Scripts)
	if err != nil {
		return data
	}
	return bytes.TrimSpace(text)
}
