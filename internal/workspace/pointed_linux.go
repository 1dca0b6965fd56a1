package workspace

import (
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPointed caps what configurations point at, maxIncludes how deep.
const (
	maxPointed  = 1000
	maxIncludes = 10
)

var pointedRule = &rule{kind: KindHooks, by: "git, as the configuration or hooks of the repository name it"}

// followPointers protects what the repositories' configurations and hooks name
// in the tree itself: a hook that is a link to a script, core.hooksPath,
// include.path, a filter. They are as good as control files. It runs at the
// start only: all that it reads can't be written after that.
func (s *scan) followPointers() {
	for _, git := range sortedKeys(s.gitDirs) {
		tree := git
		if strings.EqualFold(path.Base(git), ".git") {
			if tree = path.Dir(git); tree == "." {
				tree = ""
			}
		}
		for _, name := range []string{"config", "config.worktree"} {
			s.followConfig(join(git, name), tree, 0)
		}
	}
	for _, rel := range sortedKeys(s.controls) {
		c := s.controls[rel]
		if c.inGit && c.stamp.kind == unix.S_IFLNK {
			s.point(rel)
		}
	}
	slices.Sort(s.pointed)
	s.pointed = slices.Compact(s.pointed)
	s.stampPointed()
	for _, rel := range s.pointed {
		if !slices.Contains(s.protect, rel) {
			s.protect = append(s.protect, rel)
		}
	}
	slices.Sort(s.protect)
}

func (s *scan) followConfig(file, tree string, depth int) {
	data, ok := s.read(file)
	if !ok || depth > maxIncludes {
		return
	}
	for _, p := range pointers(parseGitConfig(data)) {
		at := p.path
		switch {
		case at == "" || strings.HasPrefix(at, "~"):
			continue
		case path.IsAbs(at):
			below, ok := strings.CutPrefix(path.Clean(at), s.dir+"/")
			if !ok {
				continue
			}
			at = below
		case p.fromFile:
			at = path.Dir(file) + "/" + at
		default:
			at = tree + "/" + at
		}
		if real := s.point(at); real != "" && p.include {
			s.followConfig(real, tree, depth+1)
		}
	}
}

// point notes a path, with its links followed, if it is a file or directory in
// the tree, and returns it. The tree itself and what holds a repository are
// none: read-only they would be useless.
func (s *scan) point(at string) string {
	real, ok := s.resolve(strings.TrimPrefix(at, "/"))
	if !ok || real == "" || len(s.pointed) >= maxPointed {
		return ""
	}
	for git := range s.gitDirs {
		if within(git, real) {
			return ""
		}
	}
	fd, err := openBelow(s.root, real, unix.O_PATH)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return ""
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		s.pointed = append(s.pointed, real)
		return real
	}
	return ""
}

// stampPointed takes the state of what is pointed at: the files, and those in
// the directories.
func (s *scan) stampPointed() {
	for _, rel := range s.pointed {
		dir, name := path.Split(rel)
		dirfd, err := openBelow(s.root, strings.TrimSuffix(dir, "/"), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		s.stampOne(dirfd, name, rel)
		unix.Close(dirfd)
		fd, err := openBelow(s.root, rel, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		entries, err := readEntries(fd, make([]byte, 32<<10), maxPointed)
		for _, e := range entries {
			if err == nil && e.kind != unix.DT_DIR {
				s.stampOne(fd, e.name, join(rel, e.name))
			}
		}
		unix.Close(fd)
	}
}

func (s *scan) stampOne(dirfd int, name, rel string) {
	st, err := takeStamp(dirfd, name, false)
	if err != nil || st.kind == unix.S_IFDIR {
		return
	}
	if _, known := s.controls[rel]; !known {
		s.controls[rel] = control{rule: pointedRule, stamp: st}
	}
}

// read reads a small regular file below the root.
func (s *scan) read(rel string) ([]byte, bool) {
	dir, name := path.Split(rel)
	dirfd, err := openBelow(s.root, strings.TrimSuffix(dir, "/"), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, false
	}
	d := os.NewFile(uintptr(dirfd), dir)
	defer d.Close()
	return readSmall(dirfd, name)
}
