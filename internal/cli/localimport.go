package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"confine/internal/gitcmd"
	"confine/internal/plaintext"
)

// leftOutFile is a file that is not in the first commit.
type leftOutFile struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// leftOut is what an import leaves out.
type leftOut struct{ files []leftOutFile }

func (l *leftOut) add(path, why string) { l.files = append(l.files, leftOutFile{path, why}) }

// maxLeftOut caps the lines; --json has all.
const maxLeftOut = 100

func (l *leftOut) show(w io.Writer) {
	for i, x := range l.files {
		if i == maxLeftOut {
			fmt.Fprintf(w, "confine: left out %d more files: --json lists all\n", len(l.files)-i)
			return
		}
		fmt.Fprintf(w, "confine: left out %q: %s\n", plaintext.Line(x.Path, 300), x.Why)
	}
}

// secretFile reports the .env files in which programs look for secrets. Those
// that show how such a file is written belong into a repository.
func secretFile(name string) bool {
	name = strings.ToLower(name)
	if !strings.HasPrefix(name, ".env") {
		return false
	}
	return !slices.Contains([]string{"example", "sample", "template", "dist"}, name[strings.LastIndexByte(name, '.')+1:])
}

// maxImportFile caps one file of a first commit.
const maxImportFile = 64 << 20

// importTree writes the regular files below dir as a tree. Links, special files,
// files of secrets and what git keeps for itself are left out, and noted but for
// the directory's own .git.
func importTree(ctx context.Context, repo *gitcmd.Repo, dir string, left *leftOut) (gitcmd.Hash, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	return importer{ctx, repo, left}.dir(root, "")
}

type importer struct {
	ctx  context.Context
	repo *gitcmd.Repo
	left *leftOut
}

// dir writes one directory, at is its path from the top.
func (i importer) dir(root *os.Root, at string) (gitcmd.Hash, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return "", err
	}
	var out []gitcmd.TreeEntry
	for _, e := range entries {
		name := path.Join(at, e.Name())
		switch {
		case strings.EqualFold(e.Name(), ".git"):
			if at != "" {
				i.left.add(name, "a repository of its own")
			}
		case secretFile(e.Name()):
			i.left.add(name, "such files hold secrets, and every agent would see it")
		case e.IsDir():
			sub, err := root.OpenRoot(e.Name())
			if err != nil {
				return "", err
			}
			h, err := i.dir(sub, name)
			sub.Close()
			if err != nil {
				return "", err
			}
			if h != i.repo.EmptyTree() {
				out = append(out, gitcmd.TreeEntry{Mode: 0o40000, Type: "tree", Hash: h, Path: e.Name()})
			}
		case e.Type().IsRegular():
			entry, err := i.file(root, e)
			if err != nil {
				return "", err
			}
			out = append(out, entry)
		case e.Type()&fs.ModeSymlink != 0:
			i.left.add(name, "a symbolic link: commit it in a clone, where it is wanted")
		default:
			i.left.add(name, "neither a file nor a directory")
		}
	}
	if len(out) == 0 {
		return i.repo.EmptyTree(), nil
	}
	return i.repo.MkTree(i.ctx, out)
}

func (i importer) file(root *os.Root, e fs.DirEntry) (gitcmd.TreeEntry, error) {
	file, err := root.Open(e.Name())
	if err != nil {
		return gitcmd.TreeEntry{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return gitcmd.TreeEntry{}, err
	}
	if info.Size() > maxImportFile {
		return gitcmd.TreeEntry{}, fmt.Errorf("import %q: larger than 64 MiB", e.Name())
	}
	h, err := i.repo.HashObject(i.ctx, io.LimitReader(file, maxImportFile))
	mode := gitcmd.Mode(0o100644)
	if info.Mode()&0o111 != 0 {
		mode = 0o100755
	}
	return gitcmd.TreeEntry{Mode: mode, Type: "blob", Hash: h, Path: e.Name()}, err
}
