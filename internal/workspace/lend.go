package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"confine/internal/gitcmd"
)

// LendOptions say what is lent.
type LendOptions struct {
	// Source is the engine's mirror. It stays unseen by any run: it holds other
	// branches.
	Source *gitcmd.Repo
	// Base is the commit whose history is lent, Branch the branch it is shown as.
	Base   gitcmd.Hash
	Branch gitcmd.Ref
	// Dir keeps the lent repositories of one repository of one tenant. It must
	// exist, and belong to this user alone: what is in it everyone may read.
	Dir string
}

// maxLentBytes and maxLentObjects cap the history of a repository.
const (
	maxLentBytes   = 64 << 30
	maxLentObjects = 100_000_000
)

// Lend makes a bare repository that holds the history of one commit and nothing
// else: no other branch, no ref but one, no configuration, no hook. Runs get it
// read-only; nothing changes it, so nothing is collected away under a run. The
// one that exists for the same commit is used again, a partial one never is.
func Lend(ctx context.Context, o LendOptions) (*gitcmd.Repo, error) {
	repo, err := lend(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("lend repository: %w", err)
	}
	return repo, nil
}

func lend(ctx context.Context, o LendOptions) (*gitcmd.Repo, error) {
	if o.Source == nil || o.Branch.BranchName() == "" {
		return nil, errors.New("no source or no branch was named")
	}
	if _, err := gitcmd.ParseHash(string(o.Base)); err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, string(o.Base)+".git")
	if repo, err := openLent(ctx, dir, o); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return repo, err
	}
	tmp, err := os.MkdirTemp(o.Dir, "tmp-lend-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	repo, err := gitcmd.Init(ctx, filepath.Join(tmp, "repo.git"), gitcmd.InitOptions{Format: o.Source.Format(), Head: o.Branch})
	if err != nil {
		return nil, err
	}
	if err := copyHistory(ctx, o.Source, repo, o.Base); err != nil {
		return nil, err
	}
	if err := repo.UpdateRef(ctx, gitcmd.RefUpdate{Ref: o.Branch, New: o.Base}); err != nil {
		return nil, err
	}
	if err := openToAll(repo.Dir()); err != nil {
		return nil, err
	}
	// Two that lend at once make the same; the first one stays.
	if err := os.Rename(repo.Dir(), dir); err != nil && !exists(dir) {
		return nil, err
	}
	return openLent(ctx, dir, o)
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// openLent opens a repository lent before; fs.ErrNotExist when there is none.
func openLent(ctx context.Context, dir string, o LendOptions) (*gitcmd.Repo, error) {
	if _, err := os.Lstat(dir); err != nil {
		return nil, err
	}
	repo, err := gitcmd.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	refs, err := repo.Refs(ctx, "refs/")
	if err != nil {
		return nil, err
	}
	if len(refs) != 1 || refs[0].Hash != o.Base || refs[0].Ref != o.Branch {
		return nil, fmt.Errorf("repository %q holds other refs than %s: delete it", dir, o.Branch)
	}
	return repo, nil
}

// copyHistory copies what is reachable from one commit.
func copyHistory(ctx context.Context, from, to *gitcmd.Repo, base gitcmd.Hash) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := from.PackObjects(ctx, w, gitcmd.PackOptions{Include: []gitcmd.Hash{base}, Max: maxLentBytes})
		w.CloseWithError(err)
		packed <- err
	}()
	err := to.IndexPack(ctx, r, gitcmd.IndexPackOptions{MaxBytes: maxLentBytes, MaxObjects: maxLentObjects, Trusted: true})
	r.CloseWithError(err)
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return packErr
	}
	return err
}

// openToAll lets every id read a tree of our own making: a run has another id,
// and gets it without the directories above.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o444)
		if e.IsDir() {
			mode = 0o755
		}
		return os.Chmod(p, mode)
	})
}
