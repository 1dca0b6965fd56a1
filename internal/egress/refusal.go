package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Refusal is one attempt that was not allowed, as an event.
type Refusal struct {
	Time time.Time
	// Verdict holds what was tried, why it was refused, the rule, whether it is
	// quiet, and the line that would allow it.
	Verdict Verdict
	// Asked is the text that was asked for, where it is neither a name nor an
	// address. Untrusted: show it quoted.
	Asked string
	// Detail says more about the reason, in our words with quoted parts.
	Detail string
	// Resolved is the address that was not let through, for the operator; the
	// program isn't told the addresses of the machine's network.
	Resolved netip.Addr
	// Program is who tried, best effort. Untrusted: show it quoted.
	Program string
	// Count is how many times; 0 counts as one.
	Count int
}

// Target is the name or address and port that was tried, fit to be shown.
func (r Refusal) Target() string {
	if r.Asked != "" {
		return fmt.Sprintf("%.80q", r.Asked)
	}
	// Hosts and addresses are of the plain letters that their parsers accept.
	return r.Verdict.Attempt.String()
}

// Render is the refusal as one line: what, who, why, and what would allow it.
func (r Refusal) Render() string {
	var b strings.Builder
	b.WriteString(r.Target())
	if r.Program != "" {
		fmt.Fprintf(&b, " by %.64q", r.Program)
	}
	if r.Count > 1 {
		fmt.Fprintf(&b, " (%d times)", r.Count)
	}
	b.WriteString(": " + r.why())
	if r.Resolved.IsValid() {
		b.WriteString(", " + r.Resolved.String())
	}
	if line := r.Verdict.ConfigLine(); line != "" {
		b.WriteString("; to allow it: " + line)
		if flag := r.Verdict.RunFlag(); flag != "" {
			b.WriteString(" or " + flag)
		}
	}
	return b.String()
}

func (r Refusal) why() string {
	why := string(r.Verdict.Reason)
	if why == "" {
		why = "refused"
	}
	if rule := r.Verdict.Rule.String(); rule != "" && r.Verdict.Reason == ReasonDenied {
		why += " " + rule
	}
	if r.Detail != "" {
		why += " (" + r.Detail + ")"
	}
	return why
}

// Notice is what the refused program is told in-band: several lines of text.
func (r Refusal) Notice() string {
	var b strings.Builder
	fmt.Fprintf(&b, "confine: blocked by egress rule: %s: %s\n", r.Target(), r.why())
	if line := r.Verdict.ConfigLine(); line != "" {
		fmt.Fprintf(&b, "confine: hint: the operator can allow it with %s", line)
		if flag := r.Verdict.RunFlag(); flag != "" {
			fmt.Fprintf(&b, " or %s", flag)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// MaxRefusals is how many distinct refusals a Collector keeps.
const MaxRefusals = 1000

// maxAsked is how many letters of what was asked for are kept; Target shows
// fewer.
const maxAsked = 100

// Collector puts refusals of one run together: those that are equal in all but
// their time become one with a count. Different faults of one target stay apart,
// or the first would hide the others. It is safe for concurrent use, and its
// zero value is ready.
type Collector struct {
	mu      sync.Mutex
	seen    map[Refusal]*Refusal
	dropped int
	loud    bool
}

// Add records one refusal.
func (c *Collector) Add(r Refusal) {
	if r.Count < 1 {
		r.Count = 1
	}
	r.Asked = fmt.Sprintf("%.*s", maxAsked, r.Asked)
	key := r
	key.Time, key.Count = time.Time{}, 0
	c.mu.Lock()
	defer c.mu.Unlock()
	// Kept apart from the list: a flood of quiet refusals must not hide a loud one.
	c.loud = c.loud || !r.Verdict.Quiet
	if old := c.seen[key]; old != nil {
		old.Count += r.Count
		return
	}
	if len(c.seen) >= MaxRefusals {
		c.dropped += r.Count
		return
	}
	if c.seen == nil {
		c.seen = map[Refusal]*Refusal{}
	}
	c.seen[key] = &r
}

// Refusals returns what was recorded, oldest first.
func (c *Collector) Refusals() []Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Refusal, 0, len(c.seen))
	for _, r := range c.seen {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Refusal) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Target(), b.Target()), strings.Compare(a.Program, b.Program), strings.Compare(a.why(), b.why()))
	})
	return list
}

// Dropped returns how many attempts were refused and not recorded one by one,
// since the run made too many different ones.
func (c *Collector) Dropped() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// Loud reports whether any refusal was not quiet: such a run waits for a person.
func (c *Collector) Loud() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loud
}
