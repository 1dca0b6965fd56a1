//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

// InitOptions describe a new host.
type InitOptions struct {
	// Base is the default branch, which is protected; empty means
	// refs/heads/main.
	Base gitcmd.Ref
	// People are the accounts besides DefaultAccount, which may write.
	People map[string]codehost.Permission
	// RequiredChecks and RequiredApprovals are what a merge into Base needs.
	RequiredChecks    []string
	RequiredApprovals int
	// First writes the first commit of Base into the new repository (or fetches
	// it there) and returns it.
	First func(ctx context.Context, repo *gitcmd.Repo) (gitcmd.Hash, error)
	// Now is the clock; nil means the machine's.
	Now func() time.Time
}

// Init makes a host in a directory that does not exist or is empty, and opens
// it. When it fails, what it made is left for a look; Open refuses that.
func Init(ctx context.Context, dir string, o InitOptions) (*Host, error) {
	fail := func(err error) (*Host, error) { return nil, fmt.Errorf("make local code host %q: %w", dir, err) }
	if o.Base == "" {
		o.Base = "refs/heads/main"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := codehost.CheckBranch(o.Base); err != nil {
		return fail(err)
	}
	if o.First == nil {
		return fail(errors.New("no first commit given"))
	}
	if !filepath.IsAbs(dir) {
		return fail(errors.New("want an absolute path"))
	}
	made := os.Mkdir(dir, 0o700)
	if made != nil && !os.IsExist(made) {
		return fail(made)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return fail(errors.New("the directory is not empty or can't be read"))
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fail(err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fail(err)
	}
	h := &Host{dir: dir, account: DefaultAccount, now: o.Now}
	if err := h.fill(ctx, o); err != nil {
		// Half a host would refuse the next try as "not empty".
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(h.path(e.Name())))
		}
		if made == nil {
			err = errors.Join(err, os.Remove(dir))
		}
		return fail(err)
	}
	return Open(ctx, dir, OpenOptions{Now: o.Now})
}

func (h *Host) fill(ctx context.Context, o InitOptions) error {
	for _, name := range folders {
		if err := os.Mkdir(h.path(name), 0o700); err != nil {
			return err
		}
	}
	var err error
	if h.repo, err = gitcmd.Init(ctx, h.path("repo.git"), gitcmd.InitOptions{Head: o.Base}); err != nil {
		return err
	}
	first, err := o.First(ctx, h.repo)
	if err != nil {
		return fmt.Errorf("first commit: %w", err)
	}
	if err := h.checkCommit(ctx, first); err != nil {
		return fmt.Errorf("first commit: %w", err)
	}
	switch at, err := h.branch(ctx, o.Base); {
	case err != nil:
		return err
	case at == "":
		if err := h.repo.UpdateRef(ctx, gitcmd.RefUpdate{Ref: o.Base, New: first}); err != nil {
			return err
		}
	case at != first:
		return fmt.Errorf("%s is %s, not the first commit given", o.Base, at.Short())
	}
	p := people(maps.Clone(o.People))
	if p == nil {
		p = people{}
	}
	if _, ok := p[DefaultAccount]; !ok {
		p[DefaultAccount] = codehost.PermissionWrite
	}
	for name, perm := range p {
		if err := errors.Join(checkName("account", name), checkPermission(perm)); err != nil {
			return err
		}
	}
	if err := save(h.path("people.yaml"), p.encode(), 0o600, h.now()); err != nil {
		return err
	}
	rules := map[gitcmd.Ref]branchRule{o.Base: {RequiredChecks: o.RequiredChecks, RequiredApprovals: o.RequiredApprovals}}
	if err := h.writeProtections(rules); err != nil {
		return err
	}
	// Last: a directory without it is not a host.
	return save(h.path("host.yaml"), fmt.Appendf(nil, "version: %d\n", layoutVersion), 0o600, h.now())
}
