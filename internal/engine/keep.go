package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"confine/internal/handover"
	"confine/internal/plaintext"
)

// keepWork keeps what the agent did, unless it went on to the code host: as a file
// of what a sandbox took out of the workspace or, where none can, as the workspace
// itself.
func (r *run) keepWork(ctx context.Context) error {
	if r.rec.State == Merged || r.rec.State == Opened || r.workspace == "" {
		return nil
	}
	if r.export.Kind == "" {
		if err := r.takeLate(ctx); err != nil {
			return err
		}
	}
	if r.export.Kind == "" {
		return r.keepWorkspace()
	}
	if r.export.Path == "" {
		return nil
	}
	dir, err := r.rescueDir()
	if err != nil {
		return err
	}
	path, err := handover.Rescue(handover.RescueOptions{Dir: dir, Run: r.rec.Run, Export: r.export})
	if err != nil {
		return fmt.Errorf("keep the agent's work: %w", err)
	}
	r.rec.Rescue = path
	r.event("rescue", "", "the agent's work is kept in "+path)
	return nil
}

// takeLate takes the work out of a run that ended before its hand-over did. The
// error is a caller that gave up: then it is to be tried again.
func (r *run) takeLate(ctx context.Context) error {
	if r.takeFailed {
		return nil
	}
	timed, cancel := context.WithTimeout(ctx, rescueTime)
	defer cancel()
	err := r.take(timed)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("keep the agent's work: %w", ctx.Err())
	}
	if err != nil {
		r.event("rescue_failed", "", plaintext.Line(err.Error(), 400))
	}
	return nil
}

// keepWorkspace keeps the workspace itself, unread.
func (r *run) keepWorkspace() error {
	if _, err := r.rescueDir(); err != nil {
		return err
	}
	path := r.workspacePath()
	// To move a directory, its owner needs the right to write into it.
	if err := os.Chmod(r.workspace, 0o700); err != nil {
		return fmt.Errorf("keep the agent's work: %w", err)
	}
	if err := os.Rename(r.workspace, path); err != nil {
		return fmt.Errorf("keep the agent's work: %w", err)
	}
	r.rec.Rescue = path
	r.event("rescue", "", "the agent's work could not be taken out: its workspace is kept in "+path+"; start no program there, git neither")
	return nil
}

func (r *run) workspacePath() string {
	return filepath.Join(r.o.StateDir, "rescue", r.rec.Run+".workspace")
}

func (r *run) rescueDir() (string, error) {
	dir := filepath.Join(r.o.StateDir, "rescue")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("keep the agent's work: %w", err)
	}
	return dir, nil
}
