package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"confine/internal/egress"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
	"confine/internal/workspace"
)

// captured is the command's output when the report is JSON.
type captured struct{ out, err bytes.Buffer }

func (p *runPlan) report(args []string, e sandbox.Exit, refusals *egress.Collector, review workspace.Review) runReport {
	r := runReport{
		Command: args, Lent: p.lent, Masked: p.live.Masked, Review: review.Findings, Notes: p.notes, Earlier: p.earlier, Missing: e.Missing, Profile: p.boundary.Profile, Weaker: p.boundary.Profile.Weaker(), Dropped: refusals.Dropped(),
		Exit: runExit{
			Reason: e.Reason, Status: e.Status, Signal: e.Signal, Seconds: e.Duration.Seconds(),
			OutputBytes: e.OutputBytes, OutputDropped: e.OutputDropped, OOMKills: e.OOMKills, RefusedForks: e.PidsHit,
		},
	}
	for _, x := range refusals.Refusals() {
		r.Refusals = append(r.Refusals, refusalReport{
			Target: x.Target(), Program: plaintext.Line(x.Program, 64), Reason: string(x.Verdict.Reason), Count: max(1, x.Count),
			Detail: plaintext.Line(x.Detail, 200), Allow: x.Verdict.RunFlag(), line: x.Render(),
		})
	}
	// Lists are lists in the JSON, also when they are empty.
	r.Refusals, r.Lent, r.Masked = orEmpty(r.Refusals), orEmpty(r.Lent), orEmpty(r.Masked)
	r.Review, r.Missing = orEmpty(r.Review), orEmpty(r.Missing)
	if p.commit != nil {
		r.Staged = &stagedReport{Trash: p.commit.Trash, Changes: orEmpty(p.commit.Changes)}
	}
	for _, s := range p.skipped {
		r.Skipped = append(r.Skipped, skippedReport{Path: s.Path, Why: s.Why})
	}
	return r
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// print tells a person what the command's own output does not: on standard
// error, and only what there is to tell.
func (r runReport) print(f *frame) {
	say := func(format string, args ...any) { fmt.Fprintf(f.Stderr, "confine: "+format+"\n", args...) }
	for _, n := range r.Notes {
		say("note: %s", plaintext.Line(n, 300))
	}
	switch r.Exit.Reason {
	case sandbox.TimedOut:
		say("killed: the time limit was reached (--timeout)")
	case sandbox.OutOfMemory:
		say("killed: the memory limit was reached (--memory)")
	case sandbox.Cancelled:
		say("killed: cancelled")
	}
	if r.Exit.OOMKills > 0 && r.Exit.Reason != sandbox.OutOfMemory {
		say("not the command but others were killed at the memory limit (--memory); processes killed: %d", r.Exit.OOMKills)
	}
	if r.Exit.RefusedForks > 0 {
		say("the limit of processes was reached (--pids); starts refused: %d", r.Exit.RefusedForks)
	}
	if len(r.Refusals) > 0 {
		say("refused connections:")
		for _, x := range r.Refusals {
			fmt.Fprintf(f.Stderr, "  %s\n", x.line)
		}
	}
	if r.Dropped > 0 {
		say("refusals that are not listed: %d", r.Dropped)
	}
	if r.Staged != nil {
		r.Staged.print(f, r.Review)
		return
	}
	if len(r.Review) > 0 {
		say("look at these before you use the directory; a program outside runs or obeys them by itself:")
		printFindings(f, r.Review)
	}
}

// reconcile makes up for the reviews of runs that were killed, and tells a
// person at once: the command that comes may run for hours.
func reconcile(f *frame) ([]earlierReport, error) {
	found, err := workspace.Reconcile(stateDir(f), workspace.ReviewOptions{HeldDir: heldDir(f)})
	if err != nil {
		return nil, err
	}
	var out []earlierReport
	for _, e := range found {
		r := earlierReport{Dir: e.Dir, Review: orEmpty(e.Findings), Note: e.Note}
		if e.Err != nil {
			r.Error = plaintext.Line(e.Err.Error(), 300)
		}
		if len(r.Review) == 0 && r.Error == "" && r.Note == "" {
			continue // nothing that anybody should know
		}
		out = append(out, r)
		if !f.json {
			r.print(f)
		}
	}
	return out, nil
}

func (r earlierReport) print(f *frame) {
	if r.Note != "" {
		fmt.Fprintf(f.Stderr, "confine: %.300q: %s\n", r.Dir, r.Note)
		if r.Error != "" {
			fmt.Fprintf(f.Stderr, "  not complete: %s\n", r.Error)
		}
		return
	}
	fmt.Fprintf(f.Stderr, "confine: a run in %.300q was killed before what it left was looked at:\n", r.Dir)
	if r.Error != "" {
		fmt.Fprintf(f.Stderr, "  not complete: %s\n", r.Error)
	}
	printFindings(f, r.Review)
}

// maxShown is how many findings of one kind are shown: a run can make any number
// of one, in which the one that matters would not be seen.
const maxShown = 20

func printFindings(f *frame, findings []workspace.Finding) {
	shown, more := map[workspace.Kind]int{}, []workspace.Kind(nil)
	for _, x := range findings {
		if shown[x.Kind]++; shown[x.Kind] <= maxShown {
			fmt.Fprintf(f.Stderr, "  %s\n", x)
		} else if shown[x.Kind] == maxShown+1 {
			more = append(more, x.Kind)
		}
	}
	if len(more) == 0 {
		return
	}
	for _, kind := range more {
		fmt.Fprintf(f.Stderr, "  %s: %d more\n", kind, shown[kind]-maxShown)
	}
	// They can't be asked for again: the next run compares with what is there now.
	name, err := saveFindings(heldDir(f), findings)
	if err != nil {
		fmt.Fprintf(f.Stderr, "  the whole list could not be kept: %v\n", err)
		return
	}
	fmt.Fprintf(f.Stderr, "  the whole list is in %q\n", name)
}

func saveFindings(dir string, findings []workspace.Finding) (string, error) {
	data, err := json.MarshalIndent(findings, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "review.json")
	return name, os.WriteFile(name, append(data, '\n'), 0o600)
}

// stateDir is where confine keeps what outlives a command.
func stateDir(f *frame) string {
	if dir := f.getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "confine")
	}
	if os.Geteuid() == 0 {
		return "/var/lib/confine"
	}
	if home := f.getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "confine")
	}
	return filepath.Join(os.TempDir(), "confine-"+strconv.Itoa(os.Geteuid()))
}

// heldDir is where one run's files go that can't stay in its workspace.
func heldDir(f *frame) string {
	return filepath.Join(stateDir(f), "held", time.Now().UTC().Format("20060102-150405.000000"))
}

// sizeUnits are the units of a size, longest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"", 1},
}

// parseSize reads a size such as 512MiB, 2G or a number of bytes.
func parseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > (1<<62)/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("is not a size such as 512MiB or 2GiB")
}
