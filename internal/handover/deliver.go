package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"confine/internal/gitcmd"
)

// Target is where rewritten commits go.
type Target struct {
	Remote gitcmd.Remote
	// Branch is chosen by the engine.
	Branch gitcmd.Ref
	// Old is the value that the branch must have there; "" means that it must
	// not exist.
	Old gitcmd.Hash
	// Rewrite allows that the branch loses commits that are the engine's own
	// from an earlier round.
	Rewrite bool
}

// Deliver pushes the rewritten head to one branch, with a lease. Nothing else is
// pushed, whatever refs the agent made.
func Deliver(ctx context.Context, r Rewritten, to Target) (gitcmd.PushResult, error) {
	if r.Repo == nil || r.head == "" {
		return gitcmd.PushResult{}, errors.New("deliver commits: nothing was rewritten")
	}
	if to.Branch.BranchName() == "" {
		return gitcmd.PushResult{}, fmt.Errorf("deliver commits: %.100q is no branch", string(to.Branch))
	}
	result, err := r.Repo.Push(ctx, gitcmd.Push{To: to.Remote, Ref: to.Branch, New: r.head, Old: to.Old, Rewrite: to.Rewrite})
	if err != nil {
		return result, fmt.Errorf("deliver commits: %w", err)
	}
	return result, nil
}

// CopyTo brings the rewritten commits into another repository of the engine that
// has the base, and sets a ref there to the head: for the gate, which merges
// before anything is pushed.
func CopyTo(ctx context.Context, r Rewritten, to *gitcmd.Repo, ref gitcmd.Ref) error {
	if r.Repo == nil || r.head == "" || to == nil {
		return errors.New("copy commits: nothing was rewritten, or there is nowhere to copy to")
	}
	if r.head != r.Base {
		if err := copyObjects(ctx, r, to); err != nil {
			return fmt.Errorf("copy commits: %w", err)
		}
	}
	if err := setRef(ctx, to, ref, r.head); err != nil {
		return fmt.Errorf("copy commits: %w", err)
	}
	return nil
}

// copyObjects streams a pack from one git to another.
func copyObjects(ctx context.Context, r Rewritten, to *gitcmd.Repo) error {
	out, in := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := r.Repo.PackObjects(ctx, in, gitcmd.PackOptions{Include: []gitcmd.Hash{r.head}, Exclude: []gitcmd.Hash{r.Base}, Thin: true})
		in.CloseWithError(err) // nil is the end of the stream
		packed <- err
	}()
	err := to.IndexPack(ctx, out, gitcmd.IndexPackOptions{})
	// A reader that stopped early must not hold the writer.
	out.CloseWithError(errors.New("the receiving git has stopped"))
	if packErr := <-packed; err == nil {
		err = packErr
	}
	return err
}

// RescueOptions say what is kept where.
type RescueOptions struct {
	// Dir is the engine's directory of rescue files; it must exist.
	Dir string
	// Run names the file, with the kind as its ending.
	Run    string
	Export Export
}

// Rescue keeps the raw bytes that came out of a workspace, which are untrusted,
// in a file that only this user can read, and returns its path. An earlier rescue
// of the same run stays: the new one gets a number.
func Rescue(o RescueOptions) (string, error) {
	return o.keep(o.Export.Path, map[Kind]string{Bundle: "bundle", Archive: "tar"}[o.Export.Kind])
}

// RescueOthers is Rescue for the commits that the head did not hold.
func RescueOthers(o RescueOptions) (string, error) {
	return o.keep(o.Export.OthersPath, "others.bundle")
}

func (o RescueOptions) keep(source, ending string) (path string, err error) {
	if err = o.check(); err == nil && (ending == "" || source == "") {
		err = errors.New("there is nothing to keep")
	}
	if err == nil {
		path, err = rescue(o, source, ending)
	}
	if err != nil {
		return "", fmt.Errorf("keep the work of run %.100q: %w", o.Run, err)
	}
	return path, nil
}

func (o RescueOptions) check() error {
	if o.Run == "" || len(o.Run) > 100 || o.Run[0] == '.' || strings.ContainsFunc(o.Run, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.", c)
	}) {
		return errors.New("the run id is no file name")
	}
	return nil
}

func rescue(o RescueOptions, source, ending string) (string, error) {
	from, err := os.Open(source)
	if err != nil {
		return "", err
	}
	defer from.Close()
	for n := range 1000 {
		name := o.Run + "." + ending
		if n > 0 {
			name = fmt.Sprintf("%s.%d.%s", o.Run, n, ending)
		}
		path := filepath.Join(o.Dir, name)
		to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if err := copyAndSync(to, from); err != nil {
			_ = os.Remove(path)
			return "", err
		}
		return path, syncDir(o.Dir)
	}
	return "", errors.New("there are a thousand rescue files of it already")
}

func copyAndSync(to *os.File, from io.Reader) error {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
