package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"confine/internal/engine"
	"confine/internal/plaintext"
	"confine/internal/tenant"
)

// heldWriter keeps the first error of writing for Main and tells the writer of
// none: cobra, which writes help and completion scripts with it, drops some and
// prints others by itself.
type heldWriter struct {
	to  io.Writer
	err error
}

func (w *heldWriter) Write(p []byte) (int, error) {
	if w.err == nil {
		_, w.err = w.to.Write(p)
	}
	return len(p), nil
}

// addHelp adds cobra's help command with a run function that does not take the
// help of what is above for an answer to a command that does not exist.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help := child(root, "help")
	help.Run = nil
	help.RunE = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if err != nil {
			return &UsageError{Command: root.CommandPath(), Err: err}
		}
		if err := noCommand(cmd, rest); err != nil {
			return err
		}
		cmd.InitDefaultHelpFlag()
		return cmd.Help()
	}
}

// flagValues are the flags with few values, which a shell can offer: command,
// flag, values.
var flagValues = []struct {
	command, flag string
	values        []string
}{
	{"verify", "group", probeGroups},
	{"work", "until", []string{string(engine.UntilPlan), string(engine.UntilCommits), string(engine.UntilPR), string(engine.UntilMerge)}},
	{"run", "user", []string{"agent", "root"}},
	{"run", "allow-missing", []string{"cgroup", "landlock", "proc"}},
}

// addCompletion adds cobra's completion command, for which an unknown shell is
// a command that does not exist, and tells it the values it can't know.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion := child(root, "completion")
	completion.Args, completion.RunE = noCommand, group
	for _, f := range flagValues {
		offer := func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return beginning(begun, f.values), cobra.ShellCompDirectiveNoFileComp
		}
		if err := child(root, f.command).RegisterFlagCompletionFunc(f.flag, offer); err != nil {
			panic(err) // the table names a flag that is not there: every test sees it
		}
	}
}

// beginning returns the values that begin so.
func beginning(begun string, values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !strings.HasPrefix(v, begun) })
}

// child returns a command right below another; it must be there.
func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	panic("no command " + name)
}

// completeField offers the fields of the config, each with what it is for.
func completeField(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	out := []string{}
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, field := range tenant.Fields() {
		path := strings.ReplaceAll(field.Path, "[]", "")
		if path != "" && strings.HasPrefix(path, begun) {
			out = append(out, cobra.CompletionWithDesc(path, field.Doc))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// accepted says by a flag's type what its value may be.
var accepted = map[string]string{
	"bool":     "is true or false",
	"int":      "is a whole number, such as 12",
	"int64":    "is a whole number, such as 12",
	"duration": "is a time, such as 90s, 10m or 1h30m",
}

// flagError says what a flag accepts where the flag library says which function
// of Go did not accept it.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return err
	}
	what := accepted[value.GetFlag().Value.Type()]
	if errors.Is(err, strconv.ErrRange) {
		what = "is too large or too small a number"
	}
	if what == "" {
		return err
	}
	return &UsageError{
		Command: cmd.CommandPath(),
		Err:     fmt.Errorf("--%s %q: %s", value.GetFlag().Name, plaintext.Line(value.GetValue(), 80), what),
	}
}
