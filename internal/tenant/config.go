// Package tenant is the configuration of one repository of one tenant: what may
// run, what it may reach, what is checked, and when a change is merged.
//
// It promises that a Config it returns was understood wholly: an unknown field,
// a field of later work, a value out of range and a contradiction are problems
// with file, line, column, field and what is accepted instead, and all of them
// are reported, not the first alone. One table of fields (table.go) makes the
// parser, the JSON Schema and the explanations.
//
// It does not look at the machine: whether a repository, a directory or a
// program exists is found out by those who use them. It holds no secret, only
// where secrets are kept. The doors load configs and hand them to the engine.
package tenant

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/merge"
)

// Version is the version of the form that this program reads.
const Version = 1

// Config is one config, checked, with defaults filled in.
type Config struct {
	Version  int               `json:"version"`
	Tenant   boundary.TenantID `json:"tenant"`
	Repo     Repo              `json:"repo"`
	Budget   Budget            `json:"budget"`
	Model    Model             `json:"model"`
	View     View              `json:"view"`
	Egress   egress.Policy     `json:"egress"`
	Setup    Setup             `json:"setup"`
	Agent    Agent             `json:"agent"`
	Stages   Stages            `json:"stages"`
	Gate     []Check           `json:"gate"`
	Protect  Protect           `json:"protect"`
	Handover Handover          `json:"handover"`
	Merge    Merge             `json:"merge"`
	// SharedUID lets tenants be apart by their views alone, where the engine is
	// an ordinary user and has one id for all of them.
	SharedUID bool `json:"shared_uid"`
}

// Repo is the repository and what the engine does with it.
type Repo struct {
	URL RepoURL `json:"url"`
	// Credential is the engine's, and never enters a sandbox.
	Credential Credential `json:"credential"`
	// Base is the branch that changes are merged into; empty is the host's
	// default branch.
	Base    string  `json:"base"`
	Trigger Trigger `json:"trigger"`
	Until   Until   `json:"until"`
}

// RepoURL is where the repository is.
type RepoURL struct {
	// Host is the kind of code host.
	Host HostKind `json:"host"`
	// Path is the absolute path of a local one.
	Path string `json:"path"`
}

// HostKind is a kind of code host.
type HostKind string

// HostLocal is a bare repository with its issues as files beside it.
const HostLocal HostKind = "local"

// String is the URL in its normal form.
func (u RepoURL) String() string { return string(u.Host) + ":" + u.Path }

// Credential is how the engine proves to the code host who it is.
type Credential struct {
	GitHubApp int    `json:"github_app,omitempty"`
	Key       Secret `json:"key"`
	Token     Secret `json:"token"`
}

// Trigger says which issues may be worked on. The zero value asks for no label.
type Trigger struct {
	Label string `json:"label"`
	// By is who may set the label.
	By merge.People `json:"by"`
}

// Until is how far a run goes. The zero value goes nowhere.
type Until string

// How far a run goes, in order.
const (
	UntilPlan    Until = "plan"
	UntilCommits Until = "commits"
	UntilPR      Until = "pr"
	UntilMerge   Until = "merge"
)

// Reaches reports whether a run that goes as far as u does step.
func (u Until) Reaches(step Until) bool { return u.rank() >= step.rank() && step.rank() > 0 }

func (u Until) rank() int {
	switch u {
	case UntilPlan:
		return 1
	case UntilCommits:
		return 2
	case UntilPR:
		return 3
	case UntilMerge:
		return 4
	}
	return 0
}

// ParseUntil reads the word of a command line.
func ParseUntil(s string) (Until, error) {
	if u := Until(s); u.rank() > 0 {
		return u, nil
	}
	return "", fmt.Errorf("%.60q is none of plan, commits, pr, merge", s)
}

// Budget is what a tenant may spend.
type Budget struct {
	Day   Money `json:"day"`
	Month Money `json:"month"`
	// Unmetered is the operator's word that nobody counts.
	Unmetered bool `json:"unmetered"`
}

// Model is the model API behind the gateway.
type Model struct {
	API      string `json:"api"`
	Upstream string `json:"upstream"`
	Key      Secret `json:"key"`
}

// View is what the agent, the setup and the gate see beside the workspace.
type View struct {
	// Host shows the system directories of this machine, read-only.
	Host  bool   `json:"host"`
	Image string `json:"image"`
	// Limits hold for each run. Time is not set here: it is the stage's, the
	// setup's or the check's.
	Limits boundary.Limits `json:"limits"`
	// RO are directories and files of the host, shown at the same place.
	RO []string `json:"ro"`
	// Path are directories put before the usual ones in PATH.
	Path         []string         `json:"path"`
	AllowMissing []boundary.Layer `json:"allow_missing"`
	// Profile opens the boundary for programs with a sandbox of their own.
	Profile boundary.Profile `json:"profile"`
}

// Setup installs what agent and gate need, on base, before they run.
type Setup struct {
	// Run are commands for a shell, in order; the first that fails ends it.
	Run []string `json:"run"`
	// Key are files of the repository on whose contents the result depends.
	Key    []string      `json:"key"`
	Egress []egress.Rule `json:"egress"`
	// Timeout is for each command.
	Timeout time.Duration `json:"timeout"`
}

// SetupPolicy is the setup's own egress policy. What the config denies is denied
// here too.
func (c *Config) SetupPolicy() egress.Policy {
	return egress.Policy{Allow: c.Setup.Egress, Deny: c.Egress.Deny, Quiet: c.Egress.Quiet}
}

// Agent is the program that writes the code.
type Agent struct {
	Kind         string   `json:"kind"`
	Command      []string `json:"command"`
	Model        string   `json:"model"`
	Instructions string   `json:"instructions"`
	// Env is added to the agent's environment.
	Env map[string]string `json:"env"`
}

// The kinds of agents and the sources of instructions.
const (
	AgentCommand     = "command"
	InstructionsBase = "base"
	InstructionsNone = "none"
)

// Stages are the agent calls. A nil stage is not done.
type Stages struct {
	Plan      *Stage `json:"plan,omitempty"`
	Implement *Stage `json:"implement,omitempty"`
	Review    *Stage `json:"review,omitempty"`
	Fix       *Fix   `json:"fix,omitempty"`
}

// Stage is one agent call.
type Stage struct {
	Tools  []Tool      `json:"tools"`
	Limits StageLimits `json:"limits"`
}

// Fix is the stage that is called when something asks for changes.
type Fix struct {
	Like   string   `json:"like"`
	On     []string `json:"on"`
	Rounds int      `json:"rounds"`
}

// StageLimits bound one agent call.
type StageLimits struct {
	// Turns is passed to the agent; 0 is its own limit.
	Turns  int           `json:"turns"`
	Spend  Money         `json:"spend"`
	Tokens int64         `json:"tokens"`
	Time   time.Duration `json:"time"`
	// Output is the number of bytes of output that are kept; 0 is the view's.
	Output int64 `json:"output"`
}

// Tool is a tool that the agent may ask for in a stage: second layer, not the
// boundary.
type Tool struct {
	Name string
	// Pattern is which commands of a shell; empty is any.
	Pattern string
}

// String is the tool as the config writes it.
func (t Tool) String() string {
	if t.Pattern == "" {
		return t.Name
	}
	return t.Name + "(" + t.Pattern + ")"
}

// MarshalText writes String.
func (t Tool) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Check is one check of the gate.
type Check struct {
	Name string `json:"name"`
	// Run is a command for a shell.
	Run     string        `json:"run"`
	Timeout time.Duration `json:"timeout"`
	Report  string        `json:"report"`
	// MinTests is how many tests must have passed, for a report that counts.
	MinTests int               `json:"min_tests"`
	Env      map[string]string `json:"env"`
}

// The kinds of reports.
const (
	ReportExit   = "exit"
	ReportGoTest = "gotest"
)

// Protect lists paths that a change may not touch (Refuse), may touch with a
// person's approval, or whose change is pointed out, in addition to those that
// package handover protects by itself. Free takes paths out of the latter.
type Protect struct {
	Refuse   []Glob `json:"refuse"`
	Approval []Glob `json:"approval"`
	Note     []Glob `json:"note"`
	Free     []Glob `json:"free"`
}

// Handover bounds what is taken out of a workspace.
type Handover struct {
	Leftovers  string `json:"leftovers"`
	MaxCommits int    `json:"max_commits"`
	MaxFiles   int    `json:"max_files"`
	MaxBytes   int64  `json:"max_bytes"`
	// Allow names what is refused otherwise.
	Allow []string `json:"allow"`
}

// The words of handover.
const (
	LeftoversCommit = "commit"
	LeftoversRefuse = "refuse"
	AllowMerges     = "merges"
	AllowSymlinks   = "symlinks"
	AllowSubmodules = "submodules"
	AllowAttributes = "attributes"
)

// Merge is who merges, and when.
type Merge struct {
	Mode string     `json:"mode"`
	Rule merge.Rule `json:"rule"`
}

// The modes of merging.
const (
	MergeEngine = "engine"
	MergePerson = "person"
)

// Digest identifies what the config means, defaults included: two files that
// differ in comments or order of fields have the same. Verdicts are bound to it.
func (c *Config) Digest() (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("digest config: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "confine config %d\n", Version)
	hash.Write(data)
	return hex.EncodeToString(hash.Sum(nil)), nil
}
