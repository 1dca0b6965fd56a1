//go:build unix

package local

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

// statusFile is one entry of statuses/COMMIT.json.
type statusFile struct {
	Context     string               `json:"context"`
	State       codehost.StatusState `json:"state"`
	Description string               `json:"description,omitempty"`
	URL         string               `json:"url,omitempty"`
	By          string               `json:"by"`
	At          time.Time            `json:"at"`
}

// maxStatuses caps the contexts of one commit.
const maxStatuses = 1000

// SetStatus writes one status of a commit.
func (h *Host) SetStatus(ctx context.Context, s codehost.Status) (codehost.Result, error) {
	if err := s.Validate(); err != nil {
		return codehost.Result{}, err
	}
	release, err := h.lock(ctx)
	if err != nil {
		return codehost.Result{}, err
	}
	defer release()
	if _, result, err := h.mayWrite(); err != nil || !result.OK() {
		return result, err
	}
	if err := h.checkCommit(ctx, s.Commit); err != nil {
		return codehost.Result{}, err
	}
	all, err := h.readStatuses(s.Commit)
	if err != nil {
		return codehost.Result{}, err
	}
	now := h.now()
	entry := statusFile{Context: s.Context, State: s.State, Description: s.Description, URL: s.URL, By: h.account, At: now.UTC()}
	at := slices.IndexFunc(all, func(old statusFile) bool { return old.Context == s.Context })
	if at < 0 {
		if len(all) >= maxStatuses {
			return codehost.Result{Outcome: codehost.NotAllowed, Reason: "the commit has too many statuses"}, nil
		}
		all = append(all, entry)
	} else {
		same := all[at]
		same.At = entry.At
		if same == entry {
			return codehost.Result{Outcome: codehost.Already}, nil
		}
		all[at] = entry
	}
	if err := saveJSON(h.path("statuses", string(s.Commit)+".json"), all, now); err != nil {
		return codehost.Result{}, err
	}
	return codehost.Result{Outcome: codehost.Done}, nil
}

// Statuses reads the newest status of each context of a commit, by context.
func (h *Host) Statuses(ctx context.Context, commit gitcmd.Hash) ([]codehost.Status, error) {
	if _, err := gitcmd.ParseHash(string(commit)); err != nil {
		return nil, &codehost.InvalidError{Field: "commit", Why: err.Error()}
	}
	if err := h.checkCommit(ctx, commit); err != nil {
		return nil, err
	}
	p, err := h.people()
	if err != nil {
		return nil, err
	}
	files, err := h.readStatuses(commit)
	if err != nil {
		return nil, err
	}
	var all []codehost.Status
	for _, f := range files {
		all = append(all, codehost.Status{
			Commit: commit, Context: f.Context, State: f.State, Description: f.Description, URL: f.URL,
			By: p.account(f.By), At: f.At,
		})
	}
	slices.SortFunc(all, func(a, b codehost.Status) int { return strings.Compare(a.Context, b.Context) })
	return all, nil
}

func (h *Host) readStatuses(commit gitcmd.Hash) ([]statusFile, error) {
	path := h.path("statuses", string(commit)+".json")
	var all []statusFile
	if err := readJSON(path, &all); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	seen := map[string]bool{}
	for _, f := range all {
		s := codehost.Status{Commit: commit, Context: f.Context, State: f.State, Description: f.Description, URL: f.URL}
		if err := s.Validate(); err != nil {
			return nil, &FileError{path, err}
		}
		if seen[f.Context] {
			// Which of two is the newest can't be told.
			return nil, &FileError{path, errors.New("two statuses have one context")}
		}
		seen[f.Context] = true
	}
	return all, nil
}
