package gitcmd

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// RefValue is a ref and what it names.
type RefValue struct {
	Ref  Ref
	Hash Hash
}

// RevParse reads which object a ref names. Symbolic refs are followed. It
// returns a *NotFoundError when there is no such ref.
func (r *Repo) RevParse(ctx context.Context, ref Ref) (Hash, error) {
	values, err := r.listRefs(ctx, ref)
	if err != nil {
		return "", err
	}
	for _, v := range values {
		if v.Ref == ref {
			return v.Hash, nil
		}
	}
	return "", &NotFoundError{Kind: "ref", Name: string(ref)}
}

// Refs lists the refs at or below a prefix such as refs/heads.
func (r *Repo) Refs(ctx context.Context, prefix string) ([]RefValue, error) {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix != "refs" {
		// A prefix has the form of a ref, one component shorter at most.
		if err := Ref(prefix + "/x").check(); err != nil {
			return nil, fmt.Errorf("list refs: %w", err)
		}
	}
	return r.listPattern(ctx, prefix)
}

func (r *Repo) listRefs(ctx context.Context, ref Ref) ([]RefValue, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	return r.listPattern(ctx, string(ref))
}

func (r *Repo) listPattern(ctx context.Context, pattern string) ([]RefValue, error) {
	out, _, err := r.output(ctx, command{op: "for-each-ref", args: []string{
		"--format=%(refname)%00%(objectname)", "--end-of-options", pattern}})
	if err != nil {
		return nil, err
	}
	var values []RefValue
	for line := range strings.Lines(string(out)) {
		name, hash, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\x00")
		h := Hash(hash)
		if err := r.checkHash(h); err != nil || !ok {
			return nil, fmt.Errorf("list refs: git wrote %.100q", line)
		}
		values = append(values, RefValue{Ref(name), h})
	}
	return values, nil
}

// Head is the branch that HEAD names, which need not exist.
func (r *Repo) Head(ctx context.Context) (Ref, error) {
	out, _, err := r.output(ctx, command{op: "symbolic-ref", args: []string{"--quiet", "HEAD"}})
	if err != nil {
		return "", err
	}
	return ParseRef(strings.TrimSuffix(string(out), "\n"))
}

// TypeOf reads an object's type and size. It returns a *NotFoundError when the
// object is not there.
func (r *Repo) TypeOf(ctx context.Context, h Hash) (ObjectType, int64, error) {
	if err := r.checkHash(h); err != nil {
		return "", 0, err
	}
	out, _, err := r.output(ctx, command{op: "cat-file", args: []string{"--batch-check"}, stdin: strings.NewReader(string(h) + "\n")})
	if err != nil {
		return "", 0, err
	}
	return parseObjectLine(string(bytes.TrimSuffix(out, []byte("\n"))), h)
}

// parseObjectLine reads "HASH TYPE SIZE", as cat-file --batch writes it.
func parseObjectLine(line string, want Hash) (ObjectType, int64, error) {
	if line == string(want)+" missing" {
		return "", 0, &NotFoundError{Kind: "object", Name: string(want)}
	}
	fields := strings.Split(line, " ")
	if len(fields) != 3 || fields[0] != string(want) {
		return "", 0, fmt.Errorf("read object %s: git wrote %.100q", want.Short(), line)
	}
	t := ObjectType(fields[1])
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 || t.check() != nil {
		return "", 0, fmt.Errorf("read object %s: git wrote %.100q", want.Short(), line)
	}
	return t, size, nil
}

// CatOptions select an object to read.
type CatOptions struct {
	Type ObjectType
	// Max caps its size in bytes; 0 means 1 MiB.
	Max int64
}

// CatFile reads one object. An object of another type is an error; one larger
// than Max is an *Error whose cause is ErrTooLarge.
func (r *Repo) CatFile(ctx context.Context, h Hash, o CatOptions) ([]byte, error) {
	if err := r.checkHash(h); err != nil {
		return nil, err
	}
	if err := o.Type.check(); err != nil {
		return nil, err
	}
	out, _, err := r.output(ctx, command{op: "cat-file", args: []string{string(o.Type), string(h)}, maxOut: orDefault(o.Max, 1<<20)})
	return out, err
}

// TreeEntry is one entry of a tree. Path is untrusted bytes.
type TreeEntry struct {
	Mode Mode
	Type ObjectType
	Hash Hash
	Path string
}

// LsTreeOptions say how to list a tree.
type LsTreeOptions struct {
	// Recursive lists the files of all subtrees instead of the subtrees.
	Recursive bool
	// Trees lists the subtrees too where it is recursive.
	Trees bool
	// Path limits the list to one entry: a clean path without a leading slash.
	Path string
}

// LsTree lists a tree or the tree of a commit.
func (r *Repo) LsTree(ctx context.Context, tree Hash, o LsTreeOptions) ([]TreeEntry, error) {
	if err := r.checkHash(tree); err != nil {
		return nil, err
	}
	args := []string{"-z", "--full-tree"}
	if o.Recursive {
		args = append(args, "-r")
	}
	if o.Trees {
		args = append(args, "-t")
	}
	args = append(args, "--end-of-options", string(tree))
	if o.Path != "" {
		if err := checkTreePath(o.Path); err != nil {
			return nil, err
		}
		args = append(args, o.Path)
	}
	out, _, err := r.output(ctx, command{op: "ls-tree", args: args})
	if err != nil {
		return nil, err
	}
	return r.parseTreeEntries(out)
}

func (r *Repo) parseTreeEntries(out []byte) ([]TreeEntry, error) {
	var entries []TreeEntry
	for len(out) > 0 {
		record, rest, ok := bytes.Cut(out, []byte{0})
		if !ok {
			return nil, fmt.Errorf("list tree: git's answer is cut off")
		}
		out = rest
		meta, name, ok := bytes.Cut(record, []byte{'\t'})
		fields := strings.Split(string(meta), " ")
		if !ok || len(fields) != 3 {
			return nil, fmt.Errorf("list tree: git wrote %.100q", record)
		}
		mode, err := strconv.ParseUint(fields[0], 8, 32)
		h := Hash(fields[2])
		if err != nil || r.checkHash(h) != nil || ObjectType(fields[1]).check() != nil {
			return nil, fmt.Errorf("list tree: git wrote %.100q", record)
		}
		entries = append(entries, TreeEntry{Mode(mode), ObjectType(fields[1]), h, string(name)})
	}
	return entries, nil
}

func checkTreePath(p string) error {
	if p == "" || path.Clean(p) != p || path.IsAbs(p) || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
		return fmt.Errorf("read path %.200q: want a clean path below the root of the tree", p)
	}
	return nil
}

// FileAt reads a regular file of a commit's or tree's tree. It returns a
// *NotFoundError when there is none at that path, also when a directory, link
// or submodule is there.
func (r *Repo) FileAt(ctx context.Context, tree Hash, p string, maxBytes int64) ([]byte, error) {
	if err := checkTreePath(p); err != nil {
		return nil, err
	}
	entries, err := r.LsTree(ctx, tree, LsTreeOptions{Path: p})
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Path == p && e.Type == BlobObject && e.Mode != ModeSymlink {
			return r.CatFile(ctx, e.Hash, CatOptions{Type: BlobObject, Max: maxBytes})
		}
	}
	return nil, &NotFoundError{Kind: "path", Name: p}
}

// RevListOptions select commits.
type RevListOptions struct {
	// Include are the commits to start from, Exclude those whose history is
	// left out.
	Include, Exclude []Hash
	// Max caps how many are returned; 0 means 100 000. More are an error with
	// the cause ErrTooLarge, never a shorter list.
	Max int
}

// RevList lists commits, parents before children.
func (r *Repo) RevList(ctx context.Context, o RevListOptions) ([]Hash, error) {
	if o.Max <= 0 {
		o.Max = 100_000
	}
	input, err := r.revisions(o.Include, o.Exclude)
	if err != nil {
		return nil, err
	}
	line := int64(len(r.emptyTree()) + 1)
	out, _, err := r.output(ctx, command{op: "rev-list", stdin: input, maxOut: int64(o.Max) * line,
		args: []string{"--topo-order", "--reverse", "--stdin"}})
	if err != nil {
		return nil, err
	}
	return r.parseHashLines(out)
}

func (r *Repo) parseHashLines(out []byte) ([]Hash, error) {
	var hashes []Hash
	for _, line := range strings.Fields(string(out)) {
		h := Hash(line)
		if err := r.checkHash(h); err != nil {
			return nil, err
		}
		hashes = append(hashes, h)
	}
	return hashes, nil
}

// revisions writes ids for a --stdin option: one a line, excluded ones with ^.
func (r *Repo) revisions(include, exclude []Hash) (*bytes.Buffer, error) {
	if len(include) == 0 {
		return nil, fmt.Errorf("list commits: nothing to start from")
	}
	var b bytes.Buffer
	for _, h := range include {
		b.WriteString(string(h) + "\n")
	}
	for _, h := range exclude {
		b.WriteString("^" + string(h) + "\n")
	}
	return &b, r.checkHash(append(append([]Hash{}, include...), exclude...)...)
}

// MergeBase finds the best common ancestor; "" when the histories are unrelated.
func (r *Repo) MergeBase(ctx context.Context, a, b Hash) (Hash, error) {
	if err := r.checkHash(a, b); err != nil {
		return "", err
	}
	out, exit, err := r.output(ctx, command{op: "merge-base", exits: []int{1}, args: []string{"--end-of-options", string(a), string(b)}})
	if err != nil || exit == 1 {
		return "", err
	}
	hashes, err := r.parseHashLines(out)
	if err != nil || len(hashes) == 0 {
		return "", err
	}
	return hashes[0], nil
}

// IsAncestor reports whether the history of descendant holds ancestor.
func (r *Repo) IsAncestor(ctx context.Context, ancestor, descendant Hash) (bool, error) {
	if err := r.checkHash(ancestor, descendant); err != nil {
		return false, err
	}
	exit, err := r.run(ctx, command{op: "merge-base", exits: []int{1},
		args: []string{"--is-ancestor", "--end-of-options", string(ancestor), string(descendant)}})
	return err == nil && exit == 0, err
}
