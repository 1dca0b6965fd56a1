package gitcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// HashObject writes a blob and returns its id.
func (r *Repo) HashObject(ctx context.Context, content io.Reader) (Hash, error) {
	return r.hashOutput(ctx, command{op: "hash-object", args: []string{"-w", "--stdin", "--no-filters", "-t", "blob"}, stdin: content})
}

// MkTree writes a tree of these entries, whose Path is one name each. Git sorts
// them and checks that the objects exist.
func (r *Repo) MkTree(ctx context.Context, entries []TreeEntry) (Hash, error) {
	var b bytes.Buffer
	for _, e := range entries {
		if err := r.checkHash(e.Hash); err != nil {
			return "", err
		}
		if err := e.Type.check(); err != nil {
			return "", err
		}
		if e.Path == "" || e.Path == "." || e.Path == ".." || strings.EqualFold(e.Path, ".git") || strings.ContainsAny(e.Path, "/\x00") {
			return "", fmt.Errorf("write tree: %.100q is not a name", e.Path)
		}
		fmt.Fprintf(&b, "%s %s %s\t%s\x00", e.Mode, e.Type, e.Hash, e.Path)
	}
	return r.hashOutput(ctx, command{op: "mktree", args: []string{"-z"}, stdin: &b})
}

// RefUpdate changes one ref from one value to another.
type RefUpdate struct {
	Ref Ref
	// New is the value to be; "" deletes the ref, which needs Old.
	New Hash
	// Old is the value that it must have; "" means that it must not exist.
	Old Hash
}

// UpdateRef changes a ref if it still has the expected value, else it returns a
// *MovedError.
func (r *Repo) UpdateRef(ctx context.Context, u RefUpdate) error {
	if err := u.Ref.check(); err != nil {
		return err
	}
	old, line := r.nullHash(), ""
	if u.Old != "" {
		if err := r.checkHash(u.Old); err != nil {
			return err
		}
		old = string(u.Old)
	}
	switch {
	case u.New != "":
		if err := r.checkHash(u.New); err != nil {
			return err
		}
		line = fmt.Sprintf("update %s\x00%s\x00%s\x00", u.Ref, u.New, old)
	case u.Old != "":
		line = fmt.Sprintf("delete %s\x00%s\x00", u.Ref, old)
	default:
		return fmt.Errorf("update %s: neither a new nor an old value", u.Ref)
	}
	_, err := r.run(ctx, command{op: "update-ref", args: []string{"--no-deref", "-z", "--stdin"}, stdin: strings.NewReader(line)})
	if err == nil {
		return nil
	}
	// Git says in words only why it refused: ask for the value instead.
	now, readErr := r.RevParse(ctx, u.Ref)
	var gone *NotFoundError
	if asNotFound(readErr, &gone) {
		now, readErr = "", nil
	}
	if readErr == nil && now != u.Old {
		return &MovedError{Ref: u.Ref, Expected: u.Old}
	}
	return err
}

// SetHead makes HEAD name a branch, which need not exist.
func (r *Repo) SetHead(ctx context.Context, branch Ref) error {
	if err := branch.check(); err != nil {
		return err
	}
	if branch.BranchName() == "" {
		return fmt.Errorf("set HEAD: %.100q is no branch", string(branch))
	}
	_, err := r.run(ctx, command{op: "symbolic-ref", args: []string{"HEAD", string(branch)}})
	return err
}

// MergeResult is the outcome of a merge of two commits.
type MergeResult struct {
	// Tree is the merged tree; "" when there are conflicts.
	Tree Hash
	// Conflicts are the paths that could not be merged, sorted, each once:
	// untrusted bytes.
	Conflicts []string
}

// Clean reports whether the merge has a tree.
func (m MergeResult) Clean() bool { return m.Tree != "" && len(m.Conflicts) == 0 }

// MergeTree merges theirs into ours as objects: no work tree, no attributes, no
// merge drivers, no ref changes. Unrelated histories are an error.
func (r *Repo) MergeTree(ctx context.Context, ours, theirs Hash) (MergeResult, error) {
	if err := r.checkHash(ours, theirs); err != nil {
		return MergeResult{}, err
	}
	if _, err := ProbeVersion(ctx); err != nil {
		return MergeResult{}, err
	}
	out, exit, err := r.output(ctx, command{op: "merge-tree", exits: []int{1}, args: []string{
		"--write-tree", "-z", "--name-only", "--no-messages", "--end-of-options", string(ours), string(theirs)}})
	if err != nil {
		return MergeResult{}, err
	}
	tree, rest, ok := bytes.Cut(out, []byte{0})
	h := Hash(tree)
	if err := r.checkHash(h); err != nil || !ok {
		return MergeResult{}, fmt.Errorf("merge %s and %s: git wrote %.100q", ours.Short(), theirs.Short(), out)
	}
	if exit == 0 {
		return MergeResult{Tree: h}, nil
	}
	var result MergeResult
	for name := range bytes.SplitSeq(rest, []byte{0}) {
		if len(name) > 0 {
			result.Conflicts = append(result.Conflicts, string(name))
		}
	}
	if len(result.Conflicts) == 0 {
		// Exit 1 without a path must not read as a clean merge.
		return MergeResult{}, fmt.Errorf("merge %s and %s: conflict without a path", ours.Short(), theirs.Short())
	}
	return result, nil
}

// CountObjects reads how many bytes the repository's own objects take on disk.
func (r *Repo) CountObjects(ctx context.Context) (int64, error) {
	out, _, err := r.output(ctx, command{op: "count-objects", args: []string{"-v"}})
	if err != nil {
		return 0, err
	}
	var kib int64
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if key != "size" && key != "size-pack" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("count objects: git wrote %.100q", line)
		}
		kib += n
	}
	return kib << 10, nil
}
