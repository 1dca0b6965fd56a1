package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The caps of a `go test -json` report.
const (
	maxEventLine  = 1 << 20
	maxTests      = 200_000
	maxTestNames  = 32 << 20 // bytes of all names together
	shownFailures = 50
)

// goTests reads the output of `go test -json` as it comes: hostile data. It
// implements io.Writer, never fails, and uses bounded memory. What tests wrote
// is passed on to text.
type goTests struct {
	text     io.Writer
	line     []byte
	tooLong  bool
	packages map[string]testState
	tests    map[testName]testState
	names    int64
	broken   string // why the report can't be believed
	failures []string
}

type testName struct{ pkg, test string }

type testState uint8

const (
	running testState = iota + 1
	passed
	skipped
	failed // stays
)

// goEvent is what counts of an event. Action, Package and Test are untrusted.
type goEvent struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	FailedBuild string
}

func newGoTests(text io.Writer) *goTests {
	return &goTests{text: text, packages: map[string]testState{}, tests: map[testName]testState{}}
}

func (g *goTests) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte("\n"))
		p = rest
		if !g.tooLong {
			if len(g.line)+len(part) > maxEventLine {
				g.tooLong = true
				g.fail("a line of the report is longer than %d bytes", maxEventLine)
				g.line = nil
			} else {
				g.line = append(g.line, part...)
			}
		}
		if ended {
			g.endLine()
		}
	}
	return n, nil
}

func (g *goTests) endLine() {
	if !g.tooLong && len(g.line) > 0 {
		g.event(g.line)
	}
	g.line, g.tooLong = g.line[:0], false
}

func (g *goTests) fail(format string, args ...any) {
	if g.broken == "" {
		g.broken = fmt.Sprintf(format, args...)
	}
}

// event reads one line. A line that is no event is text: go itself writes some
// about builds that fail, and then its exit status says so.
func (g *goTests) event(line []byte) {
	var e goEvent
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		g.text.Write(append(line, '\n'))
		return
	}
	if e.Output != "" {
		io.WriteString(g.text, e.Output)
	}
	switch e.Action {
	case "build-fail":
		g.fail("the build of %.200q failed", e.ImportPath)
		return
	case "start", "run", "pass", "fail", "skip":
	default:
		// output, pause, cont, bench, attr, artifacts and what later versions
		// add say nothing about the end of a test.
		return
	}
	if len(g.packages)+len(g.tests) >= maxTests || g.names > maxTestNames {
		g.fail("the report names too many tests")
		return
	}
	if e.Test == "" {
		g.packageEvent(e)
	} else {
		g.testEvent(e)
	}
}

func (g *goTests) packageEvent(e goEvent) {
	old, known := g.packages[e.Package]
	if !known {
		g.names += int64(len(e.Package))
	}
	if old == failed {
		return
	}
	switch e.Action {
	case "start":
		g.packages[e.Package] = running
	case "pass":
		g.packages[e.Package] = passed
	case "skip":
		g.packages[e.Package] = skipped
	case "fail":
		g.packages[e.Package] = failed
		if e.FailedBuild != "" {
			g.fail("the build of %.200q failed", e.FailedBuild)
		}
	}
}

func (g *goTests) testEvent(e goEvent) {
	name := testName{e.Package, e.Test}
	old, known := g.tests[name]
	if !known {
		g.names += int64(len(e.Package) + len(e.Test))
	}
	switch {
	case e.Action == "fail":
		if old != failed && len(g.failures) < shownFailures {
			g.failures = append(g.failures, e.Package+"."+e.Test)
		}
		g.tests[name] = failed
	case old == failed:
	case e.Action == "run":
		g.tests[name] = running
	case e.Action == "pass" && old == running:
		g.tests[name] = passed
	case e.Action == "skip" && old == running:
		g.tests[name] = skipped
	}
}

// end returns the counts, and why the report does not hold; "" if it does.
func (g *goTests) end(minTests int) (Tests, string) {
	g.endLine()
	var t Tests
	unfinished := 0
	for name, state := range g.tests {
		if state == running {
			unfinished++
		}
		if strings.Contains(name.test, "/") {
			continue
		}
		switch state {
		case passed:
			t.Passed++
		case skipped:
			t.Skipped++
		case failed, running:
			t.Failed++
		}
	}
	slices.Sort(g.failures)
	t.Failures = g.failures
	failedPackages, openPackages := 0, 0
	for _, state := range g.packages {
		switch state {
		case failed:
			failedPackages++
		case running:
			openPackages++
		}
	}
	switch {
	case g.broken != "":
		return t, g.broken
	case len(g.failures) > 0:
		return t, fmt.Sprintf("%d of %d tests failed", max(t.Failed, 1), t.Passed+t.Failed)
	case failedPackages > 0:
		return t, fmt.Sprintf("%d packages failed", failedPackages)
	case unfinished > 0 || openPackages > 0:
		return t, fmt.Sprintf("the report breaks off: %d tests and %d packages have no end", unfinished, openPackages)
	case t.Passed < minTests:
		return t, fmt.Sprintf("%d tests passed, at least %d must", t.Passed, minTests)
	}
	return t, ""
}
