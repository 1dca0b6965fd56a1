package gate

import (
	"encoding/json"
	"fmt"
	"time"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// verdictVersion is the version of a recorded verdict.
const verdictVersion = 1

// Verdict is what the gate found, and about what. The zero Verdict has not
// passed.
type Verdict struct {
	Version int `json:"version"`
	Candidate
	// ConfigDigest and ViewDigest are those of the tenant config and of the
	// view that the checks ran with.
	ConfigDigest string        `json:"config_digest"`
	ViewDigest   string        `json:"view_digest"`
	Checks       []CheckResult `json:"checks"`
	// Complete: every planned check has a result.
	Complete bool      `json:"complete"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
}

// Passed reports whether the candidate passed the gate.
func (v Verdict) Passed() bool { return v.Why() == "" }

// Why says in our own words why the gate has not passed; "" if it has.
func (v Verdict) Why() string {
	switch {
	case v.Version != verdictVersion:
		return "there is no verdict"
	case v.Tree == "" || v.Commit == "" || v.Base == "" || v.Head == "" || v.ConfigDigest == "" || v.ViewDigest == "":
		return "the verdict does not say what it is about"
	case !v.Complete:
		return "not every check ran"
	case len(v.Checks) == 0:
		return "no check is configured"
	}
	for _, c := range v.Checks {
		if !c.Passed {
			return fmt.Sprintf("check %q: %s", c.Name, c.Reason)
		}
	}
	return ""
}

// About is what a verdict must be about to count.
type About struct {
	Candidate
	ConfigDigest, ViewDigest string
}

// Covers returns "" if the verdict is about exactly this, else what differs. A
// verdict that has not passed may cover something, too.
func (v Verdict) Covers(a About) string {
	for _, part := range []struct{ name, got, want string }{
		{"base", string(v.Base), string(a.Base)},
		{"head", string(v.Head), string(a.Head)},
		{"tree", string(v.Tree), string(a.Tree)},
		{"commit", string(v.Commit), string(a.Commit)},
		{"config", v.ConfigDigest, a.ConfigDigest},
		{"view", v.ViewDigest, a.ViewDigest},
	} {
		if part.want == "" {
			return "the " + part.name + " is not known"
		}
		if part.got != part.want {
			return fmt.Sprintf("the gate ran on another %s: %.12s, not %.12s", part.name, part.got, part.want)
		}
	}
	return ""
}

// MarshalJSON adds the answer of Passed, for readers; it is not read back.
func (v Verdict) MarshalJSON() ([]byte, error) {
	type plain Verdict
	return json.Marshal(struct {
		Passed bool   `json:"passed"`
		Why    string `json:"why,omitempty"`
		plain
	}{v.Passed(), v.Why(), plain(v)})
}

// CheckResult is how one check ended.
type CheckResult struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	// Reason says in our own words why it has not passed.
	Reason string `json:"reason,omitempty"`
	// Ended and Status are the sandbox's.
	Ended    sandbox.Reason   `json:"ended,omitempty"`
	Status   int              `json:"status"`
	Duration time.Duration    `json:"duration_ns"`
	Missing  []boundary.Layer `json:"missing,omitempty"`
	// Tests is set for reports that count tests.
	Tests *Tests `json:"tests,omitempty"`
	// Output is what the check wrote: untrusted.
	Output Output `json:"output"`
}

// Output is the beginning and the end of what a check wrote, untrusted. Bytes is
// all it wrote; where that is more than both parts, Head and Tail are apart.
type Output struct {
	Head  string `json:"head"`
	Tail  string `json:"tail"`
	Bytes int64  `json:"bytes"`
}

// Tests is what a test report counted. Only top-level tests count; a subtest is
// part of its test.
type Tests struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	// Failures names some that failed: untrusted.
	Failures []string `json:"failures,omitempty"`
}
