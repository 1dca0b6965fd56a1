package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"confine/internal/gitcmd"
	"confine/internal/kernel/probe"
	"confine/internal/plaintext"
)

type doctorOptions struct {
	// host and git are what is asked; tests put others in their place.
	host func() probe.Report
	git  func(context.Context) (gitcmd.Version, error)
}

func newDoctorCommand(f *frame) *cobra.Command {
	o := &doctorOptions{host: probe.Host, git: gitcmd.ProbeVersion}
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host has and lacks, and what mends each lack",
		Long: `Say what this host has and lacks of what a boundary is made of. Each ability is
tried, not guessed: a short-lived process makes the namespace, mounts the file
system, loads the filter. For each lack one change is named that mends it.

  ok        was tried and works
  missing   confine does not work without it, or only as far as the line says
  optional  confine works without it, as the line says

What could not be looked at, as it needs another ability that is missing, says
which one; it has no change of its own.

The exit status is 0 if nothing is missing, else 5. Whether the boundary holds
is another question: see confine verify.`,
		Example: `  confine doctor
  confine doctor --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), f) },
	}
}

func (o *doctorOptions) run(ctx context.Context, f *frame) error {
	report := o.host()
	report.Items = append(report.Items, gitItem(o.git(ctx)))
	lacks := report.Lacks()
	if f.json {
		if err := f.printJSON(report); err != nil {
			return err
		}
	} else {
		for _, i := range report.Items {
			if err := f.printAbility(i); err != nil {
				return err
			}
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	var names []string
	for _, i := range lacks {
		if i.After == "" {
			names = append(names, i.Name)
		}
	}
	return &ExitError{Status: ExitMissing, Err: fmt.Errorf("this host lacks %s", strings.Join(names, ", "))}
}

// maxDetail caps what is shown of a host's own words.
const maxDetail = 400

func (f *frame) printAbility(i probe.Item) error {
	mark := "ok"
	switch {
	case !i.Present && i.Needed:
		mark = "missing"
	case !i.Present:
		mark = "optional"
	}
	text := fmt.Sprintf("%-9s %s: %s\n", mark, i.Name, plaintext.Line(i.Detail, maxDetail))
	if !i.Present && i.After == "" {
		for _, l := range [][2]string{{"without it", i.Without}, {"fix", i.Fix}} {
			if l[1] != "" {
				text += fmt.Sprintf("%-9s %s: %s\n", "", l[0], plaintext.Line(l[1], maxDetail))
			}
		}
	}
	return f.printf("%s", text)
}

// gitItem is the one program of the host that confine runs.
func gitItem(v gitcmd.Version, err error) probe.Item {
	i := probe.Item{Name: "git", Needed: true, Without: "confine run works"}
	if err == nil {
		i.Present, i.Detail, i.Without = true, v.String(), ""
		return i
	}
	i.Detail, i.Fix = err.Error(), "mend what the error names"
	var missing *gitcmd.MissingError
	if errors.As(err, &missing) && missing.Hint() != "" {
		i.Fix = missing.Hint()
	}
	return i
}
