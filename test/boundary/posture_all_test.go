//go:build linux

package boundary

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// posture is all that /proc says of a process.
type posture struct {
	Status, Limits, NS, FD, Files map[string]string
	Mounts                        [][]string // target, options, kind
	Cgroup                        []string
}

// readPosture is a program that prints it as JSON, of itself or of init.
const readPosture = `
import json, os, sys
p = '/proc/' + sys.argv[1] + '/'
def text(name):
    try: return open(p + name).read()
    except OSError as e: return e.strerror
def links(dir):
    out = {}
    try: names = os.listdir(p + dir)
    except OSError as e: return {'': e.strerror}
    for n in names:
        try: out[n] = os.readlink(p + dir + '/' + n)
        except OSError as e: out[n] = e.strerror
    return out
fds = links('fd')
fds = {k: v for k, v in fds.items() if v != 'No such file or directory'} # the listing itself
rows = [l.split() for l in text('mountinfo').splitlines()] if sys.argv[1] == 'self' else []
print(json.dumps({
    'Status': dict(l.split(':', 1) for l in text('status').splitlines() if ':' in l),
    'Limits': {l[:25].strip(): ' '.join(l[26:68].split()) for l in text('limits').splitlines()[1:]},
    'NS': links('ns'), 'FD': fds,
    'Mounts': [[r[4], r[5], r[r.index('-') + 1]] for r in rows],
    'Cgroup': [l.split(':', 2)[2] for l in text('cgroup').splitlines() if l.count(':') > 1],
    'Files': {f: text(f).strip() for f in ('uid_map', 'gid_map', 'setgroups', 'oom_score_adj', 'personality', 'timerslack_ns', 'loginuid', 'sessionid', 'attr/current', 'environ')},
}))
`

// statusLines are the lines of /proc/PID/status (proc_pid_status(5)): the value that
// each must have inside, as a pattern, or why it may be anything. A line that is
// not here is new in the kernel: say what it should be.
var statusLines = map[string]string{
	"Umask": "0022", "TracerPid": "0", "NoNewPrivs": "1", "Seccomp": "2", "Groups": "", "CoreDumping": "0", "SigPnd": "0+", "ShdPnd": "0+", "SigBlk": "0+",
	"CapInh": "0+", "CapPrm": "0+", "CapEff": "0+", "CapBnd": "0+", "CapAmb": "0+", "VmLck": "0 kB", "VmPin": "0 kB", "HugetlbPages": "0 kB", "Kthread": "0",
	"Tgid": `\d`, "Pid": `\d`, "PPid": "1", "NStgid": `\d`, "NSpid": `\d`, "NSpgid": `\d`, "NSsid": `\d`, // small numbers of its own, one level only
	"Uid": "ID\tID\tID\tID", "Gid": "ID\tID\tID\tID", "Seccomp_filters": "FILTERS", "SigQ": `\d+/\d{1,4}`,
	// The program's own, or the machine's.
	"Name": ".*", "State": ".*", "Ngid": ".*", "FDSize": ".*", "VmPeak": ".*", "VmSize": ".*", "VmHWM": ".*", "VmRSS": ".*", "RssAnon": ".*", "RssFile": ".*", "RssShmem": ".*",
	"VmData": ".*", "VmStk": ".*", "VmExe": ".*", "VmLib": ".*", "VmPTE": ".*", "VmSwap": ".*", "THP_enabled": ".*", "untag_mask": ".*", "Threads": ".*", "SigIgn": ".*", "SigCgt": ".*",
	"Speculation_Store_Bypass": ".*", "SpeculationIndirectBranch": ".*", "Cpus_allowed": ".*", "Cpus_allowed_list": ".*", "Mems_allowed": ".*", "Mems_allowed_list": ".*",
	"voluntary_ctxt_switches": ".*", "nonvoluntary_ctxt_switches": ".*", "x86_Thread_features": ".*", "x86_Thread_features_locked": ".*",
}

// writableMounts are those that a command may write to; all others are read-only.
var writableMounts = []string{"/workspace", "/tmp", "/var/tmp", "/run", "/home/agent", "/root", "/dev/shm", "/dev/pts", "/dev/mqueue", "/proc", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

func TestPostureOfEveryBoundary(t *testing.T) {
	// Of a child, as a thread of this process may have a filter that others have not.
	here, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	outer := 0
	if m := regexp.MustCompile(`Seccomp_filters:\t(\d+)`).FindSubmatch(here); m != nil {
		outer = int(m[1][0] - '0')
	}
	for name, flags := range map[string][]string{
		"staged": {"--stage"}, "live": {"--live"}, "network": {"--net", "example.com"}, "root": {"--user", "root"}, "more": {"--ro", "/usr/share/doc"},
		"browser": {"--profile", "browser"}, "nesting": {"--profile", "nesting"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, ".env"), []byte("SECRET"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := takePosture(t, dir, flags, "self")
			id := "1000"
			if name == "root" {
				id = "0"
			}
			checkStatus(t, p, id, string(rune('0'+outer+1)))
			checkLimits(t, p)
			checkNamespaces(t, p)
			checkMounts(t, p)
			for _, fd := range []string{"0", "1", "2"} {
				if !strings.HasPrefix(p.FD[fd], "pipe:[") {
					t.Errorf("descriptor %s is %q", fd, p.FD[fd])
				}
			}
			if len(p.FD) != 3 {
				t.Errorf("descriptors: %v", p.FD)
			}
			for _, g := range p.Cgroup {
				if g != "/" {
					t.Errorf("control group %q", g)
				}
			}
			for file, want := range map[string]string{
				"uid_map": id + " " + id + " 1", "gid_map": id + " " + id + " 1", "setgroups": "deny", "personality": "00000000", "timerslack_ns": "50000", "loginuid": "4294967295", "sessionid": "4294967295",
			} {
				if got := strings.Join(strings.Fields(p.Files[file]), " "); got != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
		})
	}
}

// TestPostureOfInit: of PID 1 the command can't read anything.
func TestPostureOfInit(t *testing.T) {
	p := takePosture(t, t.TempDir(), nil, "1")
	if len(p.Status) > 0 || len(p.Limits) > 0 || p.NS[""] == "" || len(p.FD) > 0 || p.Files["environ"] != "No such file or directory" {
		t.Errorf("of init is read: %+v", p)
	}
	// The control: of itself it reads all.
	if p := takePosture(t, t.TempDir(), nil, "self"); len(p.Status) < 30 || len(p.Limits) < 10 || len(p.NS) < 8 {
		t.Errorf("control: %+v", p)
	}
}

func takePosture(t *testing.T, dir string, flags []string, of string) posture {
	t.Helper()
	out, errs, status := confined(t, dir, nil, append(flags, "--", "python3", "-c", readPosture, of)...)
	var p posture
	if err := json.Unmarshal([]byte(out), &p); err != nil || status != 0 {
		t.Fatalf("%d %v: %s%s", status, err, out, errs)
	}
	return p
}

func checkStatus(t *testing.T, p posture, id, filters string) {
	t.Helper()
	for name, got := range p.Status {
		want, known := statusLines[name]
		if !known {
			t.Errorf("status has a line that is not known: %s:%s", name, got)
			continue
		}
		want = strings.NewReplacer("ID", id, "FILTERS", filters).Replace(want)
		if !regexp.MustCompile("^(?:" + want + ")$").MatchString(strings.TrimSpace(got)) {
			t.Errorf("status: %s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"NoNewPrivs", "Seccomp", "CapBnd", "CapEff", "Uid", "Groups", "NSpid"} {
		if _, ok := p.Status[name]; !ok {
			t.Errorf("status has no %s", name)
		}
	}
}

func checkLimits(t *testing.T, p posture) {
	t.Helper()
	for name, want := range map[string]string{
		"Max core file size": "^0 0$", "Max open files": `^(\d{1,4}) \d{1,4}$`, "Max processes": `^\d{1,4} \d{1,4}$`, "Max pending signals": `^\d{1,4} \d{1,4}$`,
		"Max nice priority": "^0 0$", "Max realtime priority": "^0 0$",
	} {
		if got := p.Limits[name]; !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("limit %q is %q, want %s", name, got, want)
		}
	}
	if len(p.Limits) < 16 {
		t.Errorf("limits: %v", p.Limits)
	}
}

// checkNamespaces: of the host's namespaces a command shares that of clocks and no
// other.
func checkNamespaces(t *testing.T, p posture) {
	t.Helper()
	shared := []string{"time", "time_for_children"}
	for name, id := range p.NS {
		host, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			t.Errorf("namespace %s: %v", name, err)
			continue
		}
		if (id == host) != slices.Contains(shared, name) {
			t.Errorf("namespace %s is %s, the host's %s", name, id, host)
		}
	}
	if len(p.NS) < 8 {
		t.Errorf("namespaces: %v", p.NS)
	}
}

func checkMounts(t *testing.T, p posture) {
	t.Helper()
	kinds := map[string]string{"/": "tmpfs", "/proc": "proc", "/dev": "tmpfs", "/tmp": "tmpfs", "/dev/shm": "tmpfs", "/dev/pts": "devpts"}
	for _, m := range p.Mounts {
		target, options, kind := m[0], strings.Split(m[1], ","), m[2]
		has := func(o string) bool { return slices.Contains(options, o) }
		if !has("nosuid") {
			t.Errorf("%s is mounted without nosuid: %s", target, m[1])
		}
		device := strings.HasPrefix(target, "/dev/") && kind == "devtmpfs" || target == "/dev/pts"
		if !has("nodev") && !device {
			t.Errorf("%s is mounted without nodev: %s", target, m[1])
		}
		if has("rw") != slices.Contains(writableMounts, target) {
			t.Errorf("%s is mounted %s", target, m[1])
		}
		if want := kinds[target]; want != "" && kind != want {
			t.Errorf("%s is of kind %s", target, kind)
		}
		if strings.HasPrefix(target, "/sys") {
			t.Errorf("%s is there", target)
		}
		if strings.HasPrefix(target, "/etc") && !has("noexec") {
			t.Errorf("%s may hold programs: %s", target, m[1])
		}
		delete(kinds, target)
	}
	if len(kinds) > 0 {
		t.Errorf("not mounted: %v", kinds)
	}
	if !slices.ContainsFunc(p.Mounts, func(m []string) bool { return m[0] == "/workspace/.env" && strings.HasPrefix(m[1], "ro,") }) {
		t.Error("the mask is not there")
	}
}
