package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// probeGroups are the groups that verify's probes come in.
var probeGroups = []string{"processes", "files", "network", "kernel", "exhaustion", "workspace"}

// groupNames lists them as a sentence does.
func groupNames() string {
	last := len(probeGroups) - 1
	return strings.Join(probeGroups[:last], ", ") + " or " + probeGroups[last]
}

type verifyOptions struct {
	group string
}

func newVerifyCommand(f *frame) *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove the boundary on this machine by attacking it",
		Long: `Prove the boundary on this machine: each probe makes one attempt inside a real
sandbox and says what was expected and what was observed. A probe counts as held
only if the same attempt was seen to work without the layer (its control), was
refused inside as expected, and a neighbouring action still worked. A probe that
could not run has failed.

The exit status is 0 only if every probe held, else 3.`,
		Example: `  confine verify
  confine verify --group network
  confine verify --json > proofs.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.group != "" && !slices.Contains(probeGroups, o.group) {
				return usagef("confine verify", "--group %q: is %s", o.group, groupNames())
			}
			return o.run(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVar(&o.group, "group", "", "run only the probes of `group`: "+groupNames())
	cmd.Flags().String("planted-key", "", "")
	_ = cmd.Flags().MarkHidden("planted-key")
	return cmd
}
