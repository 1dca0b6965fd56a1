//go:build linux

package native

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

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

func TestRunsCommand(t *testing.T) {
	out, e := runIn(t, base(), "sh", "-c", "id; ls -la /; ls /proc | head -20; cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp'; cat /proc/self/mountinfo; echo hi > /tmp/x && cat /tmp/x; touch /usr/y; kill -9 1; ls -l /proc/self/fd; exit 3")
	if e.Reason != sandbox.Exited || e.Status != 3 {
		t.Errorf("exit %+v", e)
	}
	t.Log(out)
}
