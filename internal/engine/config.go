// Package engine takes an issue to a merged change: it prepares workspaces, runs
// the agent stage by stage, takes the commits out as data, has them gated and
// merged, and keeps the record.
//
// It promises: the agent and the gate run in sandboxes of their own, fresh and
// gone afterwards; no git process of the engine ever works where they could
// write; the gate runs before anything is pushed; a run that ends in any way
// leaves one clear reason, the agent's work (as a rescue file if it was not
// merged) and nothing else; what a killed engine left is cleared away by the next
// start. It decides nothing about files, hosts or merges itself: packages egress,
// handover, gate and mergeauthority do.
//
// The command line is its caller.
package engine

import (
	"time"

	"confine/internal/agent"
	"confine/internal/boundary"
	"confine/internal/codehost"
	"confine/internal/egress"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/handover"
	"confine/internal/hostview"
	"confine/internal/merge"
	"confine/internal/sandbox"
)

// Until is how far a run goes.
type Until string

// The ends.
const (
	UntilPlan    Until = "plan"
	UntilCommits Until = "commits"
	UntilPR      Until = "pr"
	UntilMerge   Until = "merge"
)

// Config is what a tenant's config means to the engine.
type Config struct {
	Tenant boundary.TenantID
	// Repository names the repository in keys and directories.
	Repository string
	// Base is the base branch; "" is the host's default.
	Base gitcmd.Ref
	// Trigger says whose word starts a run.
	Trigger Trigger
	// Digest names this config; verdicts are bound to it.
	Digest string

	View   View
	Egress egress.Policy
	Setup  Setup
	Agent  agent.Kind
	// Instructions of the base branch are passed on: AGENTS.md or CLAUDE.md.
	Instructions bool
	Stages       []Stage
	Gate         []gate.Check
	// Rules and Leftovers govern the hand-over.
	Rules     handover.Rules
	Leftovers bool
	// MergeByPerson opens the pull request and leaves the merge to a person.
	MergeByPerson bool
	MergeRule     merge.Rule
}

// Trigger says who may start a run.
type Trigger struct {
	// Label must be on the issue, put there by somebody with write access; ""
	// asks for none: the operator names the issue.
	Label string
	// By is who of those may put it there; nobody is the zero value.
	By merge.People
}

// View is the host's system with what the tenant adds.
type View struct {
	// ReadOnly are host paths shown at the same place, Path the PATH inside.
	ReadOnly []string
	Path     string
	Limits   boundary.Limits
	// AllowMissing names the layers that this tenant's runs may lack.
	AllowMissing []boundary.Layer
	// Profile opens the boundary for programs with a sandbox of their own.
	Profile boundary.Profile
}

// Setup is the setup step; without commands there is none.
type Setup struct {
	Commands []string
	// Files at the base commit are part of the layer's key.
	Files  []string
	Egress egress.Policy
	// Time ends each command; 0 does not.
	Time time.Duration
}

// Stage is one agent call.
type Stage struct {
	agent.Stage
	Time   time.Duration
	Output int64
}

// Options are what a run is made with.
type Options struct {
	Config Config
	Host   codehost.Host
	Driver sandbox.Driver
	// StateDir is the engine's own directory.
	StateDir string
	// NewEgress makes the server of a captured network.
	NewEgress func(egress.Policy, func(egress.Refusal)) (sandbox.EgressServer, error)
	// Progress is told what happens, for a person. The text is clean.
	Progress func(Event)
	// Output receives what agent and setup write: untrusted bytes. May be nil.
	Output func(stage string, p []byte)
	// Weakened is told of layers that are missing and allowed to be.
	Weakened func(boundary.Layer, string)
	Now      func() time.Time
}

// Event is progress.
type Event struct {
	Stage string `json:"stage"`
	Text  string `json:"text"`
}

// The identity of every run inside.
const agentID = 1000

// Engine name and address in commits.
const (
	engineName  = "confine"
	engineEmail = "confine@localhost"
)

// base is the boundary that every sandbox of the tenant starts from: the host's
// system and no workspace.
func (r *run) base(network boundary.Network, safe ...string) (boundary.Boundary, error) {
	c := r.o.Config
	b := boundary.Boundary{
		Version: boundary.Version, Tenant: c.Tenant, Network: network, Limits: c.View.Limits, AllowMissing: c.View.AllowMissing, Profile: c.View.Profile,
		Identity: boundary.Identity{UID: agentID, GID: agentID, HostUID: r.hostID + agentID, HostGID: r.hostID + agentID},
	}
	part, _, err := hostview.System(hostview.Options{UID: agentID, GID: agentID, Network: network, SafeDirectories: safe})
	if err != nil {
		return b, err
	}
	part.AddTo(&b.View)
	for _, p := range c.View.ReadOnly {
		m, err := readOnly(p)
		if err != nil {
			return b, err
		}
		b.View.Mounts = append(b.View.Mounts, m)
	}
	b.View.Workdir, b.View.Hostname = "/tmp", hostview.Hostname
	b.Env, err = hostview.Env(hostview.EnvOptions{UID: agentID, Path: c.View.Path})
	return b, err
}
