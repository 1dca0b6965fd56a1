package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"confine/internal/gitcmd"
)

// Caps of the search for what a refused pack holds. What lies beyond them is
// refused all the same, with less to say about it.
const (
	locateCommits = 10_000
	locateTrees   = 200_000
	locateBytes   = 256 << 20
)

var objectIDs = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b`) })

// locate adds to git's refusal of a pack in which commit, at which path, and why.
// It imports the pack anew without the strict check, into a repository that is
// removed at once, and takes the trees apart itself: no git that would believe
// their names is run on them. Where it finds nothing the refusal stays as it is.
func locate(ctx context.Context, o ReceiveOptions, refusal *Refusal) {
	seeker, ok := o.Bundle.(io.ReadSeeker)
	if !ok || refusal.Rule != RuleObjects {
		return
	}
	dir := o.Dir + ".refused"
	defer os.RemoveAll(dir)
	l := &locator{ctx: ctx, named: objectIDs().FindAllString(refusal.Detail, -1), seen: map[gitcmd.Hash]bool{}}
	if err := l.open(seeker, dir, o); err != nil {
		return
	}
	if found, err := l.search(); err == nil && found != nil {
		refusal.Commit, refusal.Path = found.Commit, found.Path
		if found.Detail != "" {
			refusal.Detail = found.Detail + "; " + refusal.Detail
		}
	}
}

// locator looks for the first fault in the trees of new commits.
type locator struct {
	ctx     context.Context
	repo    *gitcmd.Repo
	commits []gitcmd.Hash
	// named are the objects that git's message is about.
	named []string
	// seen are trees that are known, first of all those of the base.
	seen  map[gitcmd.Hash]bool
	count int
	bytes int64
}

// spot is a tree that is to be looked at, or a place in one.
type spot struct {
	tree, commit gitcmd.Hash
	path         string
}

func (l *locator) open(bundle io.ReadSeeker, dir string, o ReceiveOptions) error {
	if _, err := bundle.Seek(0, io.SeekStart); err != nil {
		return err
	}
	maxBytes := orDefault(o.MaxBytes, defaultExportBytes)
	stream := newStream(bundle, maxBytes)
	header, err := ReadBundleHeader(stream)
	if err != nil {
		return err
	}
	l.repo, err = gitcmd.Init(l.ctx, dir, gitcmd.InitOptions{Format: o.Lent.Format(), Alternates: []*gitcmd.Repo{o.Lent}})
	if err != nil {
		return err
	}
	err = l.repo.IndexPack(l.ctx, stream, gitcmd.IndexPackOptions{MaxBytes: maxBytes, MaxObjects: o.MaxObjects, Trusted: true})
	if err != nil {
		return err
	}
	base, err := o.Lent.ReadCommit(l.ctx, o.Base, maxCommitBytes)
	if err != nil {
		return err
	}
	old, err := o.Lent.LsTree(l.ctx, o.Base, gitcmd.LsTreeOptions{Recursive: true, Trees: true})
	if err != nil {
		return err
	}
	l.seen[base.Tree] = true
	for _, e := range old {
		l.seen[e.Hash] = true
	}
	l.commits, err = l.repo.RevList(l.ctx, gitcmd.RevListOptions{Include: []gitcmd.Hash{header.Head}, Exclude: []gitcmd.Hash{o.Base}, Max: locateCommits})
	return err
}

func (l *locator) search() (*Refusal, error) {
	var level []spot
	for _, h := range l.commits {
		if slices.Contains(l.named, string(h)) {
			return &Refusal{Commit: h}, nil
		}
	}
	err := l.repo.ReadObjects(l.ctx, l.commits, locateBytes, func(o gitcmd.Object, content io.Reader) error {
		raw, err := io.ReadAll(io.LimitReader(content, maxCommitBytes))
		if err != nil {
			return err
		}
		c, err := gitcmd.ParseCommit(raw)
		if err == nil && len(c.Tree) == len(o.Hash) {
			level = append(level, spot{tree: c.Tree, commit: o.Hash})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for len(level) > 0 {
		next, found, err := l.look(level)
		if err != nil || found != nil {
			return found, err
		}
		level = next
	}
	return nil, nil
}

// look reads the trees of one level, in one process.
func (l *locator) look(level []spot) (next []spot, found *Refusal, err error) {
	var trees []gitcmd.Hash
	at := map[gitcmd.Hash]spot{}
	for _, s := range level {
		if !l.seen[s.tree] {
			l.seen[s.tree] = true
			at[s.tree] = s
			trees = append(trees, s.tree)
		}
	}
	if l.count += len(trees); l.count > locateTrees {
		return nil, nil, errors.New("too many trees")
	}
	errFound := errors.New("found")
	err = l.repo.ReadObjects(l.ctx, trees, locateBytes, func(o gitcmd.Object, content io.Reader) error {
		if l.bytes += o.Size; o.Type != gitcmd.TreeObject || l.bytes > locateBytes {
			return errors.New("no tree, or too large")
		}
		raw, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		s := at[o.Hash]
		if found = treeFault(raw, s, len(s.tree)/2); found != nil {
			return errFound
		}
		// Cannot fail: it was read without a fault.
		_ = eachEntry(raw, len(s.tree)/2, func(mode, name string, h gitcmd.Hash) error {
			entry := spot{tree: h, commit: s.commit, path: join(s.path, name)}
			switch {
			case mode == "120000" && isGitFile(name) && slices.Contains(l.named, string(s.tree)):
				found = &Refusal{Commit: s.commit, Path: entry.path}
				return errFound
			case slices.Contains(l.named, string(h)) && !l.seen[h] && mode != "40000":
				found = &Refusal{Commit: s.commit, Path: entry.path}
				return errFound
			case mode == "40000":
				next = append(next, entry)
			}
			return nil
		})
		if found != nil {
			return errFound
		}
		if slices.Contains(l.named, string(s.tree)) {
			found = &Refusal{Commit: s.commit, Path: s.path}
			return errFound
		}
		return nil
	})
	if found != nil {
		return nil, found, nil
	}
	return next, nil, err
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// treeFault finds the first entry of a tree that no tree may have.
func treeFault(raw []byte, s spot, idSize int) *Refusal {
	var fault *Refusal
	names := map[string]bool{}
	before := ""
	err := eachEntry(raw, idSize, func(mode, name string, _ gitcmd.Hash) error {
		why, sorted := oddComponent(name), name
		if mode == "40000" {
			sorted += "/"
		}
		switch {
		case why != "":
		case strings.Contains(name, "/"):
			why = "a name holds a slash"
		case names[name]:
			why = "the name is there twice"
		case sorted < before:
			why = "the entries are out of order"
		case !slices.Contains([]string{"100644", "100755", "120000", "160000", "40000"}, mode):
			why = fmt.Sprintf("the mode %.12q is none that git writes", mode)
		}
		names[name], before = true, sorted
		if why == "" {
			return nil
		}
		fault = &Refusal{Commit: s.commit, Path: join(s.path, name), Detail: why}
		return errors.New(why)
	})
	if err != nil && fault == nil {
		fault = &Refusal{Commit: s.commit, Path: s.path, Detail: "a tree can't be read: " + err.Error()}
	}
	return fault
}

// eachEntry takes a tree object apart: "MODE NAME\0ID" after each other.
func eachEntry(raw []byte, idSize int, f func(mode, name string, h gitcmd.Hash) error) error {
	for len(raw) > 0 {
		head, rest, ok := bytes.Cut(raw, []byte{0})
		mode, name, spaced := strings.Cut(string(head), " ")
		if !ok || !spaced || len(rest) < idSize {
			return errors.New("it is cut off")
		}
		if err := f(mode, name, gitcmd.Hash(fmt.Sprintf("%x", rest[:idSize]))); err != nil {
			return err
		}
		raw = rest[idSize:]
	}
	return nil
}
