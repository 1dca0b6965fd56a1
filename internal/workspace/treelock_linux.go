package workspace

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// errCancelled is a wait for the workspace that was given up.
var errCancelled = errors.New("cancelled while another run had the workspace")

// lockTree locks a directory: for one staged run, or for live ones, of which there
// may be several. It is the kernel's lock on the directory itself, and ends with
// the last descriptor of root's. Waiting is called once, when there is something
// to wait for.
func lockTree(root *os.File, exclusive bool, waiting func(), cancel <-chan struct{}) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	var ticks *time.Ticker
	for {
		err := syscall.Flock(int(root.Fd()), how|syscall.LOCK_NB)
		if err == syscall.EINTR {
			continue
		}
		if err != syscall.EWOULDBLOCK {
			if err != nil {
				return fmt.Errorf("lock %q: %w", root.Name(), err)
			}
			return nil
		}
		if ticks == nil {
			ticks = time.NewTicker(20 * time.Millisecond)
			defer ticks.Stop()
			if waiting != nil {
				waiting()
			}
		}
		select {
		case <-ticks.C:
		case <-cancel:
			return errCancelled
		}
	}
}

// lock takes the locks of a workspace, and makes up for staged runs that were
// killed in it. A live run does without where the file system has none.
func (l *LiveWorkspace) lock(o Options) error {
	l.exclusive = o.Exclusive
	locked := []*os.File{l.root}
	// Linked worktrees share the repository's directory.
	if git, err := openDirBelow(l.root, ".git"); err == nil {
		l.git = git
		locked = append(locked, git)
	}
	for _, f := range locked {
		err := lockTree(f, o.Exclusive, o.Waiting, o.Cancel)
		if err != nil && (o.Exclusive || errors.Is(err, errCancelled)) {
			return fmt.Errorf("use %q as workspace: %w", l.Dir, err)
		}
	}
	if o.StateDir == "" {
		return nil
	}
	for _, e := range reconcileStages(o.StateDir, l.root) {
		if e.Err != nil {
			return fmt.Errorf("use %q as workspace: %w", l.Dir, e.Err)
		}
		l.Notes = append(l.Notes, e.Note)
	}
	return nil
}

func (l *LiveWorkspace) unlock() {
	if l.git != nil {
		l.git.Close()
	}
}
