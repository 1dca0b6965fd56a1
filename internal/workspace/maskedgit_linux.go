package workspace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A masked file is an empty one inside, and git would take that for its content.
// So git is told inside to leave such paths alone (GitMasked), and the review
// looks whether it did: what of them the index holds is compared, without git.

// maxGitMasked caps the paths that git is told of, as it compares each of them
// with every file, maxGitMaskedBytes what they are together.
const (
	maxGitMasked      = 1000
	maxGitMaskedBytes = 200 << 10
)

// workTree is a directory whose files git keeps in a repository: where its index
// is, below which root.
type workTree struct {
	rel   string
	root  *os.File
	index string
}

// workTrees are those whose repository lies in the workspace or is lent to it.
func (l *LiveWorkspace) workTrees() []workTree {
	var out []workTree
	for _, git := range sortedKeys(l.before.gitDirs) {
		if strings.EqualFold(path.Base(git), ".git") {
			out = append(out, workTree{rel: dirOf(git), root: l.root, index: join(git, "index")})
		}
	}
	if l.shared != nil {
		out = append(out, workTree{root: l.shared.root, index: join(l.shared.own, "index")})
	}
	return out
}

func dirOf(rel string) string {
	if dir := path.Dir(rel); dir != "." {
		return dir
	}
	return ""
}

// below is rel from dir, if it lies there.
func below(rel, dir string) (string, bool) {
	if dir == "" {
		return rel, true
	}
	return strings.CutPrefix(rel, dir+"/")
}

// gitMasked are the masked files as git names them: from the top of each work
// tree that they lie in, and from the workspace, which may become one. Of masked
// directories there is nothing to say: git sees them empty.
func (l *LiveWorkspace) gitMasked() []string {
	tops := []string{""}
	for _, w := range l.workTrees() {
		tops = append(tops, w.rel)
	}
	for _, rel := range l.before.gitFiles {
		tops = append(tops, dirOf(rel))
	}
	slices.Sort(tops)
	tops = slices.Compact(tops)
	seen := map[string]bool{}
	left, size := 0, 0
	for _, t := range l.before.masked {
		if t.dir {
			continue
		}
		for _, top := range tops {
			name, ok := below(t.rel, top)
			if !ok || seen[name] {
				continue
			}
			if len(seen) >= maxGitMasked || size+len(name) > maxGitMaskedBytes || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				left++
				continue
			}
			seen[name] = true
			size += len(name)
		}
	}
	if left > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("git is not told of %d masked files, as they are too many or their names can't be written down: it would add them as empty files", left))
	}
	return sortedKeys(seen)
}

// noteOverridden names repositories whose own settings take the place of those
// that keep git from masked files.
func (l *LiveWorkspace) noteOverridden() {
	for _, git := range sortedKeys(l.before.gitDirs) {
		data, _ := l.before.read(join(git, "config"))
		for _, s := range parseGitConfig(data) {
			if s.section == "core" && (s.key == "excludesfile" || s.key == "attributesfile") {
				l.Notes = append(l.Notes, fmt.Sprintf("the repository %.200q sets core.%s itself: git may add masked files there as empty ones", git, s.key))
			}
		}
	}
}

// staged is what the indexes hold of masked paths, by the path below the
// workspace. Not ok for a work tree whose index can't be read.
type staged struct {
	entries map[string]string
	unknown map[string]error // by work tree
}

const emptyBlob1, emptyBlob256 = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"

func (l *LiveWorkspace) readStaged(trees []workTree) staged {
	out := staged{entries: map[string]string{}, unknown: map[string]error{}}
	for _, w := range trees {
		masked := map[string]bool{}
		for _, t := range l.before.masked {
			if name, ok := below(t.rel, w.rel); ok {
				masked[name] = true
			}
		}
		if len(masked) == 0 {
			continue
		}
		if err := readMaskedEntries(w, masked, out.entries); err != nil {
			out.unknown[w.rel] = err
		}
	}
	return out
}

func readMaskedEntries(w workTree, masked map[string]bool, into map[string]string) error {
	data, err := readWhole(w.root, w.index, maxIndexBytes)
	if errors.Is(err, unix.ENOENT) {
		return nil // nothing was ever added
	}
	if err != nil {
		return err
	}
	for _, idLen := range []int{20, 32} {
		found := map[string]string{}
		err = readIndex(data, idLen, func(e indexEntry) {
			for at := e.path; at != "."; at = path.Dir(at) {
				if masked[at] {
					found[join(w.rel, e.path)] += fmt.Sprintf("%o %d %s\n", e.mode, e.stage, e.id)
					return
				}
			}
		})
		if err == nil {
			for rel, id := range found {
				into[rel] = id
			}
			return nil
		}
	}
	return err
}

// indexContent is what an index says of the files, as one sum: not ok for what is
// none, or changes while it is read.
func indexContent(f *os.File) (sum [sha256.Size]byte, ok bool) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxIndexBytes {
		return sum, false
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return sum, false
	}
	for _, idLen := range []int{20, 32} {
		h := sha256.New()
		if readIndex(data, idLen, func(e indexEntry) { fmt.Fprintf(h, "%q %o %d %s\n", e.path, e.mode, e.stage, e.id) }) == nil {
			return [sha256.Size]byte(h.Sum(nil)), true
		}
	}
	return sum, false
}

// readWhole reads a regular file below root.
func readWhole(root *os.File, rel string, most int64) ([]byte, error) {
	fd, err := openBelow(root, rel, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%w, or too large", errIndex)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// compareStaged names the masked paths that the indexes hold otherwise than
// before: what is committed and what is not yet.
func (l *LiveWorkspace) compareStaged(trees []workTree) []Finding {
	if l.stagedBefore == nil {
		return nil // of an earlier run the record does not say
	}
	var out []Finding
	add := func(rel, change, detail string) {
		out = append(out, Finding{Kind: KindMasked, Path: rel, Change: change, By: "git, which commits it", Detail: detail})
	}
	before, after := *l.stagedBefore, l.readStaged(trees)
	for _, rel := range sortedKeys(after.entries) {
		old, existed := before.entries[rel]
		id := after.entries[rel]
		if id == old {
			continue
		}
		change, detail := "new", "it is in git's index with other content than the file has here"
		if strings.Contains(id, emptyBlob1) || strings.Contains(id, emptyBlob256) {
			detail = "it is in git's index as an empty file"
		}
		if existed {
			change = "changed"
		}
		add(rel, change, detail)
	}
	for _, rel := range sortedKeys(before.entries) {
		if _, still := after.entries[rel]; !still {
			add(rel, "changed", "it was taken out of git's index: a commit deletes it")
		}
	}
	for _, rel := range sortedKeys(after.unknown) {
		if _, known := before.unknown[rel]; !known {
			add(join(rel, ".git/index"), "changed", "it can't be said whether masked paths are in it: "+after.unknown[rel].Error())
		}
	}
	return out
}
