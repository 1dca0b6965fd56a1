package hostview

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// errEnough ends a walk.
var errEnough = errors.New("enough")

// Channels lists the sockets and FIFOs at or below a directory of the host: a
// read-only view does not keep a program from talking through them. It looks at
// no more than limit entries; complete says whether that was all. What can't be
// read can't be entered from inside either.
func Channels(dir string, limit int) (found []string, complete bool) {
	seen := 0
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if seen++; seen > limit {
			return errEnough
		}
		if e.Type()&(fs.ModeSocket|fs.ModeNamedPipe) != 0 {
			found = append(found, p)
		}
		return nil
	})
	return found, err == nil
}
