package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/hostview"
	"confine/internal/kernel"
	"confine/internal/sandbox"
	"confine/internal/sandbox/native"
	"confine/internal/sandbox/sandboxtest"
	"confine/internal/workspace"
)

// plantedName is the environment variable and plantedFlag the argument in which
// verify carries a key, so that the probes look for a real one.
const (
	plantedName = "CONFINE_VERIFY_PLANTED_KEY"
	plantedFlag = "--planted-key="
)

func (o *verifyOptions) run(ctx context.Context, f *frame) error {
	probes := slices.DeleteFunc(append(sandboxtest.Probes(), workspaceProbes()...), func(p sandboxtest.Probe) bool { return !o.wants(p.Group, p.Name) })
	if len(probes) == 0 {
		return usagef("confine verify", "no probe of that group and name: confine verify --list shows all")
	}
	// What belongs together comes together.
	slices.SortStableFunc(probes, func(a, b sandboxtest.Probe) int {
		return slices.Index(probeGroups, a.Group) - slices.Index(probeGroups, b.Group)
	})
	if o.list {
		return f.listProbes(probes)
	}
	if o.report != "" && !o.force {
		if _, err := os.Lstat(o.report); err == nil {
			return usagef("confine verify", "--report %q: exists; --force writes over it", o.report)
		}
	}
	key, err := plantedKey()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "confine-verify-")
	if err != nil {
		return fmt.Errorf("make directory for probes: %w", err)
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	// Other ids must be able to reach it for the controls to mean something.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	host := &sandboxtest.Host{
		Driver: native.New(), Base: verifyBase, Program: program, Egress: verifyEgress, PlantedKey: key, Dir: dir,
	}
	began := time.Now().UTC()
	results := []sandboxtest.Result{}
	shown := newProbePrinter(f, probes)
	held := sandboxtest.Run(ctx, host, probes, func(r sandboxtest.Result) {
		results = append(results, r)
		if !f.json {
			shown.print(r)
		}
	})
	if o.report != "" {
		if err := o.writeReport(f, program, began, results, held); err != nil {
			return err
		}
	}
	if f.json {
		if err := f.printJSON(map[string]any{"probes": results}); err != nil {
			return err
		}
	} else if err := shown.end(results); err != nil {
		return err
	}
	if !held {
		return &ExitError{Status: ExitRefused, Err: errors.New("the boundary does not hold on this machine")}
	}
	return nil
}

// plantedKey makes sure that this process has a key in its environment and
// arguments, by executing itself again with one.
func plantedKey() (string, error) {
	if key := os.Getenv(plantedName); key != "" {
		return key, nil
	}
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	key := "planted-" + hex.EncodeToString(b)
	err := kernel.ExecSelf([]string{plantedFlag + key}, []string{plantedName + "=" + key})
	return "", fmt.Errorf("plant a key: %w", err)
}

// verifyBase is the boundary of `confine run` without a workspace.
func verifyBase() (boundary.Boundary, error) {
	b := boundary.Boundary{
		Version: boundary.Version, Tenant: "verify",
		Identity:     boundary.Identity{UID: agentID, GID: agentID, HostUID: runHostID(), HostGID: runHostID()},
		AllowMissing: []boundary.Layer{boundary.LayerCgroup},
	}
	part, _, err := hostview.System(hostview.Options{UID: agentID, GID: agentID, Network: boundary.NetworkCaptured, SafeDirectories: []string{workspace.Inside}})
	if err != nil {
		return b, err
	}
	part.AddTo(&b.View)
	b.View.Workdir = "/tmp"
	b.Env, err = hostview.Env(hostview.EnvOptions{UID: agentID})
	return b, err
}

func verifyEgress(allowed, addr string, refused func(string)) (sandbox.EgressServer, error) {
	rules, err := egress.ParseRules(allowed)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	host, port, err := splitHostPort(allowed)
	if err != nil {
		return nil, err
	}
	return newEgress(egress.Policy{Allow: rules}, map[egress.HostPort]netip.AddrPort{{Host: host, Port: port}: to},
		func(r egress.Refusal) { refused(r.Target()) })
}

// workspaceProbes prove what is decided before a sandbox is made.
func workspaceProbes() []sandboxtest.Probe {
	refusal := func(name, expected string, break_ func(dir string) (func(), error)) sandboxtest.Probe {
		return sandboxtest.Custom(name, "workspace", expected, func(_ context.Context, h *sandboxtest.Host) (string, string, bool, error) {
			dir := filepath.Join(h.Dir, name)
			if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
				return "", "", false, err
			}
			if err := os.WriteFile(filepath.Join(dir, ".env"), []byte("TOKEN=x"), 0o600); err != nil {
				return "", "", false, err
			}
			open := func() error {
				l, err := workspace.Live(workspace.Options{Dir: dir})
				if err == nil {
					l.Close()
				}
				return err
			}
			before := open()
			undo, err := break_(dir)
			if err != nil {
				return "", "", false, err
			}
			defer undo()
			after := open()
			if after == nil {
				return "the start was not refused", "without it the start is allowed", false, nil
			}
			return "refused: " + strings.ReplaceAll(after.Error(), h.Dir, ""), "without it the start is allowed", before == nil, nil
		})
	}
	return []sandboxtest.Probe{
		refusal("host-socket", "a Unix socket of the host in the workspace stops the start", func(dir string) (func(), error) {
			l, err := net.Listen("unix", filepath.Join(dir, "sub", "s"))
			if err != nil {
				return nil, err
			}
			return func() { l.Close() }, nil
		}),
		refusal("hard-link-to-masked", "a hard link to a masked file stops the start", func(dir string) (func(), error) {
			link := filepath.Join(dir, "sub", "readable")
			return func() { os.Remove(link) }, os.Link(filepath.Join(dir, ".env"), link)
		}),
	}
}

// newProbeCommand is the program inside: see sandboxtest.Inside.
func newProbeCommand(f *frame) *cobra.Command {
	return &cobra.Command{
		Use: sandboxtest.ProgramArgument, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if status := sandboxtest.Inside(args, f.Stdout); status != 0 {
				return &ExitError{Status: status}
			}
			return nil
		},
	}
}
