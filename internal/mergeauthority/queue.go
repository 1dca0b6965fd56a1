//go:build unix

package mergeauthority

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"confine/internal/codehost"
	"confine/internal/codehost/filelock"
	"confine/internal/gitcmd"
)

// freezeFile says why a queue is stopped.
type freezeFile struct {
	Remote string     `json:"remote"`
	Base   gitcmd.Ref `json:"base"`
	Why    string     `json:"why"`
	At     time.Time  `json:"at"`
}

// queue waits until no one else merges into the base.
func (a *Authority) queue(ctx context.Context, base gitcmd.Ref) (release func(), err error) {
	path, err := a.queueFile(ctx, base, ".lock")
	if err != nil {
		return nil, err
	}
	return filelock.Acquire(ctx, path)
}

// queueFile names a file of one base's queue. The name of the branch is the
// host's, so only a digest of it becomes a part of a path.
func (a *Authority) queueFile(ctx context.Context, base gitcmd.Ref, suffix string) (string, error) {
	remote, err := a.Host.Remote(ctx, codehost.Read)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(remote.String() + "\x00" + string(base)))
	return filepath.Join(a.Dir, "queue-"+hex.EncodeToString(sum[:16])+suffix), nil
}

// frozen returns why nothing may be merged into the base; "" if it may. A file
// that can't be read freezes, too.
func (a *Authority) frozen(ctx context.Context, base gitcmd.Ref) (string, error) {
	path, err := a.queueFile(ctx, base, ".frozen")
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var f freezeFile
	if err != nil || json.Unmarshal(data, &f) != nil || f.Why == "" {
		return fmt.Sprintf("%q can't be read", path), nil
	}
	return fmt.Sprintf("since %s: %.400s; a person has to look and thaw the queue", f.At.UTC().Format(time.RFC3339), f.Why), nil
}

// freeze stops the queue of a base, durably.
func (a *Authority) freeze(ctx context.Context, base gitcmd.Ref, why string) error {
	path, err := a.queueFile(ctx, base, ".frozen")
	if err != nil {
		return err
	}
	remote, err := a.Host.Remote(ctx, codehost.Read)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(freezeFile{Remote: remote.String(), Base: base, Why: why, At: a.Now().UTC()}, "", "  ")
	if err != nil {
		return err
	}
	// Not by a rename: a part of this file freezes as well as the whole.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = syncDir(a.Dir)
	}
	if err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return nil
}

// Frozen returns why merges into the base are stopped; "" if they are not.
func (a *Authority) Frozen(ctx context.Context, base gitcmd.Ref) (string, error) {
	return a.frozen(ctx, base)
}

// Thaw lets merges into the base go on, after a person has looked.
func (a *Authority) Thaw(ctx context.Context, base gitcmd.Ref) error {
	release, err := a.queue(ctx, base)
	if err != nil {
		return err
	}
	defer release()
	path, err := a.queueFile(ctx, base, ".frozen")
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("thaw: %w", err)
	}
	return syncDir(a.Dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
