package engine

import (
	"context"
	"fmt"

	"confine/internal/gate"
	"confine/internal/plaintext"
)

// Check runs setup and gate on the base commit, without agent and model: by the
// same code as a run, as most first failures are found there.
func Check(ctx context.Context, o Options) (Record, error) {
	if len(o.Config.Gate) == 0 {
		return Record{}, refused("gate", "gate", "give it a check, such as gate: {test: {run: make test}}", "the config has no gate: there is nothing to check")
	}
	r, _, err := open(ctx, o, 0, UntilCommits)
	if err != nil {
		return Record{}, err
	}
	defer r.close()
	err = r.walk(ctx, []step{
		{name: "read repository", does: r.readRepository},
		{name: "fetch base", does: r.fetchBase},
		{name: "setup", does: r.setup},
		{name: "gate", does: r.gateBase, last: UntilCommits, then: Checked},
	}, UntilCommits)
	return r.finish(err)
}

// gateBase runs the gate on the base itself.
func (r *run) gateBase(ctx context.Context) error {
	c, err := r.mirror.ReadCommit(ctx, r.rec.Base, 16<<20)
	if err != nil {
		return fmt.Errorf("read base: %w", err)
	}
	verdict, err := r.runGate(ctx, r.mirror, gate.Candidate{Base: r.rec.Base, Head: r.rec.Base, Commit: r.rec.Base, Tree: c.Tree})
	r.rec.Verdict = &verdict
	if err != nil {
		return fmt.Errorf("run the gate: %w", err)
	}
	if !verdict.Passed() {
		return failed("mend the base or the check: as long as the base itself fails, so will every change", "the gate does not pass on the base: %s", plaintext.Line(verdict.Why(), 400))
	}
	return nil
}
