//go:build unix

package filelock

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

func TestOneHolder(t *testing.T) {
	path := t.TempDir() + "/lock"
	release, err := Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	// Held: a caller that gives up gets the reason.
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := Acquire(ctx, path); !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
	// Another lock is free, and this one is after its release.
	other, err := Acquire(t.Context(), path+"2")
	if err != nil {
		t.Fatal(err)
	}
	other()
	release()
	if release, err = Acquire(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	release()

	// Nobody else is inside, whoever comes.
	// Atomic, as the race detector does not know a kernel's lock.
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			release, err := Acquire(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			most.Store(max(most.Load(), inside.Add(1)))
			inside.Add(-1)
			release()
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Fatalf("%d at once", most.Load())
	}
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Acquire(t.Context(), dir); err == nil {
		t.Error("a directory is a lock")
	}
	if err := os.WriteFile(dir+"/real", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(t.Context(), dir+"/link"); err == nil {
		t.Error("a symbolic link is a lock")
	}
	if release, err := Acquire(t.Context(), dir+"/real"); err != nil {
		t.Error(err)
	} else {
		release()
	}
}
