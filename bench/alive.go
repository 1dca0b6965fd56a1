package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"confine/internal/boundary"
	"confine/internal/hostview"
	"confine/internal/sandbox"
	"confine/internal/sandbox/native"
)

// Alive is what many sandboxes at once cost.
type Alive struct {
	Count int `json:"count"`
	// StartsPerSecond is from this process, one after the other.
	StartsPerSecond float64 `json:"starts_per_second"`
	// KiBEach is memory of this process and of a sandbox's own processes, without
	// the command: proportional shares (PSS).
	KiBEach float64 `json:"kib_each"`
}

// measureAlive starts many sandboxes that sleep, and looks at what they hold.
func measureAlive(count int) (a Alive, err error) {
	base, err := aliveBoundary()
	if err != nil {
		return a, err
	}
	before, err := ownMemory()
	if err != nil {
		return a, err
	}
	var running []sandbox.Running
	defer func() {
		for _, r := range running {
			r.Kill()
		}
		for _, r := range running {
			r.Wait()
		}
	}()
	begin := time.Now()
	for range count {
		r, err := native.New().Start(context.Background(), sandbox.Spec{Boundary: base, Args: []string{"/bin/sleep", "3600"}})
		if err != nil {
			return a, fmt.Errorf("start sandbox %d: %w", len(running)+1, err)
		}
		running = append(running, r)
	}
	took := time.Since(begin)
	after, err := ownMemory()
	if err != nil {
		return a, err
	}
	return Alive{Count: count, StartsPerSecond: float64(count) / took.Seconds(), KiBEach: float64(after-before) / float64(count)}, nil
}

func aliveBoundary() (boundary.Boundary, error) {
	part, _, err := hostview.System(hostview.Options{UID: 1000, GID: 1000})
	if err != nil {
		return boundary.Boundary{}, err
	}
	env, err := hostview.Env(hostview.EnvOptions{UID: 1000})
	b := boundary.Boundary{
		Version: boundary.Version, Tenant: "bench", Env: env, AllowMissing: []boundary.Layer{boundary.LayerCgroup},
		Identity: boundary.Identity{UID: 1000, GID: 1000, HostUID: 0x6fff2000, HostGID: 0x6fff2000},
		View:     boundary.View{Workdir: "/tmp"},
	}
	part.AddTo(&b.View)
	return b, err
}

// ownMemory is the memory of this process and of all below it that are no command
// of a sandbox: init and the process around it, in KiB.
func ownMemory() (int64, error) {
	files, err := filepath.Glob("/proc/[0-9]*/smaps_rollup")
	if err != nil {
		return 0, err
	}
	var total int64
	for _, f := range files {
		name, err := os.ReadFile(filepath.Join(filepath.Dir(f), "comm"))
		word := strings.TrimSpace(string(name))
		own := filepath.Base(filepath.Dir(f)) == strconv.Itoa(os.Getpid())
		if err != nil || !own && word != "confine-outer" && word != "init" {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			continue // not ours to look at: an ordinary user sees the command only
		}
		for line := range strings.Lines(string(data)) {
			if v, ok := strings.CutPrefix(line, "Pss:"); ok {
				n, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
				if err != nil {
					return 0, err
				}
				total += n
			}
		}
	}
	return total, nil
}
