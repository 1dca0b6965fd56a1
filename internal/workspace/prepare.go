package workspace

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/hostview"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
)

//go:embed scripts/*.sh
var scripts embed.FS

// The places of the engine's views.
const (
	// LentTarget is where the lent repository is seen. A workspace that Prepare
	// made needs it there: its objects are in it.
	LentTarget   = "/lent"
	scriptTarget = "/confine/step.sh"
)

// Base is what every step of the engine's workspaces runs with.
type Base struct {
	Driver sandbox.Driver
	// Boundary holds a view with sh, git and GNU tar, an identity, environment
	// and limits. It must not use /workspace, /lent or /confine. What a step
	// needs is added, its network is chosen by the step.
	Boundary boundary.Boundary
	// Weakened is told of missing layers that the boundary allows.
	Weakened func(boundary.Layer, string)
}

// StepError is a step inside a sandbox that did not succeed.
type StepError struct {
	Step string
	Exit sandbox.Exit
	// Said is the end of what it wrote to stderr: untrusted, made plain.
	Said string
}

func (e *StepError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", e.Step)
	switch e.Exit.Reason {
	case sandbox.Exited:
		fmt.Fprintf(&b, "exit status %d", e.Exit.Status)
	case sandbox.Signalled:
		fmt.Fprintf(&b, "signal %d", e.Exit.Signal)
	case "":
		b.WriteString("the sandbox gave no result")
	default:
		b.WriteString(string(e.Exit.Reason))
	}
	if e.Exit.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Exit.Err)
	}
	if e.Said != "" {
		fmt.Fprintf(&b, ": it said %q", e.Said)
	}
	return b.String()
}

func (e *StepError) Unwrap() error { return e.Exit.Err }

// PrepareOptions say what to check out where.
type PrepareOptions struct {
	Base
	// Lent is a repository that Lend made, Commit one of its commits, LentBranch
	// the branch it shows.
	Lent       *gitcmd.Repo
	Commit     gitcmd.Hash
	LentBranch gitcmd.Ref
	// Branch is the branch the run works on.
	Branch gitcmd.Ref
	// Dir is the workspace: a host directory that exists and is empty.
	Dir string
}

// Prepare makes a workspace: git runs inside a sandbox without a network, and
// the objects stay where they are, so that its cost is that of the files. On an
// error the directory holds a part and must be removed (Remove).
func Prepare(ctx context.Context, o PrepareOptions) error {
	if err := prepare(ctx, o); err != nil {
		return fmt.Errorf("prepare workspace: %w", err)
	}
	return nil
}

func prepare(ctx context.Context, o PrepareOptions) error {
	if o.Lent == nil || o.Branch.BranchName() == "" || o.LentBranch.BranchName() == "" {
		return errors.New("no lent repository or no branch was named")
	}
	for _, ref := range []gitcmd.Ref{o.Branch, o.LentBranch} {
		if _, err := gitcmd.ParseRef(string(ref)); err != nil {
			return err
		}
	}
	if _, err := gitcmd.ParseHash(string(o.Commit)); err != nil {
		return err
	}
	if entries, err := os.ReadDir(o.Dir); err != nil {
		return err
	} else if len(entries) > 0 {
		return fmt.Errorf("directory %q is not empty", o.Dir)
	}
	return o.step(ctx, step{
		name: "check out the base", script: "prepare.sh", workspace: o.Dir, lent: o.Lent,
		env: []string{
			"CONFINE_FORMAT=" + string(o.Lent.Format()), "CONFINE_BRANCH=" + o.Branch.BranchName(),
			"CONFINE_BASE_BRANCH=" + o.LentBranch.BranchName(), "CONFINE_BASE=" + string(o.Commit),
		},
	})
}

// step is one command in a fresh sandbox.
type step struct {
	name string
	// script is one of our own, with args; else command is given to sh.
	script  string
	args    []string
	command string

	workspace, home string // host directories, writable; "" leaves it out
	lent            *gitcmd.Repo
	env             []string
	stdin           io.Reader
	stdout, stderr  io.Writer
	egress          sandbox.EgressServer
}

// step runs one step and returns a *StepError unless it succeeded.
func (b Base) step(ctx context.Context, s step) error {
	spec, err := b.spec(s)
	if err != nil {
		return err
	}
	said := &tail{next: s.stderr}
	spec.Stderr = said
	run, err := b.Driver.Start(ctx, spec)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if w, ok := s.stdout.(*cappedFile); ok {
		w.tooMuch(run.Kill)
	}
	exit := run.Wait()
	if w, ok := s.stdout.(*cappedFile); ok && w.failed() != nil {
		return fmt.Errorf("%s: %w", s.name, w.failed())
	}
	if !exit.Success() {
		return &StepError{Step: s.name, Exit: exit, Said: said.text()}
	}
	if s.stdout != nil && exit.OutputDropped > 0 {
		return fmt.Errorf("%s: its output is larger than the boundary's limit", s.name)
	}
	return nil
}

// spec puts a step's boundary together out of the base.
func (b Base) spec(s step) (sandbox.Spec, error) {
	bd := b.Boundary
	bd.View.Mounts = slices.Clone(bd.View.Mounts)
	bd.View.Files = slices.Clone(bd.View.Files)
	bd.Env = withEnv(bd.Env, s.env...)
	bd.View.Workdir = "/"
	bd.Network = boundary.NetworkOff
	args := []string{"/bin/sh", "-c", s.command}
	if s.script != "" {
		text, err := scripts.ReadFile("scripts/" + s.script)
		if err != nil {
			return sandbox.Spec{}, err
		}
		bd.View.Files = append(bd.View.Files, boundary.File{Path: scriptTarget, Mode: 0o444, Data: text})
		args = append([]string{"/bin/sh", scriptTarget}, s.args...)
		// Nothing of the home decides what git does in our own scripts, and its
		// output must not depend on the language.
		bd.Env = withEnv(bd.Env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	}
	if s.egress != nil {
		bd.Network = boundary.NetworkCaptured
	}
	if s.workspace != "" {
		if err := addBind(&bd.View, Inside, s.workspace, true); err != nil {
			return sandbox.Spec{}, err
		}
		bd.View.Workdir = Inside
	}
	if s.home != "" {
		if err := setHome(&bd, s.home); err != nil {
			return sandbox.Spec{}, err
		}
	}
	if s.lent != nil {
		if err := addBind(&bd.View, LentTarget, s.lent.Dir(), false); err != nil {
			return sandbox.Spec{}, err
		}
	}
	return sandbox.Spec{Boundary: bd, Args: args, Stdin: s.stdin, Stdout: s.stdout, Egress: s.egress, Weakened: b.Weakened}, nil
}

// withEnv sets variables in a copy: of two with one name, programs take either.
func withEnv(env []string, set ...string) []string {
	env = slices.Clone(env)
	for _, e := range set {
		name, _, _ := strings.Cut(e, "=")
		env = append(slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") }), e)
	}
	return env
}

func addBind(v *boundary.View, target, source string, writable bool) error {
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	if !path.IsAbs(real) {
		return fmt.Errorf("mount %q: want an absolute path", source)
	}
	v.Mounts = append(v.Mounts, boundary.Mount{Kind: boundary.Bind, Target: target, Source: real, Writable: writable, Owned: true})
	return nil
}

// setHome puts a host directory in the place of the private home.
func setHome(b *boundary.Boundary, source string) error {
	home := hostview.HomeDir(b.Identity.UID)
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	m := boundary.Mount{Kind: boundary.Bind, Target: home, Source: real, Writable: true}
	for i := range b.View.Mounts {
		if b.View.Mounts[i].Target == home {
			b.View.Mounts[i] = m
			return nil
		}
	}
	b.View.Mounts = append(b.View.Mounts, m)
	return nil
}

// tail keeps the end of what a step says, and passes all of it on.
type tail struct {
	next io.Writer
	kept []byte
}

const maxSaid = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxSaid):]...)
	if over := len(t.kept) - maxSaid; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	if t.next != nil {
		return t.next.Write(p)
	}
	return len(p), nil
}

func (t *tail) text() string {
	return plaintext.Line(string(bytes.TrimSpace(t.kept)), maxSaid)
}
