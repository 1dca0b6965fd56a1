//go:build linux

package sandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

func secretProbes() []Probe {
	return []Probe{
		{Name: "secrets-everywhere", Group: "processes", Expected: "keys in confine's environment, arguments, memory, open files and mapped files are nowhere that can be read inside, memory too", run: probeSecrets},
		{Name: "host-facts", Group: "files", Expected: "the host's machine id, control group, program and home are nowhere inside; paths of what is shown are in the mount list only", run: probeHostFacts},
		{Name: "kernel-leaks", Group: "kernel", Expected: "no kernel memory, log, address, other process, socket or segment is told", run: probeLeaks},
	}
}

// planted is a fresh key.
func planted(kind string) (string, error) {
	b := make([]byte, 16)
	_, err := rand.Read(b)
	return kind + "-" + hex.EncodeToString(b), err
}

// probeSecrets plants a key of its own in each place, so that a finding says
// which it came from.
func probeSecrets(ctx context.Context, h *Host) (outcome, error) {
	if h.PlantedKey == "" {
		return outcome{}, errNoKey
	}
	keys := []string{h.PlantedKey}
	for _, kind := range []string{"memory", "file", "mapped"} {
		key, err := planted(kind)
		if err != nil {
			return outcome{}, err
		}
		keys = append(keys, key)
	}
	// In this process's memory, also as it would be in a struct of a credential.
	inMemory := []byte(strings.Repeat(keys[1]+"\x00", 64))
	defer runtime.KeepAlive(inMemory)
	// In a file that this process has open, and one that it has mapped.
	var files [2]*os.File
	for i, key := range keys[2:] {
		f, err := os.OpenFile(filepath.Join(h.Dir, fmt.Sprintf("credential-%d", i)), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return outcome{}, err
		}
		defer f.Close()
		if _, err = f.WriteString(strings.Repeat(key+"\n", 512)); err != nil {
			return outcome{}, err
		}
		files[i] = f
	}
	m, err := unix.Mmap(int(files[1].Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return outcome{}, fmt.Errorf("map a file: %w", err)
	}
	defer func() { _ = unix.Munmap(m) }()

	needles := make([]string, len(keys))
	for i, key := range keys {
		needles[i] = hide(key)
	}
	control, err := h.outside(ctx, nil, "search", append([]string{strconv.Itoa(os.Getpid())}, needles...)...)
	if err != nil {
		return outcome{}, err
	}
	seen := map[string]bool{}
	for _, t := range control.Tries {
		seen[t.What] = seen[t.What] || t.Result != "nowhere"
	}
	_, b, err := h.workspace("secrets", nil)
	if err != nil {
		return outcome{}, err
	}
	b.Network = boundary.NetworkOff
	a, err := h.inside(ctx, b, nil, "search", append([]string{"all"}, needles...)...)
	return a.judge(fmt.Sprintf("outside, the same search finds %d of %d keys in confine's own /proc", count(seen), len(keys)), count(seen) == len(keys), "nowhere"), err
}

func count(seen map[string]bool) (n int) {
	for _, ok := range seen {
		if ok {
			n++
		}
	}
	return n
}

// probeHostFacts searches for what names the host, its user and where things are.
// What the kernel tells of a mount's source in the mount list can't be kept from
// the one who has the mount; docs/explanation/threat-model.md says so.
func probeHostFacts(ctx context.Context, h *Host) (outcome, error) {
	mountLists := []string{"/mountinfo", "/mounts", "/mountstats"}
	dir, b, err := h.workspace("host-facts", nil)
	if err != nil {
		return outcome{}, err
	}
	var needles, names []string
	add := func(name, fact string, places ...string) {
		// What is short, or of the system's own tree, is found anywhere.
		if fact = strings.TrimSpace(fact); len(fact) >= 8 && !strings.HasPrefix(fact, "/usr") {
			names, needles = append(names, name), append(needles, strings.Join(append([]string{hide(fact)}, places...), ","))
		}
	}
	id, _ := os.ReadFile("/etc/machine-id")
	add("machine id", string(id))
	name, _ := os.Hostname()
	add("host name", name)
	home, _ := os.UserHomeDir()
	add("home", home, mountLists...) // what is shown may be below it
	exe, _ := os.Executable()
	add("program", exe, mountLists...) // the probe is bound from it
	add("workspace", dir, mountLists...)
	add("secret's directory", filepath.Join(h.Dir, "no-such-place"))
	cgroups, _ := os.ReadFile("/proc/self/cgroup")
	for _, line := range strings.Split(string(cgroups), "\n") {
		if parts := strings.SplitN(line, ":", 3); len(parts) == 3 && len(parts[2]) > 8 {
			add("control group", parts[2])
			break
		}
	}
	control, err := h.outside(ctx, nil, "search", append([]string{strconv.Itoa(os.Getpid())}, needles...)...)
	if err != nil {
		return outcome{}, err
	}
	known := map[string]bool{}
	for _, t := range control.Tries {
		known[t.What] = known[t.What] || t.Result != "nowhere"
	}
	a, err := h.inside(ctx, b, nil, "search", append([]string{"all"}, needles...)...)
	return a.judge(fmt.Sprintf("searched for %s; outside, %d of them are told", strings.Join(names, ", "), count(known)), count(known) > 0, "nowhere"), err
}

func probeLeaks(ctx context.Context, h *Host) (outcome, error) {
	control, err := h.outside(ctx, nil, "leaks")
	if err != nil {
		return outcome{}, err
	}
	told := 0
	for _, t := range control.Tries {
		if t.Want != "" && t.Result != t.Want {
			told++
		}
	}
	_, b, err := h.workspace("leaks", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "leaks", b.View.Hostname)
	return a.judge(fmt.Sprintf("outside, %d of them are told to this user", told), told > 0), err
}
