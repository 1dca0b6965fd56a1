package codehost

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"confine/internal/gitcmd"
)

// The caps, in bytes. They are the smallest that the known hosts have; what is
// longer is an error here, as hosts differ in what they cut.
const (
	MaxTitle       = 250
	MaxBody        = 60_000
	MaxContext     = 100
	MaxDescription = 140
	MaxURL         = 1000
	MaxKey         = 200
	MaxMarker      = 100
)

// Validate checks the request before any host sees it.
func (c Claim) Validate() error {
	if c.Issue <= 0 {
		return &InvalidError{"issue number", "want a positive number"}
	}
	return checkKey(c.Key)
}

// Validate checks the request before any host sees it.
func (p NewPull) Validate() error {
	if err := checkKey(p.Key); err != nil {
		return err
	}
	if err := checkBranch("head branch", p.Head); err != nil {
		return err
	}
	if err := checkBranch("base branch", p.Base); err != nil {
		return err
	}
	if p.Head == p.Base {
		return &InvalidError{"head branch", "it is the base branch"}
	}
	if err := checkCommit("expected head", p.ExpectedHead); err != nil {
		return err
	}
	if p.Closes < 0 {
		return &InvalidError{"closed issue", "want a positive number, or 0 for none"}
	}
	if strings.TrimSpace(p.Title) == "" {
		return &InvalidError{"title", "it is empty"}
	}
	if err := CheckLine("title", p.Title, MaxTitle); err != nil {
		return err
	}
	return checkBody(p.Body)
}

// Validate checks the status before any host sees it.
func (s Status) Validate() error {
	if err := checkCommit("commit", s.Commit); err != nil {
		return err
	}
	switch s.State {
	case Pending, Success, Failure, Fault:
	default:
		return &InvalidError{"status state", fmt.Sprintf("%.40q is none of pending, success, failure, error", string(s.State))}
	}
	if strings.TrimSpace(s.Context) == "" {
		return &InvalidError{"status context", "it is empty"}
	}
	if err := CheckLine("status context", s.Context, MaxContext); err != nil {
		return err
	}
	if err := CheckLine("status description", s.Description, MaxDescription); err != nil {
		return err
	}
	if s.URL == "" {
		return nil
	}
	if err := CheckLine("status URL", s.URL, MaxURL); err != nil {
		return err
	}
	// It becomes a link that people click.
	if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil {
		return &InvalidError{"status URL", "want http:// or https:// and a host, without a user"}
	}
	return nil
}

// Validate checks the edit before any host sees it.
func (c CommentEdit) Validate() error {
	if (c.Thread.Issue > 0) == (c.Thread.Pull > 0) || c.Thread.Issue < 0 || c.Thread.Pull < 0 {
		return &InvalidError{"comment thread", "want the number of either an issue or a pull request"}
	}
	if c.Marker == "" || len(c.Marker) > MaxMarker || strings.Trim(c.Marker, "abcdefghijklmnopqrstuvwxyz0123456789._-/:") != "" {
		return &InvalidError{"comment marker", "want 1-100 of a-z, 0-9, '.', '_', '-', '/' and ':'"}
	}
	if c.ExpectedHead != "" {
		if c.Thread.Pull == 0 {
			return &InvalidError{"expected head", "an issue has none"}
		}
		if err := checkCommit("expected head", c.ExpectedHead); err != nil {
			return err
		}
	}
	return checkBody(c.Body)
}

// Validate checks the request before any host sees it.
func (m MergeRequest) Validate() error {
	if m.Pull <= 0 {
		return &InvalidError{"pull request number", "want a positive number"}
	}
	if m.Objects == nil {
		return &InvalidError{"objects", "no repository given that holds the commit"}
	}
	if err := checkCommit("expected head", m.ExpectedHead); err != nil {
		return err
	}
	if err := checkCommit("expected base", m.ExpectedBase); err != nil {
		return err
	}
	if err := checkCommit("commit", m.Commit); err != nil {
		return err
	}
	if m.Commit == m.ExpectedBase {
		return &InvalidError{"commit", "it is the base: nothing would be merged"}
	}
	return nil
}

func checkCommit(field string, h gitcmd.Hash) error {
	if _, err := gitcmd.ParseHash(string(h)); err != nil {
		return &InvalidError{field, err.Error()}
	}
	return nil
}

func checkBranch(field string, r gitcmd.Ref) error {
	if _, err := gitcmd.ParseRef(string(r)); err != nil {
		return &InvalidError{field, err.Error()}
	}
	if r.BranchName() == "" {
		return &InvalidError{field, fmt.Sprintf("%.100q is not below refs/heads/", string(r))}
	}
	return nil
}

// CheckBranch refuses what is not the full name of a branch.
func CheckBranch(r gitcmd.Ref) error { return checkBranch("branch", r) }

func checkKey(key string) error {
	if key == "" {
		return &InvalidError{"key", "it is empty"}
	}
	return CheckLine("key", key, MaxKey)
}

// CheckLine refuses what is not one line of at most limit bytes of UTF-8 without
// control characters.
func CheckLine(field, s string, limit int) error {
	if len(s) > limit {
		return &InvalidError{field, fmt.Sprintf("%d bytes, the most is %d", len(s), limit)}
	}
	if !utf8.ValidString(s) {
		return &InvalidError{field, "it is not UTF-8"}
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return &InvalidError{field, fmt.Sprintf("it holds the control character %q", r)}
		}
	}
	return nil
}

func checkBody(s string) error {
	if len(s) > MaxBody {
		return &InvalidError{"body", fmt.Sprintf("%d bytes, the most is %d", len(s), MaxBody)}
	}
	if !utf8.ValidString(s) {
		return &InvalidError{"body", "it is not UTF-8"}
	}
	if strings.ContainsRune(s, 0) {
		return &InvalidError{"body", "it holds a zero byte"}
	}
	return nil
}
