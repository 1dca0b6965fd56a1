package cli

import (
	"fmt"
	"sync"

	"confine/internal/plaintext"
	"confine/internal/sandbox"
	"confine/internal/workspace"
)

// stagedReport is what became of the writes of a staged run.
type stagedReport struct {
	// Trash is the entry that holds what was displaced or held back.
	Trash   string             `json:"trash,omitempty"`
	Changes []workspace.Change `json:"changes"`
}

// waiting says once that another run has the directory.
func (f *frame) waiting(dir string) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			fmt.Fprintf(f.Stderr, "confine: waiting: another run uses %.300q\n", dir)
		})
	}
}

// discard forgets what a run staged that never began.
func (p *runPlan) discard() error {
	if p.staged == nil {
		return nil
	}
	err := p.staged.Discard()
	p.staged = nil
	return err
}

// end looks at what the run left, and commits it if it was staged: whatever the
// command ended with, as its writes would be real otherwise too. But of a run
// that confine itself lost hold of, nothing is taken.
func (p *runPlan) end(f *frame, exit sandbox.Exit) (workspace.Review, error) {
	if p.staged == nil {
		review, err := p.live.Review(workspace.ReviewOptions{HeldDir: heldDir(f)})
		if err != nil {
			return review, fmt.Errorf("review workspace: %w", err)
		}
		return review, nil
	}
	if exit.Reason == sandbox.Fault {
		return workspace.Review{}, p.discard()
	}
	done, err := p.staged.Commit()
	if err != nil {
		return done.Review, err
	}
	p.commit = &done
	return done.Review, nil
}

// count says how many changes there are of each kind.
func countChanges(changes []workspace.Change) string {
	n := map[workspace.ChangeKind]int{}
	for _, c := range changes {
		n[c.Kind]++
	}
	text := ""
	for _, k := range []workspace.ChangeKind{workspace.ChangeNew, workspace.ChangeChanged, workspace.ChangeDeleted, workspace.ChangeMode, workspace.ChangeHeld} {
		if n[k] == 0 {
			continue
		}
		if text != "" {
			text += ", "
		}
		what := string(k)
		switch k {
		case workspace.ChangeMode:
			what = "with other rights"
		case workspace.ChangeHeld:
			what = "held back"
		}
		text += fmt.Sprintf("%d %s", n[k], what)
	}
	return text
}

func (r *stagedReport) print(f *frame, review []workspace.Finding) {
	if r.Trash == "" {
		return // nothing was changed
	}
	fmt.Fprintf(f.Stderr, "confine: committed: %s (to take it back: confine undo %s)\n", countChanges(r.Changes), r.Trash)
	var inside, held []workspace.Finding
	for _, x := range review {
		if x.Trash != "" {
			held = append(held, x)
		} else {
			inside = append(inside, x)
		}
	}
	if len(inside) > 0 {
		fmt.Fprintln(f.Stderr, "confine: look at these before you use the directory; a program outside runs or obeys them by itself:")
		printFindings(f, inside)
	}
	if len(held) > 0 {
		fmt.Fprintf(f.Stderr, "confine: held back, as a program outside runs or obeys them by itself; to let one in: confine trash restore %s PATH\n", r.Trash)
		printFindings(f, held)
	}
	shown := 0
	for _, c := range r.Changes {
		if c.Kind != workspace.ChangeHeld || heldByReview(held, c.Path) {
			continue
		}
		if shown++; shown > maxShown {
			continue
		}
		fmt.Fprintf(f.Stderr, "confine: held back: %.300q: %s\n", c.Path, plaintext.Line(c.Why, 200))
	}
	if shown > maxShown {
		fmt.Fprintf(f.Stderr, "confine: held back: %d more (confine trash show %s)\n", shown-maxShown, r.Trash)
	}
}

func heldByReview(held []workspace.Finding, path string) bool {
	for _, x := range held {
		if x.Path == path {
			return true
		}
	}
	return false
}
