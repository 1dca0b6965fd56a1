//go:build linux

// Package landlock holds the values of Landlock's system calls: which rights a
// kernel knows, and rule sets as prepared bytes. It makes no call but the probe;
// the processes to be restricted replay the bytes.
//
// It handles files and scopes. It has no rules for network ports: MPTCP and TCP
// fast open pass them (measured on ABI 7), so a port rule would promise what it
// does not hold. Nor are stat, chdir, chmod and utimes covered by Landlock.
package landlock

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// ABI is the version of Landlock that a kernel speaks; 0 is none.
type ABI int

const createVersion = 1 // LANDLOCK_CREATE_RULESET_VERSION

// Probe asks the kernel.
func Probe() ABI {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, createVersion)
	if errno != 0 {
		return 0
	}
	return ABI(v)
}

// Rights are LANDLOCK_ACCESS_FS_* bits.
type Rights uint64

const (
	readExec Rights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writes   Rights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
)

// Handled is every right that the ABI knows: what no rule grants is refused.
func (a ABI) Handled() Rights {
	r := readExec | writes
	if a >= 2 {
		r |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if a >= 3 {
		r |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if a >= 5 {
		r |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return r
}

// ReadExec are the rights of a read-only place.
func (a ABI) ReadExec() Rights { return readExec }

// ReadWrite are the rights of a writable place; making device files is in none.
func (a ABI) ReadWrite() Rights {
	return a.Handled() &^ (unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)
}

// Scopes are the LANDLOCK_SCOPE_* bits of the ABI: abstract Unix sockets and
// signals to processes outside.
func (a ABI) Scopes() uint64 {
	if a < 6 {
		return 0
	}
	return unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
}

// Ruleset is struct landlock_ruleset_attr, as long as the ABI wants it.
func (a ABI) Ruleset() []byte {
	b := make([]byte, 24)
	binary.NativeEndian.PutUint64(b, uint64(a.Handled()))
	binary.NativeEndian.PutUint64(b[16:], a.Scopes())
	switch {
	case a < 4:
		return b[:8]
	case a < 6:
		return b[:16]
	}
	return b
}

// Reach is the ruleset without files: scopes alone. The kernel forbids mounts only
// to a domain that has rules of files.
func (a ABI) Reach() []byte {
	b := make([]byte, 24)
	binary.NativeEndian.PutUint64(b[16:], a.Scopes())
	return b
}

// RuleFD is where in a Rule the descriptor goes: 4 bytes.
const RuleFD = 8

// Rule is struct landlock_path_beneath_attr (packed) without its descriptor.
func Rule(r Rights) []byte {
	b := make([]byte, 12)
	binary.NativeEndian.PutUint64(b, uint64(r))
	return b
}

// RulePathBeneath is the rule type of Rule.
const RulePathBeneath = 1

// ReadWriteFile are the rights of a single writable file.
func (a ABI) ReadWriteFile() Rights {
	return a.Handled() & (unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV)
}
