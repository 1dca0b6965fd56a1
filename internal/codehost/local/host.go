//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"confine/internal/codehost"
	"confine/internal/codehost/filelock"
	"confine/internal/gitcmd"
)

// layoutVersion is the version of the directory's layout that this code writes.
const layoutVersion = 1

// Host is a local code host seen as one account. It is safe for use by several
// goroutines and processes.
type Host struct {
	dir     string
	account string
	now     func() time.Time
	repo    *gitcmd.Repo
}

var _ codehost.Host = (*Host)(nil)

// OpenOptions say how to open a host.
type OpenOptions struct {
	// Account is who we are; empty means DefaultAccount. What it may do is
	// read from people.yaml at each call.
	Account string
	// Now is the clock; nil means the machine's.
	Now func() time.Time
}

// DefaultAccount is the engine's account on a local host.
const DefaultAccount = "confine"

// hostFile is host.yaml.
type hostFile struct {
	Version int `yaml:"version"`
}

// Open opens the host in a directory that Init made. Where the directory is to
// blame the error is an *OpenError.
func Open(ctx context.Context, dir string, o OpenOptions) (*Host, error) {
	named := dir
	fail := func(err error) (*Host, error) { return nil, openError(named, err) }
	if !filepath.IsAbs(dir) {
		return fail(errors.New("want an absolute path"))
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fail(err)
	}
	h := &Host{dir: dir, account: o.Account, now: o.Now}
	if h.account == "" {
		h.account = DefaultAccount
	}
	if err := checkName("account", h.account); err != nil {
		return fail(err)
	}
	if h.now == nil {
		h.now = time.Now
	}
	data, _, err := read(h.path("host.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return fail(errNoHost)
	}
	if err != nil {
		return fail(err)
	}
	var about hostFile
	if err := decodeYAML(data, &about); err != nil {
		return fail(&FileError{h.path("host.yaml"), err})
	}
	if about.Version != layoutVersion {
		return fail(&FileError{h.path("host.yaml"), fmt.Errorf("version %d, this confine knows %d", about.Version, layoutVersion)})
	}
	if err := h.checkDirs(); err != nil {
		return fail(err)
	}
	if h.repo, err = gitcmd.Open(ctx, h.path("repo.git")); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("open local code host %q: %w", named, err)
		}
		return fail(&FileError{h.path("repo.git"), err})
	}
	return h, nil
}

// folders are the directories below the host's own.
var folders = []string{"issues", "comments", "claims", "pulls", "reviews", "statuses"}

func (h *Host) checkDirs() error {
	for _, name := range append([]string{"."}, folders...) {
		info, err := os.Lstat(h.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.IsDir() {
			err = errors.New("it is not a directory")
		}
		if err == nil {
			err = checkOwner(info)
		}
		if err != nil {
			return &FileError{h.path(name), err}
		}
	}
	return nil
}

// Dir is the host's directory.
func (h *Host) Dir() string { return h.dir }

// path joins parts that are our own words, numbers or checked hashes; no name
// from a file, a branch or a caller ever becomes a part of a path.
func (h *Host) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

func numbered(n int, suffix string) string { return strconv.Itoa(n) + suffix }

// lock makes the caller the only one who changes the host.
func (h *Host) lock(ctx context.Context) (release func(), err error) {
	return filelock.Acquire(ctx, h.path("lock"))
}

// Repository reads the repository's name and default branch.
func (h *Host) Repository(ctx context.Context) (codehost.Repository, error) {
	base, err := h.repo.Head(ctx)
	if err != nil {
		return codehost.Repository{}, err
	}
	people, err := h.people()
	if err != nil {
		return codehost.Repository{}, err
	}
	return codehost.Repository{Name: filepath.Base(h.dir), DefaultBranch: base, Account: people.account(h.account)}, nil
}

// Remote is the bare repository. Access makes no difference: it is the file
// system that lets us read and write it.
func (h *Host) Remote(context.Context, codehost.Access) (gitcmd.Remote, error) {
	return gitcmd.Remote{Path: h.repo.Dir()}, nil
}

// branch reads what a branch names; "" where there is none.
func (h *Host) branch(ctx context.Context, ref gitcmd.Ref) (gitcmd.Hash, error) {
	hash, err := h.repo.RevParse(ctx, ref)
	var gone *gitcmd.NotFoundError
	if errors.As(err, &gone) {
		return "", nil
	}
	return hash, err
}

// checkCommit reports a commit that is not in the repository.
func (h *Host) checkCommit(ctx context.Context, hash gitcmd.Hash) error {
	kind, _, err := h.repo.TypeOf(ctx, hash)
	var gone *gitcmd.NotFoundError
	if errors.As(err, &gone) || (err == nil && kind != gitcmd.CommitObject) {
		return &codehost.NotFoundError{Kind: "commit", Name: string(hash)}
	}
	return err
}

// mayWrite reads whether our account may change anything; if not, the result
// says so.
func (h *Host) mayWrite() (people, codehost.Result, error) {
	p, err := h.people()
	if err != nil {
		return nil, codehost.Result{}, err
	}
	if !p.of(h.account).AtLeast(codehost.PermissionWrite) {
		return nil, codehost.Result{Outcome: codehost.NotAllowed, Reason: fmt.Sprintf("the account %q has the permission %q; it needs write", h.account, p.of(h.account))}, nil
	}
	return p, codehost.Result{Outcome: codehost.Done}, nil
}
