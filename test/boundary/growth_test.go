//go:build linux

package boundary

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"confine/internal/sandbox"
	"confine/internal/sandbox/native"
)

// held is what a process that starts sandboxes holds, and its host with it.
type held struct{ descriptors, goroutines, threads, mounts, groups int }

func holds(t *testing.T) held {
	t.Helper()
	count := func(pattern string) int {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	groups := count("/sys/fs/cgroup/*/confine-test-*") + count("/sys/fs/cgroup/*/*/confine-test-*") + count("/sys/fs/cgroup/*/*/*/confine-test-*") + count("/sys/fs/cgroup/confine-test-*")
	return held{
		descriptors: count("/proc/self/fd/*"), goroutines: runtime.NumGoroutine(), threads: count("/proc/self/task/*"),
		mounts: strings.Count(ownMounts(t), "\n"), groups: groups,
	}
}

// TestStartAndStopDoesNotGrow: a process that starts one sandbox after the other, for
// some of which it changes its mind, holds no more after many than after a few.
func TestStartAndStopDoesNotGrow(t *testing.T) {
	b := hostBoundary(t)
	cycle := func(n int) {
		for i := range n {
			ctx, cancel := context.WithCancel(context.Background())
			var out bytes.Buffer
			run, err := native.New().Start(ctx, sandbox.Spec{Boundary: b, Args: []string{"/bin/sh", "-c", "echo here; test $0 = ends || sleep 300", map[bool]string{true: "ends", false: "stays"}[i%3 != 0]}, Stdout: &out, Stderr: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			switch i % 6 {
			case 0:
				run.Kill()
			case 3:
				cancel()
			}
			if e := run.Wait(); i%3 != 0 && (!e.Success() || out.String() != "here\n") {
				t.Fatalf("run %d: %+v %q", i, e, out.String())
			}
			cancel()
		}
	}
	cycle(30)
	before := holds(t)
	memory := residentPages(t)
	cycle(250)
	var after held
	// Threads and goroutines end a moment later.
	if !eventually(func() bool {
		after = holds(t)
		return after.descriptors <= before.descriptors && after.goroutines <= before.goroutines && after.threads <= before.threads+4 && after.mounts == before.mounts && after.groups == 0
	}) {
		t.Errorf("after 30 runs %+v, after 280 %+v", before, after)
	}
	runtime.GC()
	if now := residentPages(t); now > memory*3/2 {
		t.Errorf("resident pages: %d after 30 runs, %d after 280", memory, now)
	}
}

func residentPages(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n := 0
			for _, c := range strings.TrimSpace(v) {
				if c < '0' || c > '9' {
					break
				}
				n = n*10 + int(c-'0')
			}
			return n / 4
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
