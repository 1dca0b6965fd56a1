package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"
)

// Count is the outcome of one stream.
type Count struct {
	Label   string        `json:"label"`
	Passed  int           `json:"passed"`
	Failed  int           `json:"failed"`
	Skipped int           `json:"skipped"`
	Elapsed time.Duration `json:"elapsed"`
}

// event is one line of `go test -json` (see go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string
	Elapsed    float64
	Output     string
}

// maxOutput caps what is kept of one test's output: a test that prints without
// end must not take the machine along.
const maxOutput = 64 << 10

// test is one running or ended test.
type test struct {
	outcome string // pass, fail, skip; empty while it runs
	output  strings.Builder
	parent  bool // has subtests: not a leaf
}

// pkg is one package's tests.
type pkg struct {
	tests map[string]*test
	// own is the package's own output: a panic outside a test, TestMain.
	own     strings.Builder
	outcome string
	elapsed float64
}

type counter struct {
	out      io.Writer
	packages map[string]*pkg
	// stray holds lines that are not events: `go test -json` prints some faults
	// of the command itself that way.
	stray int
}

func newCounter(out io.Writer) *counter {
	return &counter{out: out, packages: map[string]*pkg{}}
}

// readStream reads events until the end of the stream.
func (c *counter) readStream(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			c.readLine(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (c *counter) readLine(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		c.stray++
		fmt.Fprint(c.out, line)
		return
	}
	if e.Package == "" { // build-output, build-fail
		if e.Action == "build-output" {
			fmt.Fprint(c.out, e.Output)
		}
		return
	}
	p := c.packages[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		c.packages[e.Package] = p
	}
	if e.Test == "" {
		c.packageEvent(p, e)
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{}
		p.tests[e.Test] = t
		p.markParents(e.Test)
	}
	switch e.Action {
	case "output":
		keep(&t.output, e.Output)
	case "pass", "fail", "skip":
		t.outcome = e.Action
	}
}

// markParents notes that every prefix of a subtest's name is not a leaf.
func (p *pkg) markParents(name string) {
	for i, r := range name {
		if r == '/' {
			if parent := p.tests[name[:i]]; parent != nil {
				parent.parent = true
			}
		}
	}
}

func (c *counter) packageEvent(p *pkg, e event) {
	switch e.Action {
	case "output":
		keep(&p.own, e.Output)
	case "pass", "fail", "skip":
		p.outcome, p.elapsed = e.Action, e.Elapsed
		c.printPackage(e.Package, p)
	}
}

func keep(b *strings.Builder, s string) {
	if b.Len() < maxOutput {
		b.WriteString(s)
	}
}

// tally counts one package. A parent that failed while every child passed (its
// own assertion after them) counts as a failure of its own.
func (p *pkg) tally() (passed, failed, skipped int) {
	for name, t := range p.tests {
		switch {
		case t.outcome == "skip":
			skipped++
		case t.parent && t.outcome == "fail" && !p.childFailed(name):
			failed++
		case t.parent && t.outcome != "":
		case t.outcome == "pass":
			passed++
		default: // failed, or never ended
			failed++
		}
	}
	// A package that did not build, crashed outside a test, or never ended.
	if failed == 0 && p.outcome != "pass" && !(p.outcome == "skip" && len(p.tests) == 0) {
		failed++
	}
	return passed, failed, skipped
}

func (p *pkg) childFailed(parent string) bool {
	for name, t := range p.tests {
		if strings.HasPrefix(name, parent+"/") && t.outcome != "pass" && t.outcome != "skip" {
			return true
		}
	}
	return false
}

func (c *counter) printPackage(name string, p *pkg) {
	passed, failed, skipped := p.tally()
	if passed+failed+skipped == 0 {
		return // no test files
	}
	mark := "ok  "
	if failed+skipped > 0 {
		mark = "FAIL"
	}
	fmt.Fprintf(c.out, "%s  %-44s %4d passed", mark, name, passed)
	if failed+skipped > 0 {
		fmt.Fprintf(c.out, ", %d failed, %d skipped", failed, skipped)
	}
	fmt.Fprintf(c.out, "  %.1fs\n", p.elapsed)
	if failed+skipped == 0 {
		return
	}
	names := make([]string, 0, len(p.tests))
	for n, t := range p.tests {
		if t.outcome != "pass" {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	for _, n := range names {
		t := p.tests[n]
		outcome := t.outcome
		if outcome == "" {
			outcome = "did not end"
		}
		fmt.Fprintf(c.out, "      %s: %s\n", n, outcome)
		fmt.Fprint(c.out, indent(t.output.String()))
	}
	fmt.Fprint(c.out, indent(p.own.String()))
}

func indent(s string) string {
	if s == "" {
		return ""
	}
	return "      " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n      ") + "\n"
}

// finish counts every package, those that never ended included.
func (c *counter) finish(label string) Count {
	result := Count{Label: label, Failed: c.stray}
	for name, p := range c.packages {
		if p.outcome == "" {
			c.printPackage(name, p)
		}
		passed, failed, skipped := p.tally()
		result.Passed += passed
		result.Failed += failed
		result.Skipped += skipped
		result.Elapsed = max(result.Elapsed, time.Duration(p.elapsed*float64(time.Second)))
	}
	return result
}
