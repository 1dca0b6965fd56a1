package workspace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A linked worktree (git-worktree(1)) keeps its index, and everything that it
// shares with the main one, in a repository elsewhere. Without that git does not
// work in the run. It is shown at its own path, protected like one in the
// workspace; of the other worktrees' state nothing may be changed.
//
// Where the repository is, a file of the workspace says, which a hostile run
// could have written. So it is believed only if the repository says the same:
// what lies outside of the workspace no run could write.

// errNoBacklink is a .git file that names what does not name it back.
var errNoBacklink = errors.New("the repository it names does not name this worktree")

// openShared opens the repository of a linked worktree. Nil where the workspace
// is none.
func (l *LiveWorkspace) openShared(o Options) (*LiveWorkspace, error) {
	text, ok := readLine(path.Join(l.Dir, ".git"), "gitdir: ")
	if !ok {
		return nil, nil
	}
	admin, err := filepath.EvalSymlinks(absFrom(l.Dir, text))
	if err != nil {
		return nil, err
	}
	common := path.Dir(path.Dir(admin))
	back, backOK := readLine(path.Join(admin, "gitdir"), "")
	shared, sharedOK := readLine(path.Join(admin, "commondir"), "")
	if !backOK || !sharedOK || path.Base(path.Dir(admin)) != "worktrees" || path.Join(resolved(path.Dir(absFrom(admin, back))), path.Base(back)) != path.Join(l.Dir, ".git") || resolved(absFrom(admin, shared)) != common {
		return nil, errNoBacklink
	}
	if within(common, l.Dir) || within(l.Dir, common) {
		return nil, errors.New("its repository lies in it, or around it")
	}
	if err := checkDir(common, o); err != nil {
		return nil, err
	}
	root, err := openRoot(common)
	if err != nil {
		return nil, err
	}
	c := &LiveWorkspace{Dir: common, inside: common, own: path.Join("worktrees", path.Base(admin)), root: root, maxEntries: l.maxEntries}
	err = sameOwner(root, l.root)
	if err == nil {
		err = c.lock(o)
	}
	if err = errors.Join(err, c.load(o)); err != nil {
		c.Close()
		return nil, err
	}
	if !c.before.gitDirs[""] || !c.before.gitDirs[c.own] {
		c.Close()
		return nil, errNoBacklink
	}
	return c, nil
}

// sameOwner: a repository of somebody else is not this person's to lend.
func sameOwner(a, b *os.File) error {
	var x, y unix.Stat_t
	if err := errors.Join(unix.Fstat(int(a.Fd()), &x), unix.Fstat(int(b.Fd()), &y)); err != nil {
		return err
	}
	if x.Uid != y.Uid {
		return fmt.Errorf("%q belongs to another user", a.Name())
	}
	return nil
}

// followShared protects what the shared repository's configuration names in this
// worktree, such as core.hooksPath.
func (s *scan) followShared(c *LiveWorkspace) {
	for _, name := range []string{"config", path.Join(c.own, "config.worktree")} {
		data, ok := c.before.read(name)
		if !ok {
			continue
		}
		for _, p := range pointers(parseGitConfig(data)) {
			at := p.path
			if path.IsAbs(at) {
				below, ok := strings.CutPrefix(path.Clean(at), s.dir+"/")
				if !ok {
					continue
				}
				at = below
			}
			if at != "" && !p.fromFile && !strings.HasPrefix(at, "~") {
				s.point(at)
			}
		}
	}
}

// absFrom makes a path absolute that a file of dir holds.
func absFrom(dir, p string) string {
	if !path.IsAbs(p) {
		p = dir + "/" + p
	}
	return path.Clean(p)
}

// readLine reads a small file of one line with a prefix.
func readLine(name, prefix string) (string, bool) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", false
	}
	buf := make([]byte, unix.PathMax+16)
	n, _ := f.Read(buf)
	line, ok := strings.CutPrefix(strings.TrimRight(string(buf[:n]), "\r\n"), prefix)
	return line, ok && line != "" && n < len(buf) && !strings.ContainsAny(line, "\x00\n")
}

// openRoot opens a directory without following any link: a name that turned into
// one since is an error, not another directory.
func openRoot(dir string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, fmt.Errorf("use %q as workspace: %w", dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}
