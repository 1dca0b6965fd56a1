//go:build linux

package boundary

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// answer is a filter's refusal of one call, where an argument has a value, if arg
// is not below 0.
type answer struct {
	call  uintptr
	arg   int
	value uint32
	errno unix.Errno
}

func (a answer) filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	refuse := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(a.errno)}
	equal := func(k uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: otherwise}
	}
	if a.arg < 0 {
		return []unix.SockFilter{load(0), equal(uint32(a.call), 1), refuse}
	}
	// struct seccomp_data: the arguments begin at 16, 8 bytes each.
	return []unix.SockFilter{load(0), equal(uint32(a.call), 3), load(uint32(16 + 8*a.arg)), equal(a.value, 1), refuse}
}

// lack is an ability that this host is made to lack, for real.
type lack struct {
	name string
	// answers are what a filter around the program refuses, script what is done in
	// a user and mount namespace around it instead.
	answers []answer
	script  string
	// layer is its name, where a run may go on without it.
	layer string
	// flags make a run that needs it, neighbour one that doesn't; nil for none.
	flags, neighbour []string
	// says and fix are in the error.
	says, fix string
	// doctor is the item that lacks it, "" where doctor can't see this form.
	doctor string
}

var lacks = []lack{
	{name: "landlock", answers: []answer{{unix.SYS_LANDLOCK_CREATE_RULESET, -1, 0, unix.ENOSYS}}, layer: "landlock", says: "missing ability landlock", fix: "lsm=", doctor: "Landlock"},
	{name: "seccomp", answers: []answer{{unix.SYS_SECCOMP, -1, 0, unix.EINVAL}}, says: "seccomp", fix: "seccomp profile around this process allow seccomp", doctor: "seccomp"},
	{name: "user namespaces", script: "echo 0 >/proc/sys/user/max_user_namespaces", says: "user_namespaces", fix: "sysctl -w user.max_user_namespaces", doctor: "user namespaces"},
	{name: "overlay", answers: []answer{{unix.SYS_FSCONFIG, 1, unix.FSCONFIG_SET_FLAG, unix.EINVAL}}, flags: []string{"--stage"}, neighbour: []string{"--live"}, says: "missing ability overlay", fix: "--live"},
	{name: "open_tree", answers: []answer{{unix.SYS_OPEN_TREE, -1, 0, unix.ENOSYS}}, says: "not implemented", fix: "open_tree", doctor: "mount calls"},
	{name: "move_mount", answers: []answer{{unix.SYS_MOVE_MOUNT, -1, 0, unix.ENOSYS}}, says: "not implemented", fix: "move_mount", doctor: "mount calls"},
	{name: "mount_setattr", answers: []answer{{unix.SYS_MOUNT_SETATTR, -1, 0, unix.ENOSYS}}, says: "not implemented", fix: "mount_setattr", doctor: "mount calls"},
	{name: "nf_tables", answers: []answer{{unix.SYS_SOCKET, 2, unix.NETLINK_NETFILTER, unix.EPROTONOSUPPORT}}, flags: []string{"--live", "--net", "example.com"}, neighbour: []string{"--live"}, says: "nf_tables", fix: "modprobe", doctor: "nf_tables"},
	{name: "fresh proc", script: "mount -t tmpfs none /proc/bus", layer: "proc", says: "missing ability proc", fix: "systempaths=unconfined", doctor: "fresh /proc"},
	{name: "control groups", script: "mount -t tmpfs none /sys/fs/cgroup", layer: "cgroup"},
}

// in runs a command of the program where the ability is missing.
func (l lack) in(t *testing.T, dir string, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := exec.Command(program(t), args...)
	if l.script != "" {
		cmd = exec.Command("unshare", append([]string{"-Urm", "sh", "-ec", l.script + ` && exec "$0" "$@"`, program(t)}, args...)...)
	}
	cmd.Dir = dir
	// As root of a namespace the usual place is somebody else's.
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "../state"))
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if l.script != "" {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	} else {
		var filter []unix.SockFilter
		for _, a := range l.answers {
			filter = append(filter, a.filter()...)
		}
		startFiltered(t, filter, cmd)
	}
	status = finish(t, cmd, 60*time.Second)
	return o.String(), e.String(), status
}

// TestEachMissingAbility: a run that needs it is refused with the change that mends
// it, and its command never ran; or, where a weaker form may be named, it goes on,
// says so and records it.
func TestEachMissingAbility(t *testing.T) {
	for _, l := range lacks {
		t.Run(l.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "w")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			flags := l.flags
			if flags == nil {
				flags = []string{"--live"}
			}
			ran := func() bool {
				err := os.Remove(filepath.Join(dir, "ran"))
				return err == nil
			}
			command := []string{"--", "sh", "-c", "echo >ran"}
			// The control: with the ability the same run works, in the same place.
			if l.script == "" || l.layer == "cgroup" {
				control := lack{}
				if _, errs, status := control.in(t, dir, slices.Concat([]string{"run"}, flags, command)...); status != 0 || !ran() {
					t.Fatalf("control: %d %s", status, errs)
				}
			} else if control := (lack{script: "true"}); l.name != "control groups" {
				if _, errs, status := control.in(t, dir, slices.Concat([]string{"run"}, flags, []string{"--", "true"})...); status != 0 && os.Geteuid() != 0 {
					t.Logf("in a namespace with all abilities: %d %s", status, errs)
				}
			}
			out, errs, status := l.in(t, dir, slices.Concat([]string{"run"}, flags, command)...)
			if l.layer == "cgroup" { // run names it by itself
				if status == 0 && !strings.Contains(errs, "confine: without cgroup: ") || status != 0 && !strings.Contains(errs, "confine: error: ") {
					t.Errorf("%d %s", status, errs)
				}
				return
			}
			if status != 125 || !strings.Contains(errs, l.says) || !strings.Contains(errs, l.fix) || strings.Count(errs, "confine: error:") != 1 || ran() {
				t.Errorf("status %d: want %q and %q: %s%s", status, l.says, l.fix, out, errs)
			}
			if l.layer != "" {
				l.named(t, dir, flags)
			} else if _, errs, status := l.in(t, dir, slices.Concat([]string{"run", "--allow-missing", strings.Fields(l.name)[0]}, flags, command)...); status != 125 || ran() {
				t.Errorf("allowed to be missing: %d %s", status, errs)
			}
			if l.neighbour != nil {
				if _, errs, status := l.in(t, dir, slices.Concat([]string{"run"}, l.neighbour, command)...); status != 0 || !ran() {
					t.Errorf("a run that does without: %d %s", status, errs)
				}
			}
			if l.doctor == "" {
				return
			}
			text, _, status := l.in(t, dir, "doctor", "--json")
			if item := readAbilities(t, []byte(text))[l.doctor]; status != 5 || item.Present || item.Fix == "" {
				t.Errorf("doctor: %d %+v", status, item)
			}
		})
	}
}

// named runs with the layer named as allowed to be missing.
func (l lack) named(t *testing.T, dir string, flags []string) {
	t.Helper()
	if l.script != "" && os.Geteuid() == 0 {
		return // root of a namespace has no right to mount for a run; the ordinary user's half shows it
	}
	run := slices.Concat([]string{"run", "--allow-missing", l.layer}, flags)
	out, errs, status := l.in(t, dir, append(run, "--", "echo", "ran")...)
	if status != 0 || out != "ran\n" || !strings.Contains(errs, "confine: without "+l.layer+": ") {
		t.Errorf("named: %d %s%s", status, out, errs)
	}
	out, errs, _ = l.in(t, dir, append(run, "--json", "--", "true")...)
	var report struct {
		Missing []string `json:"missing_layers"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || !slices.Contains(report.Missing, l.layer) {
		t.Errorf("not recorded: %v %s%s", err, out, errs)
	}
}
