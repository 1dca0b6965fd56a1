//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

// reviewFile is reviews/pull-N/M.yaml.
type reviewFile struct {
	By      string           `yaml:"by"`
	Verdict codehost.Verdict `yaml:"verdict"`
	Head    string           `yaml:"head"`
	At      string           `yaml:"at"`
}

func (h *Host) reviewDir(pull int) string { return h.path("reviews", "pull-"+strconv.Itoa(pull)) }

// reviews reads the newest review of each account, by account.
func (h *Host) reviews(pull int, p people) ([]codehost.Review, error) {
	dir := h.reviewDir(pull)
	ns, err := numbers(dir, ".yaml")
	if err != nil {
		return nil, err
	}
	newest := map[string]codehost.Review{}
	for _, n := range ns {
		path := filepath.Join(dir, numbered(n, ".yaml"))
		data, changed, err := read(path)
		if err != nil {
			return nil, err
		}
		var f reviewFile
		if err := decodeYAML(data, &f); err != nil {
			return nil, &FileError{path, err}
		}
		r, err := f.review(p, changed)
		if err != nil {
			return nil, &FileError{path, err}
		}
		newest[f.By] = r
	}
	var all []codehost.Review
	for _, r := range newest {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b codehost.Review) int { return strings.Compare(a.By.Name, b.By.Name) })
	return all, nil
}

func (f reviewFile) review(p people, changed time.Time) (codehost.Review, error) {
	if f.By == "" {
		return codehost.Review{}, errors.New("by: it is missing")
	}
	if f.Verdict != codehost.Approved && f.Verdict != codehost.ChangesRequested {
		return codehost.Review{}, fmt.Errorf("verdict: %.40q is neither approved nor changes_requested", string(f.Verdict))
	}
	head, err := gitcmd.ParseHash(f.Head)
	if err != nil {
		return codehost.Review{}, fmt.Errorf("head: %w", err)
	}
	at, err := parseStamp("at", f.At, changed.UTC())
	return codehost.Review{By: p.account(f.By), Verdict: f.Verdict, Head: head, At: at}, err
}

// NewReview is a review that a person gives.
type NewReview struct {
	Pull    int
	By      string
	Verdict codehost.Verdict
	// Head is the commit that was looked at.
	Head gitcmd.Hash
}

// AddReview adds a review. A later one of the same account takes its place.
func (h *Host) AddReview(ctx context.Context, n NewReview) error {
	if err := checkName("reviewer", n.By); err != nil {
		return err
	}
	release, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := h.readPull(n.Pull); err != nil {
		return err
	}
	now := h.now()
	f := reviewFile{By: n.By, Verdict: n.Verdict, Head: string(n.Head)}
	if _, err := f.review(nil, now); err != nil {
		return &codehost.InvalidError{Field: "review", Why: err.Error()}
	}
	data := fmt.Appendf(nil, "by: %s\nverdict: %s\nhead: %q\nat: %s\n", scalar(n.By), n.Verdict, n.Head, stamp(now))
	_, err = addNumbered(h.reviewDir(n.Pull), ".yaml", now, func(int) []byte { return data })
	return err
}
