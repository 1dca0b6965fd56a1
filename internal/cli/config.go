package cli

import "github.com/spf13/cobra"

func newConfigCommand(f *frame) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and explain a tenant's configuration",
		Args:  noCommand,
		RunE:  group,
	}
	return cmd
}
