package gitcmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Repo is a bare repository that the engine owns. The zero value refuses every
// call. A Repo is safe for use by several goroutines.
type Repo struct {
	dir    string
	format ObjectFormat
}

// ObjectFormat is the hash function of a repository.
type ObjectFormat string

// The object formats.
const (
	SHA1   ObjectFormat = "sha1"
	SHA256 ObjectFormat = "sha256"
)

// Dir is the repository's directory: absolute, without symbolic links.
func (r *Repo) Dir() string { return r.dir }

// Format is the repository's object format.
func (r *Repo) Format() ObjectFormat { return r.format }

// ObjectsDir is the directory of its objects.
func (r *Repo) ObjectsDir() string { return filepath.Join(r.dir, "objects") }

// EmptyTree is the id of the tree without entries.
func (r *Repo) EmptyTree() Hash { return r.emptyTree() }

func (r *Repo) emptyTree() Hash {
	if r.format == SHA256 {
		return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
}

func (r *Repo) nullHash() string {
	if r.format == SHA256 {
		return strings.Repeat("0", 64)
	}
	return strings.Repeat("0", 40)
}

// checkHash holds h to this repository's object format.
func (r *Repo) checkHash(hashes ...Hash) error {
	for _, h := range hashes {
		if err := h.check(); err != nil {
			return err
		}
		if len(h) != len(r.emptyTree()) {
			return fmt.Errorf("use object id %s: the repository uses %s", h.Short(), r.format)
		}
	}
	return nil
}

// Open opens a bare repository. It returns an *UnsafeError when anyone but this
// user or root could have written it or moved it away, or when it is not itself
// the repository but a pointer to one.
func Open(ctx context.Context, dir string) (*Repo, error) {
	clean, err := checkDir(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Lstat(filepath.Join(clean, name)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("open repository %q: no directory %q in it: not a bare git repository", dir, name)
		}
	}
	if _, err := os.Lstat(filepath.Join(clean, "HEAD")); err != nil {
		return nil, fmt.Errorf("open repository %q: no HEAD in it: not a bare git repository", dir)
	}
	// Files that send git to another directory, or make it see other history
	// than is sent on.
	for _, name := range []string{"commondir", "gitdir", "shallow", "info/grafts", "config.worktree"} {
		if _, err := os.Lstat(filepath.Join(clean, name)); !os.IsNotExist(err) {
			return nil, &UnsafeError{Path: clean, Why: fmt.Sprintf("it holds %q", name)}
		}
	}
	r := &Repo{dir: clean, format: SHA1}
	out, _, err := r.output(ctx, command{op: "rev-parse", args: []string{"--show-object-format"}})
	if err != nil {
		return nil, fmt.Errorf("open repository %q: %w", dir, err)
	}
	switch f := ObjectFormat(strings.TrimSpace(string(out))); f {
	case SHA1, SHA256:
		r.format = f
	default:
		return nil, fmt.Errorf("open repository %q: unknown object format %.20q", dir, string(f))
	}
	return r, nil
}

// InitOptions describe a new repository.
type InitOptions struct {
	// Format is the object format; empty means SHA1.
	Format ObjectFormat
	// Head is the branch that HEAD names; empty means refs/heads/main.
	Head Ref
	// Alternates are repositories whose objects this one may use. They must
	// outlive it.
	Alternates []*Repo
}

// Init makes a new bare repository, readable by this user alone. The directory
// must not exist or be empty; its parent must exist.
func Init(ctx context.Context, dir string, o InitOptions) (*Repo, error) {
	fail := func(err error) (*Repo, error) { return nil, fmt.Errorf("make repository %q: %w", dir, err) }
	if o.Head == "" {
		o.Head = "refs/heads/main"
	}
	if o.Format == "" {
		o.Format = SHA1
	}
	if err := o.Head.check(); err != nil {
		return fail(err)
	}
	if o.Head.BranchName() == "" {
		return fail(fmt.Errorf("HEAD must name a branch, not %.100q", string(o.Head)))
	}
	if o.Format != SHA1 && o.Format != SHA256 {
		return fail(fmt.Errorf("unknown object format %.20q", string(o.Format)))
	}
	alternates, err := alternatesFile(o)
	if err != nil {
		return fail(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return fail(err)
	}
	clean, err := checkDir(dir)
	if err != nil {
		return fail(err)
	}
	if entries, err := os.ReadDir(clean); err != nil || len(entries) > 0 {
		return fail(fmt.Errorf("the directory is not empty or can't be read"))
	}
	if err := os.Chmod(clean, 0o700); err != nil {
		return fail(err)
	}
	_, err = (&Repo{}).run(ctx, command{op: "init", noRepo: true, args: []string{
		"--quiet", "--bare", "--template=", "--object-format=" + string(o.Format),
		"--initial-branch=" + o.Head.BranchName(), "--end-of-options", clean}})
	if err != nil {
		return fail(err)
	}
	if len(alternates) > 0 {
		if err := os.MkdirAll(filepath.Join(clean, "objects", "info"), 0o700); err != nil {
			return fail(err)
		}
		if err := os.WriteFile(filepath.Join(clean, "objects", "info", "alternates"), alternates, 0o600); err != nil {
			return fail(err)
		}
	}
	return Open(ctx, clean)
}

func alternatesFile(o InitOptions) ([]byte, error) {
	var b bytes.Buffer
	for _, a := range o.Alternates {
		if a == nil || a.dir == "" {
			return nil, fmt.Errorf("an alternate was not opened")
		}
		if a.format != o.Format {
			return nil, fmt.Errorf("alternate %q uses another object format", a.dir)
		}
		b.WriteString(a.ObjectsDir() + "\n")
	}
	return b.Bytes(), nil
}

// Alternates reads which object directories the repository borrows from.
func (r *Repo) Alternates() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, "objects", "info", "alternates"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read alternates: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}

// checkDir resolves dir and makes sure that no one else could have put anything
// at its place: no component above it, nor its own important files, may be
// writable by others.
func checkDir(dir string) (string, error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return "", fmt.Errorf("open repository %q: want an absolute, clean path", dir)
	}
	if strings.ContainsAny(dir, "\n\r\x00") {
		return "", fmt.Errorf("open repository %q: the path holds a control character", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("open repository: %w", err)
	}
	for at := real; ; at = filepath.Dir(at) {
		if err := checkOwned(at, at != real); err != nil {
			return "", err
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	for _, name := range []string{"HEAD", "config", "objects", "objects/info", "objects/pack", "refs", "hooks", "info", "packed-refs"} {
		path := filepath.Join(real, name)
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			continue
		}
		if err := checkOwned(path, false); err != nil {
			return "", err
		}
	}
	return real, nil
}
