package gitcmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Change is one path that differs between two trees.
type Change struct {
	// Status is A, D, M or T (type changed). Renames are a D and an A.
	Status           byte
	OldMode, NewMode Mode
	// OldHash and NewHash are "" where there is no entry.
	OldHash, NewHash Hash
	// Path is untrusted bytes.
	Path string
}

// TreePair are two trees, or commits whose trees are meant. "" stands for the
// empty tree.
type TreePair struct{ From, To Hash }

// DiffOptions cap a comparison. What passes a cap is an error that wraps
// ErrTooLarge, never a shorter list.
type DiffOptions struct {
	// MaxChanges caps the changes of all pairs together; 0 means 500 000.
	MaxChanges int
	// MaxDepth caps how deep directories lie; 0 means 200.
	MaxDepth int
}

// DiffTree lists what differs between two trees or commits, file by file.
func (r *Repo) DiffTree(ctx context.Context, from, to Hash) ([]Change, error) {
	lists, err := r.DiffTrees(ctx, []TreePair{{from, to}}, DiffOptions{})
	if err != nil {
		return nil, err
	}
	return lists[0], nil
}

// DiffTrees compares pairs of trees in one process. The trees are read as objects
// and compared here: git's own diff-tree keeps all changes in memory before it
// writes the first, so that a tree of a few kilobytes that names its subtrees
// many times over takes gigabytes (a test has one).
func (r *Repo) DiffTrees(ctx context.Context, pairs []TreePair, o DiffOptions) ([][]Change, error) {
	if o.MaxChanges <= 0 {
		o.MaxChanges = 500_000
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = 200
	}
	for _, p := range pairs {
		for _, h := range []Hash{p.From, p.To} {
			if h != "" {
				if err := r.checkHash(h); err != nil {
					return nil, err
				}
			}
		}
	}
	s := r.openObjects(ctx)
	d := &differ{repo: r, objects: s, max: o.MaxChanges, depth: o.MaxDepth, trees: maxTrees}
	lists := make([][]Change, len(pairs))
	var err error
	for i, p := range pairs {
		d.changes = nil
		if p.From != p.To {
			err = d.roots(p)
		}
		if err != nil {
			break
		}
		slices.SortFunc(d.changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
		lists[i] = d.changes
	}
	if closeErr := s.close(err); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("compare trees: %w", err)
	}
	return lists, nil
}

const (
	// maxTrees caps how many trees one comparison reads: a tree of nothing but
	// directories has no changes to count.
	maxTrees = 500_000
	// maxTreeBytes caps one tree object.
	maxTreeBytes = 32 << 20
)

type differ struct {
	repo    *Repo
	objects *objectSession
	changes []Change
	// max, depth and trees are what is left of each cap.
	max, depth, trees int
	// known are trees that were read: commits share most of theirs. cached
	// counts their entries.
	known  map[string]map[string]entry
	cached int
}

// maxCached caps the entries of the trees that are kept.
const maxCached = 200_000

// entry is one entry of a tree object.
type entry struct {
	mode Mode
	hash Hash
}

func (d *differ) roots(p TreePair) error {
	var from, to map[string]entry
	var err error
	if p.From != "" {
		if from, err = d.read(string(p.From) + "^{tree}"); err != nil {
			return err
		}
	}
	if p.To != "" {
		if to, err = d.read(string(p.To) + "^{tree}"); err != nil {
			return err
		}
	}
	return d.compare("", from, to, d.depth)
}

func (d *differ) compare(prefix string, from, to map[string]entry, depth int) error {
	if depth == 0 {
		return fmt.Errorf("directory %.100q lies too deep: %w", prefix, ErrTooLarge)
	}
	for name, old := range from {
		if err := d.pair(prefix+name, old, to[name], depth); err != nil {
			return err
		}
	}
	for name, new := range to {
		if _, both := from[name]; !both {
			if err := d.pair(prefix+name, entry{}, new, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// pair compares what two trees have at one path; the zero entry is nothing.
func (d *differ) pair(path string, old, new entry, depth int) error {
	if old == new {
		return nil
	}
	oldTree, newTree := old.mode == ModeTree, new.mode == ModeTree
	if !oldTree && !newTree {
		return d.add(path, old, new)
	}
	// A file in the place of a directory, or the other way round, is a change
	// of both.
	if !oldTree && old.hash != "" {
		if err := d.add(path, old, entry{}); err != nil {
			return err
		}
	}
	if !newTree && new.hash != "" {
		if err := d.add(path, entry{}, new); err != nil {
			return err
		}
	}
	var below [2]map[string]entry
	for i, e := range []entry{old, new} {
		if e.mode == ModeTree {
			var err error
			if below[i], err = d.read(string(e.hash)); err != nil {
				return err
			}
		}
	}
	return d.compare(path+"/", below[0], below[1], depth-1)
}

func (d *differ) add(path string, old, new entry) error {
	if d.max--; d.max < 0 {
		return fmt.Errorf("more changes than allowed: %w", ErrTooLarge)
	}
	c := Change{Status: 'M', OldMode: old.mode, NewMode: new.mode, OldHash: old.hash, NewHash: new.hash, Path: path}
	switch {
	case old.hash == "":
		c.Status = 'A'
	case new.hash == "":
		c.Status = 'D'
	case old.mode&0o170000 != new.mode&0o170000:
		c.Status = 'T'
	}
	d.changes = append(d.changes, c)
	return nil
}

func (d *differ) read(name string) (map[string]entry, error) {
	if d.trees--; d.trees < 0 {
		return nil, fmt.Errorf("more directories than allowed: %w", ErrTooLarge)
	}
	if entries, ok := d.known[name]; ok {
		return entries, nil
	}
	data, err := d.objects.read(name, TreeObject, maxTreeBytes)
	if err != nil {
		return nil, err
	}
	entries, err := parseTree(data, len(d.repo.emptyTree())/2)
	if err != nil {
		return nil, err
	}
	if d.cached += len(entries) + 1; d.known == nil || d.cached > maxCached {
		d.known, d.cached = map[string]map[string]entry{}, len(entries)+1
	}
	d.known[name] = entries
	return entries, nil
}

// parseTree reads a tree object: mode, space, name, NUL, binary id. Modes of
// files are read as git reads them: old ones may have other permission bits.
func parseTree(data []byte, hashBytes int) (map[string]entry, error) {
	entries := map[string]entry{}
	for len(data) > 0 {
		modeText, rest, ok1 := bytes.Cut(data, []byte{' '})
		name, rest, ok2 := bytes.Cut(rest, []byte{0})
		mode, err := strconv.ParseUint(string(modeText), 8, 32)
		if !ok1 || !ok2 || err != nil || len(rest) < hashBytes || len(name) == 0 {
			return nil, errors.New("a tree object is malformed")
		}
		if _, twice := entries[string(name)]; twice {
			return nil, fmt.Errorf("a tree names %.100q twice", name)
		}
		entries[string(name)] = entry{canonicalMode(Mode(mode)), Hash(fmt.Sprintf("%x", rest[:hashBytes]))}
		data = rest[hashBytes:]
	}
	return entries, nil
}

func canonicalMode(m Mode) Mode {
	switch {
	case m&0o170000 == 0o100000 && m&0o100 != 0:
		return ModeExec
	case m&0o170000 == 0o100000:
		return ModeFile
	}
	return m
}

// objectSession is one git process that is asked for objects one by one.
type objectSession struct {
	ask    *io.PipeWriter
	out    *bufio.Reader
	pipe   *io.PipeReader
	cancel context.CancelCauseFunc
	ended  chan error
}

func (r *Repo) openObjects(ctx context.Context) *objectSession {
	ctx, cancel := context.WithCancelCause(ctx)
	questions, ask := io.Pipe()
	answers, in := io.Pipe()
	s := &objectSession{ask: ask, out: bufio.NewReaderSize(answers, 64<<10), pipe: answers, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		_, err := r.run(ctx, command{op: "cat-file", args: []string{"--batch"}, stdin: questions, stdout: in, time: transferTime, maxOut: 64 << 30})
		// Either side may be waiting for the other.
		questions.CloseWithError(errStopped)
		in.CloseWithError(orEOF(err))
		s.ended <- err
	}()
	return s
}

// read asks for one object of a type. name is an id, or an id with ^{tree}.
func (s *objectSession) read(name string, want ObjectType, maxBytes int64) ([]byte, error) {
	if _, err := io.WriteString(s.ask, name+"\n"); err != nil {
		return nil, fmt.Errorf("read object %.12s: %w", name, err)
	}
	line, err := s.out.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read object %.12s: %w", name, err)
	}
	text := strings.TrimSuffix(string(line), "\n")
	if text == name+" missing" {
		return nil, &NotFoundError{Kind: "object", Name: name}
	}
	id, _, _ := strings.Cut(text, " ")
	kind, size, err := parseObjectLine(text, Hash(id))
	switch {
	case err != nil:
		return nil, err
	case kind != want:
		return nil, fmt.Errorf("read object %.12s: it is a %s, not a %s", name, kind, want)
	case size > maxBytes:
		return nil, fmt.Errorf("read object %.12s: %w", name, ErrTooLarge)
	}
	data := make([]byte, size+1)
	if _, err := io.ReadFull(s.out, data); err != nil || data[size] != '\n' {
		return nil, fmt.Errorf("read object %.12s: git's answer is cut off", name)
	}
	return data[:size], nil
}

// close ends the process; cause is what went wrong before, if anything.
func (s *objectSession) close(cause error) error {
	if cause != nil {
		s.cancel(errStopped)
	}
	s.ask.Close()
	// What is left unread must not hold git.
	s.pipe.CloseWithError(errStopped)
	err := <-s.ended
	s.cancel(nil)
	return err
}
