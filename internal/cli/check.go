package cli

import (
	"context"

	"github.com/spf13/cobra"

	"confine/internal/engine"
)

type checkOptions struct{ config, state string }

func newCheckCommand(f *frame) *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Run setup and gate on the base, without an agent",
		Long: `Run a tenant's setup and gate on the base commit, without agent and model, in the
same sandboxes as a run. Most first failures are found here: a tool that is not in
the view, a dependency that setup did not bring, a test that needs the network.`,
		Example: `  confine check --config tenant.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&o.config, "config", "", "the tenant's config `file`")
	cmd.Flags().StringVar(&o.state, "state", "", "directory for what confine keeps")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func (o *checkOptions) run(ctx context.Context, f *frame) error {
	c, err := loadConfig(o.config)
	if err != nil {
		return err
	}
	if len(c.Gate) == 0 {
		return usagef("confine check", "the config has no gate: there is nothing to check (field gate)")
	}
	options, err := openEngine(ctx, f, c, o.state)
	if err != nil {
		return err
	}
	ctx, stop := untilSignalled(ctx)
	defer stop()
	rec, err := engine.Check(ctx, options)
	return f.reportRun(rec, err)
}
