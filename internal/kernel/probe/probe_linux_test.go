package probe

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/kernel/seccomp"
)

// fake is a host that has everything but what is taken away.
type fake struct {
	fails     map[attempt]error
	files     map[string]string
	noCgroups error
	abi       int
	version   string
	isRoot    bool
	isPriv    bool
	tried     map[attempt]bool
}

func newFake() *fake {
	return &fake{fails: map[attempt]error{}, files: map[string]string{}, abi: 7, version: "6.18.44-x", isRoot: true, isPriv: true, tried: map[attempt]bool{}}
}

func (f *fake) try(a attempt) error { f.tried[a] = true; return f.fails[a] }
func (f *fake) cgroups() (string, error) {
	return "all", f.noCgroups
}
func (f *fake) landlock() int    { return f.abi }
func (f *fake) release() string  { return f.version }
func (f *fake) privileged() bool { return f.isPriv }
func (f *fake) root() bool       { return f.isRoot }
func (f *fake) read(path string) (string, error) {
	if s, ok := f.files[path]; ok {
		return s, nil
	}
	return "", fs.ErrNotExist
}

// TestMain lets a test run this program again under a filter.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "report" {
		if json.NewEncoder(os.Stdout).Encode(Host()) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestUnderContainerFilter asks a real report of a process that a real filter
// keeps from namespaces and mounts, as a container's does.
func TestUnderContainerFilter(t *testing.T) {
	filter, err := seccomp.Compile(seccomp.Default())
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(filtered bool) Report {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		keep := []int{int(w.Fd())}
		p, b := kernel.NewProgram()
		b.Call("standard output", unix.SYS_DUP3, kernel.Int(kernel.KeptFD(keep, 0)), kernel.Int(1), kernel.Int(0))
		if filtered {
			installFilter(p, b, filter)
		}
		b.UnblockSignals()
		b.Exec("execute", p.Str(program), p.Vector([]string{program, "report"}), p.Vector(nil))
		k, err := p.Start(0, keep)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		if err := (&child{Child: k}).wait(); err != nil {
			t.Fatal(err)
		}
		var report Report
		if err := json.Unmarshal(text, &report); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		return report
	}
	if i := item(t, ask(false), "user namespaces"); !i.Present {
		t.Errorf("without the filter: %+v", i)
	}
	r := ask(true)
	if i := item(t, r, "user namespaces"); i.Present || !strings.Contains(i.Detail, "seccomp filter around this process") || i.Fix != dockerFix {
		t.Errorf("under the filter: %+v", i)
	}
	if i := item(t, r, "Landlock"); !i.Present {
		t.Errorf("what the filter allows: %+v", i)
	}
}

func step(name string, errno unix.Errno) error { return &kernel.StepError{Step: name, Err: errno} }

func item(t *testing.T, r Report, name string) Item {
	t.Helper()
	for _, i := range r.Items {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no item %q", name)
	return Item{}
}

func TestCompleteHostLacksNothing(t *testing.T) {
	f := newFake()
	r := inspect(f)
	if l := r.Lacks(); len(l) != 0 {
		t.Errorf("lacks %+v", l)
	}
	for _, i := range r.Items {
		if !i.Present || i.Detail == "" || i.Fix != "" {
			t.Errorf("%+v", i)
		}
	}
	if len(f.tried) != 10 {
		t.Errorf("tried %v", f.tried)
	}
}

// TestEachLackIsNamedWithItsFix takes one ability away at a time.
func TestEachLackIsNamedWithItsFix(t *testing.T) {
	const denied, clone = "deny", "clone"
	sysctl := func(path, v string) func(*fake) { return func(f *fake) { f.files["/proc/sys/"+path] = v } }
	fails := func(a attempt, err error) func(*fake) { return func(f *fake) { f.fails[a] = err } }
	user := func(f *fake) { f.isRoot, f.isPriv = false, false }
	tests := []struct {
		name   string
		change []func(*fake)
		item   string
		layer  boundary.Layer
		detail string
		fix    string
	}{
		{"old kernel", []func(*fake){func(f *fake) { f.version = "5.10.0-28" }}, "kernel", "", "5.10", "5.13"},
		{"odd kernel", []func(*fake){func(f *fake) { f.version = "unknown" }}, "kernel", "", "unknown", "5.13"},
		{"container filter", []func(*fake){user, fails(userNamespace, step(clone, unix.EPERM)), fails(unshareNothing, step(denied, unix.EPERM)), sysctl("kernel/unprivileged_userns_clone", "0")},
			"user namespaces", boundary.LayerUserNS, "seccomp filter", "seccomp=unconfined"},
		{"debian sysctl", []func(*fake){user, fails(userNamespace, step(clone, unix.EPERM)), sysctl("kernel/unprivileged_userns_clone", "0")},
			"user namespaces", boundary.LayerUserNS, "unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"no user namespaces left", []func(*fake){user, fails(userNamespace, step(clone, unix.ENOSPC)), sysctl("user/max_user_namespaces", "0")},
			"user namespaces", boundary.LayerUserNS, "max_user_namespaces is 0", "sysctl -w user.max_user_namespaces"},
		{"outer limit", []func(*fake){user, fails(userNamespace, step(clone, unix.ENOSPC)), sysctl("user/max_user_namespaces", "100")},
			"user namespaces", boundary.LayerUserNS, "limit", "raise user.max_user_namespaces"},
		{"apparmor", []func(*fake){user, fails(userNamespace, step("unshare UTS namespace", unix.EPERM)), sysctl("kernel/apparmor_restrict_unprivileged_userns", "1")},
			"user namespaces", boundary.LayerUserNS, "AppArmor", "packaging/apparmor/confine"},
		{"apparmor switched off is not blamed", []func(*fake){user, fails(userNamespace, step("unshare UTS namespace", unix.EPERM)), sysctl("kernel/apparmor_restrict_unprivileged_userns", "0")},
			"user namespaces", boundary.LayerUserNS, "unshare UTS namespace", "kernel's log"},
		{"container root", []func(*fake){func(f *fake) { f.isPriv = false }, fails(userNamespace, step(stepMapIDs, unix.EPERM))},
			"user namespaces", boundary.LayerUserNS, "root of a container", "--user 1000"},
		{"clone filtered", []func(*fake){user, fails(userNamespace, step(clone, unix.EPERM)), func(f *fake) { f.files["/proc/self/status"] = "Name:\tx\nSeccomp:\t2\n" }},
			"user namespaces", boundary.LayerUserNS, "may forbid clone", "seccomp=unconfined"},
		{"built without", []func(*fake){user, fails(userNamespace, step(clone, unix.EINVAL))}, "user namespaces", boundary.LayerUserNS, "built without", "CONFIG_USER_NS"},
		{"masked proc", []func(*fake){fails(freshProc, step("mount /proc", unix.EPERM)), func(f *fake) {
			f.files["/proc/self/mountinfo"] = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /proc rw - proc p rw\n3 2 0:3 / /proc/keys rw - tmpfs t rw"
		}}, "fresh /proc", boundary.LayerProc, "operation not permitted; covered: /proc/keys", "systempaths=unconfined"},
		{"mount calls filtered", []func(*fake){fails(mountCalls, step("fsopen", unix.EPERM))}, "mounts by descriptor", "", "fsopen", "seccomp=unconfined"},
		{"mount calls unknown", []func(*fake){fails(mountCalls, step("mount_setattr", unix.ENOSYS))}, "mounts by descriptor", "", "mount_setattr", "5.13"},
		{"namespace limit", []func(*fake){fails(namespaces, step(clone, unix.ENOSPC))}, "namespaces", "", "clone", "max_*_namespaces"},
		{"no seccomp", []func(*fake){fails(loadFilter, step("load filter", unix.EINVAL))}, "seccomp", boundary.LayerSeccomp, "load filter", "CONFIG_SECCOMP_FILTER"},
		{"no landlock", []func(*fake){fails(restrictFiles, step("create rules", unix.ENOSYS)), func(f *fake) { f.abi = 0 }}, "Landlock", boundary.LayerLandlock, "does not have it", "5.13"},
		{"landlock off", []func(*fake){fails(restrictFiles, step("create rules", unix.EOPNOTSUPP)), func(f *fake) { f.abi = 0 }}, "Landlock", boundary.LayerLandlock, "not switched on", "lsm="},
		{"no nf_tables", []func(*fake){fails(capture, step("load rules", unix.EOPNOTSUPP))}, "nf_tables", boundary.LayerNFTables, "load rules", "modprobe"},
		{"no IPv6", []func(*fake){fails(addresses, step("open IPv6 socket", unix.EAFNOSUPPORT))}, "addresses and routes", "", "IPv6", "ipv6.disable"},
		{"no idmap", []func(*fake){fails(idmapped, unix.EINVAL)}, "idmapped mounts", boundary.LayerIDMap, "invalid argument", "ext4"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			for _, c := range test.change {
				c(f)
			}
			r := inspect(f)
			i := item(t, r, test.item)
			if i.Present || !i.Needed || i.Layer != test.layer || !strings.Contains(i.Detail, test.detail) || !strings.Contains(i.Fix, test.fix) {
				t.Errorf("got %+v", i)
			}
			if len(r.Lacks()) == 0 {
				t.Error("the report says that nothing lacks")
			}
			for _, other := range r.Items {
				if other.Name == test.item {
					continue
				}
				needsNS := !strings.Contains("kernel seccomp Landlock control groups", other.Name)
				switch {
				case test.item == "user namespaces" && needsNS:
					if other.Present || other.Fix == "" {
						t.Errorf("without user namespaces: %+v", other)
					}
				case !other.Present && other.Needed:
					t.Errorf("also lacks %+v", other)
				}
			}
		})
	}
}

func TestOptionalLacksAreNoFault(t *testing.T) {
	f := newFake()
	f.isPriv, f.isRoot = false, false
	f.noCgroups = &kernel.MissingError{Layer: boundary.LayerCgroup, What: "no group", Fix: "delegate one"}
	f.fails[overlay] = step("mount overlay", unix.ENODEV)
	r := inspect(f)
	if l := r.Lacks(); len(l) != 0 {
		t.Errorf("lacks %+v", l)
	}
	for name, fix := range map[string]string{"control groups": "delegate one", "overlay": "modprobe overlay", "idmapped mounts": "root"} {
		if i := item(t, r, name); i.Present || i.Without == "" || !strings.Contains(i.Fix, fix) {
			t.Errorf("%+v", i)
		}
	}
	if f.tried[idmapped] {
		t.Error("an ordinary user tried what only root can")
	}
}

func TestParseRelease(t *testing.T) {
	for s, want := range map[string][2]int{"6.18.44-fc": {6, 18}, "5.4": {5, 4}, "7.0-rc1": {7, 0}, "6.1.0-13-amd64": {6, 1}} {
		if a, b, ok := parseRelease(s); !ok || a != want[0] || b != want[1] {
			t.Errorf("%q: %d.%d %v", s, a, b, ok)
		}
	}
	for _, s := range []string{"", "6", "x.y", "-1.2", "6."} {
		if _, _, ok := parseRelease(s); ok {
			t.Errorf("%q was read", s)
		}
	}
}

// TestThisHost makes the real attempts. The suite needs a host on which
// sandboxes run, so what a sandbox needs must be found there.
func TestThisHost(t *testing.T) {
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []attempt{unshareNothing, userNamespace, namespaces, mountCalls, loadFilter, restrictFiles, addresses, capture, overlay} {
		if err := (machine{}).try(a); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	if (machine{}).privileged() {
		if err := (machine{}).try(idmapped); err != nil {
			t.Error(err)
		}
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the probes changed this host's mounts")
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("the probes left a child behind: %v", err)
	}
}

// TestChildFailuresAreSeen: a step that fails and a child that is killed are
// both errors, and the same child without them is none.
func TestChildFailuresAreSeen(t *testing.T) {
	if err := inChild(0, func(*kernel.Program, *kernel.Block) {}); err != nil {
		t.Errorf("an empty child: %v", err)
	}
	err := inChild(0, func(p *kernel.Program, b *kernel.Block) {
		b.Call("open nowhere", unix.SYS_OPENAT, kernel.Int(0), p.Str("/nowhere"), kernel.Int(0))
	})
	if failedStep(err) != "open nowhere" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("a failed step: %v", err)
	}
	err = inChild(0, func(_ *kernel.Program, b *kernel.Block) {
		pid := b.Call("own id", unix.SYS_GETPID).Result()
		b.Call("kill", unix.SYS_KILL, pid.Arg(), kernel.Int(int(unix.SIGKILL)))
	})
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a killed child: %v", err)
	}
	err = inChild(0, func(_ *kernel.Program, b *kernel.Block) { b.Call("leave", unix.SYS_EXIT_GROUP, kernel.Int(3)) })
	if err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("a child that left early: %v", err)
	}
}
