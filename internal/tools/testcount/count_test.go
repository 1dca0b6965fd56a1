package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func count(t *testing.T, stream string) (Count, string) {
	t.Helper()
	var out bytes.Buffer
	c := newCounter(&out)
	if err := c.readStream(bufio.NewReader(strings.NewReader(stream))); err != nil {
		t.Fatal(err)
	}
	return c.finish("x"), out.String()
}

func TestCount(t *testing.T) {
	const ok = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
`
	const end = `{"Action":"pass","Package":"p","Elapsed":0.1}
`
	for _, c := range []struct {
		name, stream            string
		passed, failed, skipped int
	}{
		{"one test", ok + end, 1, 0, 0},
		{"nothing at all", "", 0, 0, 0},
		{"package without tests", `{"Action":"output","Package":"q","Output":"no test files"}` + "\n" + `{"Action":"skip","Package":"q"}` + "\n", 0, 0, 0},
		{"subtests count, their parent does not", ok + `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestB/x"}
{"Action":"run","Package":"p","Test":"TestB/y"}
{"Action":"pass","Package":"p","Test":"TestB/x"}
{"Action":"pass","Package":"p","Test":"TestB/y"}
{"Action":"pass","Package":"p","Test":"TestB"}
` + end, 3, 0, 0},
		{"failed subtest is one failure", `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestB/x"}
{"Action":"fail","Package":"p","Test":"TestB/x"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`, 0, 1, 0},
		{"parent fails after its subtests passed", `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestB/x"}
{"Action":"pass","Package":"p","Test":"TestB/x"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`, 1, 1, 0},
		{"skipped", ok + `{"Action":"run","Package":"p","Test":"TestS"}
{"Action":"skip","Package":"p","Test":"TestS"}
` + end, 1, 0, 1},
		{"parent that skips itself after a subtest", `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestB/x"}
{"Action":"pass","Package":"p","Test":"TestB/x"}
{"Action":"skip","Package":"p","Test":"TestB"}
` + end, 1, 0, 1},
		{"killed in the middle of a test", `{"Action":"run","Package":"p","Test":"TestA"}
`, 0, 1, 0},
		{"killed between tests", ok, 1, 1, 0},
		{"did not build", `{"Action":"build-output","ImportPath":"p","Output":"x.go:1: bad\n"}
{"Action":"fail","Package":"p"}
`, 0, 1, 0},
		{"TestMain ends with an error after all passed", ok + `{"Action":"fail","Package":"p"}
`, 1, 1, 0},
		{"a line that is no event", "go: cannot find module\n" + ok + end, 1, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, out := count(t, c.stream)
			if got.Passed != c.passed || got.Failed != c.failed || got.Skipped != c.skipped {
				t.Errorf("got %d passed, %d failed, %d skipped; want %d, %d, %d\n%s",
					got.Passed, got.Failed, got.Skipped, c.passed, c.failed, c.skipped, out)
			}
		})
	}
}

func TestOutputOfAFailureIsShownAndCapped(t *testing.T) {
	line := `{"Action":"output","Package":"p","Test":"TestA","Output":"` + strings.Repeat("x", 1000) + `\n"}` + "\n"
	_, out := count(t, `{"Action":"run","Package":"p","Test":"TestA"}`+"\n"+strings.Repeat(line, 1000)+
		`{"Action":"fail","Package":"p","Test":"TestA"}`+"\n"+`{"Action":"fail","Package":"p"}`+"\n")
	if !strings.Contains(out, "xxx") || len(out) > 2*maxOutput {
		t.Errorf("%d bytes of output shown", len(out))
	}
}

func TestSum(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	minimum := write("minimum.txt", "# comment\nroot 5\nuser 4\n")
	write("a.json", `{"label":"a","passed":3}`)
	write("b.json", `{"label":"b","passed":1}`)
	for _, c := range []struct {
		name, as, extra, wantErr, last string
	}{
		{"enough", "user", "", "", "4 passed, 0 failed, 0 skipped"},
		{"fewer than the minimum", "root", "", "fewer tests than the minimum", "4 passed, 0 failed, 0 skipped"},
		{"a skip fails", "user", `{"skipped":1}`, "not every test passed", "4 passed, 0 failed, 1 skipped"},
		{"a failure fails", "user", `{"failed":1}`, "not every test passed", "4 passed, 1 failed, 0 skipped"},
		{"no such line", "nobody", "", `has no line "nobody"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.extra != "" {
				defer os.Remove(write("c.json", c.extra))
			}
			var out bytes.Buffer
			err := run([]string{"-sum", dir, "-minimum", minimum, "-as", c.as}, nil, &out)
			if (err == nil) != (c.wantErr == "") || (err != nil && !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("error %v, want %q", err, c.wantErr)
			}
			lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; last != c.last {
				t.Errorf("last line %q, want %q", last, c.last)
			}
		})
	}
}
