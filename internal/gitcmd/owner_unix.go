//go:build unix

package gitcmd

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwned refuses a path that someone other than root or this user could have
// changed. An ancestor directory may be writable by others when it is sticky, as
// /tmp is: they can't move what is ours. Write permission of this user's own
// group counts as its own (the default umask of several distributions).
func checkOwned(path string, ancestor bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("open repository: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &UnsafeError{Path: path, Why: "its owner can't be read"}
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return &UnsafeError{Path: path, Why: "it is a symbolic link"}
	}
	if uid := os.Geteuid(); int(st.Uid) != uid && st.Uid != 0 {
		return &UnsafeError{Path: path, Why: fmt.Sprintf("it belongs to user %d", st.Uid)}
	}
	sticky := ancestor && info.IsDir() && info.Mode()&os.ModeSticky != 0
	perm := info.Mode().Perm()
	if perm&0o002 != 0 && !sticky {
		return &UnsafeError{Path: path, Why: "everyone may write it"}
	}
	if perm&0o020 != 0 && !sticky && int(st.Gid) != os.Getegid() {
		return &UnsafeError{Path: path, Why: fmt.Sprintf("group %d may write it", st.Gid)}
	}
	return nil
}
