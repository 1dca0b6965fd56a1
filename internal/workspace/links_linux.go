package workspace

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the number of links the kernel follows in one path.
const maxLinks = 40

// resolve follows every link of a path below the root, as the host would; not ok
// when it leads out or nowhere.
func (s *scan) resolve(rel string) (string, bool) {
	real, out, err := s.follow(rel)
	return real, !out && err == nil
}

// follow resolves a path. Out says that it leads out of the tree.
func (s *scan) follow(rel string) (real string, out bool, err error) {
	rest, at, links := strings.Split(rel, "/"), "", 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return "", true, nil
			}
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := join(at, name)
		fd, err := s.open(next, unix.O_PATH)
		if err != nil {
			return "", false, err
		}
		link, err := readLinkAt(fd, "")
		unix.Close(fd)
		if err != nil { // no link
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", false, unix.ELOOP
		}
		if path.IsAbs(link) {
			below, ok := strings.CutPrefix(path.Clean(link)+"/", s.dir+"/")
			if !ok {
				return "", true, nil
			}
			at, link = "", below
		}
		rest = append(strings.Split(link, "/"), rest...)
	}
	return at, false, nil
}

// checkLink notes a link that leads out of the tree.
func (s *scan) checkLink(d *directory, name string) {
	link, err := readLinkAt(d.fd, name)
	if err != nil {
		return
	}
	if !path.IsAbs(link) && !slices.Contains(strings.Split(link, "/"), "..") {
		return // only another link on the way could lead out, and is found itself
	}
	rel := join(d.rel, name)
	if s.leadsOut(d.rel, rel, link) {
		s.add(rel, func() { s.linkOut[rel] = link })
	}
}

func (s *scan) leadsOut(dir, rel, link string) bool {
	if path.IsAbs(link) {
		return !strings.HasPrefix(path.Clean(link)+"/", s.dir+"/")
	}
	// By its words, for what does not exist; by the kernel, for what passes
	// other links.
	if lexicallyOut(dir, link) {
		return true
	}
	if s.over != nil {
		// The kernel would see one of the two layers only.
		_, out, err := s.follow(rel)
		return out || err == unix.ENAMETOOLONG || err == unix.ELOOP
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(s.root.Fd()), rel, &how)
	if err == nil {
		unix.Close(fd)
	}
	// Of a path that is too long for the kernel nobody can say; it is named.
	return err == unix.EXDEV || err == unix.ENAMETOOLONG
}

// lexicallyOut reports whether a relative link of a directory climbs above the
// root.
func lexicallyOut(dir, link string) bool {
	depth := 0
	if dir != "" {
		depth = strings.Count(dir, "/") + 1
	}
	for _, p := range strings.Split(link, "/") {
		switch p {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}
