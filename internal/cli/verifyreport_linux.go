package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel/probe"
	"confine/internal/plaintext"
	"confine/internal/sandbox/native"
	"confine/internal/sandbox/sandboxtest"
)

// probePrinter shows probes as they end, under a heading for each group.
type probePrinter struct {
	f     *frame
	count map[string]int
	group string
	began time.Time
}

func newProbePrinter(f *frame, probes []sandboxtest.Probe) *probePrinter {
	p := &probePrinter{f: f, count: map[string]int{}, began: time.Now()}
	for _, x := range probes {
		p.count[x.Group]++
	}
	return p
}

func (p *probePrinter) print(r sandboxtest.Result) {
	if r.Group != p.group {
		p.group = r.Group
		_ = p.f.printf("%s (%d probes)\n", r.Group, p.count[r.Group])
	}
	mark, on, off := "held", "", ""
	if !r.Held {
		mark = "NOT HELD"
	}
	if p.f.colour(p.f.Stdout) {
		on, off = "\x1b[32m", "\x1b[0m"
		if !r.Held {
			on = "\x1b[1;31m"
		}
	}
	// What was observed may hold text of the sandbox.
	_ = p.f.printf("  %s%-8s%s %s/%s: %s: expected %s; control: %s\n", on, mark, off, r.Group, r.Name,
		plaintext.Line(r.Observed, 2000), r.Expected, plaintext.Line(r.Control, 2000))
}

// end counts them, by group where there is more than one.
func (p *probePrinter) end(results []sandboxtest.Result) error {
	held := map[string]int{}
	all := 0
	for _, r := range results {
		if r.Held {
			held[r.Group]++
			all++
		}
	}
	if len(p.count) > 1 {
		for _, g := range probeGroups {
			if p.count[g] > 0 {
				if err := p.f.printf("%-12s %d of %d held\n", g, held[g], p.count[g]); err != nil {
					return err
				}
			}
		}
	}
	return p.f.printf("%d of %d held\n", all, len(results))
}

func (f *frame) listProbes(probes []sandboxtest.Probe) error {
	type item struct {
		Name     string `json:"name"`
		Group    string `json:"group"`
		Expected string `json:"expected"`
	}
	list := []item{}
	for _, p := range probes {
		list = append(list, item{p.Name, p.Group, p.Expected})
	}
	if f.json {
		return f.printJSON(map[string]any{"probes": list})
	}
	for _, p := range list {
		if err := f.printf("%s/%s: %s\n", p.Group, p.Name, p.Expected); err != nil {
			return err
		}
	}
	return nil
}

// auditReport is what --report writes. Its field names are part of the format.
type auditReport struct {
	Format   string    `json:"format"` // "confine-verify/1"
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Held     bool      `json:"held"`
	Program  auditFile `json:"program"`
	Host     auditHost `json:"host"`
	Driver   string    `json:"driver"`
	Boundary any       `json:"boundary"`
	// Weaker are the layers that the attacked boundary lets be missing, and those
	// of them that this host lacks.
	Weaker auditWeaker          `json:"weaker_forms"`
	Probes []sandboxtest.Result `json:"probes"`
}

type auditFile struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

type auditHost struct {
	Kernel  string       `json:"kernel"`
	Machine string       `json:"machine"`
	LSMs    string       `json:"lsms,omitempty"`
	UID     int          `json:"uid"`
	Has     []probe.Item `json:"abilities"`
}

type auditWeaker struct {
	Allowed []boundary.Layer `json:"allowed"`
	Lacking []boundary.Layer `json:"lacking"`
}

func (o *verifyOptions) writeReport(f *frame, program string, began time.Time, results []sandboxtest.Result, held bool) error {
	fail := func(err error) error { return fmt.Errorf("write report: %w", err) }
	b, err := verifyBase()
	if err != nil {
		return fail(err)
	}
	sum, err := digest(program)
	if err != nil {
		return fail(err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fail(err)
	}
	r := auditReport{
		Format: "confine-verify/1", Began: began, Ended: time.Now().UTC(), Held: held,
		Program: auditFile{Path: program, Version: f.Version, SHA256: sum},
		Host:    auditHost{Kernel: unix.ByteSliceToString(name.Release[:]), Machine: unix.ByteSliceToString(name.Machine[:]), UID: os.Geteuid(), Has: probe.Host().Items},
		Driver:  native.New().Name(), Boundary: b, Probes: results,
		Weaker: auditWeaker{Allowed: b.AllowMissing, Lacking: []boundary.Layer{}},
	}
	// Not there without securityfs, as in most containers.
	if lsms, err := os.ReadFile("/sys/kernel/security/lsm"); err == nil {
		r.Host.LSMs = string(lsms)
	}
	for _, i := range r.Host.Has {
		if !i.Present && i.Layer != "" {
			r.Weaker.Lacking = append(r.Weaker.Lacking, i.Layer)
		}
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fail(err)
	}
	return o.place(append(data, '\n'))
}

// place puts the report where it is asked for, whole or not at all, and never
// over a file that appeared meanwhile.
func (o *verifyOptions) place(data []byte) error {
	fail := func(err error) error { return fmt.Errorf("write report: %w", err) }
	tmp, err := os.CreateTemp(filepath.Dir(o.report), ".confine-report-")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil && o.force {
		err = os.Rename(tmp.Name(), o.report)
	} else if err == nil {
		err = os.Link(tmp.Name(), o.report)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

func digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
