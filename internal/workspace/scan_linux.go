package workspace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// scan is one look at a whole tree: what must be protected, covered, refused or
// compared. Both ends of a run use the same one.
type scan struct {
	root  *os.File
	dir   string // the root's path on the host
	masks masks
	// covered, at the end of a run, are the places that were covered during it.
	// The patterns don't count then: what appeared under such a name meanwhile
	// was made by the run, and is looked at like anything else. By directory and
	// name.
	covered map[string]map[string]bool
	// since, where set, is the start of the run: set-id files changed after it
	// are collected. At the start itself nothing needs a look at every file.
	since time.Time
	// over, where set, is what lies under the root, which is an overlay's upper
	// directory then: it holds only what was changed.
	over *under

	mu       sync.Mutex
	noted    int                // bytes of all these paths
	gitDirs  map[string]bool    // repositories' directories, below the root
	outer    map[string]string  // of one that lies in another's: that one
	gitFiles []string           // .git files: links of worktrees and submodules
	protect  []string           // control files and directories that exist
	linked   []string           // control files that are links
	pointed  []string           // what configurations name, in the tree
	controls map[string]control // what is compared
	masked   []target           // what is covered
	shared   []string           // masked files with another name
	linkOut  map[string]string  // links out of the tree and where to
	channels []string           // sockets and FIFOs, at the start
	made     map[string]string  // sockets, FIFOs and devices of the run, and what they are
	setID    []string
	named    []string // what the run made under a masked name
	unseen   map[string]error
}

// target is a place to be masked.
type target struct {
	rel string
	dir bool
}

// control is a file that something runs or obeys by itself.
type control struct {
	rule *rule
	// git is the repository's directory that it belongs to, with inGit set.
	git   string
	inGit bool
	stamp stamp
}

func newScan(root *os.File, dir string, m masks) *scan {
	return &scan{root: root, dir: dir, masks: m, gitDirs: map[string]bool{}, outer: map[string]string{}, made: map[string]string{}, controls: map[string]control{}, linkOut: map[string]string{}, unseen: map[string]error{}}
}

func (s *scan) run(maxEntries int) error {
	w := &walk{root: s.root, maxEntries: maxEntries, visit: s.visit, closed: func(rel string, err error) error {
		if err == unix.ENOENT {
			return nil // gone between the listing and now
		}
		s.add(rel, func() { s.unseen[rel] = err })
		return nil
	}}
	if err := w.run(); err != nil {
		return err
	}
	slices.Sort(s.gitFiles)
	slices.Sort(s.protect)
	slices.Sort(s.linked)
	slices.Sort(s.shared)
	slices.Sort(s.channels)
	slices.Sort(s.setID)
	slices.Sort(s.named)
	slices.SortFunc(s.masked, func(a, b target) int { return strings.Compare(a.rel, b.rel) })
	s.masked = slices.CompactFunc(s.masked, func(a, b target) bool { return a.rel == b.rel })
	return nil
}

// place is where in a repository a directory lies.
type place struct {
	git      string // the repository's directory around it
	inside   bool
	isGitDir bool
	part     string // one of gitParts
}

// placeOf finds the place of a directory, from that of the one above it.
func (s *scan) placeOf(d *directory) place {
	var above place
	if d.up != nil {
		above = d.up.place
	}
	if strings.EqualFold(path.Base(d.rel), ".git") || s.looksBare(d) {
		s.add(d.rel, func() {
			s.gitDirs[d.rel] = true
			if above.inside {
				s.outer[d.rel] = above.git
			}
		})
		return place{git: d.rel, inside: true, isGitDir: true}
	}
	p := place{git: above.git, inside: above.inside}
	if !p.inside {
		return p
	}
	if rest := strings.TrimPrefix(d.rel[len(p.git):], "/"); len(rest) <= len("objects/info") && gitParts[strings.ToLower(rest)] {
		p.part = strings.ToLower(rest)
	}
	return p
}

// looksBare is git's own test for a repository's directory: HEAD, and either the
// objects and refs or a file that says where they are.
func (s *scan) looksBare(d *directory) bool {
	has := func(name string) bool { return d.has(name, unix.DT_UNKNOWN) }
	if s.over != nil {
		has = func(name string) bool { return s.over.has(s.root, d, name) }
	}
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// gitRule is the line for control files of repositories.
var gitRule = &rule{kind: KindGitControl, by: "git, at any of its commands"}

// gitFileRule is the line for .git files and links, which make a directory part
// of a repository elsewhere.
var gitFileRule = &rule{kind: KindRepository, by: "git, in that directory, with the configuration and hooks of the repository it names"}

// controlNames are the entries of a repository's directory that say what git
// runs or where it looks; hooks and info are directories.
var controlNames = map[string]bool{"config": true, "config.worktree": true, "commondir": true, "gitdir": true, "hooks": true, "info": true}

// gitParts are the directories of a repository's own whose entries are looked
// at one by one.
var gitParts = map[string]bool{"hooks": true, "info": true, "objects/info": true, "remotes": true, "branches": true, "rebase-merge": true, "rebase-apply": true, "sequencer": true}

// stateRule is the line for what git carries on with. It stays where it is: a
// person may have stopped there to go on outside.
var stateRule = &rule{kind: KindGitState, by: "git, when the operation is continued, with the commands, strategies and options in it", stays: true}

// stateNames are the entries of the directories (in lower case) that hold
// commands (exec lines), programs by name (merge strategies) or what older
// versions of git gave to a shell. The patches and messages beside them are text.
var stateNames = map[string]bool{
	"git-rebase-todo": true, "todo": true, "opts": true, "strategy": true, "strategy_opts": true, "author-script": true, "gpg_sign_opt": true, "apply-opt": true, "git_apply_opt": true,
}

// stateFiles are such files in the repository's directory itself.
var stateFiles = map[string]bool{"bisect_start": true, "bisect_names": true, "bisect_log": true, "bisect_run": true, "bisect_terms": true}

func (s *scan) visit(d *directory) (skip map[string]bool, err error) {
	p := s.placeOf(d)
	d.place = p
	if d.up != nil {
		d.scope = d.up.scope.below(path.Base(d.rel))
	}
	venv := !p.inside && venvDirs[strings.ToLower(path.Base(d.rel))] && s.besideVenv(d)
	covered := s.covered[d.rel]
	for _, e := range d.entries {
		if s.over != nil && e.kind == unix.DT_CHR && whiteout(d.fd, e.name) {
			continue // a deletion
		}
		if s.mask(d, p, e, covered) {
			if skip == nil {
				skip = map[string]bool{}
			}
			skip[e.name] = true
			continue
		}
		switch e.kind {
		case unix.DT_SOCK, unix.DT_FIFO, unix.DT_CHR, unix.DT_BLK:
			if s.special(d, e) {
				continue
			}
		case unix.DT_LNK:
			s.checkLink(d, e.name)
		case unix.DT_REG:
			s.checkSetID(d, e.name)
		}
		if r, protected := s.rule(d, p, d.scope, e, venv); r != nil {
			s.control(d, e, r, p, protected)
		} else if protected {
			rel := join(d.rel, e.name)
			s.add(rel, func() { s.protect = append(s.protect, rel) })
		}
	}
	if s.full() {
		return nil, errTooMuch
	}
	return skip, nil
}

// maxNoted caps the paths that one look keeps, in bytes.
const maxNoted = 256 << 20

var errTooMuch = errors.New("walk workspace: there is too much in it that would have to be named")

// add notes something of a path.
func (s *scan) add(rel string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted += len(rel)
	f()
}

func (s *scan) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noted > maxNoted
}

// rule finds the catalogue's line for an entry, and whether it is to be
// read-only where it exists.
func (s *scan) rule(d *directory, p place, sc scope, e entry, venv bool) (r *rule, protected bool) {
	isDir := e.kind == unix.DT_DIR
	switch {
	case p.isGitDir:
		lower := strings.ToLower(e.name)
		if stateFiles[lower] || e.kind == unix.DT_LNK && gitParts[lower] && !controlNames[lower] {
			return stateRule, false
		}
		if !controlNames[lower] {
			return nil, false
		}
		if isDir { // its entries are looked at one by one
			return nil, true
		}
		return gitRule, true
	case p.part == "rebase-merge" || p.part == "rebase-apply" || p.part == "sequencer":
		if isDir || !stateNames[strings.ToLower(e.name)] {
			return nil, false
		}
		return stateRule, false
	case p.part == "remotes" || p.part == "branches":
		if isDir {
			return nil, false
		}
		return gitRule, false
	case p.part == "hooks":
		if isDir || strings.HasSuffix(e.name, ".sample") && e.kind == unix.DT_REG {
			return nil, false
		}
		return gitRule, false
	case p.part == "info":
		if isDir || strings.EqualFold(e.name, "refs") { // written by git itself when it repacks
			return nil, false
		}
		return gitRule, false
	case p.part == "objects/info":
		if !strings.EqualFold(e.name, "alternates") && !strings.EqualFold(e.name, "http-alternates") {
			return nil, false
		}
		return gitRule, true
	case p.inside:
		return nil, false
	case isDir:
		return nil, false
	case strings.EqualFold(e.name, ".git"):
		rel := join(d.rel, e.name)
		s.add(rel, func() { s.gitFiles = append(s.gitFiles, rel) })
		return gitFileRule, true
	case venv && (strings.HasPrefix(e.name, "python") || strings.HasPrefix(strings.ToLower(e.name), "activate")):
		return venvRule, false
	}
	return sc.find(e.name, e.kind == unix.DT_LNK), false
}

// besideVenv reports whether the directory above holds a virtual environment.
func (s *scan) besideVenv(d *directory) bool {
	if s.over != nil {
		return s.over.exists(s.root, join(dirOf(d.rel), "pyvenv.cfg"))
	}
	var st unix.Stat_t
	return unix.Fstatat(d.fd, "../pyvenv.cfg", &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

func (s *scan) control(d *directory, e entry, r *rule, p place, protected bool) {
	st, err := takeStamp(d.fd, e.name, r.kind == KindScripts)
	if err == unix.ENOENT {
		return // gone meanwhile
	}
	if err != nil {
		// A directory that can be listed but not passed.
		s.add(d.rel, func() { s.unseen[d.rel] = err })
		return
	}
	rel := join(d.rel, e.name)
	s.add(rel, func() {
		s.controls[rel] = control{rule: r, git: p.git, inGit: p.inside, stamp: st}
		switch {
		case protected && e.kind == unix.DT_LNK:
			s.linked = append(s.linked, rel)
		case protected:
			s.protect = append(s.protect, rel)
		}
	})
}

// special notes a socket, FIFO or device. At the end of a run it reports whether
// the run made it: at the start there was no socket or FIFO, or there would have
// been no run, and a device tells by its time (a run can make none but the
// whiteout that renameat2(2) leaves).
func (s *scan) special(d *directory, e entry) bool {
	device := e.kind == unix.DT_CHR || e.kind == unix.DT_BLK
	rel := join(d.rel, e.name)
	if s.since.IsZero() {
		if !device {
			s.add(rel, func() { s.channels = append(s.channels, rel) })
		}
		return false
	}
	what := map[uint8]string{unix.DT_SOCK: "socket", unix.DT_FIFO: "FIFO", unix.DT_CHR: "character device", unix.DT_BLK: "block device"}[e.kind]
	if device {
		var st unix.Stat_t
		if unix.Fstatat(d.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && time.Unix(st.Ctim.Unix()).Before(s.since) {
			return false
		}
		what = fmt.Sprintf("%s %d:%d", what, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
	}
	s.add(rel, func() { s.made[rel] = what })
	return true
}

// mask notes that an entry is to be covered, and reports whether it is. Within a
// repository's own directory nothing is covered: git would break.
func (s *scan) mask(d *directory, p place, e entry, covered map[string]bool) bool {
	if s.covered != nil {
		if s.over != nil && !p.inside && !covered[e.name] {
			s.name(d, e)
		}
		return covered[e.name]
	}
	if p.inside || !defaultMasked(e.name) && !s.masks.any() {
		return false
	}
	rel := join(d.rel, e.name)
	if !s.masks.match(rel, e.name) {
		return false
	}
	switch e.kind {
	case unix.DT_DIR:
		// A virtual environment that is called .env is no secret.
		var st unix.Stat_t
		if !s.masks.matchGiven(rel) && unix.Fstatat(d.fd, e.name+"/pyvenv.cfg", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return false
		}
		s.add(rel, func() { s.masked = append(s.masked, target{rel, true}) })
	case unix.DT_REG:
		var st unix.Stat_t
		if unix.Fstatat(d.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return true
		}
		s.add(rel, func() {
			s.masked = append(s.masked, target{rel, false})
			if st.Nlink > 1 {
				s.shared = append(s.shared, rel)
			}
		})
	case unix.DT_LNK:
		s.maskLink(d, e.name, rel)
		return false
	default:
		return false
	}
	return true
}

// name notes what a staged run made under a masked name.
func (s *scan) name(d *directory, e entry) {
	rel := join(d.rel, e.name)
	if !s.masks.match(rel, e.name) {
		return
	}
	if e.kind == unix.DT_DIR && !s.masks.matchGiven(rel) && s.over.exists(s.root, rel+"/pyvenv.cfg") {
		return
	}
	s.add(rel, func() { s.named = append(s.named, rel) })
}

// maskLink covers what a matching link leads to, if that is in the tree: what
// lies outside is not in the view anyway.
func (s *scan) maskLink(d *directory, name, rel string) {
	inside, ok := s.resolve(rel)
	if !ok {
		return
	}
	fd, err := openBelow(s.root, inside, unix.O_PATH)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFDIR || inside == "" {
		return
	}
	s.add(inside, func() {
		s.masked = append(s.masked, target{inside, kind == unix.S_IFDIR})
		if kind == unix.S_IFREG && st.Nlink > 1 {
			s.shared = append(s.shared, inside)
		}
	})
}

// checkSetID notes a set-id file that was changed during the run.
func (s *scan) checkSetID(d *directory, name string) {
	if s.since.IsZero() {
		return
	}
	var st unix.Stat_t
	if unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return
	}
	if time.Unix(st.Ctim.Unix()).Before(s.since) {
		return
	}
	rel := join(d.rel, name)
	s.add(rel, func() { s.setID = append(s.setID, rel) })
}
