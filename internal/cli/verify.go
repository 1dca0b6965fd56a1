package cli

import (
	"path"
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
	groups []string
	probes []string
	list   bool
	report string
	force  bool
}

// check refuses what could never be a probe's name.
func (o *verifyOptions) check() error {
	for _, g := range o.groups {
		if !slices.Contains(probeGroups, g) {
			return usagef("confine verify", "--group %q: is %s", g, groupNames())
		}
	}
	for _, p := range o.probes {
		if _, err := path.Match(p, ""); err != nil {
			return usagef("confine verify", "--probe %q: is no pattern", p)
		}
	}
	if o.force && o.report == "" {
		return usagef("confine verify", "--force needs --report")
	}
	return nil
}

// wants reports whether a probe was asked for.
func (o *verifyOptions) wants(group, name string) bool {
	if len(o.groups) > 0 && !slices.Contains(o.groups, group) {
		return false
	}
	return len(o.probes) == 0 || slices.ContainsFunc(o.probes, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
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

With --report everything that an audit asks for goes to a file: the program and its
digest, the kernel, what this host has and lacks, the boundary that was attacked and
its weaker forms, and each probe with its control.

The exit status is 0 only if every probe held, else 3.`,
		Example: `  confine verify
  confine verify --group network --group files
  confine verify --list
  confine verify --probe 'masked-*'
  confine verify --report proofs.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&o.groups, "group", nil, "run only the probes of `group`: "+groupNames())
	fl.StringArrayVar(&o.probes, "probe", nil, "run only the probes whose name matches the `pattern`")
	fl.BoolVar(&o.list, "list", false, "list the probes and run none")
	fl.StringVar(&o.report, "report", "", "write a report for an audit to `file`, which must not exist")
	fl.BoolVar(&o.force, "force", false, "with --report, write over a file that exists")
	cmd.Flags().String("planted-key", "", "")
	_ = cmd.Flags().MarkHidden("planted-key")
	return cmd
}
