package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"confine/internal/plaintext"
	"confine/internal/workspace"
)

func newTrashCommand(f *frame) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trash",
		Short: "List, restore and delete what staged runs displaced",
		Long: `Each commit of a staged run, and each undo, makes one entry in the trash: it holds
what was deleted or overwritten, by any program, and what was held back because a
program outside would run or obey it by itself. Entries are kept for 30 days.

Masked files (.env and the like) are never in it.`,
		Example: `  confine trash list
  confine trash show 20260102-030405-0123456789ab
  confine trash restore 20260102-030405-0123456789ab .vscode/tasks.json`,
		Args: noCommand,
		RunE: group,
	}
	cmd.AddCommand(newTrashListCommand(f), newTrashShowCommand(f), newTrashRestoreCommand(f), newTrashPurgeCommand(f))
	return cmd
}

// entryReport is one entry of the trash as JSON.
type entryReport struct {
	ID      string         `json:"id"`
	Time    time.Time      `json:"time"`
	Dir     string         `json:"dir"`
	Command []string       `json:"command,omitempty"`
	Undoes  string         `json:"undoes,omitempty"`
	Undone  bool           `json:"undone"`
	Counts  map[string]int `json:"counts"`
	Items   []itemReport   `json:"items,omitempty"`
}

type itemReport struct {
	Path   string               `json:"path"`
	Change workspace.ChangeKind `json:"change"`
	Why    string               `json:"why,omitempty"`
	Dir    bool                 `json:"directory,omitempty"`
	Bytes  int64                `json:"bytes,omitempty"`
	// At is where it lies in the trash.
	At       string `json:"at,omitempty"`
	Restored bool   `json:"restored,omitempty"`
}

func reportEntry(e workspace.TrashEntry) entryReport {
	r := entryReport{ID: e.ID, Time: e.Time, Command: e.Command, Undoes: e.Undoes, Undone: e.Undone, Counts: map[string]int{}}
	if len(e.Dirs) > 0 {
		r.Dir = string(e.Dirs[0])
	}
	for _, i := range e.Items {
		r.Counts[string(i.Kind)]++
	}
	return r
}

func entryChanges(e workspace.TrashEntry) []workspace.Change {
	var out []workspace.Change
	for _, i := range e.Items {
		out = append(out, workspace.Change{Kind: i.Kind})
	}
	return out
}

func newTrashListCommand(f *frame) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the entries of this directory, the newest first",
		Example: `  confine trash list
  confine trash list --all --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			entries, err := workspace.ListTrash(stateDir(f))
			dir, dirErr := workDir()
			if !all {
				if dirErr != nil {
					return dirErr
				}
				entries = slices.DeleteFunc(entries, func(e workspace.TrashEntry) bool { return !of(e, dir) })
			}
			reports := []entryReport{}
			for _, e := range entries {
				reports = append(reports, reportEntry(e))
			}
			if f.json {
				if printErr := f.printJSON(map[string]any{"entries": reports}); printErr != nil {
					return printErr
				}
				return err
			}
			for i, r := range reports {
				line := r.ID + "  " + countChanges(entryChanges(entries[i]))
				if all {
					line += fmt.Sprintf("  %.300q", r.Dir)
				}
				switch {
				case r.Undone:
					line += "  (taken back)"
				case r.Undoes != "":
					line += "  (took back " + r.Undoes + ")"
				}
				if len(r.Command) > 0 {
					line += fmt.Sprintf("  %s", plaintext.Line(fmt.Sprintf("%q", r.Command), 80))
				}
				if printErr := f.printf("%s\n", line); printErr != nil {
					return printErr
				}
			}
			if len(reports) == 0 && err == nil {
				where := "of this directory"
				if all {
					where = "at all"
				}
				return f.printf("the trash holds nothing %s\n", where)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list those of every directory")
	return cmd
}

// workDir is the directory that a run here would have as its workspace.
func workDir() (string, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("find working directory: %w", err)
	}
	return dir, nil
}

func of(e workspace.TrashEntry, dir string) bool {
	return len(e.Dirs) > 0 && string(e.Dirs[0]) == dir
}

func newTrashShowCommand(f *frame) *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Show what an entry holds, and where it lies",
		Example: `  confine trash show 20260102-030405-0123456789ab`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			e, err := workspace.ReadTrash(stateDir(f), args[0])
			if err != nil {
				return err
			}
			r := reportEntry(e)
			for i, item := range e.Items {
				r.Items = append(r.Items, itemReport{
					Path: e.Name(i), Change: item.Kind, Why: item.Why, Dir: item.Dir, Bytes: item.Bytes, At: e.Dir(stateDir(f), i), Restored: item.Spent,
				})
			}
			if f.json {
				return f.printJSON(r)
			}
			if err := f.printf("%s  %s  %.300q\n", r.ID, r.Time.Local().Format(time.DateTime), r.Dir); err != nil {
				return err
			}
			for _, i := range r.Items {
				line := fmt.Sprintf("  %-8s %.300q", i.Change, i.Path)
				if i.Why != "" {
					line += ": " + plaintext.Line(i.Why, 200)
				}
				switch {
				case i.Restored:
					line += "  (restored)"
				case i.At != "":
					line += fmt.Sprintf("  in %q", i.At)
				}
				if err := f.printf("%s\n", line); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

type restoreOptions struct{ force, dryRun bool }

func (o *restoreOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.force, "force", false, "also where things were changed since; what is there now goes to the trash")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
}

func (o *restoreOptions) restore(ctx context.Context, f *frame, id string, paths []string) error {
	done, err := workspace.RestoreTrash(workspace.TrashOptions{
		StateDir: stateDir(f), ID: id, Paths: paths, Force: o.force, DryRun: o.dryRun, Waiting: f.waiting(id), Cancel: ctx.Done(),
	})
	if err != nil {
		return err
	}
	if f.json {
		return f.printJSON(map[string]any{"took_back": id, "dry_run": o.dryRun, "trash": done.Trash, "changes": orEmpty(done.Changes)})
	}
	for _, c := range done.Changes {
		if err := f.printf("  %-8s %.300q\n", c.Kind, c.Path); err != nil {
			return err
		}
	}
	if o.dryRun || done.Trash == "" {
		return nil
	}
	return f.printf("done (to take it back: confine undo %s)\n", done.Trash)
}

func newTrashRestoreCommand(f *frame) *cobra.Command {
	o := &restoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore ID PATH...",
		Short: "Bring single files or directories back from an entry",
		Long: `Bring single files or directories back, also what was held back: to name it is to
let it in. A path is named as "confine trash show" names it, or lies below a
directory named there. What is in its place now goes to the trash, with --force.`,
		Example: `  confine trash restore 20260102-030405-0123456789ab src/main.go`,
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.restore(cmd.Context(), f, args[0], args[1:])
		},
	}
	o.flags(cmd)
	return cmd
}

func newTrashPurgeCommand(f *frame) *cobra.Command {
	var age time.Duration
	cmd := &cobra.Command{
		Use:   "purge [ID...]",
		Short: "Delete entries for good: those named, or those older than 30 days",
		Example: `  confine trash purge
  confine trash purge --older-than 24h
  confine trash purge 20260102-030405-0123456789ab`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if age < 0 {
				return usagef("confine trash purge", "--older-than can't be negative")
			}
			if len(args) > 0 && cmd.Flags().Changed("older-than") {
				return usagef("confine trash purge", "name entries or give --older-than, not both")
			}
			gone := []string{}
			var err error
			if len(args) == 0 {
				var old []string
				old, err = workspace.PurgeTrash(stateDir(f), age)
				gone = append(gone, old...)
			}
			for _, id := range args {
				if err = workspace.DeleteTrash(stateDir(f), id); err != nil {
					break
				}
				gone = append(gone, id)
			}
			if f.json {
				if printErr := f.printJSON(map[string]any{"purged": gone}); printErr != nil {
					return printErr
				}
				return err
			}
			if printErr := f.printf("entries deleted: %d\n", len(gone)); printErr != nil {
				return printErr
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&age, "older-than", workspace.TrashAge, "the `age` from which on entries are deleted, such as 24h")
	return cmd
}

func newUndoCommand(f *frame) *cobra.Command {
	o := &restoreOptions{}
	cmd := &cobra.Command{
		Use:   "undo [ID]",
		Short: "Take back what a staged run changed: the last one here, or the one named",
		Long: `Take back what one commit changed: what it displaced returns, and what it brought
goes to the trash, in a new entry, so that an undo can itself be undone. Without ID
it is the latest commit in this directory that was not taken back. A path that was
changed since stops it, unless --force.`,
		Example: `  confine undo
  confine undo --dry-run
  confine undo 20260102-030405-0123456789ab`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return o.restore(cmd.Context(), f, args[0], nil)
			}
			dir, err := workDir()
			if err != nil {
				return err
			}
			entries, err := workspace.ListTrash(stateDir(f))
			for _, e := range entries {
				if of(e, dir) && !e.Undone && e.Undoes == "" {
					return o.restore(cmd.Context(), f, e.ID, nil)
				}
			}
			if err != nil {
				return err
			}
			return &workspace.NothingToUndoError{Dir: dir}
		},
	}
	o.flags(cmd)
	return cmd
}
