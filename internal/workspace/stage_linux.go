package workspace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// Stage is a workspace whose writes land in an overlay. Commit or Discard it when
// every process of the run is gone.
type Stage struct {
	l       *LiveWorkspace
	o       StageOptions
	release []glob
	scratch *Scratch
	parts   []*stagePart
	plan    *commitPlan
	since   fileTime
}

// stagePart is one directory that is shown through an overlay: the workspace, and
// of a linked worktree its repository.
type stagePart struct {
	l     *LiveWorkspace
	stage string
	upper upper
	// indexes are git's, by their paths, as they were when the run began: git
	// writes them anew when it only looks.
	indexes map[string]*os.File
}

// Stage changes the mounts of the workspace so that nothing of it is written: each
// that was writable becomes an overlay, those in it are pinned in their places.
// The workspace must be locked for this run alone (Options.Exclusive).
func (l *LiveWorkspace) Stage(o StageOptions) (s *Stage, err error) {
	fail := func(err error) (*Stage, error) { return nil, fmt.Errorf("stage writes to %q: %w", l.Dir, err) }
	if !l.exclusive {
		return fail(errors.New("it is not locked for one run"))
	}
	if o.StateDir, err = makeState(o.StateDir); err != nil {
		return fail(err)
	}
	s = &Stage{l: l, o: o, plan: newPlan(o.StateDir, newTrashID(time.Now()))}
	s.plan.entry.Command = o.Command
	for _, text := range o.Release {
		g, err := parseGlob(text)
		if err != nil {
			var ge *GlobError
			errors.As(err, &ge)
			return nil, &ReleaseError{GlobError: *ge}
		}
		s.release = append(s.release, g)
	}
	s.parts = []*stagePart{{l: l}}
	if l.shared != nil {
		s.parts = append(s.parts, &stagePart{l: l.shared})
	}
	for _, p := range s.parts {
		if at, err := mountBelow(p.l.Dir); err != nil {
			return fail(err)
		} else if at != "" {
			return nil, &NestedMountError{Dir: p.l.Dir, At: at}
		}
		s.plan.roots = append(s.plan.roots, planRoot{root: p.l.root})
	}
	if s.scratch, err = s.plan.newScratch(); err != nil {
		return fail(err)
	}
	for i, p := range s.parts {
		p.stage = filepath.Join(s.scratch.Dir, strconv.Itoa(i))
		s.plan.roots[i].news = filepath.Join(p.stage, "upper")
		if err := p.make(o); err != nil {
			return fail(errors.Join(err, s.scratch.Remove()))
		}
		p.openIndexes()
	}
	if s.since, err = timeAt(s.scratch.Dir); err != nil {
		return fail(errors.Join(err, s.scratch.Remove()))
	}
	l.Mounts = s.mounts()
	return s, nil
}

// ReleaseError is a pattern that can't be.
type ReleaseError struct{ GlobError }

func (e *ReleaseError) Error() string {
	return "release " + strings.TrimPrefix(e.GlobError.Error(), "mask ")
}

// Hint shows what is accepted.
func (e *ReleaseError) Hint() string {
	return strings.Replace(e.GlobError.Hint(), "a mask is", "it is", 1)
}

// make makes the directories of one overlay, for the id that the run has.
func (p *stagePart) make(o StageOptions) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(p.l.root.Fd()), &st); err != nil {
		return err
	}
	p.upper.lower = p.l.root
	if os.Geteuid() == 0 {
		p.upper.chown = true
		p.upper.from = owner{int(o.HostUID), int(o.HostGID)}
		p.upper.to = owner{int(st.Uid), int(st.Gid)}
	}
	if err := os.Mkdir(p.stage, 0o755); err != nil {
		return err
	}
	for _, d := range []string{"upper", "work"} {
		name := filepath.Join(p.stage, d)
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
		if p.upper.chown {
			if err := os.Chown(name, p.upper.from.uid, p.upper.from.gid); err != nil {
				return err
			}
		}
	}
	// The upper one's rights are those that the root has inside.
	return errors.Join(unix.Chmod(p.stage, 0o755), unix.Chmod(filepath.Join(p.stage, "upper"), st.Mode&0o7777))
}

func (s *Stage) mounts() []boundary.Mount {
	var out []boundary.Mount
	for _, m := range s.l.Mounts {
		if m.Kind != boundary.Bind {
			out = append(out, m)
			continue
		}
		for _, p := range s.parts {
			below, ok := strings.CutPrefix(m.Source+"/", p.l.Dir+"/")
			if !ok || m.Target != path.Join(p.l.inside, below) {
				continue
			}
			if below == "" {
				m = boundary.Mount{Kind: boundary.Overlay, Source: p.l.Dir, Target: m.Target, Stage: p.stage}
			} else {
				m = boundary.Mount{Kind: boundary.Pin, Target: m.Target, Writable: m.Writable}
			}
			break
		}
		out = append(out, m)
	}
	return out
}

// openIndexes keeps what git would replace: a name may lead to another file later.
func (p *stagePart) openIndexes() {
	p.indexes = map[string]*os.File{}
	for _, git := range sortedKeys(p.l.before.gitDirs) {
		rel := join(git, "index")
		if fd, err := openBelow(p.l.root, rel, unix.O_RDONLY); err == nil {
			p.indexes[rel] = os.NewFile(uintptr(fd), rel)
		}
	}
}

// onlyRefreshed reports whether an index that was written outside meanwhile still
// says the same: the times in it are git's own memory of the files.
func (p *stagePart) onlyRefreshed(rel string) bool {
	then := p.indexes[rel]
	if then == nil {
		return false
	}
	before, ok := indexContent(then)
	if !ok {
		return false
	}
	fd, err := openBelow(p.l.root, rel, unix.O_RDONLY)
	if err != nil {
		return false
	}
	now := os.NewFile(uintptr(fd), rel)
	defer now.Close()
	after, ok := indexContent(now)
	return ok && before == after
}

// Discard forgets what was written.
func (s *Stage) Discard() error {
	s.close()
	return s.scratch.Remove()
}

func (s *Stage) close() {
	for _, p := range s.parts {
		for _, f := range p.indexes {
			f.Close()
		}
		if p.upper.root != nil {
			p.upper.root.Close()
		}
	}
}

// Commit looks at what was written and brings it into the workspace, all of it or
// nothing: but for what some program of the host would run or obey by itself,
// what lies under a masked name, and what somebody else changed meanwhile. That is
// held back in the trash, beside what was displaced. A *KeptError says that
// nothing was committed, and where the work is.
func (s *Stage) Commit() (Committed, error) {
	out, err := s.commit()
	if err != nil {
		s.scratch.lock.Close()
		return out, &KeptError{Dir: keepStage(s.scratch.Dir), Unsettled: unsettled(s.scratch.Dir), Err: err}
	}
	// What can't be removed now, the next start removes.
	_, _ = PurgeTrash(s.o.StateDir, TrashAge)
	_ = s.plan.end(s.scratch)
	return out, nil
}

func (s *Stage) commit() (Committed, error) {
	out := Committed{Review: Review{Findings: []Finding{}}}
	defer s.close()
	for i, p := range s.parts {
		if err := p.read(s.since); err != nil {
			return out, fmt.Errorf("read what was written: %w", err)
		}
		found, err := p.review()
		if err != nil {
			return out, fmt.Errorf("review what was written: %w", err)
		}
		if err := s.planPart(i, p, found); err != nil {
			return out, err
		}
		for _, f := range found {
			if i > 0 {
				f.Path = path.Join(p.l.Dir, f.Path)
			}
			out.Findings = append(out.Findings, f)
		}
	}
	out.Changes = s.plan.changesOf()
	if len(s.plan.items) == 0 {
		return out, nil
	}
	out.Trash = s.plan.entry.ID
	return out, s.plan.commit(s.scratch.Dir)
}

// read finds out what differs.
func (p *stagePart) read(since fileTime) (err error) {
	p.upper.since = since
	if p.upper.root, err = openRoot(filepath.Join(p.stage, "upper")); err != nil {
		return err
	}
	if err := p.upper.survey(); err != nil {
		return err
	}
	return p.upper.compare()
}

// review is the exit review of a stage: it looks at what was written only, and at
// what lies under it where that matters.
func (p *stagePart) review() ([]Finding, error) {
	l := p.l
	after := l.newAfter(p.upper.root)
	after.masks = l.masks
	after.over = &under{lower: l.root, opaque: p.upper.opaque}
	if err := after.run(2 * l.maxEntries); err != nil {
		return nil, err
	}
	after.pointed = l.before.pointed
	after.stampPointed()
	found, _ := l.compare(after)
	trees := l.workTrees()
	if l.shared != nil {
		trees = trees[:len(trees)-1] // its index is the other part's
	}
	for i := range trees {
		if after.over.exists(p.upper.root, trees[i].index) && !inUpper(p.upper.root, trees[i].index) {
			continue // as it was
		}
		trees[i].root = p.upper.root
	}
	return append(found.Findings, l.compareStaged(trees)...), nil
}

func inUpper(root *os.File, rel string) bool {
	fd, err := openBelow(root, rel, unix.O_PATH)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// planPart turns what differs into a plan. What is held back is taken out of the
// stage first.
func (s *Stage) planPart(i int, p *stagePart, found []Finding) error {
	h := &holding{s: s, part: i, p: p}
	for n := range found {
		if s.holds(p, &found[n]) {
			h.paths = append(h.paths, heldPath{rel: found[n].Path, why: string(found[n].Kind), finding: &found[n]})
		}
	}
	for _, c := range p.upper.changes {
		if done, err := h.change(c); done || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if c.removed {
			s.plan.remove(i, c.rel, &c.old)
			continue
		}
		old := &c.old
		if c.fresh {
			old = nil
		}
		if err := s.plan.put(i, c.rel, c.rel, old); err != nil {
			return fmt.Errorf("plan %.200q: %w", c.rel, err)
		}
	}
	if err := h.rest(); err != nil {
		return err
	}
	for _, rel := range sortedKeys(p.upper.modes) {
		if h.brings(rel) {
			s.plan.freshMode(i, rel, p.upper.modes[rel])
		}
	}
	for _, d := range p.upper.modeChanges {
		if !h.within(string(d.Path)) {
			s.plan.setMode(i, string(d.Path), d.Old, d.New)
		}
	}
	return nil
}

// holds reports whether a finding keeps its file out of the workspace.
func (s *Stage) holds(p *stagePart, f *Finding) bool {
	switch f.Kind {
	case KindGitState, KindMasked, KindUnseen:
		return false
	}
	var st unix.Stat_t
	fd, err := openBelow(p.upper.root, f.Path, unix.O_PATH)
	if err != nil {
		return false // nothing of it was written
	}
	err = unix.Fstat(fd, &st)
	unix.Close(fd)
	if err != nil || isWhiteout(&st) {
		return false
	}
	if f.Kind == KindSpecial || f.Kind == KindSetID || f.Kind == KindMaskedName {
		return true
	}
	return !slices.ContainsFunc(s.release, func(g glob) bool {
		for at := f.Path; at != ""; at = dirOf(at) {
			if g.match(at) {
				return true
			}
		}
		return false
	})
}

type heldPath struct {
	rel, why string
	finding  *Finding
}

// holding takes what is not committed out of a stage.
type holding struct {
	s     *Stage
	part  int
	p     *stagePart
	paths []heldPath
	// brought are the directories that come whole.
	brought []string
}

func (h *holding) within(rel string) bool {
	return slices.ContainsFunc(h.paths, func(x heldPath) bool { return within(rel, x.rel) })
}

func (h *holding) brings(rel string) bool {
	return slices.ContainsFunc(h.brought, func(dir string) bool { return within(rel, dir) }) && !h.within(rel)
}

// change takes a change out whole, or parts of it. Done says that nothing of it is
// left.
func (h *holding) change(c difference) (done bool, err error) {
	if why := h.mark(func(x string) bool { return within(c.rel, x) }); why != "" {
		return true, h.take(c, c.rel, why)
	}
	masked := func(t target) bool { return within(t.rel, c.rel) }
	switch {
	case !c.fresh && slices.ContainsFunc(h.p.l.before.masked, masked):
		return true, h.take(c, c.rel, "it is, or holds, what is masked")
	case c.conflict && !h.p.onlyRefreshed(c.rel):
		return true, h.take(c, c.rel, "it was changed outside meanwhile")
	case c.removed || !isDir(&c.new):
		return false, nil
	}
	h.brought = append(h.brought, c.rel)
	for _, x := range h.paths {
		if !within(x.rel, c.rel) || x.finding.Trash != "" {
			continue
		}
		h.mark(func(rel string) bool { return within(rel, x.rel) })
		if err := h.take(difference{rel: x.rel}, x.rel, x.why); err != nil {
			return false, err
		}
	}
	return false, dropWhiteouts(h.p.upper.root, c.rel)
}

// rest takes out what is no change that could be committed: sockets, FIFOs and
// devices. It only names them, as they have no content.
func (h *holding) rest() error {
	for _, x := range h.paths {
		if x.finding.Trash != "" || x.finding.Kind != KindSpecial {
			continue
		}
		h.mark(func(rel string) bool { return rel == x.rel })
		if err := h.take(difference{rel: x.rel}, x.rel, x.why); err != nil {
			return err
		}
	}
	return nil
}

// mark notes all findings of some paths as held, and returns why.
func (h *holding) mark(which func(rel string) bool) (why string) {
	for _, x := range h.paths {
		if !which(x.rel) {
			continue
		}
		x.finding.Trash = h.s.plan.entry.ID
		if why == "" {
			why = x.why
		}
	}
	return why
}

// take moves one path from the stage to what is held.
func (h *holding) take(c difference, rel, why string) error {
	item := TrashItem{Root: h.part, Path: []byte(rel), Kind: ChangeHeld, Why: why}
	if !c.removed {
		slot, st, err := h.s.hold(h.p.upper.root, rel)
		if err != nil {
			return fmt.Errorf("hold back %.200q: %w", rel, err)
		}
		item.Slot, item.Dir = slot, isDir(&st)
		if item.Dir {
			item.Mode = h.p.upper.modeOf(rel, &st)
		} else {
			item.Bytes = st.Size
		}
	} else {
		item.Why += "; the deletion was held back"
	}
	h.s.plan.items = append(h.s.plan.items, item)
	return nil
}

// hold moves something to the directory of what is held. What has no content is
// removed, and has no number.
func (s *Stage) hold(root *os.File, rel string) (slot int, st unix.Stat_t, err error) {
	dir := filepath.Join(s.scratch.Dir, heldName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, st, err
	}
	to, err := openRoot(dir)
	if err != nil {
		return 0, st, err
	}
	defer to.Close()
	from, name, err := parentOf(root, []byte(rel))
	if err != nil {
		return 0, st, err
	}
	defer unix.Close(from)
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, st, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
		slot = s.plan.slot()
		return slot, st, move(from, name, int(to.Fd()), strconv.Itoa(slot))
	}
	return 0, st, unix.Unlinkat(from, name, 0)
}

// dropWhiteouts removes the marks of deletions from a directory that comes whole:
// there is nothing below it any more that they would hide.
func dropWhiteouts(root *os.File, rel string) error {
	fd, err := openBelow(root, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	top := os.NewFile(uintptr(fd), rel)
	defer top.Close()
	w := &walk{root: top, maxEntries: maxStaged, closed: func(_ string, err error) error { return err },
		visit: func(d *directory) (map[string]bool, error) {
			for _, e := range d.entries {
				if e.kind == unix.DT_CHR && whiteout(d.fd, e.name) {
					if err := unix.Unlinkat(d.fd, e.name, 0); err != nil {
						return nil, err
					}
				}
			}
			return nil, nil
		}}
	return w.run()
}

// maxStaged is no limit: what a run may write is limited elsewhere.
const maxStaged = 1 << 62

// mountBelow finds another file system that is mounted in a directory.
func mountBelow(dir string) (string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		at := unescapeMount(f[4])
		if at != dir && within(at, dir) {
			return at, nil
		}
	}
	return "", nil
}

// unescapeMount undoes the escapes of /proc/PID/mountinfo: \ and three octal
// digits (proc_pid_mountinfo(5)).
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
