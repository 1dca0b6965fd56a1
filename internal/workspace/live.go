package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"confine/internal/boundary"
	"confine/internal/hostview"
)

// Inside is where a workspace is seen in a run.
const Inside = "/workspace"

// Options describe a person's directory.
type Options struct {
	// Dir is the directory; links are followed.
	Dir string
	// Masks are patterns of further files and directories to cover.
	Masks []string
	// Home is the person's home, which is refused as a workspace.
	Home string
	// StateDir is where confine keeps its own files: neither it nor anything
	// around it can be a workspace.
	StateDir string
	// MaxEntries caps the files and directories looked at; 0 means 2 000 000.
	MaxEntries int
	// Exclusive waits until no other run has the directory, and keeps others out:
	// what Stage needs. Without it live runs may share it.
	Exclusive bool
	// Waiting is called once when there is something to wait for, Cancel ends the
	// waiting.
	Waiting func()
	Cancel  <-chan struct{}
}

const defaultMaxEntries = 2_000_000

// maxMounts caps the control files and masks of one workspace, each a mount.
const maxMounts = 10_000

// LiveWorkspace is a person's directory that a run may write to. Close it after
// Review.
type LiveWorkspace struct {
	// Dir is the directory with all links followed.
	Dir string
	// Mounts show it inside, protected and masked, in order.
	Mounts []boundary.Mount
	// SafeDirectories are the repositories inside, for git's safe.directory.
	SafeDirectories []string
	// GitMasked are the masked files as paths below a work tree, for git to leave
	// them alone.
	GitMasked []string
	// Masked and ReadOnly are what is covered and protected, below Dir.
	Masked, ReadOnly []string
	// Notes are things a person should know before the run, one line each.
	Notes []string

	inside string // where it is seen in the run
	// shared is the repository of a linked worktree; own, in that one, is where
	// it keeps this worktree's state.
	shared *LiveWorkspace
	own    string

	root, git *os.File // git, where there is one, is locked with the root
	exclusive bool
	masks     masks
	// stagedBefore is what git's indexes held of masked paths.
	stagedBefore *staged
	maxEntries   int
	before       *scan
	start        time.Time

	// The record of the run, and what an earlier one of a killed run says.
	journal     *os.File
	journalName string
	saved       *journal
	// reviewFailed keeps the record.
	reviewFailed bool
}

// Overlaps reports whether a host path, with its links followed, is or holds the
// workspace or lies in it.
func (l *LiveWorkspace) Overlaps(p string) bool {
	p = filepath.Clean(p)
	return within(p, l.Dir) || within(l.Dir, p) || l.shared != nil && l.shared.Overlaps(p)
}

// DirError is a directory that can't be a workspace.
type DirError struct {
	Dir, Why, hint string
}

func (e *DirError) Error() string { return fmt.Sprintf("use %q as workspace: %s", e.Dir, e.Why) }

// Hint says what to do instead.
func (e *DirError) Hint() string { return e.hint }

// ChannelError is a socket or FIFO of the host in the tree: a way to a process
// outside that no boundary would hold.
type ChannelError struct {
	Dir   string
	Paths []string
}

func (e *ChannelError) Error() string {
	return fmt.Sprintf("use %q as workspace: it holds a socket or FIFO of the host: %s", e.Dir, quoteSome(e.Paths))
}

// Hint says what to do.
func (e *ChannelError) Hint() string {
	return "stop the program that serves it or delete it, or cover the directory it is in with --mask"
}

// MaskError is a file that a mask can't hide.
type MaskError struct {
	Dir   string
	Paths []string
}

func (e *MaskError) Error() string {
	return fmt.Sprintf("use %q as workspace: masked files have a second name (hard link), which would show them: %s", e.Dir, quoteSome(e.Paths))
}

// Hint says what to do.
func (e *MaskError) Hint() string {
	return "delete the other name, or replace the file by a copy: cp -p F F.new && mv F.new F"
}

// ControlError is a control file of git that can't be made read-only.
type ControlError struct {
	Dir   string
	Paths []string
	Why   string
}

func (e *ControlError) Error() string {
	return fmt.Sprintf("use %q as workspace: can't protect git's control files: %s: %s", e.Dir, e.Why, quoteSome(e.Paths))
}

// Hint says what to do.
func (e *ControlError) Hint() string {
	return "replace the link by the file or directory it leads to"
}

// quoteSome shows at most a few paths of a hostile tree.
func quoteSome(paths []string) string {
	const most = 5
	var b strings.Builder
	for i, p := range paths {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(paths)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.200q", p)
	}
	return b.String()
}

// systemDirs are the host's own; those of the second list have places of people
// below them.
var (
	systemDirs = []string{"/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/boot", "/dev", "/proc", "/sys", "/nix"}
	exactDirs  = []string{"/", "/var", "/opt", "/home", "/root", "/run", "/tmp", "/mnt", "/media", "/srv", "/var/lib", "/var/tmp", "/var/log", "/var/cache", "/var/spool"}
)

// checkDir refuses directories that hold much more than a project. dir is clean
// and has no links.
func checkDir(dir string, o Options) error {
	refuse := func(why string) error {
		return &DirError{Dir: dir, Why: why, hint: "change to the directory of one project"}
	}
	for _, d := range exactDirs {
		if dir == d {
			return refuse("it is one of the system's directories")
		}
	}
	for _, d := range systemDirs {
		if within(dir, d) && !within(dir, "/usr/src") && !within(dir, "/usr/local/src") {
			return refuse("it belongs to the system")
		}
	}
	if home := resolved(o.Home); home != "" {
		switch {
		case dir == home:
			return refuse("it is your home: everything in it would be open to the run")
		case within(home, dir):
			return refuse("your home lies in it")
		case hostview.MayHoldCredentials(home, dir):
			return refuse("it is a place where credentials are kept")
		}
	}
	if state := resolved(o.StateDir); state != "" && (within(dir, state) || within(state, dir)) {
		return refuse("confine keeps its own files there")
	}
	return nil
}

// resolved follows the links of a directory that may not exist.
func resolved(dir string) string {
	if dir == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}

func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
