package hostview

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"confine/internal/boundary"
)

// newTestHost makes a host: a name ending in "/" is a directory, "a -> b" a
// link, anything else a file with its path as content.
func newTestHost(t *testing.T, entries ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, e := range entries {
		name, target, isLink := strings.Cut(e, " -> ")
		p := root + name
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			err = os.Symlink(target, p)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		default:
			err = os.WriteFile(p, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func writeFile(t *testing.T, p, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(p, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p, mode); err != nil {
		t.Fatal(err)
	}
}

// mountAt is the mount with this target, or the zero value.
func mountAt(mounts []boundary.Mount, target string) boundary.Mount {
	for _, m := range mounts {
		if m.Target == target {
			return m
		}
	}
	return boundary.Mount{}
}

func fileAt(files []boundary.File, p string) (string, bool) {
	for _, f := range files {
		if f.Path == p {
			return string(f.Data), true
		}
	}
	return "", false
}

func linkAt(links []boundary.Link, p string) string {
	for _, l := range links {
		if l.Path == p {
			return l.Target
		}
	}
	return ""
}

func TestResolveFollowsEveryLinkBelowTheRoot(t *testing.T) {
	h := newHost(newTestHost(t, "/data/tools/bin/", "/home/u/t -> /data/link", "/data/link -> tools", "/loop -> loop", "/up -> ../../../data"))
	for p, want := range map[string]string{"/home/u/t/bin": "/data/tools/bin", "/data/tools": "/data/tools", "/up/tools": "/data/tools", "/": "/"} {
		if got, err := h.resolve(p); err != nil || got != want {
			t.Errorf("resolve %q: %q, %v; want %q", p, got, err, want)
		}
	}
	for _, p := range []string{"/loop", "/nowhere", "/data/tools/none"} {
		if got, err := h.resolve(p); err == nil {
			t.Errorf("resolve %q: %q, want an error", p, got)
		}
	}
}

func TestDigestTellsEveryDifference(t *testing.T) {
	base := func() boundary.View {
		return boundary.View{
			Mounts:  []boundary.Mount{{Kind: boundary.Bind, Target: "/a", Source: "/b"}, {Kind: boundary.Tmpfs, Target: "/t", Size: 1, Mode: 0o755}},
			Files:   []boundary.File{{Path: "/f", Mode: 0o444, Data: []byte("x")}},
			Links:   []boundary.Link{{Path: "/l", Target: "t"}},
			Workdir: "/w", Hostname: "h",
		}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*boundary.View){
		"nothing":       func(*boundary.View) {},
		"source":        func(v *boundary.View) { v.Mounts[0].Source = "/c" },
		"bytes":         func(v *boundary.View) { v.Mounts[0].Source = "/\xff" },
		"other bytes":   func(v *boundary.View) { v.Mounts[0].Source = "/\xfe" },
		"target":        func(v *boundary.View) { v.Mounts[0].Target = "/b" },
		"moved bytes":   func(v *boundary.View) { v.Mounts[0].Target, v.Mounts[0].Source = "/a/", "b" },
		"kind":          func(v *boundary.View) { v.Mounts[0].Kind = boundary.Mask },
		"writable":      func(v *boundary.View) { v.Mounts[0].Writable = true },
		"owned":         func(v *boundary.View) { v.Mounts[0].Owned = true },
		"noexec":        func(v *boundary.View) { v.Mounts[0].NoExec = true },
		"size":          func(v *boundary.View) { v.Mounts[1].Size = 2 },
		"mount mode":    func(v *boundary.View) { v.Mounts[1].Mode = 0o700 },
		"order":         func(v *boundary.View) { v.Mounts[0], v.Mounts[1] = v.Mounts[1], v.Mounts[0] },
		"fewer mounts":  func(v *boundary.View) { v.Mounts = v.Mounts[:1] },
		"file data":     func(v *boundary.View) { v.Files[0].Data = []byte("y") },
		"file mode":     func(v *boundary.View) { v.Files[0].Mode = 0o644 },
		"file path":     func(v *boundary.View) { v.Files[0].Path = "/g" },
		"link":          func(v *boundary.View) { v.Links[0].Target = "u" },
		"workdir":       func(v *boundary.View) { v.Workdir = "/x" },
		"host name":     func(v *boundary.View) { v.Hostname = "i" },
		"moved workdir": func(v *boundary.View) { v.Workdir, v.Hostname = "/wh", "" },
	} {
		v := base()
		change(&v)
		d := Digest(v)
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have the digest %s", name, other, d)
		}
		seen[d] = name
	}
	if Digest(base()) != Digest(base()) {
		t.Error("the same view has two digests")
	}
}

func TestEnv(t *testing.T) {
	env, err := Env(EnvOptions{UID: 1000, Path: "/usr/bin", Term: "xterm", Extra: []string{"A=b=c", "LANG=de"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "A=b=c HOME=/home/agent LANG=de LOGNAME=agent PATH=/usr/bin SHELL=/bin/sh TERM=xterm USER=agent"
	if got := strings.Join(env, " "); got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
	for _, bad := range []string{"", "A", "=b", "A=\x00"} {
		if env, err := Env(EnvOptions{Extra: []string{bad}}); err == nil {
			t.Errorf("variable %q was accepted: %q", bad, env)
		}
	}
}
