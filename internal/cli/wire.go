package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"confine/internal/agent"
	"confine/internal/boundary"
	"confine/internal/codehost/local"
	"confine/internal/egress"
	"confine/internal/engine"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/handover"
	"confine/internal/hostview"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
	"confine/internal/sandbox/native"
	"confine/internal/tenant"
)

// openEngine puts together what a config's runs are made with. It is the one
// place where a config's fields become the engine's values.
func openEngine(ctx context.Context, f *frame, c *tenant.Config, state string) (engine.Options, error) {
	if state == "" {
		state = stateDir(f)
	}
	abs, err := filepath.Abs(state)
	if err != nil {
		return engine.Options{}, err
	}
	if err := oneTenant(abs, c); err != nil {
		return engine.Options{}, err
	}
	host, err := local.Open(ctx, c.Repo.URL.Path, local.OpenOptions{})
	var bad *local.OpenError
	if errors.As(err, &bad) {
		return engine.Options{}, &policyError{rule: "repository", field: "repo.url", text: "open repository: " + bad.Error(), hint: bad.Hint()}
	}
	if err != nil {
		return engine.Options{}, fmt.Errorf("open repository: %w", err)
	}
	cfg, err := engineConfig(c)
	if err != nil {
		return engine.Options{}, err
	}
	return engine.Options{
		Config: cfg, Host: host, Driver: native.New(), StateDir: abs,
		NewEgress: func(p egress.Policy, refused func(egress.Refusal)) (sandbox.EgressServer, error) {
			return newEgress(p, nil, refused)
		},
		Progress: f.progress, Output: f.stageOutput,
		Weakened: func(l boundary.Layer, what string) {
			if !f.json {
				fmt.Fprintf(f.Stderr, "confine: without %s, as allow_missing says: %s\n", l, plaintext.Line(what, 200))
			}
		},
	}, nil
}

// oneTenant refuses a second tenant to an engine that has one user id for all.
func oneTenant(state string, c *tenant.Config) error {
	if os.Geteuid() == 0 || c.SharedUID {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(state, "tenants"))
	if err != nil {
		return nil // the first
	}
	for _, e := range entries {
		if e.Name() != string(c.Tenant) {
			return &policyError{
				rule: "shared_uid", field: "shared_uid",
				text: fmt.Sprintf("this engine runs as an ordinary user and has worked for tenant %q: all its tenants' runs would have one user id outside", e.Name()),
				hint: "run it as root, give each tenant a --state of its own, or set shared_uid: true in the config",
			}
		}
	}
	return nil
}

// policyError is a refusal of the command line's own.
type policyError struct{ rule, field, text, hint string }

func (e *policyError) Error() string             { return e.text }
func (e *policyError) Hint() string              { return e.hint }
func (e *policyError) Refused() (rule, f string) { return e.rule, e.field }

func engineConfig(c *tenant.Config) (engine.Config, error) {
	digest, err := c.Digest()
	if err != nil {
		return engine.Config{}, err
	}
	out := engine.Config{
		Tenant: c.Tenant, Repository: c.Repo.URL.String(), Digest: digest,
		View:   engine.View{ReadOnly: c.View.RO, Path: viewPath(c.View.Path), Limits: c.View.Limits, AllowMissing: c.View.AllowMissing, Profile: c.View.Profile},
		Egress: c.Egress,
		Setup:  engine.Setup{Commands: c.Setup.Run, Files: c.Setup.Key, Egress: c.SetupPolicy(), Time: c.Setup.Timeout},
		Agent:  agent.Command{Args: c.Agent.Command, Env: variables(c.Agent.Env)}, Instructions: c.Agent.Instructions == tenant.InstructionsBase,
		Leftovers:     c.Handover.Leftovers == tenant.LeftoversCommit,
		MergeByPerson: c.Merge.Mode != tenant.MergeEngine, MergeRule: c.Merge.Rule,
	}
	out.Trigger = engine.Trigger{Label: c.Repo.Trigger.Label, By: c.Repo.Trigger.By}
	if c.Repo.Base != "" {
		ref, err := gitcmd.Branch(c.Repo.Base)
		if err != nil {
			return out, err
		}
		out.Base = ref
	}
	for _, s := range []struct {
		name  string
		stage *tenant.Stage
	}{{"plan", c.Stages.Plan}, {"implement", c.Stages.Implement}} {
		if s.stage == nil {
			continue
		}
		var tools []string
		for _, t := range s.stage.Tools {
			tools = append(tools, t.String())
		}
		out.Stages = append(out.Stages, engine.Stage{
			Stage: agent.Stage{Name: s.name, Tools: tools, Turns: s.stage.Limits.Turns},
			Time:  s.stage.Limits.Time, Output: s.stage.Limits.Output,
		})
	}
	for _, x := range c.Gate {
		check := gate.Check{Name: x.Name, Args: []string{"sh", "-c", x.Run}, Env: variables(x.Env), Timeout: x.Timeout, MinTests: x.MinTests}
		if x.Report == tenant.ReportGoTest {
			check.Report = gate.GoTest
		}
		out.Gate = append(out.Gate, check)
	}
	protection, err := handover.NewProtection(handover.ProtectOptions{
		Refuse: globs(c.Protect.Refuse), Approval: globs(c.Protect.Approval), Note: globs(c.Protect.Note), Free: globs(c.Protect.Free),
	})
	if err != nil {
		return out, fmt.Errorf("read protect: %w", err)
	}
	allow := func(what string) bool { return slices.Contains(c.Handover.Allow, what) }
	out.Rules = handover.Rules{
		Protection: protection, MaxCommits: c.Handover.MaxCommits, MaxFiles: c.Handover.MaxFiles, MaxBytes: c.Handover.MaxBytes, MaxFileBytes: c.Handover.MaxBytes,
		AllowMerges: allow(tenant.AllowMerges), AllowSymlinks: allow(tenant.AllowSymlinks),
		AllowSubmodules: allow(tenant.AllowSubmodules), AllowGitFiles: allow(tenant.AllowAttributes),
	}
	return out, nil
}

func globs(list []tenant.Glob) []string {
	out := make([]string, len(list))
	for i, g := range list {
		out[i] = string(g)
	}
	return out
}

// variables is a map as an environment, in one order.
func variables(m map[string]string) []string {
	var out []string
	for name, value := range m {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

func viewPath(first []string) string {
	return strings.Join(append(slices.Clone(first), hostview.DefaultPath), ":")
}
