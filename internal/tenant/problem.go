package tenant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in a config: where, what, and what is
// accepted instead. It never holds a secret's value.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Field is the path of the field, such as "stages.plan.tools[0]"; empty
	// where the file as a whole is wrong.
	Field    string `json:"field"`
	Message  string `json:"message"`
	Accepted string `json:"accepted,omitempty"`
}

// String is the problem as one line.
func (p Problem) String() string {
	var out strings.Builder
	out.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&out, ":%d:%d", p.Line, p.Column)
	}
	if p.Field != "" {
		out.WriteString(": " + p.Field)
	}
	out.WriteString(": " + p.Message)
	if p.Accepted != "" {
		out.WriteString(" (accepted: " + p.Accepted + ")")
	}
	return out.String()
}

// Problems is everything that is wrong in a config, in the order of the file.
type Problems []Problem

// Error lists all of them, one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// Hint names the command that explains the field of the first problem.
func (p Problems) Hint() string {
	for _, problem := range p {
		if node, _ := find(problem.Field); node != nil && problem.Field != "" {
			return "confine config explain " + generalPath(problem.Field)
		}
	}
	return "confine config explain"
}

func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p
}

// nearest returns the word of accepted that was probably meant, or "".
func nearest(word string, accepted []string) string {
	if len(word) > 40 {
		return ""
	}
	best, distance := "", 1+min(3, len(word)/2)
	for _, candidate := range accepted {
		if d := edits(strings.ToLower(word), candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// edits is the number of single letters to add, drop, change or swap with the
// neighbour to make a into b.
func edits(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// didYouMean is the end of a message about an unknown word.
func didYouMean(word string, accepted []string) string {
	if near := nearest(word, accepted); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}
