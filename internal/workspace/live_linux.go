package workspace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// Live looks at a directory and plans how a run sees it. It changes nothing. It
// returns a *DirError, *GlobError, *ChannelError, *MaskError, *ControlError or
// *LimitError when the directory can't be protected as promised.
func Live(o Options) (*LiveWorkspace, error) {
	m, err := newMasks(o.Masks)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("use %q as workspace: %w", o.Dir, err)
	}
	if err := checkDir(dir, o); err != nil {
		return nil, err
	}
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	l := &LiveWorkspace{Dir: dir, inside: Inside, root: root, masks: m, maxEntries: o.MaxEntries}
	if l.maxEntries <= 0 {
		l.maxEntries = defaultMaxEntries
	}
	err = l.lock(o)
	if err == nil {
		err = l.load(o)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close lets go of the directory.
func (l *LiveWorkspace) Close() error {
	var err error
	if l.shared != nil {
		err = l.shared.Close()
	}
	l.unlock()
	return errors.Join(err, l.forget(), l.root.Close())
}

func (l *LiveWorkspace) load(o Options) error {
	s := newScan(l.root, l.Dir, l.masks)
	if err := s.run(l.maxEntries); err != nil {
		return err
	}
	switch {
	case len(s.channels) > 0:
		return &ChannelError{Dir: l.Dir, Paths: s.channels}
	case len(s.shared) > 0:
		return &MaskError{Dir: l.Dir, Paths: slices.Compact(s.shared)}
	case len(s.linked) > 0:
		return &ControlError{Dir: l.Dir, Paths: s.linked, Why: "a symbolic link"}
	}
	if err := l.checkUnseen(s); err != nil {
		return err
	}
	if err := l.checkLength(s); err != nil {
		return err
	}
	if l.own == "" && slices.Contains(s.gitFiles, ".git") {
		shared, err := l.openShared(o)
		if shared == nil {
			l.Notes = append(l.Notes, "this is a linked worktree or submodule whose repository lies elsewhere and is not shown, so git does not work in the run"+because(err))
		} else {
			l.shared = shared
			s.followShared(shared)
		}
	}
	s.followPointers()
	// Before planning, which compares each with each.
	if len(s.masked)+len(s.protect)+len(s.gitDirs) > maxMounts {
		return &ControlError{Dir: l.Dir, Paths: s.protect, Why: fmt.Sprintf("with the masks they are more than %d", maxMounts)}
	}
	l.before = s
	l.plan(s)
	if len(s.masked) > 0 {
		l.GitMasked = l.gitMasked()
		l.noteOverridden()
		held := l.readStaged(l.workTrees())
		l.stagedBefore = &held
	}
	if l.shared != nil {
		l.Mounts = append(l.Mounts, l.shared.Mounts...)
		if !within(l.Dir, Inside) {
			// Where the repository looks for this worktree: git worktree prune
			// would take it for deleted.
			l.Mounts = append(l.Mounts, boundary.Mount{Kind: boundary.Bind, Target: path.Join(l.Dir, ".git"), Source: path.Join(l.Dir, ".git"), Owned: true})
		}
		l.Notes = append(l.Notes, l.shared.Notes...)
		for _, rel := range l.shared.ReadOnly {
			l.ReadOnly = append(l.ReadOnly, path.Join(l.shared.Dir, rel))
		}
	}
	if len(l.Mounts) > maxMounts {
		return &ControlError{Dir: l.Dir, Paths: s.protect, Why: fmt.Sprintf("with the masks and the directories above them they are more than %d", maxMounts)}
	}
	// The clock of file times lags behind by a tick. With the margin nothing of
	// the run is missed; something of just before it may be listed.
	l.start = time.Now().Add(-time.Second)
	return nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// checkUnseen: a directory that this user can't look into is closed to the run
// too, unless this user owns it, as the run could then open it.
func (l *LiveWorkspace) checkUnseen(s *scan) error {
	for _, rel := range sortedKeys(s.unseen) {
		err := s.unseen[rel]
		if errors.Is(err, errTooDeep) {
			top, _, _ := strings.Cut(rel, "/")
			return &DirError{Dir: l.Dir, Why: fmt.Sprintf("%.200q holds directories that are %v", top, err), hint: "delete it (rm -rf), or cover it with --mask"}
		}
		fd, openErr := openBelow(l.root, rel, unix.O_PATH)
		if openErr == nil {
			var st unix.Stat_t
			openErr = unix.Fstat(fd, &st)
			unix.Close(fd)
			if openErr == nil && errors.Is(err, unix.EACCES) && int(st.Uid) != os.Geteuid() {
				l.Notes = append(l.Notes, fmt.Sprintf("%.200q belongs to another user and was not looked into", rel))
				continue
			}
		}
		return &DirError{Dir: l.Dir, Why: fmt.Sprintf("can't look into %.200q: %v", rel, err), hint: "give yourself the right to read it, or cover it with --mask"}
	}
	return nil
}

// checkLength: what is mounted over is named by its whole path, which the kernel
// takes up to PATH_MAX only.
func (l *LiveWorkspace) checkLength(s *scan) error {
	room := unix.PathMax - 1 - max(len(l.Dir), len(l.inside)) - 1
	check := func(rel string) error {
		if len(rel) <= room {
			return nil
		}
		top, _, _ := strings.Cut(rel, "/")
		return &DirError{Dir: l.Dir, Why: fmt.Sprintf("somewhere deep below %.200q lies what must be protected or masked (%.200q), but its path is too long for a mount", top, path.Base(rel)), hint: "delete it (rm -rf), or cover the directory with --mask"}
	}
	for _, rel := range append(sortedKeys(s.gitDirs), s.protect...) {
		if err := check(rel); err != nil {
			return err
		}
	}
	for _, t := range s.masked {
		if err := check(t.rel); err != nil {
			return err
		}
	}
	return nil
}

// plan makes the mounts: the directory, each repository's directory on itself
// (which thereby can't be moved or deleted), its control files read-only, the
// masks, and the directories above all these on themselves (see pin).
func (l *LiveWorkspace) plan(s *scan) {
	covered := func(rel string) bool {
		return slices.ContainsFunc(s.masked, func(t target) bool { return t.dir && rel != t.rel && within(rel, t.rel) })
	}
	masked := func(rel string) bool {
		return slices.ContainsFunc(s.masked, func(t target) bool { return t.rel == rel })
	}
	bind := func(rel string, writable bool) {
		l.Mounts = append(l.Mounts, boundary.Mount{Kind: boundary.Bind, Target: path.Join(l.inside, rel), Source: path.Join(l.Dir, rel), Writable: writable, Owned: true})
	}
	bind("", true)
	l.SafeDirectories = []string{l.inside}
	protected := func(rel string) bool {
		return slices.ContainsFunc(s.protect, func(p string) bool { return within(rel, p) })
	}
	pins := map[string]bool{}
	if l.own != "" {
		bind("worktrees", false)
	}
	// others is what other worktrees keep in a shared repository.
	others := func(rel string) bool {
		return l.own != "" && within(rel, "worktrees") && !within(rel, l.own)
	}
	for _, git := range sortedKeys(s.gitDirs) {
		if covered(git) || masked(git) || protected(git) || others(git) {
			continue
		}
		if git != "" {
			bind(git, true)
			s.pin(pins, git)
		}
		repo := git
		if strings.EqualFold(path.Base(git), ".git") {
			repo = path.Dir(git)
		}
		l.trust(path.Join(l.inside, repo))
	}
	for _, rel := range s.protect {
		if covered(rel) || masked(rel) || others(rel) {
			continue
		}
		bind(rel, false)
		if !s.inGitDir(rel) {
			s.pin(pins, rel)
		}
		l.ReadOnly = append(l.ReadOnly, rel)
	}
	for _, rel := range s.gitFiles {
		l.trust(path.Join(l.inside, path.Dir(rel)))
	}
	for _, git := range sortedKeys(s.gitDirs) {
		if _, ok := s.controls[join(git, "objects/info/alternates")]; ok {
			l.Notes = append(l.Notes, fmt.Sprintf("the repository %.200q borrows objects from elsewhere, which is not shown: git may miss some", git))
		}
	}
	for _, t := range s.masked {
		if covered(t.rel) {
			continue
		}
		l.Mounts = append(l.Mounts, boundary.Mount{Kind: boundary.Mask, Target: path.Join(l.inside, t.rel)})
		l.Masked = append(l.Masked, t.rel)
		if !l.masks.matchAnywhere(t.rel) {
			s.pin(pins, t.rel)
		}
	}
	for _, rel := range sortedKeys(pins) {
		if l.own != "" && rel == "worktrees" {
			continue // read-only already
		}
		bind(rel, true)
	}
	// Parents before what lies in them, or they would cover it.
	slices.SortStableFunc(l.Mounts, func(a, b boundary.Mount) int { return strings.Compare(a.Target, b.Target) })
}

// pin adds the directories above rel to those that are mounted on themselves, as
// only a mount point can't be renamed: with a directory moved away and made
// anew, a control file in it would be a new one that may be written, and a path
// that a mask names would lead to something else, at the next start too. The
// price is EXDEV for a rename or link from such a directory to another, so it is
// paid only for what must stay in its place.
func (s *scan) pin(pins map[string]bool, rel string) {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		if !s.gitDirs[dir] { // those are mounts already
			pins[dir] = true
		}
	}
}

// inGitDir reports whether rel lies in a repository's own directory, whose place
// is kept with it.
func (s *scan) inGitDir(rel string) bool {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		if s.gitDirs[dir] {
			return true
		}
	}
	return s.gitDirs[""]
}

// maxTrusted caps the repositories that git is told of.
const maxTrusted = 500

// trust names a repository for git's safe.directory. One whose name can't be
// written into a configuration file is left out: git refuses to work there.
func (l *LiveWorkspace) trust(at string) {
	plain := !strings.ContainsFunc(at, func(r rune) bool { return r < ' ' || r == 0x7f })
	if plain && len(l.SafeDirectories) < maxTrusted && !slices.Contains(l.SafeDirectories, at) {
		l.SafeDirectories = append(l.SafeDirectories, at)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
