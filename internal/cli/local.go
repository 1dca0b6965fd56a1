package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	left := &leftOut{}
	host, err := local.Init(ctx, abs, local.InitOptions{
		People: people, RequiredChecks: o.checks,
		First: func(ctx context.Context, repo *gitcmd.Repo) (gitcmd.Hash, error) {
			tree, err := importTree(ctx, repo, o.from, left)
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
		return f.printJSON(struct {
			Dir     string        `json:"dir"`
			URL     string        `json:"url"`
			LeftOut []leftOutFile `json:"left_out"`
		}{host.Dir(), "local:" + host.Dir(), append([]leftOutFile{}, left.files...)})
	}
	left.show(f.Stderr)
	return f.printf("%s\n", "local:"+host.Dir())
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
	var bad *local.OpenError
	if errors.As(err, &bad) {
		return &ExitError{Status: ExitUsage, Err: bad}
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
