package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// directions of a transfer, as seen from inside.
var directions = []string{"down", "up"}

// listedName is the name by which the program inside reaches the server.
const listedName = "x.test:9999"

// measureTransfer moves bytes between a server of ours and a program that runs
// directly, then inside the boundary. Without confine among the contenders it
// measures the direct connection alone.
func measureTransfer(all []contender, o options, work string) (map[string]Timings, []string, error) {
	client, err := buildClient(work)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	go serve(listener)
	address := listener.Addr().String()

	confine, err := filepath.Abs(o.confine)
	if err != nil {
		return nil, nil, fmt.Errorf("find confine: %w", err)
	}
	type way struct {
		name, direction string
		command         func(args ...string) *exec.Cmd
	}
	var ways []way
	for _, d := range directions {
		ways = append(ways, way{"direct " + d, d, func(args ...string) *exec.Cmd {
			return exec.Command(client, append(args, address)...)
		}})
		if slices.Contains(names(all), "confine") {
			ways = append(ways, way{"captured " + d, d, func(args ...string) *exec.Cmd {
				line := []string{"run", "--net", listedName, "--net-map", listedName + "=" + address, "--", "./" + filepath.Base(client)}
				return exec.Command(confine, append(append(line, args...), listedName)...)
			}})
		}
	}
	result := map[string]Timings{}
	var order []string
	for _, w := range ways {
		order = append(order, w.name)
	}
	for round := range o.transfer + 1 { // the first one warms up
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			cmd := w.command("-direction", w.direction, "-bytes", fmt.Sprint(o.bytes))
			cmd.Dir = filepath.Dir(client)
			took, err := transfer(cmd, o.bytes)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				result[w.name] = append(result[w.name], took)
			}
		}
	}
	return result, order, nil
}

// buildClient builds netpipe into the workspace, where it is inside as well.
func buildClient(work string) (string, error) {
	client := filepath.Join(workspaceIn(work), "netpipe")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", client, "./bench/netpipe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build netpipe: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return client, nil
}

// transfer runs one client and returns the time it reports.
func transfer(cmd *exec.Cmd, size int64) (time.Duration, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("run netpipe: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var r struct {
		Bytes   int64   `json:"bytes"`
		Seconds float64 `json:"seconds"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, fmt.Errorf("read result %q: %w", out, err)
	}
	if r.Bytes != size || r.Seconds <= 0 {
		return 0, fmt.Errorf("netpipe moved %d bytes in %v s, not %d", r.Bytes, r.Seconds, size)
	}
	return time.Duration(r.Seconds * float64(time.Second)), nil
}

// serve answers transfers until the listener is closed.
func serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			// An error here is seen by the client as bytes that are missing.
			_ = answer(conn)
		}()
	}
}

func answer(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 256<<10)
	request, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	var direction string
	var size int64
	if _, err := fmt.Sscanf(request, "%s %d\n", &direction, &size); err != nil {
		return fmt.Errorf("read request %q: %w", request, err)
	}
	if direction == "up" {
		if _, err := io.CopyN(io.Discard, in, size); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		_, err := conn.Write([]byte{'.'})
		return err
	}
	buf := make([]byte, 256<<10)
	for left := size; left > 0; {
		n, err := conn.Write(buf[:min(left, int64(len(buf)))])
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		left -= int64(n)
	}
	return nil
}
