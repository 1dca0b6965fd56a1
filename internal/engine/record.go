package engine

import (
	"errors"
	"fmt"
	"time"

	"confine/internal/agent"
	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/handover"
	"confine/internal/merge"
	"confine/internal/mergeauthority"
	"confine/internal/plaintext"
)

// State is where a run stands. The zero value is no state.
type State string

// The states. All but Running are ends.
const (
	Running     State = "running"
	Planned     State = "planned"     // until plan: the plan is there
	Committed   State = "committed"   // until commits: gated commits are kept
	Checked     State = "checked"     // setup and gate passed on the base
	Opened      State = "opened"      // a pull request is open for a person or the host
	Merged      State = "merged"      // the tested tree is in the base
	Refused     State = "refused"     // a rule said no
	Waiting     State = "waiting"     // a person has to answer
	Failed      State = "failed"      // the agent, the gate or the engine failed
	Interrupted State = "interrupted" // the engine was killed
)

// Record is everything that is known of a run.
type Record struct {
	Version int    `json:"version"`
	Run     string `json:"run"`
	Tenant  string `json:"tenant"`
	// Repository and BaseBranch are what it works on.
	Repository string     `json:"repository,omitempty"`
	BaseBranch gitcmd.Ref `json:"base_branch,omitempty"`
	Issue      int        `json:"issue"`
	Title      string     `json:"title"`
	Until      Until      `json:"until"`
	State      State      `json:"state"`
	Step       string     `json:"step"`
	Reason     string     `json:"reason,omitempty"`
	Started    time.Time  `json:"started"`
	Ended      time.Time  `json:"ended"`

	ConfigDigest string           `json:"config_digest"`
	ViewDigest   string           `json:"view_digest"`
	Missing      []boundary.Layer `json:"missing_layers,omitempty"`
	// Profile and Weaker are in what the boundary was opened.
	Profile boundary.Profile `json:"profile,omitempty"`
	Weaker  []string         `json:"weaker,omitempty"`

	Base   gitcmd.Hash `json:"base,omitempty"`
	Branch gitcmd.Ref  `json:"branch,omitempty"`
	Head   gitcmd.Hash `json:"head,omitempty"`
	Pull   int         `json:"pull,omitempty"`
	Landed gitcmd.Hash `json:"landed,omitempty"`

	LeftOut int           `json:"texts_left_out"`
	Stages  []StageRecord `json:"stages"`
	// Findings are what the hand-over refused, wants approved, or noted.
	Findings  []handover.Refusal      `json:"refusals,omitempty"`
	Approvals []handover.Refusal      `json:"approvals,omitempty"`
	Notes     []handover.Refusal      `json:"notes,omitempty"`
	Nested    []string                `json:"nested_repositories,omitempty"`
	Tampered  []string                `json:"tampered,omitempty"`
	Changed   []string                `json:"changed_files,omitempty"`
	Verdict   *gate.Verdict           `json:"verdict,omitempty"`
	Rule      *merge.Result           `json:"merge_rule,omitempty"`
	Reasons   []mergeauthority.Reason `json:"merge_reasons,omitempty"`
	// Output is the end of what failed commands of setup and gate wrote.
	Output []CommandOutput `json:"failed_output,omitempty"`
	// Rescue is the file with the agent's work, or the directory it is kept in.
	Rescue string `json:"rescue,omitempty"`
	// Others are refs of the agent whose commits its head does not hold. They are
	// not delivered; RescueOthers is a bundle of them, and OthersLost says why it
	// may not hold all.
	Others       []handover.OtherRef `json:"other_refs,omitempty"`
	OthersLost   []string            `json:"other_refs_lost,omitempty"`
	RescueOthers string              `json:"rescue_other_refs,omitempty"`
	AuditHead    string              `json:"audit_head,omitempty"`
}

// CommandOutput is the end of what a command of setup or gate wrote: untrusted,
// made plain.
type CommandOutput struct {
	// Step is setup or gate, Name the check's name or the setup command.
	Step  string   `json:"step"`
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
}

// StageRecord is one agent call.
type StageRecord struct {
	Name     string        `json:"name"`
	Ended    string        `json:"ended"`
	Status   int           `json:"status"`
	Duration time.Duration `json:"duration_ns"`
	Output   int64         `json:"output_bytes"`
	Dropped  int64         `json:"output_dropped,omitempty"`
	Result   agent.Result  `json:"result"`
	Refusals []Refusal     `json:"egress_refusals,omitempty"`
}

// Refusal is one attempt to reach something that was not allowed.
type Refusal struct {
	Target  string `json:"target"`
	Program string `json:"program,omitempty"`
	Reason  string `json:"reason"`
	Count   int    `json:"count"`
	Quiet   bool   `json:"quiet"`
	// Allow is the config line that would allow it.
	Allow string `json:"allow,omitempty"`
}

func refusals(c *egress.Collector) []Refusal {
	var out []Refusal
	for _, r := range c.Refusals() {
		out = append(out, Refusal{
			Target: r.Target(), Program: plaintext.Line(r.Program, 64), Reason: string(r.Verdict.Reason),
			Count: max(1, r.Count), Quiet: r.Verdict.Quiet, Allow: r.Verdict.ConfigLine(),
		})
	}
	return out
}

// end is the way a run ends that is not a fault of the engine.
type end struct {
	state  State
	reason string
	hint   string
	rule   string
	field  string
}

func (e *end) Error() string { return e.reason }

// Hint says what to change.
func (e *end) Hint() string { return e.hint }

// RefusedError is a run that a rule ended.
type RefusedError struct{ end }

// Refused names the rule and the field that governs it.
func (e *RefusedError) Refused() (rule, field string) { return e.rule, e.field }

// WaitingError is a run that waits for a person.
type WaitingError struct{ end }

// FailedError is a run in which agent or gate failed.
type FailedError struct{ end }

func refused(rule, field, hint, format string, args ...any) error {
	return &RefusedError{end{state: Refused, rule: rule, field: field, hint: hint, reason: fmt.Sprintf(format, args...)}}
}

func waiting(hint, format string, args ...any) error {
	return &WaitingError{end{state: Waiting, hint: hint, reason: fmt.Sprintf(format, args...)}}
}

func failed(hint, format string, args ...any) error {
	return &FailedError{end{state: Failed, hint: hint, reason: fmt.Sprintf(format, args...)}}
}

// stateOf is the state that an error ends a run in.
func stateOf(err error) State {
	var (
		r *RefusedError
		w *WaitingError
	)
	switch {
	case errors.As(err, &r):
		return Refused
	case errors.As(err, &w):
		return Waiting
	}
	return Failed
}
