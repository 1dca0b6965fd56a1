//go:build unix

package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"
)

const (
	// maxFile caps any file that is read.
	maxFile = 1 << 20
	// maxEntries caps the files of one kind.
	maxEntries = 20_000
)

// FileError is a file of the host that can't be used as it is.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("read %q: %v", e.Path, e.Err) }

// Unwrap gives the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Hint says what would mend it.
func (e *FileError) Hint() string {
	if errors.Is(e.Err, fs.ErrPermission) {
		return notPermittedHint
	}
	var inner interface{ Hint() string }
	if errors.As(e.Err, &inner) {
		return inner.Hint()
	}
	return "correct the file, or put it back from a backup; nothing was changed"
}

// read returns the content and modification time of one file of the host. A
// missing file is fs.ErrNotExist; everything else that is wrong is a *FileError.
func read(path string) ([]byte, time.Time, error) {
	bad := func(err error) ([]byte, time.Time, error) { return nil, time.Time{}, &FileError{path, err} }
	// O_NONBLOCK: a FIFO in its place must not hold us up.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, err
	}
	if err != nil {
		return bad(errors.Unwrap(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return bad(err)
	}
	if !info.Mode().IsRegular() {
		return bad(errors.New("it is not a regular file"))
	}
	if err := checkOwner(info); err != nil {
		return bad(err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return bad(err)
	}
	if len(data) > maxFile {
		return bad(fmt.Errorf("it is larger than %d bytes", maxFile))
	}
	return data, info.ModTime(), nil
}

// checkOwner refuses what someone other than this user and root can change.
func checkOwner(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner can't be read")
	}
	if uid := os.Geteuid(); int(st.Uid) != uid && st.Uid != 0 {
		return fmt.Errorf("it belongs to user %d", st.Uid)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return errors.New("everyone may write it")
	}
	if info.Mode().Perm()&0o020 != 0 && int(st.Gid) != os.Getegid() {
		return fmt.Errorf("group %d may write it", st.Gid)
	}
	return nil
}

// save puts data at path whole: readers see the old content or the new.
func save(path string, data []byte, mode os.FileMode, when time.Time) error {
	tmp, err := temporary(path, data, mode, when)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		os.Remove(tmp)
		return fmt.Errorf("write: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// saveNew is save for a path that must not exist yet; fs.ErrExist if it does.
func saveNew(path string, data []byte, when time.Time) error {
	tmp, err := temporary(path, data, 0o600, when)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, path); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

func temporary(path string, data []byte, mode os.FileMode, when time.Time) (name string, err error) {
	if len(data) > maxFile {
		return "", fmt.Errorf("write %q: %d bytes, the most is %d", path, len(data), maxFile)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return "", fmt.Errorf("write %q: %w", path, err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("write %q: %w", path, err)
		}
	}()
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	if err := f.Chmod(mode); err != nil {
		return "", err
	}
	if err := os.Chtimes(f.Name(), when, when); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write %q: %w", dir, err)
	}
	return nil
}

// numbers lists the files N+suffix of a directory in order. Other names are
// someone's notes and backups; a number that is too large is an error.
func numbers(dir, suffix string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	var ns []int
	for _, entry := range entries {
		text, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok || strings.Trim(text, "0123456789") != "" || text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n > 1e9 || n < 1 || strconv.Itoa(n) != text {
			return nil, &FileError{filepath.Join(dir, entry.Name()), errors.New("its number is not one of 1 to 1000000000, written without leading zeros")}
		}
		ns = append(ns, n)
	}
	if len(ns) > maxEntries {
		return nil, &FileError{dir, fmt.Errorf("it holds more than %d files", maxEntries)}
	}
	slices.Sort(ns)
	return ns, nil
}

// addNumbered writes make(n) to the file with the next free number of dir.
func addNumbered(dir, suffix string, when time.Time, make func(n int) []byte) (int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	ns, err := numbers(dir, suffix)
	if err != nil {
		return 0, err
	}
	next := 1
	if len(ns) > 0 {
		next = ns[len(ns)-1] + 1
	}
	if len(ns) >= maxEntries || next > 1e9 {
		return 0, &FileError{dir, errors.New("no more files fit")}
	}
	// A person with an editor does not take the lock: go on where one was
	// faster.
	for ; ; next++ {
		err := saveNew(filepath.Join(dir, strconv.Itoa(next)+suffix), make(next), when)
		if !errors.Is(err, fs.ErrExist) {
			return next, err
		}
	}
}

// decodeYAML reads YAML strictly: unknown fields and duplicate keys are errors.
func decodeYAML(data []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.DisallowUnknownField())
	err := dec.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil // nothing but comments
	}
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			return fmt.Errorf("line %d: %.300q", at.GetToken().Position.Line, at.GetMessage())
		}
		return fmt.Errorf("%.300q", err.Error())
	}
	var more any
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("it holds more than one document")
	}
	return nil
}
