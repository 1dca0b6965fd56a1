package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// Report says how a check's success is read.
type Report string

// The reports. The zero value is Exit.
const (
	// Exit: status 0 is success.
	Exit Report = "exit"
	// GoTest: status 0, and a `go test -json` report on standard output that
	// holds: nothing failed, nothing breaks off, enough tests passed.
	GoTest Report = "gotest"
)

// DefaultTimeout is the time that a check gets where it does not say.
const DefaultTimeout = 20 * time.Minute

// defaultOutput caps what a check may write where the boundary does not.
const defaultOutput = 256 << 20

// Check is one command of the gate.
type Check struct {
	// Name is shown and recorded: 1-64 of a-z, A-Z, 0-9, '.', '_' and '-'.
	Name string
	Args []string
	// Env is added to the boundary's environment. It holds no secret: the
	// check runs what the agent wrote.
	Env     []string
	Timeout time.Duration // 0 means DefaultTimeout
	Report  Report
	// MinTests is how many tests must pass, of a report that counts them. 0
	// means 1: a test command that runs no test is a gate that is open.
	MinTests int
}

// Plan is what to check, and with which commands.
type Plan struct {
	Candidate    Candidate
	ConfigDigest string
	ViewDigest   string
	Checks       []Check
}

// Workspaces makes the place where a check runs.
type Workspaces interface {
	// Make prepares a new workspace that holds exactly the candidate's tree,
	// on which nothing untrusted ran but the tenant's setup, and the boundary
	// around it. Its writable directories are new ones for each check.
	Make(ctx context.Context, check string, c Candidate) (Workspace, error)
}

// Workspace is a prepared boundary and what removes it.
type Workspace struct {
	Boundary boundary.Boundary
	// Release removes everything that Make made. May be nil.
	Release func() error
}

// Runner runs gates.
type Runner struct {
	Driver     sandbox.Driver
	Workspaces Workspaces
	// Now is the clock; nil means the machine's.
	Now func() time.Time
	// Started and Finished tell a watcher about each check; may be nil.
	Started  func(name string)
	Finished func(CheckResult)
}

// PlanError is a plan that can't be run, or a workspace that is not what a gate
// runs in: a refusal, named by rule and field.
type PlanError struct {
	Check string
	Field string
	Why   string
}

func (e *PlanError) Error() string {
	if e.Check == "" {
		return fmt.Sprintf("plan gate: %s: %s", e.Field, e.Why)
	}
	return fmt.Sprintf("plan gate: check %.100q: %s: %s", e.Check, e.Field, e.Why)
}

// Run runs every check of the plan, each in a fresh sandbox, also after one
// failed. The error is a fault or a *PlanError: the gate could not be run, which
// says nothing about the candidate; the verdict then holds what was found so far
// and has not passed.
func (r Runner) Run(ctx context.Context, p Plan) (Verdict, error) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	v := Verdict{
		Version: verdictVersion, Candidate: p.Candidate, ConfigDigest: p.ConfigDigest, ViewDigest: p.ViewDigest,
		Started: now().UTC(),
	}
	if err := p.check(); err != nil {
		return v, err
	}
	used := map[string]string{}
	for _, check := range p.Checks {
		if r.Started != nil {
			r.Started(check.Name)
		}
		result, err := r.runCheck(ctx, p.Candidate, check, used)
		if result.Name != "" {
			v.Checks = append(v.Checks, result)
			if r.Finished != nil {
				r.Finished(result)
			}
		}
		if err != nil {
			v.Ended = now().UTC()
			return v, err
		}
	}
	v.Ended = now().UTC()
	v.Complete = true
	return v, nil
}

func (p Plan) check() error {
	for field, value := range map[string]string{
		"base": string(p.Candidate.Base), "head": string(p.Candidate.Head), "commit": string(p.Candidate.Commit),
		"tree": string(p.Candidate.Tree), "config digest": p.ConfigDigest, "view digest": p.ViewDigest,
	} {
		if value == "" {
			return &PlanError{Field: field, Why: "it is empty: the verdict would be about nothing"}
		}
	}
	if len(p.Checks) == 0 {
		return &PlanError{Field: "checks", Why: "there is none"}
	}
	seen := map[string]bool{}
	for _, c := range p.Checks {
		bad := func(field, why string) error { return &PlanError{Check: c.Name, Field: field, Why: why} }
		switch {
		case c.Name == "" || len(c.Name) > 64 || strings.Trim(c.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "":
			return bad("name", "want 1-64 letters, digits, '.', '_' and '-'")
		case seen[c.Name]:
			return bad("name", "another check has it")
		case len(c.Args) == 0 || c.Args[0] == "":
			return bad("run", "it is empty")
		case c.Timeout < 0:
			return bad("timeout", "it is negative")
		case c.Report != "" && c.Report != Exit && c.Report != GoTest:
			return bad("report", fmt.Sprintf("%.40q is neither exit nor gotest", string(c.Report)))
		case c.MinTests < 0:
			return bad("min_tests", "it is negative")
		case c.MinTests > 0 && c.Report != GoTest:
			return bad("min_tests", "the report does not count tests")
		}
		seen[c.Name] = true
	}
	return nil
}

// runCheck runs one check. A result without a name is none.
func (r Runner) runCheck(ctx context.Context, c Candidate, check Check, used map[string]string) (result CheckResult, err error) {
	if err := ctx.Err(); err != nil {
		return result, fmt.Errorf("run check %q: %w", check.Name, context.Cause(ctx))
	}
	w, err := r.Workspaces.Make(ctx, check.Name, c)
	if err != nil {
		return result, fmt.Errorf("make the workspace of check %q: %w", check.Name, err)
	}
	if w.Release != nil {
		defer func() {
			if releaseErr := w.Release(); releaseErr != nil {
				err = errors.Join(err, fmt.Errorf("remove the workspace of check %q: %w", check.Name, releaseErr))
			}
		}()
	}
	b, err := confined(w.Boundary, check, used)
	if err != nil {
		return result, err
	}
	return r.runCommand(ctx, b, check)
}

// confined holds the boundary to what a gate may have, and adds the check's own
// limits.
func confined(b boundary.Boundary, check Check, used map[string]string) (boundary.Boundary, error) {
	if b.Network != boundary.NetworkOff {
		return b, &PlanError{check.Name, "network", "a gate has none: what the agent wrote would talk"}
	}
	for _, m := range b.View.Mounts {
		if m.Kind != boundary.Bind || !m.Writable {
			continue
		}
		if by, ok := used[m.Source]; ok && by != check.Name {
			return b, &PlanError{check.Name, "workspace", fmt.Sprintf("%.200q was writable for check %q before: it is not fresh", m.Source, by)}
		}
		used[m.Source] = check.Name
	}
	timeout := check.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	if b.Limits.Time == 0 || b.Limits.Time > timeout {
		b.Limits.Time = timeout
	}
	if b.Limits.Output == 0 {
		b.Limits.Output = defaultOutput
	}
	b.Env = append(slices.Clone(b.Env), check.Env...)
	return b, nil
}

func (r Runner) runCommand(ctx context.Context, b boundary.Boundary, check Check) (CheckResult, error) {
	kept := &keeper{}
	spec := sandbox.Spec{Boundary: b, Args: check.Args, Stdout: kept, Stderr: kept}
	var tests *goTests
	if check.Report == GoTest {
		tests = newGoTests(kept)
		spec.Stdout = io.Writer(tests)
	}
	running, err := r.Driver.Start(ctx, spec)
	var start *sandbox.StartError
	if errors.As(err, &start) && (start.NotFound || start.NotExecutable) {
		// The head may have removed its own test script.
		return CheckResult{Name: check.Name, Reason: fmt.Sprintf("the command %.200q was not found in the view or can't be executed", check.Args[0])}, nil
	}
	if err != nil {
		return CheckResult{}, fmt.Errorf("run check %q: %w", check.Name, err)
	}
	exit := running.Wait()
	result := CheckResult{
		Name: check.Name, Ended: exit.Reason, Status: exit.Status, Duration: exit.Duration, Missing: exit.Missing,
		Output: kept.output(exit.OutputBytes),
	}
	switch exit.Reason {
	case sandbox.Exited:
	case sandbox.Cancelled:
		result.Reason = "it was cancelled"
		return result, fmt.Errorf("run check %q: %w", check.Name, orCancelled(ctx))
	case sandbox.Fault, "":
		result.Reason = "the sandbox broke"
		return result, fmt.Errorf("run check %q: the sandbox broke: %w", check.Name, orUnknown(exit.Err))
	case sandbox.Signalled:
		result.Reason = fmt.Sprintf("it was ended by signal %d", exit.Signal)
	default:
		result.Reason = fmt.Sprintf("it was ended: %s", exit.Reason)
	}
	if exit.Err != nil && result.Reason == "" {
		result.Reason = "the sandbox broke"
		return result, fmt.Errorf("run check %q: %w", check.Name, exit.Err)
	}
	if tests != nil {
		counts, why := tests.end(max(check.MinTests, 1))
		result.Tests, result.Output = &counts, kept.output(0)
		if why == "" && exit.OutputDropped > 0 {
			why = "it wrote more than the output limit, so its report is cut off"
		}
		if result.Reason == "" {
			result.Reason = why
		}
	}
	if exit.Reason == sandbox.Exited && exit.Status != 0 {
		result.Reason = because(fmt.Sprintf("it ended with status %d", exit.Status), result.Reason)
	}
	if result.Reason != "" {
		result.Reason = because(result.Reason, limitsHit(exit))
	}
	result.Passed = exit.Success() && result.Reason == ""
	return result, nil
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// limitsHit says which limits a check met that did not end it as a whole: a status
// such as 137 does not tell.
func limitsHit(e sandbox.Exit) string {
	var hit []string
	if e.OOMKills > 0 && e.Reason != sandbox.OutOfMemory {
		hit = append(hit, fmt.Sprintf("processes were killed at the memory limit (%d times, view.limits.memory)", e.OOMKills))
	}
	if e.PidsHit > 0 {
		hit = append(hit, fmt.Sprintf("new processes were refused at their limit (%d times, view.limits.pids)", e.PidsHit))
	}
	return strings.Join(hit, "; ")
}

func orCancelled(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.New("it was cancelled")
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("it did not say how it ended")
	}
	return err
}
