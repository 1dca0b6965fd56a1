// Command bench compares confine with its peers on this machine, in one run.
//
//	bench -confine bin/confine
//
// It measures how long `confine run -- /bin/true` takes against the plain
// program, bubblewrap and runc with a comparable view, once as a new process
// each time and once from a process that runs already, and how fast 1 GB moves
// through the captured network against a direct connection over loopback. The
// contenders take turns, round by round, so that a noisy machine is noisy for
// all of them; what counts are ratios of medians.
//
// It does not judge what each contender protects from: bubblewrap and runc run
// here without a system call filter and without Landlock, so they do less.
// `make bench` calls it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Report is the whole result, as written to the results folder.
type Report struct {
	Time       time.Time          `json:"time"`
	System     string             `json:"system"`
	Processors int                `json:"processors"`
	Root       bool               `json:"root"`
	Start      map[string]Timings `json:"start_seconds,omitempty"`
	Through    map[string]Timings `json:"transfer_seconds,omitempty"`
	Bytes      int64              `json:"transfer_bytes,omitempty"`
	Inside     map[string]Timings `json:"inside_seconds,omitempty"`
	Deletion   map[string]Timings `json:"staged_seconds,omitempty"`
	Alive      Alive              `json:"alive"`
	// NotRun are peers that this machine doesn't have.
	NotRun []string            `json:"not_run,omitempty"`
	Aims   []Aim               `json:"aims"`
	order  map[string][]string // how to list the contenders
}

// Aim is one ratio of medians that is promised.
type Aim struct {
	What  string  `json:"what"`
	Ratio float64 `json:"ratio"`
	Limit float64 `json:"limit"`
	Met   bool    `json:"met"`
}

type options struct {
	confine  string
	only     string
	rounds   int
	transfer int
	bytes    int64
	results  string
	alive    int
	workload string
	dir      string
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.confine, "confine", "bin/confine", "the program to measure")
	flags.StringVar(&o.only, "only", "", "comma-separated contenders to measure: exec, bwrap, runc, confine, staged, resident (default all)")
	flags.IntVar(&o.rounds, "rounds", 50, "rounds of the start measurement")
	flags.IntVar(&o.transfer, "transfer-rounds", 5, "rounds of the transfer measurement")
	flags.Int64Var(&o.bytes, "bytes", 1_000_000_000, "bytes per transfer")
	flags.StringVar(&o.results, "results", "bench/results", "folder for the JSON form of the result")
	flags.IntVar(&o.alive, "alive", 1000, "sandboxes alive at once")
	flags.StringVar(&o.workload, "workload", "", "run one workload and print its time (for the measurement inside)")
	flags.StringVar(&o.dir, "dir", "", "where the workload's files are")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.workload != "" {
		return work(o.workload, o.dir)
	}
	if o.rounds < 1 || o.transfer < 1 || o.bytes < 1 {
		return errors.New("rounds and bytes must be positive")
	}
	work, err := os.MkdirTemp("", "confine-bench-")
	if err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	defer os.RemoveAll(work)

	all, err := contenders(o, work)
	if err != nil {
		return err
	}
	report := Report{
		Time: time.Now().UTC(), System: kernelRelease(), Processors: runtime.NumCPU(), Root: os.Geteuid() == 0,
		Bytes: o.bytes, order: map[string][]string{},
	}
	if report.Start, err = measureStart(all, workspaceIn(work), o.rounds); err != nil {
		return err
	}
	report.order["start"] = names(all)
	if report.Through, report.order["transfer"], err = measureTransfer(all, o, work); err != nil {
		return err
	}
	if o.only == "" {
		if err := report.measureRest(o, work); err != nil {
			return err
		}
	}
	report.judge()
	report.print(out)
	return report.save(o.results)
}

// measureRest is what needs more than a start: the work inside, a deletion among many
// files, many sandboxes at once.
func (r *Report) measureRest(o options, dir string) (err error) {
	tree := filepath.Join(dir, "inside")
	if err := layTree(tree); err != nil {
		return fmt.Errorf("lay out files: %w", err)
	}
	if r.Inside, r.order["inside"], err = measureInside(o, tree); err != nil {
		return err
	}
	if r.Deletion, err = measureDeletion(o, tree, filepath.Join(dir, "state"), 20); err != nil {
		return err
	}
	r.Alive, err = measureAlive(o.alive)
	for _, peer := range []string{"runsc", "dockerd", "srt"} {
		r.NotRun = append(r.NotRun, peer)
	}
	return err
}

// judge compares with what docs/explanation/performance.md promises.
func (r *Report) judge() {
	r.aim("start, confine : bwrap, at most", r.Start, "confine", "bwrap", 1.2)
	r.aim("start, confine : runc, at most", r.Start, "confine", "runc", 0.2)
	r.aim("start, resident : bwrap, at most", r.Start, "resident", "bwrap", 0.6)
	for _, w := range workloads {
		r.aim("inside : outside, "+w.name+", at most", r.Inside, w.name+", inside", w.name+", outside", 1.02)
	}
	// Times, not rates: three quarters of the rate are four thirds of the time.
	for _, direction := range directions {
		r.aim("time of a transfer "+direction+", captured : direct, at most", r.Through, "captured "+direction, "direct "+direction, 4.0/3)
	}
}

func (r *Report) aim(what string, t map[string]Timings, a, b string, limit float64) {
	if len(t[a]) == 0 || len(t[b]) == 0 {
		return
	}
	ratio := t[a].median().Seconds() / t[b].median().Seconds()
	r.Aims = append(r.Aims, Aim{What: what, Ratio: ratio, Limit: limit, Met: ratio <= limit})
}

func (r *Report) print(out io.Writer) {
	who := "an ordinary user"
	if r.Root {
		who = "root"
	}
	fmt.Fprintf(out, "%s, %d processors, as %s\n", r.System, r.Processors, who)
	first := r.order["start"]
	fmt.Fprintf(out, "\nstart of /bin/true, %d rounds in turn\n", len(r.Start[first[0]]))
	fmt.Fprintf(out, "  %-16s %10s %10s %10s", "", "median", "90 %", "least")
	for _, base := range first {
		fmt.Fprintf(out, " %10s", ": "+base)
	}
	fmt.Fprintln(out)
	for _, name := range first {
		t := r.Start[name]
		fmt.Fprintf(out, "  %-16s %7.2f ms %7.2f ms %7.2f ms", name, ms(t.median()), ms(t.quantile(0.9)), ms(t.quantile(0)))
		for _, base := range first {
			fmt.Fprintf(out, " %10.2f", t.median().Seconds()/r.Start[base].median().Seconds())
		}
		fmt.Fprintln(out)
	}
	if second := r.order["transfer"]; len(second) > 0 {
		fmt.Fprintf(out, "\n%d bytes over one connection, %d rounds in turn\n", r.Bytes, len(r.Through[second[0]]))
		for _, name := range second {
			t := r.Through[name]
			fmt.Fprintf(out, "  %-16s %7.0f ms %9.2f GB/s\n", name, ms(t.median()), float64(r.Bytes)/t.median().Seconds()/1e9)
		}
	}
	if names := r.order["inside"]; len(names) > 0 {
		fmt.Fprintln(out, "\nthe same work outside and inside, in turn")
		for _, name := range names {
			t := r.Inside[name]
			fmt.Fprintf(out, "  %-40s %9.1f ms  (%d rounds)\n", name, ms(t.median()), len(t))
		}
	}
	if d := r.Deletion; len(d) > 0 {
		fmt.Fprintf(out, "\na run among 100,000 files, %d rounds in turn: live %.1f ms, staged %.1f ms, staged with one deletion %.1f ms\n",
			len(d["nothing"]), ms(d["live"].median()), ms(d["nothing"].median()), ms(d["a deletion"].median()))
	}
	if r.Alive.Count > 0 {
		fmt.Fprintf(out, "\n%d sandboxes alive: %.0f KiB each beyond the command, %.0f starts a second\n", r.Alive.Count, r.Alive.KiBEach, r.Alive.StartsPerSecond)
	}
	if len(r.NotRun) > 0 {
		fmt.Fprintf(out, "\nnot run: %s\n", strings.Join(r.NotRun, ", "))
	}
	if len(r.Aims) > 0 {
		fmt.Fprintln(out, "\naims (ratios of medians)")
	}
	for _, a := range r.Aims {
		word := "met"
		if !a.Met {
			word = "missed"
		}
		fmt.Fprintf(out, "  %-56s %.2f: %.2f, %s\n", a.What, a.Limit, a.Ratio, word)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *Report) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make results folder: %w", err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	name := filepath.Join(dir, r.Time.Format("20060102-150405")+".json")
	if err := os.WriteFile(name, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

func kernelRelease() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + strings.TrimSpace(string(data)) + " " + runtime.GOARCH
}
