// Command testcount turns `go test -json` streams into a count that can't be
// green without having tested: it fails on a failed, a skipped, an unfinished
// or a missing test.
//
//	go test -json ./... | testcount -label unit -out DIR/unit.json
//	testcount -sum DIR -minimum test/minimum.txt -as root
//
// The first form prints one line per package and, for what did not pass, its
// output. The second adds the files of DIR up, prints a table and, alone on the
// last line, `N passed, N failed, N skipped`.
//
// It counts leaves: a test with subtests counts through these alone. It does not
// judge whether a test proves anything. scripts/test calls it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testcount: error:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("testcount", flag.ContinueOnError)
	label := flags.String("label", "", "name of this stream in the table")
	file := flags.String("out", "", "file to write this stream's count to")
	sum := flags.String("sum", "", "add up the count files of this folder")
	minimum := flags.String("minimum", "", "file of the least number of tests that must have passed")
	as := flags.String("as", "", "which line of the minimum file holds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *sum != "" {
		least, err := readMinimum(*minimum, *as)
		if err != nil {
			return err
		}
		return addUp(out, *sum, least)
	}
	if *label == "" || *file == "" {
		return errors.New("needs -label and -out, or -sum")
	}
	counter := newCounter(out)
	if err := counter.readStream(bufio.NewReader(in)); err != nil {
		return err
	}
	result := counter.finish(*label)
	data, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode count: %w", err)
	}
	if err := os.WriteFile(*file, data, 0o644); err != nil {
		return fmt.Errorf("write count: %w", err)
	}
	if result.Failed+result.Skipped > 0 {
		return fmt.Errorf("%s: %d failed, %d skipped", *label, result.Failed, result.Skipped)
	}
	return nil
}
