package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"confine/internal/codehost"
	"confine/internal/codehost/local"
	"confine/internal/gitcmd"
)

func newLocalCommand(f *frame) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Make and fill a code host in a directory",
		Long: `A local code host is a directory: a bare repository plus issues, pull requests,
comments and statuses as files that people read and edit. Its base branch takes
no direct push; only a merge lands there.`,
		Args: noCommand,
		RunE: group,
	}
	cmd.AddCommand(newLocalInitCommand(f), newLocalIssueCommand(f))
	return cmd
}

type localInitOptions struct {
	from, author string
	people       []string
	checks       []string
}

func newLocalInitCommand(f *frame) *cobra.Command {
	o := &localInitOptions{}
	cmd := &cobra.Command{
		Use:   "init DIR --from FILES",
		Short: "Make a local code host whose first commit holds the files of a directory",
		Example: `  confine local init /srv/ledger --from ~/src/ledger --person ada=write
  confine local init /srv/ledger --from ~/src/ledger --require confine/gate`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), f, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.from, "from", "", "`directory` with the files of the first commit")
	fl.StringVar(&o.author, "author", "confine <confine@localhost>", "who makes the first commit, `name <address>`")
	fl.StringArrayVar(&o.people, "person", nil, "an account and what it may do, `name=read|write|admin`")
	fl.StringArrayVar(&o.checks, "require", []string{"confine/gate"}, "a `status` that a merge needs")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

func (o *localInitOptions) run(ctx context.Context, f *frame, dir string) error {
	people := map[string]codehost.Permission{}
	for _, p := range o.people {
		name, permission, ok := strings.Cut(p, "=")
		switch codehost.Permission(permission) {
		case codehost.PermissionRead, codehost.PermissionWrite, codehost.PermissionAdmin:
		default:
			ok = false
		}
		if !ok || name == "" {
			return usagef("confine local init", "--person %q: is name=read, name=write or name=admin", p)
		}
		people[name] = codehost.Permission(permission)
	}
	name, address, ok := strings.Cut(strings.TrimSuffix(o.author, ">"), " <")
	if !ok || !strings.HasSuffix(o.author, ">") {
		return usagef("confine local init", "--author %q: is name <address>", o.author)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	host, err := local.Init(ctx, abs, local.InitOptions{
		People: people, RequiredChecks: o.checks,
		First: func(ctx context.Context, repo *gitcmd.Repo) (gitcmd.Hash, error) {
			tree, err := importTree(ctx, repo, o.from)
			if err != nil {
				return "", err
			}
			who := gitcmd.Identity{Name: name, Email: address, When: time.Now()}
			return repo.CommitTree(ctx, gitcmd.NewCommit{Tree: tree, Author: who, Committer: who, Message: "First commit\n"})
		},
	})
	if err != nil {
		return err
	}
	if f.json {
		return f.printJSON(map[string]string{"dir": host.Dir(), "url": "local:" + host.Dir()})
	}
	return f.printf("%s\n", "local:"+host.Dir())
}

// maxImportFile caps one file of a first commit.
const maxImportFile = 64 << 20

// importTree writes the regular files below dir as a tree. Links, special files
// and what git keeps for itself are left out.
func importTree(ctx context.Context, repo *gitcmd.Repo, dir string) (gitcmd.Hash, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	return importDir(ctx, repo, root)
}

func importDir(ctx context.Context, repo *gitcmd.Repo, root *os.Root) (gitcmd.Hash, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return "", err
	}
	var out []gitcmd.TreeEntry
	for _, e := range entries {
		if strings.EqualFold(e.Name(), ".git") {
			continue
		}
		switch {
		case e.IsDir():
			sub, err := root.OpenRoot(e.Name())
			if err != nil {
				return "", err
			}
			h, err := importDir(ctx, repo, sub)
			sub.Close()
			if err != nil {
				return "", err
			}
			if h != repo.EmptyTree() {
				out = append(out, gitcmd.TreeEntry{Mode: 0o40000, Type: "tree", Hash: h, Path: e.Name()})
			}
		case e.Type().IsRegular():
			entry, err := importFile(ctx, repo, root, e)
			if err != nil {
				return "", err
			}
			out = append(out, entry)
		}
	}
	if len(out) == 0 {
		return repo.EmptyTree(), nil
	}
	return repo.MkTree(ctx, out)
}

func importFile(ctx context.Context, repo *gitcmd.Repo, root *os.Root, e fs.DirEntry) (gitcmd.TreeEntry, error) {
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
	h, err := repo.HashObject(ctx, io.LimitReader(file, maxImportFile))
	mode := gitcmd.Mode(0o100644)
	if info.Mode()&0o111 != 0 {
		mode = 0o100755
	}
	return gitcmd.TreeEntry{Mode: mode, Type: "blob", Hash: h, Path: e.Name()}, err
}

type localIssueOptions struct{ title, author, body string }

func newLocalIssueCommand(f *frame) *cobra.Command {
	o := &localIssueOptions{}
	cmd := &cobra.Command{
		Use:     "issue DIR --title TITLE --author NAME",
		Short:   "File an issue at a local code host",
		Example: `  confine local issue /srv/ledger --title "Wrong sign" --author ada --body issue.md`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), f, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.title, "title", "", "the issue's title")
	fl.StringVar(&o.author, "author", "", "the account that files it")
	fl.StringVar(&o.body, "body", "", "`file` with the issue's text; - is standard input")
	_ = cmd.MarkFlagRequired("title")
	_ = cmd.MarkFlagRequired("author")
	return cmd
}

func (o *localIssueOptions) run(ctx context.Context, f *frame, dir string) error {
	body, err := o.readBody(f)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	host, err := local.Open(ctx, abs, local.OpenOptions{})
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("confine local issue", "%q is no local code host: make one with confine local init", dir)
	}
	if err != nil {
		return err
	}
	n, err := host.AddIssue(ctx, local.NewIssue{Title: o.title, Author: o.author, Body: string(body)})
	if err != nil {
		return err
	}
	if f.json {
		return f.printJSON(map[string]int{"issue": n})
	}
	return f.printf("%d\n", n)
}

// maxBody caps an issue's text, as code hosts do.
const maxBody = 1 << 20

func (o *localIssueOptions) readBody(f *frame) ([]byte, error) {
	from := f.Stdin
	switch o.body {
	case "":
		return nil, nil
	case "-":
	default:
		file, err := os.Open(o.body)
		if err != nil {
			return nil, fmt.Errorf("read issue: %w", err)
		}
		defer file.Close()
		from = file
	}
	body, err := io.ReadAll(io.LimitReader(from, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read issue: %w", err)
	}
	if len(body) > maxBody {
		return nil, usagef("confine local issue", "--body %q: more than 1 MiB", o.body)
	}
	return body, nil
}
