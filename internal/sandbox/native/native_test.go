//go:build linux

package native

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// base is the smallest boundary in which a shell runs.
func base() boundary.Boundary {
	b := boundary.Boundary{
		Version: boundary.Version, Tenant: "test",
		View: boundary.View{Workdir: "/", Mounts: []boundary.Mount{
			{Kind: boundary.Bind, Source: "/usr", Target: "/usr"},
			{Kind: boundary.Tmpfs, Target: "/tmp", Mode: 0o1777},
		}},
		Identity:     boundary.Identity{UID: 1000, GID: 1000, HostUID: 2000001000, HostGID: 2000001000},
		Env:          []string{"PATH=/usr/bin:/bin"},
		Limits:       boundary.Limits{Time: 20 * time.Second},
		AllowMissing: []boundary.Layer{boundary.LayerCgroup},
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if l, err := os.Readlink("/" + d); err == nil {
			b.View.Links = append(b.View.Links, boundary.Link{Path: "/" + d, Target: l})
		}
	}
	return b
}

func runIn(t *testing.T, b boundary.Boundary, args ...string) (string, sandbox.Exit) {
	t.Helper()
	var out bytes.Buffer
	r, err := Driver{}.Start(context.Background(), sandbox.Spec{Boundary: b, Args: args, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	e := r.Wait()
	return out.String(), e
}

func TestExitStatusPassesThrough(t *testing.T) {
	out, e := runIn(t, base(), "sh", "-c", "echo out; echo err >&2; exit 3")
	if e.Reason != sandbox.Exited || e.Status != 3 || e.Success() {
		t.Errorf("exit %+v", e)
	}
	if !strings.Contains(out, "out\n") || !strings.Contains(out, "err\n") || e.OutputBytes != 8 {
		t.Errorf("output %q, %d bytes", out, e.OutputBytes)
	}
	if _, e := runIn(t, base(), "true"); !e.Success() {
		t.Errorf("true: %+v", e)
	}
	if _, e := runIn(t, base(), "sh", "-c", "kill -TERM $$"); e.Reason != sandbox.Signalled || e.Status != 143 {
		t.Errorf("signalled: %+v", e)
	}
}

func TestStartErrorsNameTheCommand(t *testing.T) {
	for name, want := range map[string]struct{ notFound, notExec bool }{
		"no-such-program": {notFound: true}, "/usr/share": {notExec: true}, "/nowhere/x": {notFound: true},
	} {
		_, err := Driver{}.Start(context.Background(), sandbox.Spec{Boundary: base(), Args: []string{name}})
		var se *sandbox.StartError
		if !errors.As(err, &se) || se.NotFound != want.notFound || se.NotExecutable != want.notExec {
			t.Errorf("%s: %#v", name, err)
		}
	}
	if _, e := runIn(t, base(), "/usr/bin/true"); !e.Success() {
		t.Errorf("neighbour: %+v", e)
	}
}

func TestTimeLimitEndsEveryChild(t *testing.T) {
	b := base()
	b.Limits.Time = 300 * time.Millisecond
	start := time.Now()
	_, e := runIn(t, b, "sh", "-c", `setsid nohup sleep 600 >/dev/null 2>&1 & (trap "" TERM; sleep 601) & sleep 602`)
	if e.Reason != sandbox.TimedOut || e.Status != 124 {
		t.Errorf("exit %+v", e)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestBackgroundChildDoesNotHoldTheRun(t *testing.T) {
	start := time.Now()
	out, e := runIn(t, base(), "sh", "-c", "sleep 600 & echo done")
	if !e.Success() || out != "done\n" || time.Since(start) > 5*time.Second {
		t.Errorf("%q %+v after %v", out, e, time.Since(start))
	}
}

func TestSupervisorSurvivesSignalsFromInside(t *testing.T) {
	out, e := runIn(t, base(), "sh", "-c", `kill -TERM 1; kill -KILL 1; trap "" TERM; kill -TERM -1; echo alive`)
	if !e.Success() || !strings.Contains(out, "alive") {
		t.Errorf("%q %+v", out, e)
	}
}

func TestTerminal(t *testing.T) {
	pr, pw := io.Pipe()
	out := newScreen()
	stopped := make(chan struct{}, 1)
	r, err := Driver{}.Start(context.Background(), sandbox.Spec{
		Boundary: base(), Stdin: pr, Stdout: out,
		Args:     []string{"sh", "-c", "tty; stty size; read x; echo got $x; exec sleep 600"},
		Terminal: &sandbox.Terminal{Rows: 33, Cols: 77, Stopped: func() { stopped <- struct{}{} }},
	})
	if err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "33 77")
	io.WriteString(pw, "hello\n")
	out.waitFor(t, "got hello")
	io.WriteString(pw, "\x1a") // Ctrl-Z
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("Ctrl-Z did not stop the command")
	}
	io.WriteString(pw, "\x03") // Ctrl-C
	e := r.Wait()
	if e.Reason != sandbox.Signalled || e.Signal != 2 {
		t.Errorf("exit %+v", e)
	}
	for _, want := range []string{"/dev/pts/0", "33 77", "got hello"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output %q lacks %q", out.String(), want)
		}
	}
}

// screen collects terminal output and lets a test wait for some of it.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newScreen() *screen { return &screen{more: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) waitFor(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !strings.Contains(s.String(), want) {
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("%q did not appear in %q", want, s.String())
		}
	}
}

func TestOutputLimitCountsWhatItDrops(t *testing.T) {
	b := base()
	b.Limits.Output = 1000
	out, e := runIn(t, b, "head", "-c", "5000000", "/dev/zero")
	if len(out) != 1000 || e.OutputBytes != 5000000 || e.OutputDropped != 4999000 || !e.Success() {
		t.Errorf("%d kept, %+v", len(out), e)
	}
}

// hungry holds 300 MB.
const hungry = `x=$(head -c 300000000 /dev/zero | tr "\0" a); sleep 20`

func TestMemoryLimit(t *testing.T) {
	b := base()
	b.Limits.Memory = 64 << 20
	r, err := Driver{noCgroup: true}.Start(context.Background(), sandbox.Spec{Boundary: b, Args: []string{"sh", "-c", hungry}})
	if err != nil {
		t.Fatal(err)
	}
	if e := r.Wait(); e.Reason != sandbox.OutOfMemory || e.Status != 137 || len(e.Missing) != 1 {
		t.Errorf("without a group: %+v", e)
	}
	_, e := runIn(t, b, "sh", "-c", hungry)
	if e.Reason != sandbox.OutOfMemory || e.Status != 137 {
		t.Errorf("exit %+v", e)
	}
	if _, e = runIn(t, b, "sh", "-c", "true"); !e.Success() {
		t.Errorf("neighbour: %+v", e)
	}
}

func TestPidsLimit(t *testing.T) {
	b := base()
	b.Limits.Pids = 10
	out, e := runIn(t, b, "sh", "-c", `i=0; while [ $i -lt 30 ]; do sleep 30 & i=$((i+1)); done; echo all`)
	if strings.Contains(out, "all") || e.Success() {
		t.Errorf("%q %+v", out, e)
	}
	b.Limits.Pids = 100
	if out, e = runIn(t, b, "sh", "-c", `i=0; while [ $i -lt 30 ]; do sleep 30 & i=$((i+1)); done; echo all`); !strings.Contains(out, "all") {
		t.Errorf("control: %q %+v", out, e)
	}
}

func TestMasksAndWritableBind(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, ".env"), []byte("SECRET"), 0o644)
	os.Mkdir(filepath.Join(dir, "private"), 0o755)
	os.WriteFile(filepath.Join(dir, "private", "key"), []byte("SECRET"), 0o644)
	b := base()
	b.View.Workdir = "/workspace"
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: dir, Target: "/workspace", Writable: true})
	script := "cat .env private/key; rm -f .env; mv .env x; echo hi > new; ls -A /; ls -A"
	if out, _ := runIn(t, b, "sh", "-c", "cat .env private/key"); out != "SECRETSECRET" {
		t.Errorf("control: %q", out)
	}
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Mask, Target: "/workspace/.env"}, boundary.Mount{Kind: boundary.Mask, Target: "/workspace/private"})
	out, _ := runIn(t, b, "sh", "-c", script)
	if strings.Contains(out, "SECRET") || !strings.Contains(out, "busy") || strings.Contains(out, "confine-mask") {
		t.Errorf("masked: %q", out)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "new"), &st); err != nil || int(st.Uid) != os.Geteuid() {
		t.Errorf("new file: uid %d, %v", st.Uid, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, ".env")); string(b) != "SECRET" {
		t.Errorf("masked file on the host is %q", b)
	}
}

// TestOwnedReadOnlyBind: what belongs to the run's work is readable though only
// its owner may, and still read-only.
func TestOwnedReadOnlyBind(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := base()
	m := boundary.Mount{Kind: boundary.Bind, Source: dir, Target: "/work"}
	b.View.Mounts = append(b.View.Mounts, m)
	last := len(b.View.Mounts) - 1
	if out, _ := runIn(t, b, "cat", "/work/f"); os.Geteuid() == 0 && !strings.Contains(out, "Permission denied") {
		t.Errorf("not owned: %q", out)
	}
	b.View.Mounts[last].Owned = true
	if out, _ := runIn(t, b, "sh", "-c", "cat /work/f; echo x > /work/f || echo refused"); !strings.Contains(out, "mine") || !strings.Contains(out, "refused") {
		t.Errorf("owned: %q", out)
	}
}
