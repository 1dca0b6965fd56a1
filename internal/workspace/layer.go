package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"confine/internal/boundary"
	"confine/internal/hostview"
)

// Layer is what the setup step left, on disk: two archives that only sandboxes
// write and read, and a manifest of ours.
type Layer struct {
	// Dir is where it is kept, Key what it depends on.
	Dir, Key string
	// Bytes is the size of its archives.
	Bytes int64
	// Paths are what setup added to the workspace and git does not ignore, below
	// the workspace, directories with a slash at the end: no part of anybody's
	// work. Untrusted bytes.
	Paths []string

	manifest manifest
}

const (
	layerVersion = 1
	manifestName = "manifest.json"
	maxNames     = 4 << 20
	maxManifest  = 1 << 20
)

type manifest struct {
	Version  int                `json:"version"`
	Key      string             `json:"key"`
	Archives map[string]archive `json:"archives"`
}

type archive struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// writeManifest makes a layer whole: without one it is a part.
func writeManifest(dir string, m manifest) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, manifestName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// openLayer opens a whole layer; os.ErrNotExist when there is none at all, any
// other error for one that is not whole.
func openLayer(dir, key string) (*Layer, error) {
	if _, err := os.Lstat(dir); err != nil {
		return nil, err
	}
	l := &Layer{Dir: dir, Key: key}
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, fmt.Errorf("open layer: %v", err) // not ErrNotExist: the directory is there
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxManifest))
	d.DisallowUnknownFields()
	if err := d.Decode(&l.manifest); err != nil {
		return nil, fmt.Errorf("open layer: %v", err)
	}
	if l.manifest.Version != layerVersion || l.manifest.Key != key {
		return nil, fmt.Errorf("open layer %q: it is of another version or key", dir)
	}
	for _, name := range []string{"workspace.tar", "home.tar", "names"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		a, ok := l.manifest.Archives[name]
		if err != nil || !ok || !info.Mode().IsRegular() || info.Size() != a.Bytes {
			return nil, fmt.Errorf("open layer %q: %s is missing or cut short", dir, name)
		}
		l.Bytes += a.Bytes
	}
	names, err := l.open("names")
	if err != nil {
		return nil, fmt.Errorf("open layer: %v", err)
	}
	defer names.Close()
	data, err := io.ReadAll(io.LimitReader(names, maxNames))
	if err != nil {
		return nil, fmt.Errorf("open layer: %v", err)
	}
	for _, n := range bytes.Split(data, []byte{0}) {
		if len(n) > 0 {
			l.Paths = append(l.Paths, string(n))
		}
	}
	return l, nil
}

// open opens an archive after it was held against the manifest.
func (l *Layer) open(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(l.Dir, name))
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != l.manifest.Archives[name].SHA256 {
		err = fmt.Errorf("layer %q: %s is not what was written", l.Dir, name)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func homeOf(b boundary.Boundary) string { return hostview.HomeDir(b.Identity.UID) }

// cappedFile takes what a sandbox writes, up to a limit. Past it, or when the
// disk is full, the sandbox is killed and the file is an error.
type cappedFile struct {
	f    *os.File
	max  int64
	size int64
	sum  hash.Hash

	mu   sync.Mutex
	kill func()
	err  error
}

func newCappedFile(name string, limit int64) (*cappedFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &cappedFile{f: f, max: limit, sum: sha256.New()}, nil
}

func (c *cappedFile) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if c.size+int64(len(p)) > c.max {
		return 0, c.fail(fmt.Errorf("it is larger than %d bytes", c.max))
	}
	n, err := c.f.Write(p)
	c.size += int64(n)
	c.sum.Write(p[:n])
	if err != nil {
		return n, c.fail(err)
	}
	return n, nil
}

func (c *cappedFile) fail(err error) error {
	c.err = err
	if c.kill != nil {
		c.kill()
	}
	return err
}

// tooMuch says how the writer is stopped.
func (c *cappedFile) tooMuch(kill func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kill = kill
	if c.err != nil {
		kill()
	}
}

func (c *cappedFile) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *cappedFile) close() error { return errors.Join(c.f.Sync(), c.f.Close()) }

// scratchPrefix begins the names of directories that a running process holds.
const scratchPrefix = "tmp-"

// Scratch is a directory that is locked as long as its process lives, so that
// what a killed one left can be told apart (Sweep).
type Scratch struct {
	Dir  string
	lock *os.File
}

// NewScratch makes a locked directory in dir.
func NewScratch(dir string) (*Scratch, error) {
	made, err := os.MkdirTemp(dir, scratchPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(made)
	if err != nil {
		return nil, errors.Join(err, os.Remove(made))
	}
	return &Scratch{Dir: made, lock: lock}, nil
}

// Remove deletes the directory and all in it.
func (s *Scratch) Remove() error {
	return errors.Join(Remove(s.Dir), s.lock.Close())
}

// Sweep deletes the scratch directories in dir whose process is gone, and
// returns how many. It is for the start, before anything runs.
func Sweep(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	n := 0
	var failed []error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		p := filepath.Join(dir, e.Name())
		lock, err := lockDir(p)
		if err != nil {
			continue // its process lives
		}
		if err := Remove(p); err != nil {
			failed = append(failed, err)
		} else {
			n++
		}
		lock.Close()
	}
	return n, errors.Join(failed...)
}
