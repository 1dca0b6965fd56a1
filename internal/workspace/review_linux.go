package workspace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Review compares the tree with what it was at Live. It must be called when
// every process of the run is gone. Control files of repositories that did not
// exist at the start, and so could not be read-only, are moved to HeldDir. With
// an error the findings are not complete, or something could not be moved: the
// directory is not to be trusted.
func (l *LiveWorkspace) Review(o ReviewOptions) (r Review, err error) {
	defer func() { l.reviewFailed = err != nil }()
	if !filepath.IsAbs(o.HeldDir) || within(filepath.Clean(o.HeldDir), l.Dir) {
		return Review{}, fmt.Errorf("review workspace: %q can't hold files back: want an absolute path outside of the workspace", o.HeldDir)
	}
	after := l.newAfter(l.root)
	// The run may have made files so that this gives up: that is an error.
	if err := after.run(2 * l.maxEntries); err != nil {
		return Review{}, fmt.Errorf("review workspace: %w", err)
	}
	after.pointed = l.before.pointed
	after.stampPointed()
	review, hold := l.compare(after)
	review.Findings = append(review.Findings, l.compareStaged(l.workTrees())...)
	err = l.holdBack(o.HeldDir, review.Findings, hold)
	if l.shared != nil {
		// In a directory of its own: the names of what is held are numbers.
		elsewhere, sharedErr := l.shared.Review(ReviewOptions{HeldDir: filepath.Join(o.HeldDir, "repository")})
		for _, f := range elsewhere.Findings {
			f.Path = path.Join(l.shared.Dir, f.Path)
			review.Findings = append(review.Findings, f)
		}
		err = errors.Join(err, sharedErr)
	}
	return review, err
}

// newAfter is the look at what a run left.
func (l *LiveWorkspace) newAfter(root *os.File) *scan {
	after := newScan(root, l.Dir, masks{})
	after.since = l.start
	after.covered = map[string]map[string]bool{}
	for _, t := range l.before.masked {
		dir, name := splitRel(t.rel)
		if after.covered[dir] == nil {
			after.covered[dir] = map[string]bool{}
		}
		after.covered[dir][name] = true
	}
	return after
}

// compare returns the findings, and the numbers of those to be held back.
func (l *LiveWorkspace) compare(after *scan) (r Review, hold []int) {
	before := l.before
	add := func(f Finding) { r.Findings = append(r.Findings, f) }
	// In their order one comes after the one that it lies in.
	fresh := map[string]bool{}
	for _, git := range sortedKeys(after.gitDirs) {
		outer, inOuter := after.outer[git]
		partOfNew := inOuter && fresh[outer]
		fresh[git] = partOfNew || !before.gitDirs[git]
		if before.gitDirs[git] || partOfNew {
			continue
		}
		add(Finding{Kind: KindRepository, Path: git, Change: "new", By: "git, in that directory, with this configuration and these hooks"})
	}
	for _, rel := range sortedKeys(after.controls) {
		c := after.controls[rel]
		if c.inGit && !before.gitDirs[c.git] {
			continue // all of it is new
		}
		old, existed := before.controls[rel]
		if existed && old.stamp.same(c.stamp) || !existed && c.harmless() {
			continue
		}
		f := Finding{Kind: c.rule.kind, Path: rel, Change: "new", By: c.rule.by, Detail: c.stamp.link}
		if existed {
			f.Change = "changed"
		}
		if c.rule.kind == KindGitState {
			f.Detail = after.runsLater(rel)
		}
		if c.inGit && !existed && !c.rule.stays {
			hold = append(hold, len(r.Findings))
		}
		add(f)
	}
	for _, rel := range sortedKeys(after.made) {
		hold = append(hold, len(r.Findings))
		add(Finding{Kind: KindSpecial, Path: rel, Change: "new", Detail: after.made[rel]})
	}
	for _, rel := range sortedKeys(after.linkOut) {
		// A link that is a control file was named above, with where it leads.
		if _, named := after.controls[rel]; named {
			continue
		}
		if link := after.linkOut[rel]; before.linkOut[rel] != link {
			add(Finding{Kind: KindLinkOut, Path: rel, Change: change(before.linkOut, rel), Detail: link})
		}
	}
	for _, rel := range after.setID {
		add(Finding{Kind: KindSetID, Path: rel, Change: "new", By: "anybody who starts it, with its owner's rights"})
	}
	for _, rel := range after.named {
		add(Finding{Kind: KindMaskedName, Path: rel, Change: "new"})
	}
	for _, rel := range sortedKeys(after.unseen) {
		if _, known := before.unseen[rel]; !known {
			add(Finding{Kind: KindUnseen, Path: rel, Change: "new", Detail: after.unseen[rel].Error()})
		}
	}
	return r, hold
}

func change(before map[string]string, rel string) string {
	if _, ok := before[rel]; ok {
		return "changed"
	}
	return "new"
}

// runsLater says which commands an unfinished rebase goes on with.
func (s *scan) runsLater(rel string) string {
	data, ok := s.read(rel)
	if !ok {
		return ""
	}
	var commands []string
	for line := range strings.Lines(string(data)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "exec" || word == "x" {
			commands = append(commands, strings.TrimSpace(rest))
		}
	}
	if len(commands) == 0 {
		return ""
	}
	return "runs " + strings.Join(commands[:min(len(commands), 10)], "; ")
}

var noScripts = sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256(scriptsOf([]byte("{}"))) })

// harmless is a new package.json that runs nothing.
func (c control) harmless() bool {
	return c.rule.kind == KindScripts && c.stamp.summarised && c.stamp.sum == noScripts()
}

// holdBack moves files of the tree away, each beneath the root and without
// following links, and notes where they are.
func (l *LiveWorkspace) holdBack(dir string, findings []Finding, hold []int) error {
	if len(hold) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("hold back files: %w", err)
	}
	held, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("hold back files: %w", err)
	}
	defer held.Close()
	var failed []error
	for n, i := range hold {
		f := &findings[i]
		// The number keeps apart files of one name, the rest is for a person.
		name := fmt.Sprintf("%04d-%s", n+1, plainName(path.Base(f.Path)))
		if err := l.moveOut(f.Path, held, name); err != nil {
			failed = append(failed, fmt.Errorf("hold back %.200q: %w", f.Path, err))
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			f.HeldAt = filepath.Join(dir, name)
		} else {
			f.Detail += ", removed" // nothing that could be kept
		}
	}
	return errors.Join(failed...)
}

// plainName is a name without anything that matters to a shell or terminal.
func plainName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), 64)]
}

// moveOut moves one file to held. What holds no content and can't be moved is
// removed.
func (l *LiveWorkspace) moveOut(rel string, held *os.File, name string) error {
	dir, from := path.Split(rel)
	dirfd, err := openBelow(l.root, strings.TrimSuffix(dir, "/"), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	err = moveFrom(dirfd, from, held, name)
	if err != unix.EACCES {
		return err
	}
	// The run may have taken away the right to change the directory.
	var st unix.Stat_t
	if unix.Fstat(dirfd, &st) != nil || unix.Fchmod(dirfd, st.Mode&0o7777|0o300) != nil {
		return err
	}
	return errors.Join(moveFrom(dirfd, from, held, name), unix.Fchmod(dirfd, st.Mode&0o7777))
}

func moveFrom(dirfd int, from string, held *os.File, name string) error {
	err := unix.Renameat2(dirfd, from, int(held.Fd()), name, unix.RENAME_NOREPLACE)
	if err == nil {
		return disarm(held, name)
	}
	var st unix.Stat_t
	if statErr := unix.Fstatat(dirfd, from, &st, unix.AT_SYMLINK_NOFOLLOW); statErr != nil {
		return errors.Join(err, statErr)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFLNK && kind != unix.S_IFDIR {
		return unix.Unlinkat(dirfd, from, 0)
	}
	if err != unix.EXDEV && err != unix.EINVAL {
		return err
	}
	if err := copyOut(dirfd, from, held, name); err != nil {
		return err
	}
	return unix.Unlinkat(dirfd, from, 0)
}

// disarm takes every right to execute from a file held back.
func disarm(held *os.File, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(held.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil // to open a device may do something
	}
	fd, err := unix.Openat(int(held.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // nothing that can be read: not executable
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, 0o600)
}

// maxHeldBytes is the largest file that is copied to another file system.
const maxHeldBytes = 64 << 20

// copyOut copies a file whole, of a link where it leads, of anything else
// nothing: a FIFO has no content.
func copyOut(dirfd int, name string, held *os.File, to string) error {
	out, err := unix.Openat(int(held.Fd()), to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	w := os.NewFile(uintptr(out), to)
	defer w.Close()
	if link, err := readLinkAt(dirfd, name); err == nil {
		_, err = w.WriteString("symbolic link to " + link + "\n")
		return err
	}
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.ENXIO {
		return nil // a socket
	}
	if err != nil {
		return err
	}
	r := os.NewFile(uintptr(fd), name)
	defer r.Close()
	if info, err := r.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(r, maxHeldBytes+1))
	if err == nil && n > maxHeldBytes {
		err = fmt.Errorf("larger than %d bytes", maxHeldBytes)
	}
	return errors.Join(err, w.Close())
}
