//go:build linux

package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// stageFor makes an empty stage as the boundary's id may use it.
func stageFor(t *testing.T, b boundary.Boundary) string {
	t.Helper()
	stage, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"upper", "work"} {
		p := filepath.Join(stage, d)
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(p, int(b.Identity.HostUID), int(b.Identity.HostGID)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The kernel leaves directories there that nobody may enter.
	t.Cleanup(func() {
		for _, d := range []string{"work/work", "work/work/incompat", "work/work/incompat/volatile"} {
			_ = os.Chmod(filepath.Join(stage, d), 0o700)
		}
	})
	return stage
}

// TestOverlayKeepsWritesApart: of the directory nothing changes, whatever is done
// to it inside, and a bind of the same directory is the control.
func TestOverlayKeepsWritesApart(t *testing.T) {
	const script = "cd /workspace; echo hi >new; echo more >>old; rm gone; rm -r dir; chmod 600 kept; cat old"
	for _, staged := range []bool{false, true} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"old", "gone", "kept", "dir/f"} {
			if err := os.WriteFile(filepath.Join(dir, f), []byte(f+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b := base()
		m := boundary.Mount{Kind: boundary.Bind, Source: dir, Target: "/workspace", Writable: true}
		stage := stageFor(t, b)
		if staged {
			m = boundary.Mount{Kind: boundary.Overlay, Source: dir, Target: "/workspace", Stage: stage}
		}
		b.View.Mounts = append(b.View.Mounts, m)
		if out, e := runIn(t, b, "sh", "-c", script); out != "old\nmore\n" || !e.Success() {
			t.Fatalf("staged %v: %q, %+v", staged, out, e)
		}
		_, newErr := os.Lstat(filepath.Join(dir, "new"))
		_, goneErr := os.Lstat(filepath.Join(dir, "gone"))
		if (newErr == nil) == staged || (goneErr == nil) != staged {
			t.Errorf("staged %v: new %v, gone %v", staged, newErr, goneErr)
		}
		var st unix.Stat_t
		if !staged {
			continue
		}
		if err := unix.Lstat(filepath.Join(stage, "upper/new"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			t.Errorf("stage: new: %v", err)
		}
		if err := unix.Lstat(filepath.Join(stage, "upper/gone"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
			t.Errorf("stage: gone is no whiteout: %v %o", err, st.Mode)
		}
	}
}

// TestPin: a pinned directory can be worked in but not moved away, a pinned file
// not written; both are the overlay's, so nothing gets around the stage.
func TestPin(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git/config"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := base()
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Overlay, Source: dir, Target: "/workspace", Stage: stageFor(t, b)})
	const script = "cd /workspace; mv .git x && echo moved; mv x .git; echo theirs >.git/config && echo written; echo a >.git/HEAD && cat .git/HEAD .git/config; cat /proc/self/mountinfo"
	if out, _ := runIn(t, b, "sh", "-c", "cd /workspace; echo theirs >.git/config && echo written"); out != "written\n" {
		t.Errorf("control: %q", out)
	}
	b.View.Mounts[len(b.View.Mounts)-1].Stage = stageFor(t, b)
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Pin, Target: "/workspace/.git", Writable: true}, boundary.Mount{Kind: boundary.Pin, Target: "/workspace/.git/config"})
	out, _ := runIn(t, b, "sh", "-c", script)
	if strings.Contains(out, "moved") || strings.Contains(out, "written") || !strings.Contains(out, "a\nmine\n") || !strings.Contains(out, "busy") {
		t.Errorf("pinned: %q", out)
	}
	if strings.Contains(out, dir) || strings.Contains(out, "upper=") {
		t.Errorf("the host's paths are seen inside: %q", out)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git/HEAD")); err == nil {
		t.Error("a pinned directory is the real one")
	}
}
