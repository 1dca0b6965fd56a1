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
	noProc    error
	isFilter  bool
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
func (f *fake) proc() error      { return f.noProc }
func (f *fake) filtered() bool   { return f.isFilter }
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

func refused(r ...refusal) error { return &refusedError{r} }

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
	if len(f.tried) != 12 {
		t.Errorf("tried %v", f.tried)
	}
}

// TestEachLackIsNamedWithItsFix takes one ability away at a time.
func TestEachLackIsNamedWithItsFix(t *testing.T) {
	const denied, clone = "deny", "clone"
	sysctl := func(path, v string) func(*fake) { return func(f *fake) { f.files["/proc/sys/"+path] = v } }
	fails := func(a attempt, err error) func(*fake) { return func(f *fake) { f.fails[a] = err } }
	filter := func(f *fake) { f.isFilter = true }
	old := func(f *fake) { f.version = "5.2.1" }
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
		{"clone filtered", []func(*fake){user, fails(userNamespace, step(clone, unix.EPERM)), func(f *fake) { f.isFilter = true }},
			"user namespaces", boundary.LayerUserNS, "may forbid clone", "seccomp=unconfined"},
		{"built without", []func(*fake){user, fails(userNamespace, step(clone, unix.EINVAL))}, "user namespaces", boundary.LayerUserNS, "built without", "CONFIG_USER_NS"},
		{"masked proc", []func(*fake){fails(freshProc, step("mount /proc", unix.EPERM)), func(f *fake) {
			f.files["/proc/self/mountinfo"] = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /proc rw - proc p rw\n3 2 0:3 / /proc/keys rw - tmpfs t rw"
		}}, "fresh /proc", boundary.LayerProc, "operation not permitted; covered: /proc/keys", "systempaths=unconfined"},
		{"no /proc", []func(*fake){func(f *fake) { f.noProc = errNoProc }}, "/proc", "", "/proc is not mounted", "mount -t proc proc /proc"},
		{"another /proc", []func(*fake){func(f *fake) { f.noProc = errOtherProc }}, "/proc", "", "another PID namespace", "mount -t proc proc /proc"},
		{"call filtered", []func(*fake){filter, fails(systemCalls, refused(refusal{"pidfd_open", version{5, 3}, unix.ENOSYS}))}, "system calls", "", "pidfd_open: function not implemented: a seccomp filter", "allow pidfd_open: in Docker"},
		{"call too new", []func(*fake){old, fails(systemCalls, refused(refusal{"pidfd_open", version{5, 3}, unix.ENOSYS}))}, "system calls", "", "pidfd_open: function not implemented: this kernel is too old", "use Linux 5.3 or later"},
		{"option too new", []func(*fake){old, fails(systemCalls, refused(refusal{"close_range with CLOSE_RANGE_CLOEXEC", version{5, 11}, unix.EINVAL}))}, "system calls", "", "too old", "use Linux 5.11 or later"},
		{"call nowhere", []func(*fake){fails(systemCalls, refused(refusal{"pidfd_open", version{5, 3}, unix.ENOSYS}))}, "system calls", "", "pidfd_open", "gVisor"},
		{"no child", []func(*fake){filter, fails(emptyChild, refused(refusal{"close_range", version{5, 9}, unix.ENOSYS}))}, "system calls", "", "close_range: function not implemented: a seccomp filter", "allow close_range"},
		{"child killed", []func(*fake){filter, fails(emptyChild, &killedError{unix.SIGSYS})}, "system calls", "", "killed", "allow close_range dup3"},
		{"no process left", []func(*fake){fails(emptyChild, step(clone, unix.EAGAIN))}, "system calls", "", "clone", "pids.max"},
		{"mount calls filtered", []func(*fake){filter, fails(mountCalls, refused(refusal{"mount", version{}, unix.EPERM}, refusal{"open_tree", version{5, 2}, unix.EPERM}))}, "mount calls", "", "mount: operation not permitted, open_tree: operation not permitted: a seccomp filter", "allow mount open_tree:"},
		{"mount calls too new", []func(*fake){old, fails(mountCalls, refused(refusal{"mount_setattr", version{5, 12}, unix.ENOSYS}))}, "mount calls", "", "mount_setattr", "use Linux 5.12"},
		{"no network namespace", []func(*fake){fails(namespaces, refused(refusal{name: "net", err: unix.ENOSPC})), sysctl("user/max_net_namespaces", "0")}, "namespaces", "", "user.max_net_namespaces is 0", "sysctl -w user.max_net_namespaces=15000 (and"},
		{"one mount namespace", []func(*fake){fails(namespaces, refused(refusal{name: "mnt", err: unix.ENOSPC})), sysctl("user/max_mnt_namespaces", "1")}, "namespaces", "", "user.max_mnt_namespaces is 1", "sysctl -w user.max_mnt_namespaces="},
		{"namespaces used up", []func(*fake){fails(namespaces, refused(refusal{name: "pid", err: unix.ENOSPC})), sysctl("user/max_pid_namespaces", "100")}, "namespaces", "", "max_pid_namespaces is 100 here: that many exist", "sysctl -w user.max_pid_namespaces="},
		{"namespace limit", []func(*fake){fails(namespaces, step(clone, unix.ENOSPC))}, "namespaces", "", "clone", "max_*_namespaces"},
		{"freed late", []func(*fake){fails(capture, step(clone, unix.ENOSPC)), sysctl("user/max_net_namespaces", "1")}, "nf_tables", boundary.LayerNFTables, "max_net_namespaces is 1", "sysctl -w user.max_net_namespaces="},
		{"proc filtered", []func(*fake){filter, fails(freshProc, step("mount /proc", unix.EPERM))}, "fresh /proc", boundary.LayerProc, "mount /proc", "allow mount"},
		{"seccomp filtered", []func(*fake){filter, fails(loadFilter, step("load filter", unix.EPERM))}, "seccomp", boundary.LayerSeccomp, "a seccomp filter", "allow seccomp"},
		{"landlock filtered", []func(*fake){filter, fails(restrictFiles, step("create rules", unix.ENOSYS))}, "Landlock", boundary.LayerLandlock, "may answer so", "allow landlock_create_ruleset"},
		{"nf_tables filtered", []func(*fake){filter, fails(capture, step("load rules: open socket", unix.EPERM))}, "nf_tables", boundary.LayerNFTables, "open socket", "allow socket"},
		{"no seccomp", []func(*fake){fails(loadFilter, step("load filter", unix.EINVAL))}, "seccomp", boundary.LayerSeccomp, "load filter", "CONFIG_SECCOMP_FILTER"},
		{"no landlock", []func(*fake){fails(restrictFiles, step("create rules", unix.ENOSYS)), func(f *fake) { f.abi = 0 }}, "Landlock", boundary.LayerLandlock, "does not have it", "5.13"},
		{"landlock off", []func(*fake){fails(restrictFiles, step("create rules", unix.EOPNOTSUPP)), func(f *fake) { f.abi = 0 }}, "Landlock", boundary.LayerLandlock, "not switched on", "lsm="},
		{"no nf_tables", []func(*fake){fails(capture, step("load rules", unix.EOPNOTSUPP))}, "nf_tables", boundary.LayerNFTables, "load rules", "modprobe"},
		{"no sockets", []func(*fake){filter, fails(addresses, step("open socket", unix.EPERM))}, "addresses and routes", "", "open socket", "allow socket"},
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
				// What follows says so, and has no change of its own.
				follows := other.After != "" && strings.Contains(other.Detail, "not looked at: it needs ") && other.Fix == "mend "+other.After+" first"
				if other.Name == test.item || other.Present || !other.Needed && other.After == "" || other.Name == "kernel" {
					continue
				}
				if !follows {
					t.Errorf("also lacks %+v", other)
				}
			}
		})
	}
}

// TestWhatFollowsIsNotLookedAt: for each root, exactly what needs it.
func TestWhatFollowsIsNotLookedAt(t *testing.T) {
	children := "user namespaces, namespaces, mount calls, fresh /proc, seccomp, Landlock, addresses and routes, nf_tables, overlay, idmapped mounts"
	for name, c := range map[string]struct {
		change func(*fake)
		root   string
		want   string
	}{
		"proc":      {func(f *fake) { f.noProc = errNoProc; f.isPriv = false }, "/proc", "system calls, " + strings.Replace(children, "Landlock, ", "Landlock, control groups, ", 1)},
		"child":     {func(f *fake) { f.fails[emptyChild] = refused(refusal{"wait4", version{}, unix.ENOSYS}) }, "system calls", children},
		"prctl":     {func(f *fake) { f.fails[systemCalls] = refused(refusal{"prctl", version{}, unix.EPERM}) }, "system calls", "seccomp, Landlock"},
		"pidfd":     {func(f *fake) { f.fails[systemCalls] = refused(refusal{"pidfd_open", version{}, unix.EPERM}) }, "system calls", ""},
		"user":      {func(f *fake) { f.fails[userNamespace] = step("clone", unix.EPERM) }, "user namespaces", "namespaces, mount calls, fresh /proc, addresses and routes, nf_tables, overlay, idmapped mounts"},
		"net":       {func(f *fake) { f.fails[namespaces] = refused(refusal{name: "net", err: unix.ENOSPC}) }, "namespaces", "addresses and routes, nf_tables"},
		"mnt":       {func(f *fake) { f.fails[namespaces] = refused(refusal{name: "mnt", err: unix.ENOSPC}) }, "namespaces", "mount calls, fresh /proc, overlay"},
		"pid":       {func(f *fake) { f.fails[namespaces] = refused(refusal{name: "pid", err: unix.ENOSPC}) }, "namespaces", "fresh /proc"},
		"mount":     {func(f *fake) { f.fails[mountCalls] = refused(refusal{"mount", version{}, unix.EPERM}) }, "mount calls", "fresh /proc, overlay"},
		"open_tree": {func(f *fake) { f.fails[mountCalls] = refused(refusal{"open_tree", version{}, unix.EPERM}) }, "mount calls", "idmapped mounts"},
	} {
		f := newFake()
		c.change(f)
		var got []string
		for _, i := range inspect(f).Items {
			if i.After != "" {
				if got = append(got, i.Name); i.Present {
					t.Errorf("%s: %+v", name, i)
				}
				if root := item(t, inspect(f), i.After); root.Present {
					t.Errorf("%s: %s follows from what is there: %+v", name, i.Name, root)
				}
			}
		}
		if root := item(t, inspect(f), c.root); strings.Join(got, ", ") != c.want || root.Present || root.After != "" || root.Fix == "" {
			t.Errorf("%s: %q follows, want %q; %+v", name, got, c.want, root)
		}
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
		if v, ok := parseRelease(s); !ok || v != (version{want[0], want[1]}) {
			t.Errorf("%q: %v %v", s, v, ok)
		}
	}
	for _, s := range []string{"", "6", "x.y", "-1.2", "6."} {
		if _, ok := parseRelease(s); ok {
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
	for _, a := range []attempt{emptyChild, systemCalls, unshareNothing, userNamespace, namespaces, mountCalls, loadFilter, restrictFiles, addresses, capture, overlay} {
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
