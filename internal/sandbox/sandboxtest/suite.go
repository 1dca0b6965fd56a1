//go:build linux

// Package sandboxtest proves a boundary by attacking it. Every driver passes the
// same probes; `confine verify` runs them on the user's machine.
//
// A probe is an attempt made inside a sandbox. It counts as held only if the
// same attempt was seen to succeed outside (its control), failed inside exactly
// as expected, and a neighbouring action inside still worked. What could not run
// has failed. The attempts themselves are in inside.go: they run in the program
// that the caller names, which calls Inside.
package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// Host is what probes are run with.
type Host struct {
	Driver sandbox.Driver
	// Base is a fresh boundary with the host's system and no workspace.
	Base func() (boundary.Boundary, error)
	// Program is a static program that calls Inside(args) when its first
	// argument is ProgramArgument.
	Program string
	// Egress makes a server that allows exactly allowed (name:port), dialled at
	// addr, and reports what it refused.
	Egress func(allowed, addr string, refused func(target string)) (sandbox.EgressServer, error)
	// PlantedKey is a secret that the calling process has in its environment
	// and its arguments.
	PlantedKey string
	// Dir is an empty directory for the probes' own files.
	Dir string
}

// ProgramArgument tells the program to be a probe.
const ProgramArgument = "__confine-probe"

// programInside is where the program is in the view.
const programInside = "/run/confine-probe"

// Probe is one attempt.
type Probe struct {
	Name, Group string
	// Expected is the outcome that holds, for a person.
	Expected string
	run      func(context.Context, *Host) (outcome, error)
}

// outcome is what one probe saw.
type outcome struct {
	observed string
	control  string
	// held is whether observed is as expected; controlled whether the control
	// and the neighbour did what they should.
	held, controlled bool
}

// Result is one probe's result, also as JSON.
type Result struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	Expected string `json:"expected"`
	Observed string `json:"observed"`
	Control  string `json:"control"`
	Held     bool   `json:"held"`
}

// Custom makes a probe of the caller's own, for what lies above a driver.
func Custom(name, group, expected string, run func(context.Context, *Host) (observed, control string, held bool, err error)) Probe {
	return Probe{Name: name, Group: group, Expected: expected, run: func(ctx context.Context, h *Host) (outcome, error) {
		observed, control, held, err := run(ctx, h)
		return outcome{observed: observed, control: control, held: held, controlled: true}, err
	}}
}

// Run runs the probes in order and tells each result as it comes.
func Run(ctx context.Context, h *Host, probes []Probe, each func(Result)) (held bool) {
	held = true
	for _, p := range probes {
		r := Result{Name: p.Name, Group: p.Group, Expected: p.Expected}
		probeCtx, cancel := context.WithTimeout(ctx, time.Minute)
		o, err := p.run(probeCtx, h)
		cancel()
		r.Observed, r.Control, r.Held = o.observed, o.control, o.held && o.controlled && err == nil
		if err != nil {
			r.Observed = strings.TrimSpace(r.Observed + " could not run: " + err.Error())
		} else if !o.controlled {
			r.Observed += " (proves nothing: the control failed)"
		}
		held = held && r.Held
		each(r)
	}
	return held
}

// Probes are all probes of a driver.
func Probes() []Probe {
	return slices.Concat(processProbes(), fileProbes(), networkProbes(), kernelProbes(), socketProbes(), verbProbes(), secretProbes(), exhaustionProbes(), setIDProbes())
}

// inside runs one attempt of inside.go in a sandbox made of b.
func (h *Host) inside(ctx context.Context, b boundary.Boundary, egress sandbox.EgressServer, name string, args ...string) (Answer, error) {
	var out, errs bytes.Buffer
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: h.Program, Target: programInside})
	r, err := h.Driver.Start(ctx, sandbox.Spec{
		Boundary: b, Args: append([]string{programInside, ProgramArgument, name}, args...),
		Stdout: &out, Stderr: &errs, Egress: egress,
	})
	if err != nil {
		return Answer{}, err
	}
	e := r.Wait()
	var a Answer
	if !e.Success() {
		return a, fmt.Errorf("probe ended: %s, status %d: %.300q", e.Reason, e.Status, errs.String())
	}
	return parseAnswer(out.String())
}

// outside makes an attempt without a sandbox, as this user: the control. With a
// terminal, it is the attempt's controlling one.
func (h *Host) outside(ctx context.Context, tty *os.File, name string, args ...string) (Answer, error) {
	cmd := exec.CommandContext(ctx, h.Program, append([]string{ProgramArgument, name}, args...)...)
	cmd.Dir = h.Dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if tty != nil {
		cmd.Stdin = tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	if err := cmd.Run(); err != nil {
		return Answer{}, fmt.Errorf("probe outside: %w: %.300q", err, errs.String())
	}
	return parseAnswer(out.String())
}

// shell runs a script with the host's own C-library programs.
func (h *Host) shell(ctx context.Context, b boundary.Boundary, egress sandbox.EgressServer, script string) (string, error) {
	var out bytes.Buffer
	r, err := h.Driver.Start(ctx, sandbox.Spec{Boundary: b, Args: []string{"bash", "-c", script}, Stdout: &out, Stderr: &out, Egress: egress})
	if err != nil {
		return "", err
	}
	if e := r.Wait(); e.Reason != sandbox.Exited {
		return out.String(), fmt.Errorf("shell ended: %s", e.Reason)
	}
	return out.String(), nil
}

// workspace makes a host directory with the given files (name to content), and a
// boundary that shows it as /workspace.
func (h *Host) workspace(name string, files map[string]string) (dir string, b boundary.Boundary, err error) {
	dir = filepath.Join(h.Dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", b, err
	}
	for f, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
			return "", b, err
		}
		if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o644); err != nil {
			return "", b, err
		}
	}
	if b, err = h.Base(); err != nil {
		return "", b, err
	}
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: dir, Target: "/workspace", Writable: true})
	b.View.Workdir = "/workspace"
	return dir, b, nil
}

// Answer is what an attempt inside saw: one line for each try, and whether the
// neighbouring action worked.
type Answer struct {
	Tries     []Try  `json:"tries"`
	Neighbour string `json:"neighbour"`
}

// Try is one try and its result: "ok", an errno's name, or a few words.
type Try struct {
	What   string `json:"what"`
	Result string `json:"result"`
	// Want is the one result that holds, where it is not for the probe to say.
	Want string `json:"want,omitempty"`
}

// judge holds every try against the allowed results.
func (a Answer) judge(control string, controlled bool, want ...string) outcome {
	o := outcome{control: control, held: len(a.Tries) > 0, controlled: controlled && a.Neighbour == "ok"}
	counts := map[string]int{}
	var order []string
	for _, t := range a.Tries {
		r := t.Result
		if t.Want != "" && r != t.Want || t.Want == "" && !slices.Contains(want, r) {
			o.held = false
			r = t.What + ": " + r
		}
		if counts[r]++; counts[r] == 1 {
			order = append(order, r)
		}
	}
	for i, r := range order {
		if counts[r] > 1 {
			order[i] = fmt.Sprintf("%s (%d tries)", r, counts[r])
		}
	}
	o.observed = strings.Join(order, ", ")
	if a.Neighbour != "ok" {
		o.control += "; neighbour: " + a.Neighbour
	} else {
		o.control += "; neighbour inside: ok"
	}
	return o
}

var errNoKey = errors.New("no key was planted in this process")
