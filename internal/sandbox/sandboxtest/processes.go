//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/sandbox"
)

func processProbes() []Probe {
	return []Probe{
		{Name: "parent-proc", Group: "processes", Expected: "environment, memory, root and descriptors of every process above are denied", run: probeParent},
		{Name: "planted-key", Group: "processes", Expected: "a key in confine's own environment and arguments is in no environ or cmdline inside", run: probePlantedKey},
		{Name: "pid1-cmdline", Group: "processes", Expected: "PID 1 has no command line to read, as it is not to be seen", run: probeInitCommandLine},
		{Name: "other-tenant", Group: "processes", Expected: "another tenant's running sandbox and its files are not there", run: probeOtherTenant},
		{Name: "signal-init", Group: "processes", Expected: "no signal reaches init or anything outside", run: attempt("signals", controlSignals)},
		{Name: "init-limits", Group: "processes", Expected: "no limit, priority or processor of init can be changed", run: attempt("init-limits", controlInitLimits)},
		{Name: "init-hidden", Group: "processes", Expected: "every process between confine and the command is closed to its own user and has no capability", run: probeInitHidden},
		{Name: "posture", Group: "processes", Expected: "no capability in any set, no new privileges, seccomp filter, own namespaces", run: probePosture},
	}
}

// attempt is a probe that needs no more than a workspace. control makes the same
// attempt, or its harmless form, outside.
func attempt(name string, control func() (string, bool), want ...string) func(context.Context, *Host) (outcome, error) {
	return func(ctx context.Context, h *Host) (outcome, error) {
		_, b, err := h.workspace(name, nil)
		if err != nil {
			return outcome{}, err
		}
		text, controlled := control()
		a, err := h.inside(ctx, b, nil, name)
		return a.judge(text, controlled, want...), err
	}
}

func controlSignals() (string, bool) {
	return "outside, confine may signal itself", unix.Kill(os.Getpid(), 0) == nil
}

func controlInitLimits() (string, bool) {
	// Any process of the same user is as open to it as init would be.
	child := exec.Command("sleep", "60")
	err := child.Start()
	if err == nil {
		var limit unix.Rlimit
		if err = unix.Prlimit(child.Process.Pid, unix.RLIMIT_CPU, nil, &limit); err == nil {
			err = unix.Prlimit(child.Process.Pid, unix.RLIMIT_CPU, &limit, nil)
		}
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	return "outside, a process sets limits of another one of its user", err == nil
}

func probePosture(ctx context.Context, h *Host) (outcome, error) {
	_, b, err := h.workspace("posture", nil)
	if err != nil {
		return outcome{}, err
	}
	privileges, err := status(os.Getpid(), "NoNewPrivs")
	if err != nil {
		return outcome{}, err
	}
	// A container's own filter comes along.
	filters, err := status(os.Getpid(), "Seccomp_filters")
	if err != nil {
		return outcome{}, err
	}
	n, err := strconv.Atoi(filters)
	if err != nil {
		return outcome{}, fmt.Errorf("count filters: %w", err)
	}
	a, err := h.inside(ctx, b, nil, "posture", strconv.Itoa(n+1))
	control := "outside, confine itself has no such posture"
	if privileges != "0" {
		// In a container that refuses new privileges that one line proves nothing.
		control = fmt.Sprintf("outside, confine itself is in other namespaces and has %d filters", n)
	}
	return a.judge(control, true, "as expected"), err
}

func probeParent(ctx context.Context, h *Host) (outcome, error) {
	_, b, err := h.workspace("parent", nil)
	if err != nil {
		return outcome{}, err
	}
	control, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getpid()))
	a, insideErr := h.inside(ctx, b, nil, "parent")
	return a.judge("outside, confine's own environment is readable", err == nil && len(control) > 0), insideErr
}

func probePlantedKey(ctx context.Context, h *Host) (outcome, error) {
	if h.PlantedKey == "" {
		return outcome{}, errNoKey
	}
	environ, _ := os.ReadFile("/proc/self/environ")
	cmdline, _ := os.ReadFile("/proc/self/cmdline")
	seen := bytes.Contains(environ, []byte(h.PlantedKey)) && bytes.Contains(cmdline, []byte(h.PlantedKey))
	_, b, err := h.workspace("key", nil)
	if err != nil {
		return outcome{}, err
	}
	// Hex, as the probe's own arguments are searched too.
	a, err := h.inside(ctx, b, nil, "find-key", hex.EncodeToString([]byte(h.PlantedKey)))
	return a.judge("outside, the key is in both", seen, "no match"), err
}

func probeInitCommandLine(ctx context.Context, h *Host) (outcome, error) {
	_, b, err := h.workspace("init", nil)
	if err != nil {
		return outcome{}, err
	}
	cmdline, err := os.ReadFile("/proc/self/cmdline")
	a, insideErr := h.inside(ctx, b, nil, "init-cmdline")
	return a.judge("outside, confine's own is readable", err == nil && len(cmdline) > 0, "ENOENT"), insideErr
}

// probeOtherTenant looks from one sandbox for another that runs at that moment.
func probeOtherTenant(ctx context.Context, h *Host) (outcome, error) {
	const secret = "tenant-b-secret"
	dir, other, err := h.workspace("tenant-b", map[string]string{"secret.txt": secret})
	if err != nil {
		return outcome{}, err
	}
	other.Tenant, other.Identity.HostUID, other.Identity.HostGID = "other", other.Identity.HostUID+1, other.Identity.HostGID+1
	ready := &waiter{c: make(chan struct{})}
	running, err := h.Driver.Start(ctx, sandbox.Spec{Boundary: other, Args: []string{"bash", "-c", "cat secret.txt; read x; sleep 50"}, Stdin: blockedReader{ctx}, Stdout: ready})
	if err != nil {
		return outcome{}, err
	}
	defer func() { running.Kill(); running.Wait() }()
	select {
	case <-ready.c:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	_, b, err := h.workspace("tenant-a", map[string]string{"own.txt": "own"})
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "paths", dir+"/secret.txt", dir)
	if err != nil {
		return outcome{}, err
	}
	list, err := h.inside(ctx, b, nil, "list", "/workspace")
	a.Tries = append(a.Tries, list.Tries...)
	return a.judge("inside its own sandbox, the other reads its secret", strings.Contains(ready.text.String(), secret), "ENOENT", "EACCES", "ENOTDIR", "own.txt"), err
}

// waiter closes c at the first output.
type waiter struct {
	text strings.Builder
	c    chan struct{}
	done bool
}

func (w *waiter) Write(p []byte) (int, error) {
	w.text.Write(p)
	if !w.done {
		w.done = true
		close(w.c)
	}
	return len(p), nil
}

type blockedReader struct{ ctx context.Context }

func (b blockedReader) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }
