package workspace

import (
	"fmt"
	"strings"
)

// Review is what a run left that somebody should look at.
type Review struct {
	Findings []Finding `json:"findings"`
}

// Finding is one new or changed thing that a program of the host runs or obeys
// by itself. Path, Detail and the like come from a hostile tree: they are data.
type Finding struct {
	Kind Kind `json:"kind"`
	// Path is below the workspace.
	Path string `json:"path"`
	// Change is "new" or "changed".
	Change string `json:"change"`
	// By is who runs it, and when.
	By string `json:"by,omitempty"`
	// Detail is what else was seen, such as where a link leads.
	Detail string `json:"detail,omitempty"`
	// HeldAt is where the file is now, if it was taken out of the workspace.
	HeldAt string `json:"held_at,omitempty"`
	// Trash is the entry of the trash that holds it instead of the workspace.
	Trash string `json:"trash,omitempty"`
}

// String is the finding on one line, fit for a terminal.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %.300q (%s)", f.Kind, f.Path, f.Change)
	if f.By != "" {
		fmt.Fprintf(&b, ", read by %s", f.By)
	}
	if f.Detail != "" {
		fmt.Fprintf(&b, ": %.300q", f.Detail)
	}
	if f.HeldAt != "" {
		fmt.Fprintf(&b, "; moved to %q", f.HeldAt)
	}
	if f.Trash != "" {
		b.WriteString("; held back")
	}
	return b.String()
}

// ReviewOptions say where things go.
type ReviewOptions struct {
	// HeldDir is a directory outside of the workspace for what is taken out of
	// it; it is made when something is.
	HeldDir string
}

// Earlier is the review of a run that was killed before it could be made.
type Earlier struct {
	Dir string `json:"dir"`
	Review
	// Note says what became of staged writes.
	Note string `json:"note,omitempty"`
	// Err is why it is not complete; the directory is not to be trusted.
	Err error `json:"-"`
}
