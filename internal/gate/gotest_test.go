package gate

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func event(action, pkg, test string) string {
	if test == "" {
		return fmt.Sprintf("{\"Action\":%q,\"Package\":%q}\n", action, pkg)
	}
	return fmt.Sprintf("{\"Action\":%q,\"Package\":%q,\"Test\":%q}\n", action, pkg, test)
}

func TestGoTestReport(t *testing.T) {
	one := event("start", "p", "") + event("run", "p", "A") + event("pass", "p", "A")
	end := event("pass", "p", "")
	tests := map[string]struct {
		report string
		min    int
		want   Tests
		why    string
	}{
		"passed":           {one + end, 1, Tests{Passed: 1}, ""},
		"without last end": {strings.TrimSuffix(one+end, "\n"), 1, Tests{Passed: 1}, ""},
		"too few":          {one + end, 2, Tests{Passed: 1}, "1 tests passed, at least 2"},
		"empty":            {"", 1, Tests{}, "0 tests passed"},
		"no test files":    {event("start", "p", "") + event("skip", "p", ""), 1, Tests{}, "0 tests passed"},
		"subtests count once": {event("start", "p", "") + event("run", "p", "A") + event("run", "p", "A/x") + event("pass", "p", "A/x") +
			event("run", "p", "A/y") + event("pass", "p", "A/y") + event("pass", "p", "A") + end, 2, Tests{Passed: 1}, "1 tests passed"},
		"a subtest failed":     {event("start", "p", "") + event("run", "p", "A") + event("run", "p", "A/x") + event("fail", "p", "A/x") + event("pass", "p", "A") + end, 1, Tests{Passed: 1}, "tests failed"},
		"skipped":              {event("start", "p", "") + event("run", "p", "A") + event("skip", "p", "A") + end, 1, Tests{Skipped: 1}, "0 tests passed"},
		"same name, 2 pkgs":    {one + end + strings.ReplaceAll(one+end, `"p"`, `"q"`), 2, Tests{Passed: 2}, ""},
		"run twice":            {one + event("run", "p", "A") + event("pass", "p", "A") + end, 2, Tests{Passed: 1}, "1 tests passed"},
		"failed, then passed":  {event("start", "p", "") + event("run", "p", "A") + event("fail", "p", "A") + event("run", "p", "A") + event("pass", "p", "A") + end, 0, Tests{Failed: 1}, "1 of 1 tests failed"},
		"passed, never run":    {event("start", "p", "") + event("pass", "p", "A") + end, 1, Tests{}, "0 tests passed"},
		"package failed":       {one + event("fail", "p", ""), 1, Tests{Passed: 1}, "1 packages failed"},
		"package fail stays":   {one + event("fail", "p", "") + end, 1, Tests{Passed: 1}, "1 packages failed"},
		"package breaks off":   {one, 1, Tests{Passed: 1}, "breaks off"},
		"test breaks off":      {one + event("run", "p", "B") + end, 1, Tests{Passed: 1, Failed: 1}, "breaks off"},
		"build failed":         {`{"ImportPath":"q","Action":"build-fail"}` + "\n" + one + end, 1, Tests{Passed: 1}, `build of "q" failed`},
		"text between":         {"# p\n./x.go:1: note\n" + one + "not json {\n[1,2]\n{\"Action\":7}\n\x00\xff\n" + end, 1, Tests{Passed: 1}, ""},
		"unknown action":       {one + `{"Action":"teleport","Package":"p","Test":"B"}` + "\n" + end, 1, Tests{Passed: 1}, ""},
		"endless line":         {one + strings.Repeat("x", maxEventLine+1) + "\n" + end, 1, Tests{Passed: 1}, "longer than"},
		"end in the long line": {one + strings.Repeat("x", maxEventLine+1) + end, 1, Tests{Passed: 1}, "longer than"},
	}
	for name, test := range tests {
		for _, size := range []int{1 << 20, 13} {
			g := newGoTests(io.Discard)
			for rest := test.report; rest != ""; {
				n := min(size, len(rest))
				if len(test.report) > 1<<16 {
					n = min(1<<16, len(rest))
				}
				g.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			got, why := g.end(test.min)
			if got.Passed != test.want.Passed || got.Failed != test.want.Failed || got.Skipped != test.want.Skipped ||
				(test.why == "") != (why == "") || !strings.Contains(why, test.why) {
				t.Errorf("%s: got %+v, %q; want %+v, %q", name, got, why, test.want, test.why)
			}
		}
	}
}

// TestGoTestReportTooLarge: names are kept in bounded memory, and a report that
// does not fit has not passed.
func TestGoTestReportTooLarge(t *testing.T) {
	g := newGoTests(io.Discard)
	io.WriteString(g, event("start", "p", "")+event("run", "p", "A")+event("pass", "p", "A"))
	long := strings.Repeat("x", 1<<19)
	for i := range 100 {
		io.WriteString(g, event("run", "p", fmt.Sprintf("%s%d", long, i))+event("pass", "p", fmt.Sprintf("%s%d", long, i)))
	}
	io.WriteString(g, event("pass", "p", ""))
	if _, why := g.end(1); !strings.Contains(why, "too many tests") || g.names > maxTestNames+2<<20 {
		t.Fatalf("%q with %d bytes of names", why, g.names)
	}
}

func TestGoTestFailuresAreNamed(t *testing.T) {
	var text strings.Builder
	g := newGoTests(&text)
	io.WriteString(g, event("start", "p", ""))
	for i := range shownFailures + 10 {
		name := fmt.Sprintf("T%03d", i)
		io.WriteString(g, event("run", "p", name)+fmt.Sprintf("{\"Action\":\"output\",\"Package\":\"p\",\"Test\":%q,\"Output\":\"got %d\\n\"}\n", name, i)+event("fail", "p", name))
	}
	got, why := g.end(1)
	if len(got.Failures) != shownFailures || got.Failures[0] != "p.T000" || why == "" || !strings.HasPrefix(text.String(), "got 0\ngot 1\n") {
		t.Fatalf("%+v %q %.40q", got, why, text.String())
	}
}

func FuzzGoTests(f *testing.F) {
	f.Add([]byte(event("start", "p", "")+event("run", "p", "A")+event("pass", "p", "A")+event("pass", "p", "")), 3)
	f.Add([]byte("{\"Action\":\"fail\"}\n{}\nnull\n\"x\"\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		whole, parts := newGoTests(io.Discard), newGoTests(io.Discard)
		whole.Write(data)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), max(1, size%64))
			parts.Write(rest[:n])
			rest = rest[n:]
		}
		a, whyA := whole.end(1)
		b, whyB := parts.end(1)
		if fmt.Sprint(a, whyA) != fmt.Sprint(b, whyB) {
			t.Fatalf("in one piece %+v %q, in parts %+v %q", a, whyA, b, whyB)
		}
		if whyA == "" && (a.Passed < 1 || a.Failed > 0) {
			t.Fatalf("holds with %+v", a)
		}
	})
}

// TestRealReports reads what go 1.26 writes. In "ok" a test prints a line that
// looks like the end of a test; in "quits" one calls os.Exit(0).
func TestRealReports(t *testing.T) {
	for name, want := range map[string]struct {
		tests Tests
		why   string
	}{
		"ok":     {Tests{Passed: 3, Skipped: 1}, ""},
		"bad":    {Tests{Passed: 1, Failed: 1}, "1 of 2 tests failed"},
		"broken": {Tests{}, "the build of"},
		"none":   {Tests{}, "0 tests passed"},
		"quits":  {Tests{Passed: 1, Failed: 1}, "1 of 2 tests failed"},
	} {
		data, err := os.ReadFile("testdata/gotest/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		g := newGoTests(io.Discard)
		g.Write(data)
		got, why := g.end(1)
		if got.Passed != want.tests.Passed || got.Failed != want.tests.Failed || got.Skipped != want.tests.Skipped ||
			(why == "") != (want.why == "") || !strings.Contains(why, want.why) {
			t.Errorf("%s: got %+v, %q", name, got, why)
		}
	}
}
