//go:build linux

package sandboxtest

import (
	"fmt"
	"sort"
	"strings"
)

// matrix holds each cell of a table too large to be told cell by cell to its one
// right result. What is right is counted; what is not is named.
type matrix struct {
	a     *Answer
	what  string
	right map[string]int
	wrong int
	// most is how many wrong cells are told.
	most int
}

// mostNamed is how many wrong cells are told: after that many, one knows. Of a
// control, which is wrong in most, all are.
const mostNamed, allNamed = 40, 1000

func (a *Answer) matrix(what string) *matrix {
	return &matrix{a: a, what: what, right: map[string]int{}, most: mostNamed}
}

// cell is one cell's result and the one that holds.
func (m *matrix) cell(name func() string, got, want string) {
	if got == want {
		m.right[got]++
		return
	}
	if m.wrong++; m.wrong <= m.most {
		m.a.Tries = append(m.a.Tries, Try{What: name(), Result: got, Want: want})
	}
}

// done adds the counts to the answer.
func (m *matrix) done() {
	results := make([]string, 0, len(m.right))
	for r := range m.right {
		results = append(results, r)
	}
	sort.Strings(results)
	for _, r := range results {
		text := fmt.Sprintf("%s: %d cells %s", m.what, m.right[r], r)
		m.a.Tries = append(m.a.Tries, Try{What: m.what, Result: text, Want: text})
	}
	if m.wrong > m.most {
		m.a.saw(m.what, fmt.Sprintf("and %d cells more", m.wrong-m.most))
	}
}

// cells is how many cells of its matrices had the right result, as done counts them.
func (a Answer) cells() (n int) {
	for _, t := range a.Tries {
		var count int
		if text, ok := strings.CutPrefix(t.Result, t.What+": "); ok {
			if _, err := fmt.Sscanf(text, "%d cells", &count); err == nil {
				n += count
			}
		}
	}
	return n
}
