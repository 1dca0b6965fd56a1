package workspace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// maxIndexBytes is the largest index that is read: about a million files.
const maxIndexBytes = 128 << 20

var (
	errIndex = errors.New("not an index of git")
	// errSplit is an index of which a part lies in another file.
	errSplit = errors.New("a split index")
)

// indexEntry is one path of a git index, as far as a review compares it.
type indexEntry struct {
	path  string
	mode  uint32
	stage uint8
	id    string
}

// readIndex goes through an index (git's gitformat-index(5), versions 2 to 4),
// which the run may have written, and calls each with every entry. The index
// does not say how long its object ids are.
func readIndex(data []byte, idLen int, each func(indexEntry)) error {
	if len(data) < 12 || string(data[:4]) != "DIRC" {
		return errIndex
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return errIndex
	}
	rest, name, nameless := data[12:], []byte(nil), false
	for range count {
		fixed := 40 + idLen + 2
		if len(rest) < fixed {
			return errIndex
		}
		flags := binary.BigEndian.Uint16(rest[fixed-2:])
		e := indexEntry{mode: binary.BigEndian.Uint32(rest[24:]), stage: uint8(flags >> 12 & 3), id: hex.EncodeToString(rest[40 : 40+idLen])}
		if flags&0x4000 != 0 {
			fixed += 2
		}
		if len(rest) < fixed {
			return errIndex
		}
		at := fixed
		if version == 4 {
			strip, n := indexVarint(rest[at:])
			if n == 0 || strip > uint64(len(name)) {
				return errIndex
			}
			at += n
			name = name[:len(name)-int(strip)]
		} else {
			name = name[:0]
		}
		end := bytes.IndexByte(rest[at:], 0)
		if end < 0 {
			return errIndex
		}
		name = append(name, rest[at:at+end]...)
		at += end + 1
		if version < 4 {
			// One to eight NUL bytes, to a multiple of eight.
			at = (fixed + end + 8) &^ 7
		}
		if at > len(rest) {
			return errIndex
		}
		rest = rest[at:]
		if len(name) == 0 { // only in a split index: the name is in the other file
			nameless = true
			continue
		}
		e.path = string(name)
		each(e)
	}
	err := checkExtensions(rest, idLen)
	if err == nil && nameless {
		err = errIndex
	}
	return err
}

// checkExtensions holds what follows the entries to the format: so a wrong
// length of the ids is noticed. The last thing is a checksum.
func checkExtensions(rest []byte, idLen int) error {
	for len(rest) > idLen {
		if len(rest) < 8 {
			return errIndex
		}
		size := binary.BigEndian.Uint32(rest[4:])
		if string(rest[:4]) == "link" {
			return errSplit
		}
		if uint64(size)+8 > uint64(len(rest)) {
			return errIndex
		}
		rest = rest[8+size:]
	}
	if len(rest) != idLen {
		return errIndex
	}
	return nil
}

// indexVarint is the number before a name in version 4: seven bits to a byte, and
// one is added for each further byte.
func indexVarint(b []byte) (value uint64, n int) {
	for n < len(b) && n < 9 {
		c := b[n]
		n++
		value = value<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return value, n
		}
		value++
	}
	return 0, 0
}
