package handover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"confine/internal/gitcmd"
)

// ReceiveOptions say what is received into which quarantine.
type ReceiveOptions struct {
	// Bundle is the stream that Take brought. Where it can be read again from its
	// beginning, a refusal says in which commit and at which path.
	Bundle io.Reader
	// Lent is the engine's repository with the closure of Base; the quarantine
	// borrows its objects.
	Lent *gitcmd.Repo
	Base gitcmd.Hash
	// Dir is where the quarantine is made: a directory of the engine that does
	// not exist yet. On an error it is removed again.
	Dir string
	// MaxBytes caps the bundle (0: 1 GiB), MaxObjects its objects (0: 200 000).
	MaxBytes   int64
	MaxObjects uint32
}

// Received are commits in quarantine: every object is well formed, and nothing
// more is known about them.
type Received struct {
	Repo       *gitcmd.Repo
	Base, Head gitcmd.Hash
}

// The refs of a quarantine.
const (
	headRef      gitcmd.Ref = "refs/confine/head"
	rewrittenRef gitcmd.Ref = "refs/confine/rewritten"
)

// Receive imports a bundle into a new quarantine repository. What the bundle
// itself is to blame for is a *Refusal; nothing of it is left then.
func Receive(ctx context.Context, o ReceiveOptions) (Received, error) {
	if o.Bundle == nil || o.Lent == nil || o.Dir == "" {
		return Received{}, errors.New("receive bundle: stream, lent repository and directory are needed")
	}
	if _, err := os.Lstat(o.Dir); !os.IsNotExist(err) {
		return Received{}, fmt.Errorf("receive bundle: the quarantine %q exists already", o.Dir)
	}
	r, err := receive(ctx, o)
	if err != nil {
		if rmErr := os.RemoveAll(o.Dir); rmErr != nil {
			err = errors.Join(err, rmErr)
		}
		return Received{}, fmt.Errorf("receive bundle: %w", err)
	}
	return r, nil
}

func receive(ctx context.Context, o ReceiveOptions) (Received, error) {
	maxBytes := orDefault(o.MaxBytes, defaultExportBytes)
	if o.MaxObjects == 0 {
		o.MaxObjects = 200_000
	}
	stream := newStream(o.Bundle, maxBytes)
	header, err := ReadBundleHeader(stream)
	if err != nil {
		return Received{}, err
	}
	if err := checkHeader(ctx, o, header); err != nil {
		return Received{}, err
	}
	repo, err := gitcmd.Init(ctx, o.Dir, gitcmd.InitOptions{Format: o.Lent.Format(), Alternates: []*gitcmd.Repo{o.Lent}})
	if err != nil {
		return Received{}, err
	}
	err = repo.IndexPack(ctx, stream, gitcmd.IndexPackOptions{MaxBytes: maxBytes, MaxObjects: o.MaxObjects})
	if err != nil {
		err = packRefusal(err)
		var refusal *Refusal
		if errors.As(err, &refusal) {
			locate(ctx, o, refusal)
		}
		return Received{}, err
	}
	kind, _, err := repo.TypeOf(ctx, header.Head)
	var missing *gitcmd.NotFoundError
	switch {
	case errors.As(err, &missing):
		return Received{}, &Refusal{Rule: RuleBundle, Detail: fmt.Sprintf("its pack does not hold its head %s", header.Head.Short())}
	case err != nil:
		return Received{}, err
	case kind != gitcmd.CommitObject:
		return Received{}, &Refusal{Rule: RuleBundle, Detail: fmt.Sprintf("its head %s is a %s, not a commit", header.Head.Short(), kind)}
	}
	if err := repo.UpdateRef(ctx, gitcmd.RefUpdate{Ref: headRef, New: header.Head}); err != nil {
		return Received{}, err
	}
	return Received{Repo: repo, Base: o.Base, Head: header.Head}, nil
}

func newStream(bundle io.Reader, maxBytes int64) *bufio.Reader {
	return bufio.NewReaderSize(&cappedReader{r: bundle, left: maxBytes}, 64<<10)
}

// checkHeader holds the prerequisites to commits that the engine has.
func checkHeader(ctx context.Context, o ReceiveOptions, h BundleHeader) error {
	if h.Format != o.Lent.Format() {
		return &Refusal{Rule: RuleBundle, Detail: fmt.Sprintf("it uses %s, the repository %s", h.Format, o.Lent.Format())}
	}
	if kind, _, err := o.Lent.TypeOf(ctx, o.Base); err != nil || kind != gitcmd.CommitObject {
		return fmt.Errorf("the lent repository has no commit %s: %w", o.Base.Short(), err)
	}
	for _, p := range h.Prerequisites {
		kind, _, err := o.Lent.TypeOf(ctx, p)
		var missing *gitcmd.NotFoundError
		if errors.As(err, &missing) || (err == nil && kind != gitcmd.CommitObject) {
			return &Refusal{Rule: RuleBundle, Detail: fmt.Sprintf("it builds on %s, which is no commit of the base", p.Short())}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// packRefusal tells a pack that is to blame from a fault of ours.
func packRefusal(err error) error {
	var git *gitcmd.Error
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, gitcmd.ErrTooLarge):
		return &Refusal{Rule: RuleBytes, Field: "handover.max_bytes", Detail: "its pack holds more bytes or objects than allowed"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &Refusal{Rule: RuleBundle, Detail: "its pack is cut off"}
	case errors.Is(err, gitcmd.ErrNotAPack):
		return &Refusal{Rule: RuleBundle, Detail: "no pack follows its header"}
	case errors.As(err, &git) && git.Exit > 0:
		return &Refusal{Rule: RuleObjects, Detail: "git refused an object of its pack: " + git.Stderr}
	}
	return err
}

// cappedReader ends a stream that is longer than allowed with a refusal.
type cappedReader struct {
	r    io.Reader
	left int64
}

func (c *cappedReader) Read(p []byte) (int, error) {
	tooLarge := &Refusal{Rule: RuleBytes, Field: "handover.max_bytes", Detail: "the bundle is larger than allowed"}
	if c.left < 0 {
		return 0, tooLarge
	}
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	if c.left < 0 {
		return 0, tooLarge
	}
	return n, err
}
