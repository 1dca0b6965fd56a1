package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/sandbox"
)

// SetupOptions say what the setup step does and what its result depends on.
type SetupOptions struct {
	Base
	// Dir keeps the layers of one tenant. It must exist and belong to this user
	// alone.
	Dir string
	// Lent and LentBranch are as in PrepareOptions; Commit is the base commit.
	// Setup runs on nothing but base code.
	Lent       *gitcmd.Repo
	LentBranch gitcmd.Ref
	Commit     gitcmd.Hash
	// Commands are given to sh one after another, each in a sandbox of its own
	// over the same workspace and home.
	Commands []string
	// Egress serves the commands' network; nil gives them none. The steps that
	// are not commands never have one.
	Egress sandbox.EgressServer
	// Output receives what the commands write: untrusted bytes. May be nil.
	Output io.Writer
	// MaxBytes caps each of the two archives; 0 means 8 GiB.
	MaxBytes int64
	Key      LayerKey
}

// LayerKey is what a layer depends on besides the commands. Two runs with the
// same key may use the same layer, and no other two.
type LayerKey struct {
	Tenant     boundary.TenantID
	Repository string
	// View is the digest of the view (hostview.Digest), Egress the rules in
	// their canonical text.
	View   string
	Egress string
	// Files are the paths, at the base commit, whose content setup depends on.
	Files []string
}

const (
	defaultLayerBytes = 8 << 30
	maxKeyFile        = 64 << 20
)

// Setup runs the setup commands on a clean checkout of the base and keeps what
// they left: what is not tracked in the workspace, and the home. If a layer of
// the same key exists, it is that one and nothing runs. A *StepError says which
// command failed; then nothing is kept.
func Setup(ctx context.Context, o SetupOptions) (*Layer, error) {
	layer, err := o.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	return layer, nil
}

func (o SetupOptions) run(ctx context.Context) (*Layer, error) {
	if !o.Key.Tenant.Valid() || o.Lent == nil {
		return nil, errors.New("no tenant or no lent repository was named")
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultLayerBytes
	}
	key, err := o.key(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, key)
	if layer, err := openLayer(dir, key); err == nil {
		return layer, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		// Not whole: a disk that filled up, or a hand in it. It is made anew.
		if err := Remove(dir); err != nil {
			return nil, err
		}
	}
	scratch, err := NewScratch(o.Dir)
	if err != nil {
		return nil, err
	}
	defer scratch.Remove()
	if err := o.build(ctx, scratch.Dir, key); err != nil {
		return nil, err
	}
	// Two that set up at once made the same; the first one stays.
	if err := os.Rename(filepath.Join(scratch.Dir, "layer"), dir); err != nil && !exists(dir) {
		return nil, err
	}
	return openLayer(dir, key)
}

// key is the name of the layer: a digest over everything that its content
// depends on.
func (o SetupOptions) key(ctx context.Context) (string, error) {
	d := digest{sha256.New()}
	d.text("confine setup 1", string(o.Key.Tenant), o.Key.Repository, o.Key.View, o.Key.Egress)
	d.list(o.Commands)
	id := o.Boundary.Identity
	d.number(uint64(id.UID))
	d.number(uint64(id.GID))
	d.list(o.Boundary.Env)
	files := slices.Clone(o.Key.Files)
	slices.Sort(files)
	files = slices.Compact(files)
	d.number(uint64(len(files)))
	for _, f := range files {
		data, err := o.Lent.FileAt(ctx, o.Commit, f, maxKeyFile)
		var absent *gitcmd.NotFoundError
		switch {
		case errors.As(err, &absent):
			d.text(f, "absent", "")
		case err != nil:
			return "", fmt.Errorf("read key file %.200q: %w", f, err)
		default:
			d.text(f, "present", string(data))
		}
	}
	return hex.EncodeToString(d.Sum(nil)), nil
}

type digest struct{ hash.Hash }

func (d digest) number(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	d.Write(b[:])
}

func (d digest) text(list ...string) {
	for _, s := range list {
		d.number(uint64(len(s)))
		io.WriteString(d, s)
	}
}

func (d digest) list(list []string) {
	d.number(uint64(len(list)))
	d.text(list...)
}

// setupBranch is the branch that setup works on; nobody sees it.
const setupBranch = gitcmd.Ref("refs/heads/confine-setup")

// build makes the layer in a scratch directory.
func (o SetupOptions) build(ctx context.Context, scratch, key string) error {
	workspace, home, layer := filepath.Join(scratch, "workspace"), filepath.Join(scratch, "home"), filepath.Join(scratch, "layer")
	for _, d := range []string{workspace, home, layer} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	err := prepare(ctx, PrepareOptions{Base: o.Base, Lent: o.Lent, LentBranch: o.LentBranch, Commit: o.Commit, Branch: setupBranch, Dir: workspace})
	if err != nil {
		return err
	}
	for i, c := range o.Commands {
		err := o.step(ctx, step{name: fmt.Sprintf("command %d (%.100q)", i+1, c), command: c, workspace: workspace, home: home, lent: o.Lent, egress: o.Egress, stdout: o.Output, stderr: o.Output})
		if err != nil {
			return err
		}
	}
	return o.pack(ctx, workspace, home, layer, key)
}

// pack has the archives written by sandboxes without a network: the files are
// those of programs that had one.
func (o SetupOptions) pack(ctx context.Context, workspace, home, layer, key string) error {
	m := manifest{Version: layerVersion, Key: key, Archives: map[string]archive{}}
	for _, part := range []struct {
		file string
		max  int64
		step step
	}{
		{"workspace.tar", o.MaxBytes, step{name: "pack the workspace", script: "pack-workspace.sh", workspace: workspace}},
		{"home.tar", o.MaxBytes, step{name: "pack the home", script: "pack-home.sh", home: home}},
		{"names", maxNames, step{name: "list what was set up", script: "names.sh", workspace: workspace}},
	} {
		f, err := newCappedFile(filepath.Join(layer, part.file), part.max)
		if err != nil {
			return err
		}
		s := part.step
		s.stdout, s.lent = f, o.Lent
		err = o.step(ctx, s)
		if closeErr := f.close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
		m.Archives[part.file] = archive{Bytes: f.size, SHA256: hex.EncodeToString(f.sum.Sum(nil))}
	}
	return writeManifest(layer, m)
}

// RestoreOptions say where a layer is unpacked.
type RestoreOptions struct {
	Base
	Layer *Layer
	// Lent is as in PrepareOptions. Workspace and Home are the host directories;
	// an empty Home leaves the home out.
	Lent            *gitcmd.Repo
	Workspace, Home string
}

// Restore unpacks a layer, inside sandboxes without a network. What the
// workspace holds already stays as it is.
func Restore(ctx context.Context, o RestoreOptions) error {
	if err := o.run(ctx); err != nil {
		return fmt.Errorf("restore setup layer: %w", err)
	}
	return nil
}

func (o RestoreOptions) run(ctx context.Context) error {
	if o.Layer == nil || o.Workspace == "" {
		return errors.New("no layer or no workspace was named")
	}
	if err := o.unpack(ctx, "workspace.tar", step{name: "unpack the workspace", args: []string{Inside}, workspace: o.Workspace}); err != nil {
		return err
	}
	if o.Home == "" {
		return nil
	}
	return o.unpack(ctx, "home.tar", step{name: "unpack the home", args: []string{homeOf(o.Boundary)}, home: o.Home})
}

func (o RestoreOptions) unpack(ctx context.Context, file string, s step) error {
	f, err := o.Layer.open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	s.script, s.stdin, s.lent = "unpack.sh", f, o.Lent
	return o.step(ctx, s)
}
