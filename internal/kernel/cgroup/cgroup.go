//go:build linux

// Package cgroup makes the control group of one run: memory, processes and
// processor time in sum, whatever the run forks.
//
// It works with version 2 where a group was delegated (or as root), and with
// version 1 as root. It makes groups named confine-… below the caller's own and
// touches no other. It does not kill what a run started: the end of a PID
// namespace does that; Sweep is for groups whose maker died.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
)

const (
	root   = "/sys/fs/cgroup"
	prefix = "confine-"
)

// controllers are what the limits of a boundary need.
var controllers = []string{"memory", "pids", "cpu"}

// Host is where groups can be made on this host.
type Host struct {
	// parents holds the directory below which groups are made: one under ""
	// with version 2, one for each controller with version 1.
	parents map[string]string
	v2      bool
	maker   string
}

// count numbers the groups of this process, whatever Host made them.
var count atomic.Int64

// Discover finds out what this process may use. The error is a
// *kernel.MissingError. It removes groups left behind by dead makers.
func Discover() (*Host, error) {
	h := &Host{}
	var err error
	if h.maker, err = maker(os.Getpid()); err != nil {
		return nil, err
	}
	why := h.discoverV2()
	if why != nil {
		why = errors.Join(h.discoverV1(), why)
	}
	if h.parents == nil {
		return nil, &kernel.MissingError{
			Layer: boundary.LayerCgroup,
			What:  "no control group that this user may use (" + strings.ReplaceAll(why.Error(), "\n", "; ") + ")",
			Fix:   mend(os.Geteuid() == 0, readText("/proc/self/mountinfo"), readText("/proc/self/cgroup")) + "; or name cgroup in allow_missing",
		}
	}
	h.sweep()
	return h, nil
}

// mend is the change that gives this process groups, from what is mounted and
// which hierarchies exist (cgroups(7)).
func mend(asRoot bool, mounts, hierarchies string) string {
	mounted, readOnly, version1 := false, false, false
	for _, line := range strings.Split(mounts, "\n") {
		before, after, ok := strings.Cut(line, " - cgroup")
		f := strings.Fields(before)
		if !ok || len(f) < 6 || f[4] != root && !strings.HasPrefix(f[4], root+"/") {
			continue
		}
		mounted = true
		if hasWord(strings.ReplaceAll(f[5], ",", " "), "ro") && !strings.Contains(after, "name=") {
			readOnly = true
		}
	}
	for _, line := range strings.Split(hierarchies, "\n") {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 && hasWord(strings.ReplaceAll(f[1], ",", " "), "memory") {
			version1 = true
		}
	}
	switch {
	case !mounted && version1:
		return "mount the control groups (as root): mount -t tmpfs cgroup " + root + "; for c in " + strings.Join(controllers, " ") +
			"; do mkdir " + root + "/$c; mount -t cgroup -o $c cgroup " + root + "/$c; done"
	case !mounted:
		return "mount the control groups (as root): mount -t cgroup2 cgroup2 " + root
	case asRoot && readOnly:
		return "mount the control groups writable: mount -o remount,rw " + root + " (in Docker they are read-only without --privileged)"
	case asRoot:
		return "run in a delegated group: systemd-run --scope -p Delegate=yes confine …"
	}
	return "run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes confine …"
}

func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "" // as if nothing was there
	}
	return string(b)
}

// maker names a process so that its number, reused, is not taken for it: PID
// namespace, number, and start time in ticks since boot (proc_pid_stat(5)).
func maker(pid int) (string, error) {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 {
		return "", errors.New("read start time: too few fields")
	}
	return fmt.Sprintf("%s-%d-%s", strings.Trim(strings.TrimPrefix(ns, "pid:"), "[]"), pid, f[19]), nil
}

func (h *Host) discoverV2() error {
	own, ok := ownPath("")
	if !ok {
		return errors.New("version 2 is not mounted")
	}
	for _, mount := range []string{root, root + "/unified"} {
		dir := filepath.Join(mount, own)
		have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			continue
		}
		for _, c := range controllers {
			if !hasWord(string(have), c) {
				return fmt.Errorf("version 2 has no %s controller here", c)
			}
		}
		if err := enable(dir); err != nil {
			return err
		}
		h.parents, h.v2 = map[string]string{"": dir}, true
		return nil
	}
	return errors.New("version 2 is not mounted")
}

// enable hands the controllers on to the groups below dir. A group with
// processes of its own can't (the "no internal processes" rule), so this process
// moves into a child first; with anyone else in the group it stays refused.
func enable(dir string) error {
	want := "+" + strings.Join(controllers, " +")
	file := filepath.Join(dir, "cgroup.subtree_control")
	err := os.WriteFile(file, []byte(want), 0)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	leaf := filepath.Join(dir, "confine.supervisor")
	if mkErr := os.Mkdir(leaf, 0o755); mkErr != nil && !errors.Is(mkErr, fs.ErrExist) {
		return mkErr
	}
	if moveErr := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); moveErr != nil {
		return moveErr
	}
	return os.WriteFile(file, []byte(want), 0)
}

func (h *Host) discoverV1() error {
	parents := map[string]string{}
	for _, c := range controllers {
		own, ok := ownPath(c)
		if !ok {
			return fmt.Errorf("version 1 has no %s controller", c)
		}
		dir := filepath.Join(root, c, own)
		if unix.Access(dir, unix.W_OK) != nil {
			// In a container the path is the host's and the mount shows less.
			dir = filepath.Join(root, c)
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return fmt.Errorf("version 1 %s: %w", c, err)
		}
		parents[c] = dir
	}
	h.parents = parents
	return nil
}

// ownPath is this process's path in the hierarchy of a version 1 controller, or
// of version 2 for "".
func ownPath(controller string) (string, bool) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		if controller == "" && f[0] == "0" {
			return f[2], true
		}
		for _, c := range strings.Split(f[1], ",") {
			if controller != "" && c == controller {
				return f[2], true
			}
		}
	}
	return "", false
}

func hasWord(s, word string) bool {
	for _, w := range strings.Fields(s) {
		if w == word {
			return true
		}
	}
	return false
}

// Group is the group of one run.
type Group struct {
	dirs map[string]string
	v2   bool
}

// Make makes a group with the limits. On an error nothing is left behind.
func (h *Host) Make(tenant boundary.TenantID, limits boundary.Limits) (*Group, error) {
	name := fmt.Sprintf("%s%s-%s-%d", prefix, tenant, h.maker, count.Add(1))
	g := &Group{dirs: map[string]string{}, v2: h.v2}
	for c, parent := range h.parents {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			_ = g.Remove()
			return nil, fmt.Errorf("make control group: %w", err)
		}
		g.dirs[c] = dir
	}
	for _, s := range g.settings(limits) {
		err := os.WriteFile(filepath.Join(g.dir(s.controller), s.file), []byte(s.value), 0)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			_ = g.Remove()
			return nil, fmt.Errorf("set %s: %w", s.file, err)
		}
	}
	return g, nil
}

func (g *Group) dir(controller string) string {
	if g.v2 {
		return g.dirs[""]
	}
	return g.dirs[controller]
}

type setting struct {
	controller, file, value string
	// optional files depend on how the kernel was built (swap accounting).
	optional bool
}

// cpuPeriod in microseconds is the kernel's default.
const cpuPeriod = 100000

func (g *Group) settings(l boundary.Limits) []setting {
	var out []setting
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	if l.Memory > 0 {
		if g.v2 {
			out = append(out, setting{"memory", "memory.max", n(l.Memory), false}, setting{"memory", "memory.swap.max", "0", true}, setting{"memory", "memory.oom.group", "1", true})
		} else {
			// memsw may not be below the limit, so it comes second.
			out = append(out, setting{"memory", "memory.limit_in_bytes", n(l.Memory), false}, setting{"memory", "memory.memsw.limit_in_bytes", n(l.Memory), true}, setting{"memory", "memory.swappiness", "0", true})
		}
	}
	if l.Pids > 0 {
		// Two more are confine's own: outer and init.
		out = append(out, setting{"pids", "pids.max", n(l.Pids + 2), false})
	}
	if l.MilliCPU > 0 {
		quota := n(l.MilliCPU * cpuPeriod / 1000)
		if g.v2 {
			out = append(out, setting{"cpu", "cpu.max", quota + " " + n(cpuPeriod), false})
		} else {
			out = append(out, setting{"cpu", "cpu.cfs_period_us", n(cpuPeriod), false}, setting{"cpu", "cpu.cfs_quota_us", quota, false})
		}
	}
	return out
}

// Join moves a process into the group.
func (g *Group) Join(pid int) error {
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), strconv.AppendInt(nil, int64(pid), 10), 0); err != nil {
			return fmt.Errorf("join control group: %w", err)
		}
	}
	return nil
}

// OOMKills counts processes killed at the memory limit.
func (g *Group) OOMKills() int64 {
	if g.v2 {
		return g.counter("memory", "memory.events", "oom_kill")
	}
	return g.counter("memory", "memory.oom_control", "oom_kill")
}

// PidsHit counts forks refused at the limit of processes.
func (g *Group) PidsHit() int64 { return g.counter("pids", "pids.events", "max") }

func (g *Group) counter(controller, file, key string) int64 {
	b, err := os.ReadFile(filepath.Join(g.dir(controller), file))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}

// Kill ends the processes of the group that are there now.
func (g *Group) Kill() {
	for _, dir := range g.dirs {
		if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
			continue
		}
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, p := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(p); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// removeWait is how long Remove waits for a group to become empty, in steps.
const (
	removeWait = 2 * time.Second
	removeStep = 5 * time.Millisecond
)

// Remove removes the group. A process that was killed is in its group until it
// was collected, and the removal of a group with one fails: Remove tries again
// for two seconds, as nobody would come back for a group that is left.
func (g *Group) Remove() error {
	var errs []error
	end := time.Now().Add(removeWait)
	for _, dir := range g.dirs {
		err := os.Remove(dir)
		for errors.Is(err, unix.EBUSY) && time.Now().Before(end) {
			time.Sleep(removeStep)
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweep removes groups whose maker is dead, from this PID namespace only: of
// others it can't tell.
func (h *Host) sweep() {
	mine, _, _ := strings.Cut(h.maker, "-")
	for c, parent := range h.parents {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			name := e.Name()
			if !strings.HasPrefix(name, prefix) || !e.IsDir() {
				continue
			}
			f := strings.Split(name, "-")
			if len(f) < 6 || f[len(f)-4] != mine {
				continue
			}
			pid, err := strconv.Atoi(f[len(f)-3])
			if err != nil {
				continue
			}
			if now, err := maker(pid); err == nil && now == strings.Join(f[len(f)-4:len(f)-1], "-") {
				continue
			}
			g := &Group{dirs: map[string]string{c: filepath.Join(parent, name)}, v2: h.v2}
			g.Kill()
			_ = g.Remove()
		}
	}
}
