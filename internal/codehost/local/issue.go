//go:build unix

package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"confine/internal/codehost"
)

// issueMatter is the front matter of an issue.
type issueMatter struct {
	Title   string         `yaml:"title"`
	Author  string         `yaml:"author"`
	State   codehost.State `yaml:"state"`
	Created string         `yaml:"created"`
	Labels  []labelMatter  `yaml:"labels"`
}

// labelMatter is a label: its name, or a mapping that says who put it there and
// when. A plain name was put there by the author with the text, which vouches
// for no more than he may.
type labelMatter struct {
	Name string `yaml:"name"`
	By   string `yaml:"by"`
	At   string `yaml:"at"`
}

// UnmarshalYAML reads both forms.
func (l *labelMatter) UnmarshalYAML(data []byte) error {
	var name string
	if yaml.Unmarshal(data, &name) == nil {
		l.Name = name
		return nil
	}
	type full labelMatter
	return decodeYAML(data, (*full)(l))
}

// Issue reads an issue with its comments.
func (h *Host) Issue(ctx context.Context, number int) (codehost.Issue, error) {
	p, err := h.people()
	if err != nil {
		return codehost.Issue{}, err
	}
	path := h.path("issues", numbered(number, ".md"))
	var m issueMatter
	body, changed, err := readMarkdown(path, &m)
	if errors.Is(err, fs.ErrNotExist) {
		return codehost.Issue{}, &codehost.NotFoundError{Kind: "issue", Name: strconv.Itoa(number)}
	}
	if err != nil {
		return codehost.Issue{}, err
	}
	issue, err := m.issue(p, body, changed)
	if err != nil {
		return codehost.Issue{}, &FileError{path, err}
	}
	issue.Number = number
	if issue.Comments, err = h.comments(codehost.Thread{Issue: number}, p); err != nil {
		return codehost.Issue{}, err
	}
	closed, err := h.closedByMerge(number)
	if err != nil {
		return codehost.Issue{}, err
	}
	if closed {
		issue.State = codehost.Closed
	}
	if issue.Revision, err = revision(issue); err != nil {
		return codehost.Issue{}, err
	}
	claim, err := h.readClaim(number)
	if err != nil {
		return codehost.Issue{}, err
	}
	issue.ClaimedBy = claim.Key
	return issue, nil
}

func (m issueMatter) issue(p people, body string, changed time.Time) (codehost.Issue, error) {
	if strings.TrimSpace(m.Title) == "" {
		return codehost.Issue{}, errors.New("title: it is missing")
	}
	if m.Author == "" {
		return codehost.Issue{}, errors.New("author: it is missing")
	}
	switch m.State {
	case "":
		m.State = codehost.Open
	case codehost.Open, codehost.Closed:
	default:
		return codehost.Issue{}, fmt.Errorf("state: %.40q is neither open nor closed", string(m.State))
	}
	created, err := parseStamp("created", m.Created, changed)
	if err != nil {
		return codehost.Issue{}, err
	}
	issue := codehost.Issue{
		Title: m.Title, State: m.State,
		Text: codehost.Text{Author: p.account(m.Author), Body: body, CreatedAt: created, ChangedAt: changed.UTC()},
	}
	for _, l := range m.Labels {
		if strings.TrimSpace(l.Name) == "" {
			return codehost.Issue{}, errors.New("labels: one has no name")
		}
		at, err := parseStamp("labels: at", l.At, changed.UTC())
		if err != nil {
			return codehost.Issue{}, err
		}
		by := l.By
		if by == "" {
			by = m.Author
		}
		issue.Labels = append(issue.Labels, codehost.Label{Name: l.Name, By: p.account(by), At: at})
	}
	return issue, nil
}

// revision is a digest of all that a decision about the issue is made from.
func revision(i codehost.Issue) (string, error) {
	data, err := json.Marshal(i)
	if err != nil {
		return "", fmt.Errorf("digest issue: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// NewIssue is an issue that a person files.
type NewIssue struct {
	Title, Author, Body string
	Labels              []string
}

// AddIssue files an issue and returns its number.
func (h *Host) AddIssue(ctx context.Context, n NewIssue) (int, error) {
	if err := checkName("author", n.Author); err != nil {
		return 0, err
	}
	for field, words := range map[string][]string{"title": {n.Title}, "label": n.Labels} {
		for _, word := range words {
			if strings.TrimSpace(word) == "" {
				return 0, &codehost.InvalidError{Field: field, Why: "it is empty"}
			}
			if err := codehost.CheckLine(field, word, 1000); err != nil {
				return 0, err
			}
		}
	}
	release, err := h.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	now := h.now()
	return addNumbered(h.path("issues"), ".md", now, func(int) []byte {
		m := newFrontMatter()
		m.text("title", n.Title)
		m.text("author", n.Author)
		m.text("state", string(codehost.Open))
		m.time("created", now)
		m.list("labels", n.Labels)
		return m.with(n.Body)
	})
}

// claimFile is claims/N.json.
type claimFile struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
}

func (h *Host) readClaim(issue int) (claimFile, error) {
	var c claimFile
	path := h.path("claims", numbered(issue, ".json"))
	err := readJSON(path, &c)
	if errors.Is(err, fs.ErrNotExist) {
		return claimFile{}, nil
	}
	if err == nil && c.Key == "" {
		err = &FileError{path, errors.New("key: it is missing")}
	}
	return c, err
}

// Claim takes an issue for one run.
func (h *Host) Claim(ctx context.Context, c codehost.Claim) (codehost.ClaimResult, error) {
	if err := c.Validate(); err != nil {
		return codehost.ClaimResult{}, err
	}
	if c.Revision == "" {
		return codehost.ClaimResult{}, &codehost.InvalidError{Field: "revision", Why: "it is empty: read the issue first"}
	}
	release, err := h.lock(ctx)
	if err != nil {
		return codehost.ClaimResult{}, err
	}
	defer release()
	if _, result, err := h.mayWrite(); err != nil || !result.OK() {
		return codehost.ClaimResult{Result: result}, err
	}
	issue, err := h.Issue(ctx, c.Issue)
	if err != nil {
		return codehost.ClaimResult{}, err
	}
	answer := func(o codehost.Outcome, reason string) (codehost.ClaimResult, error) {
		return codehost.ClaimResult{Result: codehost.Result{Outcome: o, Reason: reason}, Holder: issue.ClaimedBy}, nil
	}
	switch {
	case issue.ClaimedBy == c.Key:
		return answer(codehost.Already, "")
	case issue.ClaimedBy != "":
		return answer(codehost.NotAllowed, "another run has the issue")
	case issue.State != codehost.Open:
		return answer(codehost.NotAllowed, "the issue is closed")
	case issue.Revision != c.Revision:
		return codehost.ClaimResult{Result: codehost.Result{Outcome: codehost.Moved, Moved: codehost.MovedIssue, Reason: "the issue was changed since it was read"}}, nil
	}
	now := h.now()
	if err := saveJSON(h.path("claims", numbered(c.Issue, ".json")), claimFile{Key: c.Key, At: now.UTC()}, now); err != nil {
		return codehost.ClaimResult{}, err
	}
	issue.ClaimedBy = c.Key
	return answer(codehost.Done, "")
}

// Release gives up a claim.
func (h *Host) Release(ctx context.Context, c codehost.Claim) (codehost.Result, error) {
	if err := c.Validate(); err != nil {
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
	held, err := h.readClaim(c.Issue)
	switch {
	case err != nil:
		return codehost.Result{}, err
	case held.Key == "":
		return codehost.Result{Outcome: codehost.Already}, nil
	case held.Key != c.Key:
		return codehost.Result{Outcome: codehost.NotAllowed, Reason: "another run has the issue"}, nil
	}
	if err := os.Remove(h.path("claims", numbered(c.Issue, ".json"))); err != nil {
		return codehost.Result{}, fmt.Errorf("release issue %d: %w", c.Issue, err)
	}
	return codehost.Result{Outcome: codehost.Done}, syncDir(h.path("claims"))
}
