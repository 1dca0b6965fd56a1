package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/audit"
	"confine/internal/boundary"
	"confine/internal/codehost"
	"confine/internal/codehost/filelock"
	"confine/internal/gitcmd"
	"confine/internal/merge"
	"confine/internal/mergeauthority"
	"confine/internal/plaintext"
	"confine/internal/store"
	"confine/internal/workspace"
)

// rescueTime bounds how long a start works on one killed run.
const rescueTime = 5 * time.Minute

// salvage is what the next start needs to know of a run to keep its agent's work.
// It lies in the run's scratch directory, beside what the agent may write.
type salvage struct {
	Run       string      `json:"run"`
	Workspace string      `json:"workspace"` // below the scratch directory
	Lent      string      `json:"lent"`
	Base      gitcmd.Hash `json:"base"`
	Exclude   []string    `json:"exclude,omitempty"`
	Leftovers bool        `json:"leftovers"`
	View      View        `json:"view"`
}

const (
	salvageName = "salvage.json"
	maxSalvage  = 32 << 20
)

// writeSalvage is called before the agent starts.
func (r *run) writeSalvage() error {
	s := salvage{
		Run: r.rec.Run, Lent: r.lent.Dir(), Base: r.rec.Base, Leftovers: r.o.Config.Leftovers, View: r.o.Config.View,
	}
	if r.layer != nil {
		s.Exclude = r.layer.Paths
	}
	var err error
	if s.Workspace, err = filepath.Rel(r.scratch.Dir, r.workspace); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	name := filepath.Join(r.scratch.Dir, salvageName)
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func readSalvage(scratch string) (salvage, error) {
	var s salvage
	f, err := os.Open(filepath.Join(scratch, salvageName))
	if err != nil {
		return s, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSalvage))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, err
	}
	if !filepath.IsLocal(s.Workspace) {
		return s, fmt.Errorf("workspace %q is not below the scratch directory", s.Workspace)
	}
	return s, nil
}

// dead is a run whose engine was killed. Its lock is ours, and that of its scratch
// directory, if it has one with an agent's work in it.
type dead struct {
	store   *store.Run
	rec     Record
	scratch string
	salvage salvage
	lock    *os.File
}

func (d *dead) close() {
	if d.lock != nil {
		_ = d.lock.Close()
	}
	_ = d.store.Close()
}

// restart brings the runs of killed engines to an end: the agent's work is kept,
// a merge that was made is written down, what else they left goes. It returns
// what it wrote down.
//
// A run that may have been merged into another repository waits for a start that
// can ask that one's code host.
func restart(ctx context.Context, o Options, d dirs, runs *store.Runs) ([]Record, error) {
	found, err := findDead(ctx, d, runs)
	defer func() {
		for _, x := range found {
			x.close()
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("clear away what interrupted runs left: %w", err)
	}
	var ended []Record
	for _, x := range found {
		ours := x.rec.Tenant == string(o.Config.Tenant) && x.rec.Repository == o.Config.Repository
		if x.merging() && !ours {
			continue
		}
		rec, err := x.end(ctx, o, d, runs)
		if err != nil {
			return nil, fmt.Errorf("end the interrupted run %s: %w", x.rec.Run, err)
		}
		ended = append(ended, rec)
	}
	return ended, nil
}

// findDead locks what killed engines left and is to be looked at, and deletes the
// other scratch directories. The lock of all starts makes this one step: none
// sweeps what another has not locked yet.
func findDead(ctx context.Context, d dirs, runs *store.Runs) ([]*dead, error) {
	release, err := d.lockStart(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	records := map[string]Record{}
	locked, err := runs.Interrupted(func(r *store.Run) (bool, error) {
		var rec Record
		if err := runs.Load(r.ID, &rec); err != nil || rec.State != Running {
			return false, nil // ended, or killed before its first record
		}
		records[r.ID] = rec
		return true, nil
	})
	byRun := map[string]*dead{}
	var found []*dead
	for _, r := range locked {
		x := &dead{store: r, rec: records[r.ID]}
		found, byRun[r.ID] = append(found, x), x
	}
	if err != nil {
		return found, err
	}
	entries, err := os.ReadDir(d.scratch)
	if err != nil {
		return found, err
	}
	for _, e := range entries {
		dir := filepath.Join(d.scratch, e.Name())
		s, err := readSalvage(dir)
		x := byRun[s.Run]
		if err != nil || x == nil {
			continue // no agent ran in it, or its run has its end
		}
		if x.lock, err = lockScratch(ctx, dir); err != nil {
			return found, err
		}
		x.scratch, x.salvage = dir, s
	}
	// What is locked now is left alone.
	_, err = workspace.Sweep(d.scratch)
	return found, err
}

// lockScratch takes over the lock of a process that is going: its two locks do not
// end at one moment.
func lockScratch(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// lockStart keeps two starts from looking at the same leftovers, and one from
// sweeping the directory that another is making.
func (d dirs) lockStart(ctx context.Context) (func(), error) {
	return filelock.Acquire(ctx, filepath.Join(d.root, "start.lock"))
}

// merging reports whether the base may hold the run's work.
func (d *dead) merging() bool {
	r := d.rec
	return r.Step == "merge" && r.Until == UntilMerge && r.Pull > 0 && r.Verdict != nil && r.Verdict.Passed()
}

// end gives a killed run its end. After an error it is as it was.
func (d *dead) end(ctx context.Context, o Options, dirs dirs, runs *store.Runs) (Record, error) {
	r := &run{o: o, rec: d.rec, runs: runs, store: d.store, dirs: dirs, baseRef: d.rec.BaseBranch}
	var err error
	if r.log, err = audit.Open(filepath.Join(d.store.Dir, "events.jsonl")); err != nil {
		// The kill cut its last line: that file stays as it is.
		if r.log, err = audit.Open(filepath.Join(d.store.Dir, "events-restart.jsonl")); err != nil {
			return Record{}, err
		}
	}
	defer r.log.Close()
	r.rec.State, r.rec.Reason = Interrupted, "the engine was killed at step "+r.rec.Step
	if d.merging() {
		if err := r.settle(ctx); err != nil {
			return Record{}, err
		}
	}
	if d.scratch != "" {
		if err := r.salvage(ctx, d); err != nil {
			return Record{}, err
		}
	}
	if r.rec.State == Merged {
		r.claimed = codehost.Claim{Issue: r.rec.Issue, Key: r.rec.Run}
		r.comment(ctx)
	}
	r.rec.Ended = o.Now()
	r.event("end", string(r.rec.State), fmt.Sprintf("run %s: %s", r.rec.Run, plaintext.Line(r.rec.Reason, 400)))
	r.rec.AuditHead = r.log.Head()
	if err := r.save(); err != nil {
		return Record{}, err
	}
	if d.scratch != "" {
		if err := workspace.Remove(d.scratch); err != nil {
			return Record{}, err
		}
	}
	return r.rec, nil
}

// salvage keeps the work of a killed run's agent, as finish does for one that was
// interrupted by a person: by a sandbox, with the tenant's own view and ids.
func (r *run) salvage(ctx context.Context, d *dead) error {
	tenant := boundary.TenantID(d.rec.Tenant)
	var err error
	if r.hostID, err = hostID(r.dirs.root, tenant); err != nil {
		return err
	}
	r.o.Config.Tenant, r.o.Config.View, r.o.Config.Leftovers = tenant, d.salvage.View, d.salvage.Leftovers
	r.scratch = &workspace.Scratch{Dir: d.scratch}
	r.layer = &workspace.Layer{Paths: d.salvage.Exclude}
	r.workspace = filepath.Join(d.scratch, d.salvage.Workspace)
	if _, err := os.Lstat(r.workspace); err != nil {
		// An earlier start has kept it, and was killed itself.
		r.rec.Rescue = r.workspacePath()
		return nil
	}
	if r.lent, err = gitcmd.Open(ctx, d.salvage.Lent); err != nil {
		r.event("rescue_failed", "", plaintext.Line(err.Error(), 400))
		return r.keepWorkspace()
	}
	return r.keepWork(ctx)
}

// settle asks the code host whether the run's merge was made before it could be
// written down, and if so writes it down there and here. It merges nothing.
func (r *run) settle(ctx context.Context) error {
	landed, why, err := r.landed(ctx)
	if err != nil {
		return err
	}
	if !landed {
		r.rec.Reason += "; " + why
		return nil
	}
	rule, err := merge.Parse([]byte(`{"gates":"passed"}`))
	if err != nil {
		return err
	}
	authority, err := mergeauthority.New(mergeauthority.Options{
		Host: r.o.Host, Repo: r.mirror, Rule: rule, Journal: journal{r}, Dir: r.dirs.queue, Now: r.o.Now,
	})
	if err != nil {
		return err
	}
	// It proves the merge that was made. A new one it refuses, whatever the rule:
	// a verdict covers none without the config's digest.
	result, err := authority.Merge(ctx, mergeauthority.Request{Pull: r.rec.Pull, Verdict: *r.rec.Verdict})
	if err != nil {
		return err
	}
	r.rec.Reasons, r.rec.Landed = result.Reasons, result.Landed
	if result.Outcome != mergeauthority.Merged {
		var reasons []string
		for _, x := range result.Reasons {
			reasons = append(reasons, plaintext.Line(x.String(), 200))
		}
		r.rec.Reason += fmt.Sprintf("; the base holds the tested commit, but it does not count as merged (%s): %s", result.Outcome, strings.Join(reasons, "; "))
		return nil
	}
	r.rec.State, r.rec.Reason = Merged, "the engine was killed after the merge: written down by the next start"
	r.event("merged", "merge", fmt.Sprintf("%s is in %s", result.Landed, r.baseRef.BranchName()))
	return nil
}

// landed reports whether the tested commit is in the base. If not, it says how the
// pull request stands.
func (r *run) landed(ctx context.Context) (bool, string, error) {
	pull, err := r.o.Host.Pull(ctx, r.rec.Pull)
	var gone *codehost.NotFoundError
	if errors.As(err, &gone) {
		return false, fmt.Sprintf("pull request %d is gone", r.rec.Pull), nil
	}
	if err != nil {
		return false, "", err
	}
	if pull.State == codehost.Merged {
		return true, "", nil
	}
	why := fmt.Sprintf("pull request %d is %s and not merged: merge or close it", r.rec.Pull, plaintext.Line(string(pull.State), 20))
	tip, err := r.fetchMirror(ctx)
	var missing *baseMissingError
	if errors.As(err, &missing) {
		return false, why + "; " + missing.Error(), nil
	}
	if err != nil {
		return false, "", err
	}
	var absent *gitcmd.NotFoundError
	if _, _, err := r.mirror.TypeOf(ctx, r.rec.Verdict.Commit); errors.As(err, &absent) {
		return false, why, nil
	} else if err != nil {
		return false, "", err
	}
	in, err := r.mirror.IsAncestor(ctx, r.rec.Verdict.Commit, tip)
	return in, why, err
}
