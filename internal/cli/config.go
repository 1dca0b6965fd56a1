package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"confine/internal/plaintext"
	"confine/internal/tenant"
)

func newConfigCommand(f *frame) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and explain a tenant's configuration",
		Args:  noCommand,
		RunE:  group,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "check FILE...",
			Short: "Check configurations and report every problem in them",
			Long: `Check tenant configurations. Every problem is reported with file, line, column,
field and what is accepted. All files are checked, also after one that can't be
read. The exit status is 2 if there is any problem.`,
			Example: `  confine config check tenant.yaml
  confine config check --json *.yaml`,
			Args: cobra.MinimumNArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return checkConfigs(f, args) },
		},
		&cobra.Command{
			Use:     "schema",
			Short:   "Print the configuration's JSON Schema, for editors",
			Example: `  confine config schema > tenant.schema.json`,
			Args:    cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				schema, err := tenant.Schema()
				if err != nil {
					return err
				}
				return f.printf("%s", schema)
			},
		},
		&cobra.Command{
			Use:   "explain [FIELD]",
			Short: "Explain a field of the configuration, or list all",
			Example: `  confine config explain
  confine config explain stages.implement.limits`,
			Args:              cobra.MaximumNArgs(1),
			ValidArgsFunction: completeField,
			RunE:              func(_ *cobra.Command, args []string) error { return explainConfig(f, args) },
		},
	)
	return cmd
}

// checkConfigs checks all files before it says what is wrong with any.
func checkConfigs(f *frame, names []string) error {
	problems := tenant.Problems{}
	var failed []error
	for _, name := range names {
		_, err := tenant.Load(name)
		var found tenant.Problems
		switch {
		case errors.As(err, &found):
			problems = append(problems, found...)
			failed = append(failed, found)
		case err != nil:
			problems = append(problems, tenant.Problem{File: plaintext.Line(name, 200), Message: plaintext.Line(err.Error(), maxErrorText)})
			failed = append(failed, err)
		case !f.json:
			if err := f.printf("%s: ok\n", name); err != nil {
				return err
			}
		}
	}
	if f.json {
		if err := f.printJSON(problems); err != nil {
			return err
		}
		if len(failed) > 0 {
			return &ExitError{Status: ExitUsage}
		}
		return nil
	}
	if len(failed) > 0 {
		return &ExitError{Status: ExitUsage, Err: errors.Join(failed...)}
	}
	return nil
}

func explainConfig(f *frame, args []string) error {
	path := ""
	if len(args) > 0 {
		path = args[0]
	}
	if f.json {
		if path == "" {
			return f.printJSON(tenant.Fields())
		}
		info, err := tenant.Field(path)
		if err != nil {
			return &UsageError{Command: "confine config explain", Err: err}
		}
		return f.printJSON(info)
	}
	text, err := tenant.Explain(path)
	if err != nil {
		return &UsageError{Command: "confine config explain", Err: err}
	}
	return f.printf("%s", text)
}
