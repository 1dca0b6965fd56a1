//go:build unix

// Package filelock is a lock that a file stands for: one holder among all
// processes of the machine and all goroutines of this one.
//
// The kernel holds it (flock), so it ends with its holder, also by SIGKILL;
// there is no stale lock to be judged or removed, and the file stays. It does
// not keep out programs that don't ask for it, and it is not meant for network
// file systems. The callers are codehost/local and mergeauthority.
package filelock

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// interval is how long a waiting caller lets pass between two attempts.
const interval = 10 * time.Millisecond

// Acquire waits for the lock of the file at path, which is made where it is
// missing, and returns what releases it. It gives up when the context ends.
func Acquire(ctx context.Context, path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("lock %q: it is not a regular file", path)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch err {
		case nil:
			// Closing releases it: no child has the descriptor.
			return func() { f.Close() }, nil
		case syscall.EWOULDBLOCK, syscall.EINTR:
		default:
			f.Close()
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
		wait := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			wait.Stop()
			f.Close()
			return nil, fmt.Errorf("wait for the lock %q: %w", path, context.Cause(ctx))
		case <-wait.C:
		}
	}
}
