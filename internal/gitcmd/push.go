package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Push is one update of one ref of a remote.
type Push struct {
	To  Remote
	Ref Ref
	// New is the commit to be there; "" deletes the ref, which needs Old.
	New Hash
	// Old is the value that the remote's ref must have: the lease. "" means
	// that it must not exist.
	Old Hash
	// Rewrite allows that New does not contain Old. Without it the push is
	// refused here, before anything is sent.
	Rewrite bool
	// HookToken is handed to the hooks of a Path remote as CONFINE_PUSH_TOKEN.
	HookToken string
}

// PushOutcome says how a push ended.
type PushOutcome string

// The outcomes. Only PushDone and PushAlready leave the remote at New.
const (
	PushDone    PushOutcome = "done"
	PushAlready PushOutcome = "already" // the remote had New before
	PushMoved   PushOutcome = "moved"   // the remote's ref is not Old any more
	PushRefused PushOutcome = "refused" // by the remote: protection, a hook
)

// PushResult is a push that reached the remote.
type PushResult struct {
	Outcome PushOutcome
	// Reason is what git or the remote said about a refusal: untrusted, quoted,
	// capped.
	Reason string
}

// Push updates one ref of a remote, with a lease. An error means that it is not
// known what the remote did: ask it (LsRemote) before trying again. Push options
// are never sent.
func (r *Repo) Push(ctx context.Context, p Push) (PushResult, error) {
	spec, err := r.checkPush(ctx, p)
	if err != nil {
		return PushResult{}, err
	}
	call, err := p.To.prepare()
	if err != nil {
		return PushResult{}, err
	}
	c := call.command("push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--no-progress",
		"--recurse-submodules=no", "--force-with-lease="+string(p.Ref)+":"+string(p.Old),
		"--end-of-options", call.address, spec)
	c.exits = []int{1}
	if p.HookToken != "" {
		if p.To.Path == "" || strings.ContainsAny(p.HookToken, "\x00\n") {
			return PushResult{}, fmt.Errorf("push %s: a hook token is for a path only, in one line", p.Ref)
		}
		c.env = append(c.env, "CONFINE_PUSH_TOKEN="+p.HookToken)
		c.secrets = append(c.secrets, p.HookToken)
	}
	out, exit, err := r.output(ctx, c)
	if err != nil {
		return PushResult{}, err
	}
	result, ok := parsePush(string(out), p.Ref, c.secrets)
	if !ok || (exit == 0) != (result.Outcome == PushDone || result.Outcome == PushAlready) {
		return PushResult{}, &Error{Op: "push", Args: strikeOutArgs(c.args, c.secrets), Exit: exit, Cause: errors.New("no clear answer about the ref")}
	}
	return result, nil
}

func (r *Repo) checkPush(ctx context.Context, p Push) (spec string, err error) {
	if err := p.Ref.check(); err != nil {
		return "", err
	}
	if p.Old != "" {
		if err := r.checkHash(p.Old); err != nil {
			return "", err
		}
	}
	if p.New == "" {
		if p.Old == "" {
			return "", fmt.Errorf("push %s: neither a new nor an old value", p.Ref)
		}
		return ":" + string(p.Ref), nil
	}
	if err := r.checkHash(p.New); err != nil {
		return "", err
	}
	if p.Old != "" && !p.Rewrite {
		if known, err := r.IsAncestor(ctx, p.Old, p.New); err != nil || !known {
			if err != nil {
				return "", fmt.Errorf("push %s: compare with the expected old value: %w", p.Ref, err)
			}
			return "", &RewriteError{Ref: p.Ref, Old: p.Old, New: p.New}
		}
	}
	return string(p.New) + ":" + string(p.Ref), nil
}

// RewriteError is a push that would have dropped commits of the remote's ref.
type RewriteError struct {
	Ref      Ref
	Old, New Hash
}

func (e *RewriteError) Error() string {
	return fmt.Sprintf("push %s: %s does not contain %s, which is there", e.Ref, e.New.Short(), e.Old.Short())
}

// parsePush finds the line about ref in push's porcelain output: a flag, the two
// refs and a summary, separated by tabs.
func parsePush(out string, ref Ref, secrets []string) (PushResult, bool) {
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(fields) != 3 || !strings.HasSuffix(fields[1], ":"+string(ref)) {
			continue
		}
		summary := fields[2]
		switch fields[0] {
		case " ", "+", "*", "-":
			return PushResult{Outcome: PushDone}, true
		case "=":
			return PushResult{Outcome: PushAlready}, true
		case "!":
			reason := strconv.QuoteToASCII(string(strikeOut([]byte(cut(summary, 400)), secrets)))
			// "[rejected]" is git's own refusal here: the lease did not hold.
			// "[remote rejected]" is the other side's, also when its ref moved
			// between its answer and our update.
			if strings.HasPrefix(summary, "[rejected]") || strings.HasPrefix(summary, "[remote rejected] (cannot lock ref") ||
				strings.HasPrefix(summary, "[remote rejected] (failed to update ref)") {
				return PushResult{Outcome: PushMoved, Reason: reason}, true
			}
			return PushResult{Outcome: PushRefused, Reason: reason}, true
		}
	}
	return PushResult{}, false
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}
