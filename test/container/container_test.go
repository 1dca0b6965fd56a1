//go:build linux

// Package container runs the shipped program in a real Docker container, where an
// application would have it: with the default flags it names everything that is in
// the way, with the documented ones every proof holds.
//
// It starts a dockerd of its own, without a network, and ends it. That takes root;
// the ordinary user's side is the user inside the container.
package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const profile = "../../packaging/docker/seccomp.json"

// added are the calls that the documentation names.
var added = []string{"clone", "fsconfig", "fsmount", "fsopen", "mount", "mount_setattr", "move_mount", "open_tree", "pivot_root", "sethostname", "setns", "umount2", "unshare"}

type seccomp struct {
	DefaultAction string `json:"defaultAction"`
	Syscalls      []struct {
		Names  []string `json:"names"`
		Action string   `json:"action"`
		Args   []any    `json:"args"`
	} `json:"syscalls"`
}

// allowed are the calls that a profile allows whatever their arguments.
func (s seccomp) allowed() []string {
	var out []string
	for _, g := range s.Syscalls {
		if g.Action == "SCMP_ACT_ALLOW" && len(g.Args) == 0 {
			out = append(out, g.Names...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func shippedProfile(t *testing.T) seccomp {
	t.Helper()
	data, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	var s seccomp
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDocumentedCalls: what the how-to says is added is what the file adds.
func TestDocumentedCalls(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/run-in-docker.md")
	if err != nil {
		t.Fatal(err)
	}
	s := shippedProfile(t)
	for _, name := range added {
		if !slices.Contains(s.allowed(), name) {
			t.Errorf("the profile lacks %s", name)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not name %s", name)
		}
	}
	if s.DefaultAction != "SCMP_ACT_ERRNO" || slices.Contains(s.allowed(), "io_uring_setup_x") || slices.Contains(s.allowed(), "bpf") {
		t.Errorf("the profile allows more than it should: %s", s.DefaultAction)
	}
}

// engine is a dockerd of the test's own.
type engine struct {
	t    *testing.T
	dir  string
	path string // of the profile
}

func startEngine(t *testing.T) *engine {
	t.Helper()
	// Below /tmp: the path of a socket is short.
	dir, err := os.MkdirTemp("", "confine-docker-")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	abs, err := filepath.Abs(profile)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, dir: dir, path: abs}
	cmd := exec.Command("dockerd", "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--bridge=none", "--storage-driver", "overlay2",
		"--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid", "-H", "unix://"+dir+"/sock")
	// Its mounts are not the host's: other tests look at those.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up after dockerd: %v", err)
		}
	})
	ready := time.After(30 * time.Second)
	for {
		if _, err := e.docker("version"); err == nil {
			return e
		}
		select {
		case <-ready:
			t.Fatalf("dockerd is not ready:\n%s", log.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (e *engine) docker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", append([]string{"-H", "unix://" + e.dir + "/sock"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// image imports one that holds the program under test.
func (e *engine) image() {
	e.t.Helper()
	program := os.Getenv("CONFINE_TEST_BINARY")
	if program == "" {
		e.t.Fatal("CONFINE_TEST_BINARY names no program: run scripts/test, or build one")
	}
	tar := filepath.Join(e.dir, "image.tar")
	out, err := os.Create(tar)
	if err != nil {
		e.t.Fatal(err)
	}
	cmd := exec.Command("bash", "testdata/image.sh", program)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := errors.Join(cmd.Run(), out.Close()); err != nil {
		e.t.Fatalf("make image: %v: %s", err, errs.String())
	}
	if text, err := e.docker("import", tar, "app"); err != nil {
		e.t.Fatalf("import image: %v: %s", err, text)
	}
}

// in runs a script in a fresh container.
func (e *engine) in(flags []string, script string) (out string, status int) {
	e.t.Helper()
	args := append([]string{"run", "--rm", "--network", "none", "-e", "HOME=/home/app", "-w", "/home/app/project"}, flags...)
	out, err := e.docker(append(args, "app", "bash", "-c", script)...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		e.t.Fatalf("%v: %s", err, out)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return out, status
}

func TestInARealContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		return // no dockerd without root; the user inside the container is the ordinary one
	}
	e := startEngine(t)
	e.image()
	user := []string{"--user", "1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"}
	calls := []string{"--security-opt", "seccomp=" + e.path}
	paths := []string{"--security-opt", "systempaths=unconfined"}
	state := []string{"--tmpfs", "/state:mode=1777", "-e", "XDG_STATE_HOME=/state"}

	t.Run("every blocker is named at once", func(t *testing.T) {
		for _, flags := range [][]string{nil, {"--user", "1000"}, user} {
			out, status := e.in(flags, "confine run --live -- true; echo status $?")
			for _, want := range []string{"status 125", "things are in the way", "user namespaces: ", "seccomp", "packaging/docker/seccomp.json", "fresh /proc: ", "systempaths=unconfined"} {
				if !strings.Contains(out, want) {
					t.Errorf("%q: lacks %q: %d %s", flags, want, status, out)
				}
			}
			if n := strings.Count(out, "confine: error:"); n != 1 {
				t.Errorf("%q: %d errors: %s", flags, n, out)
			}
			if out, status := e.in(flags, "confine doctor"); status != 5 || !strings.Contains(out, "systempaths=unconfined") || !strings.Contains(out, "packaging/docker/seccomp.json") {
				t.Errorf("%q: doctor: %d %s", flags, status, out)
			}
		}
	})
	t.Run("root of a container", func(t *testing.T) {
		for _, flags := range [][]string{{"--cap-drop", "ALL"}, nil} {
			out, _ := e.in(slices.Concat(flags, calls, paths), "confine run --live -- true; echo status $?")
			if !strings.Contains(out, "status 125") || !strings.Contains(out, "docker run --user 1000") {
				t.Errorf("%q: %s", flags, out)
			}
		}
	})
	documented := slices.Concat(user, calls, paths, state)
	t.Run("with the documented flags every proof holds", func(t *testing.T) {
		out, status := e.in(append(documented, "--tmpfs", "/tmp:mode=1777,exec"), "confine verify --json")
		var report struct {
			Probes []struct {
				Group, Name, Observed string
				Held                  bool
			}
		}
		// An error may follow.
		if i := strings.Index(out, "{"); i < 0 || json.NewDecoder(strings.NewReader(out[i:])).Decode(&report) != nil {
			t.Fatalf("%d: %s", status, out)
		}
		if len(report.Probes) < 40 || status != 0 {
			t.Errorf("%d probes, status %d", len(report.Probes), status)
		}
		for _, p := range report.Probes {
			if !p.Held {
				t.Errorf("not held: %s/%s: %s", p.Group, p.Name, p.Observed)
			}
		}
	})
	t.Run("work is done, staged", func(t *testing.T) {
		const script = `git init -q . && confine run -- sh -c 'echo inside >made; git config user.name 2>&1; git status --short' && cat made && confine undo >/dev/null && ls`
		if out, status := e.in(documented, script); status != 0 || !strings.Contains(out, "?? made\n") || !strings.Contains(out, "inside\n") || strings.HasSuffix(out, "made\n") {
			t.Errorf("%d %s", status, out)
		}
		// The container's own root can't hold an overlay's writes.
		out, _ := e.in(slices.Concat(user, calls, paths), "confine run -- true; echo status $?")
		if !strings.Contains(out, "status 125") || !strings.Contains(out, "missing ability overlay") || !strings.Contains(out, "XDG_STATE_HOME") {
			t.Errorf("on the container's root: %s", out)
		}
	})
	t.Run("the weaker form of proc", func(t *testing.T) { weakerProc(t, e, slices.Concat(user, calls)) })
	t.Run("the profile is Docker's and the calls named", func(t *testing.T) { compareProfile(t, e) })
}

// weakerProc: without systempaths=unconfined a run is refused unless proc is named
// as missing; then it is said, and of other processes no more is open than their
// command lines.
func weakerProc(t *testing.T, e *engine, flags []string) {
	out, _ := e.in(flags, "confine run --live -- true; echo status $?")
	if !strings.Contains(out, "status 125") || !strings.Contains(out, "missing ability proc") || !strings.Contains(out, "--allow-missing proc") {
		t.Errorf("not named: %s", out)
	}
	// The neighbour runs in the same container, as the same user, with a secret.
	const neighbour = `SECRET=hidden-in-the-environment sleep 300 & for i in $(seq 50); do grep -qs sleep /proc/$!/cmdline && break; sleep 0.1; done; export P=$!; `
	const look = `read_it() { cat "$1" >/dev/null 2>&1 && echo "READ $1"; }
for f in environ maps mem root/etc/passwd exe fd/0; do read_it /proc/$P/$f; done
for f in root cwd; do ls /proc/$P/$f/ >/dev/null 2>&1 && echo "LISTED $f"; done
for f in root cwd exe fd/0 fd/1 ns/net; do readlink /proc/$P/$f >/dev/null && echo "FOLLOWED $f"; done
{ echo 500 >/proc/$P/oom_score_adj; } 2>/dev/null && echo WRITTEN
{ echo 1 >/proc/sys/kernel/panic; } 2>/dev/null && echo SYSCTL
grep -rqs hidden-in-the-environment /proc/$P/ && echo LEAKED
cat /proc/self/status | head -1; kill -0 $P 2>/dev/null && echo SIGNALLED
read x </proc/$P/cmdline 2>/dev/null; echo looked`
	flags = append(flags, "-e", "LOOK="+look)
	if out, _ := e.in(flags, neighbour+`eval "$LOOK"`); !strings.Contains(out, "READ /proc/") || !strings.Contains(out, "WRITTEN") || !strings.Contains(out, "LEAKED") {
		t.Errorf("control: outside all of that works: %s", out)
	}
	out, status := e.in(flags, neighbour+`confine run --live --allow-missing proc --env P -- bash -c "$LOOK"`)
	for _, bad := range []string{"READ", "LISTED", "FOLLOWED", "WRITTEN", "SYSCTL", "LEAKED", "SIGNALLED"} {
		if strings.Contains(out, bad) {
			t.Errorf("%s: %s", bad, out)
		}
	}
	if status != 0 || !strings.Contains(out, "looked") || !strings.Contains(out, "Name:") || !strings.Contains(out, "confine: without proc:") {
		t.Errorf("%d %s", status, out)
	}
	out, _ = e.in(flags, "confine run --live --allow-missing proc --json -- true")
	if !strings.Contains(out, `"missing_layers"`) || !strings.Contains(out, `"proc"`) {
		t.Errorf("not recorded: %s", out)
	}
}

// compareProfile reads the profile that Docker applies by itself from the
// configuration of a container that runs.
func compareProfile(t *testing.T, e *engine) {
	if out, err := e.docker("run", "-d", "--name", "looked-at", "--network", "none", "app", "sleep", "300"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() { _, _ = e.docker("rm", "-f", "looked-at") }()
	found, err := filepath.Glob(e.dir + "/exec/containerd/daemon/io.containerd.runtime.v2.task/*/*/config.json")
	if err != nil || len(found) != 1 {
		t.Fatalf("configuration: %v, %v", found, err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Linux struct{ Seccomp seccomp } }
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	docker, ours := config.Linux.Seccomp.allowed(), shippedProfile(t).allowed()
	if len(docker) < 200 {
		t.Fatalf("Docker's own profile has %d calls", len(docker))
	}
	for _, name := range docker {
		if !slices.Contains(ours, name) {
			t.Errorf("Docker allows %s, the profile does not", name)
		}
	}
	for _, name := range ours {
		if !slices.Contains(docker, name) && !slices.Contains(added, name) {
			t.Errorf("the profile allows %s, which is neither Docker's nor documented", name)
		}
	}
}
