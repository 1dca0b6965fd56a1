package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// readMinimum returns the number on the line `NAME NUMBER` of the file. A file
// or line that is not there is an error: a minimum that vanished would let a
// suite shrink unseen.
func readMinimum(file, name string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read minimum: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[0] != name {
			continue
		}
		n, err := strconv.Atoi(fields[1])
		if err != nil || n < 1 {
			return 0, fmt.Errorf("read minimum: %s: %q is not a positive number", file, fields[1])
		}
		return n, nil
	}
	return 0, fmt.Errorf("read minimum: %s has no line %q", file, name)
}

// addUp prints the table of all counts and the closing line.
func addUp(out io.Writer, dir string, minimum int) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return fmt.Errorf("list counts: %w", err)
	}
	sort.Strings(files)
	var total Count
	fmt.Fprintln(out)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read count: %w", err)
		}
		var c Count
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("read count %q: %w", file, err)
		}
		fmt.Fprintf(out, "%-34s %5d passed %4d failed %4d skipped\n", c.Label, c.Passed, c.Failed, c.Skipped)
		total.Passed += c.Passed
		total.Failed += c.Failed
		total.Skipped += c.Skipped
	}
	var problem error
	if total.Passed < minimum {
		fmt.Fprintf(out, "only %d tests passed, and there must be %d: tests were lost, or lower the number in the commit that removes them\n", total.Passed, minimum)
		problem = errors.New("fewer tests than the minimum")
	}
	if total.Failed+total.Skipped > 0 {
		problem = errors.New("not every test passed")
	}
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
	return problem
}
