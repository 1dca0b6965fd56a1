//go:build unix

package local

import (
	"context"
	"testing"
	"time"

	"confine/internal/codehost"
	"confine/internal/codehost/codehosttest"
	"confine/internal/gitcmd"
)

// atHost does what people do on a local host, where they would use an editor.
type atHost struct{ h *Host }

func (a atHost) File(ctx context.Context, w codehosttest.Words) (int, error) {
	return a.h.AddIssue(ctx, NewIssue{Title: w.Title, Author: w.Author, Body: w.Body, Labels: w.Labels})
}

func (a atHost) Comment(ctx context.Context, t codehost.Thread, w codehosttest.Words) error {
	_, err := a.h.AddComment(ctx, NewComment{Thread: t, Author: w.Author, Body: w.Body})
	return err
}

func (a atHost) Permit(ctx context.Context, account codehost.Account) error {
	return a.h.SetPermission(ctx, account)
}

func (a atHost) Review(ctx context.Context, pull int, r codehost.Review) error {
	return a.h.AddReview(ctx, NewReview{Pull: pull, By: r.By.Name, Verdict: r.Verdict, Head: r.Head})
}

func (a atHost) ClosePull(ctx context.Context, pull int) error { return a.h.ClosePull(ctx, pull) }

func (a atHost) Protect(ctx context.Context, p codehost.Protection) error { return a.h.Protect(ctx, p) }

// newHost makes a host with a base of one commit.
func newHost(t *testing.T) *Host {
	t.Helper()
	clock := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h, err := Init(t.Context(), t.TempDir()+"/host", InitOptions{
		People: map[string]codehost.Permission{"mia": codehost.PermissionWrite, "sam": codehost.PermissionRead},
		First: func(_ context.Context, repo *gitcmd.Repo) (gitcmd.Hash, error) {
			return codehosttest.Commit(t, repo, "first"), nil
		},
		Now: func() time.Time { return clock },
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestConformance(t *testing.T) {
	codehosttest.Run(t, func(t *testing.T) codehosttest.Harness {
		h := newHost(t)
		return codehosttest.Harness{Host: h, Account: DefaultAccount, Other: "mia", Reader: "sam", People: atHost{h}}
	})
}
