// Command netpipe is the client of the throughput benchmark: it moves a number
// of bytes over one TCP connection and prints how long the bytes took, start of
// the program and dialling left out.
//
//	netpipe -direction down|up -bytes N HOST:PORT
//
// It prints one JSON value {"bytes":N,"seconds":S}. The benchmark builds it and
// runs it directly and inside the boundary.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Result is what netpipe prints.
type Result struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "netpipe: error:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("netpipe", flag.ContinueOnError)
	direction := flags.String("direction", "down", "down (receive) or up (send)")
	size := flags.Int64("bytes", 1_000_000_000, "how many bytes to move")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *size < 1 || *direction != "down" && *direction != "up" {
		return fmt.Errorf("usage: netpipe -direction down|up -bytes N HOST:PORT")
	}
	conn, err := net.DialTimeout("tcp", flags.Arg(0), 30*time.Second)
	if err != nil {
		return fmt.Errorf("dial %s: %w", flags.Arg(0), err)
	}
	defer conn.Close()
	start := time.Now()
	if _, err := fmt.Fprintf(conn, "%s %d\n", *direction, *size); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	if err := move(conn, *direction, *size); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(Result{Bytes: *size, Seconds: time.Since(start).Seconds()})
}

func move(conn net.Conn, direction string, size int64) error {
	buf := make([]byte, 256<<10)
	if direction == "down" {
		for left := size; left > 0; {
			n, err := conn.Read(buf)
			left -= int64(n)
			if err != nil && left > 0 {
				return fmt.Errorf("receive: %d bytes missing: %w", left, err)
			}
		}
		return nil
	}
	for left := size; left > 0; {
		n, err := conn.Write(buf[:min(left, int64(len(buf)))])
		left -= int64(n)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	// The last byte has arrived when the other side says so.
	var done [1]byte
	if _, err := io.ReadFull(conn, done[:]); err != nil {
		return fmt.Errorf("wait for the other side: %w", err)
	}
	return nil
}
