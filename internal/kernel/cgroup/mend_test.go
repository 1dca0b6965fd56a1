//go:build linux

package cgroup

import (
	"strings"
	"testing"
)

// TestMendFitsTheHost: who is root is not told to become it, and what is not
// mounted is to be mounted, in the version that the host has.
func TestMendFitsTheHost(t *testing.T) {
	const (
		host      = "22 1 0:2 / /proc rw - proc proc rw\n"
		tree2     = host + "30 22 0:27 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
		readOnly  = host + "30 22 0:27 / /sys/fs/cgroup ro,relatime - cgroup2 cgroup2 rw\n"
		tree1     = host + "34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		elsewhere = host + "34 30 0:31 / /mnt/memory rw - cgroup cgroup rw,memory\n"
		only2     = "0::/\n"
		has1      = "4:memory:/x\n1:cpu,cpuacct:/\n0::/\n"
	)
	for name, c := range map[string]struct {
		root                bool
		mounts, hierarchies string
		want                string
	}{
		"nothing mounted":            {true, host, only2, "mount -t cgroup2 cgroup2 /sys/fs/cgroup"},
		"nothing known":              {true, "", "", "mount -t cgroup2 cgroup2 /sys/fs/cgroup"},
		"version 1, nothing mounted": {true, host, has1, "for c in memory pids cpu; do mkdir /sys/fs/cgroup/$c; mount -t cgroup -o $c"},
		"mounted elsewhere":          {true, elsewhere, has1, "mount -t cgroup -o $c"},
		"user, nothing mounted":      {false, host, only2, "mount -t cgroup2"},
		"root, mounted":              {true, tree2, only2, "run in a delegated group: systemd-run --scope"},
		"root, version 1":            {true, tree1, has1, "run in a delegated group"},
		"root, read-only":            {true, readOnly, only2, "mount -o remount,rw /sys/fs/cgroup"},
		"user, read-only":            {false, readOnly, only2, "run as root, or in a delegated group: systemd-run --user"},
		"user, mounted":              {false, tree2, only2, "run as root, or in a delegated group: systemd-run --user"},
	} {
		got := mend(c.root, c.mounts, c.hierarchies)
		if !strings.Contains(got, c.want) || c.root && strings.Contains(got, "run as root") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
