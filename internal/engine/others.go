package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"confine/internal/handover"
)

// keepOthers records the agent's commits that are not in its head and keeps them
// at once, whatever becomes of the head.
func (r *run) keepOthers() error {
	r.rec.Others, r.rec.OthersLost = r.export.Others, r.export.OthersLost
	for _, other := range r.export.Others {
		r.event("not_handed_over", "hand-over", "not in the agent's head: "+other.String())
	}
	if r.export.OthersPath == "" {
		return nil
	}
	dir := filepath.Join(r.o.StateDir, "rescue")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep the agent's other commits: %w", err)
	}
	path, err := handover.RescueOthers(handover.RescueOptions{Dir: dir, Run: r.rec.Run, Export: r.export})
	if err != nil {
		return err
	}
	r.rec.RescueOthers = path
	r.event("rescue", "hand-over", "the agent's other commits are kept in "+path)
	return nil
}

// nothing says that the head holds nothing new, and where commits are instead.
func (r *run) nothing() error {
	const same = "the agent committed nothing and changed nothing"
	switch {
	case len(r.export.Others) > 0:
		return failed("the rescue bundle holds them (git bundle list-heads); what is to be handed over has to be on the branch that is checked out at the end",
			same+" on the branch that it left checked out: %s%s, not taken over", r.export.Others[0].String(), andMore(len(r.export.Others)-1))
	case len(r.export.Broken) > 0:
		return failed("look at what the agent wrote in the record", "the agent's repository is broken (%s), and its files are as they were", strings.Join(r.export.Broken, ", "))
	}
	return failed("look at what the agent wrote in the record", same)
}
