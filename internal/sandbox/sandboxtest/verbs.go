//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"confine/internal/boundary"
)

func verbProbes() []Probe {
	var all []Probe
	for _, p := range []struct{ name, table, expected string }{
		{"masked-file", "masked file", "a masked file can't be read, changed, moved or linked, by any verb"},
		{"masked-directory", "masked directory", "what is in a masked directory is not there, by any verb"},
		{"read-only-file", "read-only file", "a read-only file can be read and nothing else, by any verb"},
	} {
		for _, staged := range []bool{false, true} {
			name := p.name
			if staged {
				name += "-staged"
			}
			all = append(all, Probe{Name: name, Group: "files", Expected: p.expected, run: probeVerbs(name, p.table, staged)})
		}
	}
	return all
}

// verbResults are what holds for each verb, by what protects the file. The result
// under "" is that of all others. A mount can't be moved, replaced or linked to,
// and what is beneath one belongs to another file system.
var verbResults = map[string]map[string]string{
	// What covers a masked file is nobody's to write, by its mode as well.
	"masked file":      covered("empty", "EACCES", "EACCES"),
	"read-only file":   covered("the secret", "the secret", "EROFS"),
	"masked directory": {"": "ENOENT", movedVerb: "EBUSY", "rename": "EXDEV", "rename without replacing": "EXDEV", "rename over": "EXDEV", "exchange": "EXDEV", "unlink": "EROFS"},
	"control":          {"": "ok"},
}

func covered(read, run, write string) map[string]string {
	table := map[string]string{
		"": "EROFS", "run": run, "link": "EXDEV", "link by /proc": "EXDEV", "rename": "EBUSY", "rename without replacing": "EBUSY",
		"rename over": "EBUSY", "exchange": "EBUSY", "unlink": "EBUSY",
	}
	for _, v := range []string{"write", "write and read", "append", "create", "write by O_PATH and /proc", "truncate", "map shared and write", "allocate"} {
		table[v] = write
	}
	for _, v := range verbs {
		if strings.HasPrefix(v.name, "read") {
			table[v.name] = read
		}
	}
	return table
}

// stage turns the writable bind of /workspace into an overlay over it.
func (h *Host) stage(name string, b *boundary.Boundary) error {
	stage := filepath.Join(h.Dir, "stage-"+name)
	for _, d := range []string{stage, stage + "/upper", stage + "/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(d, int(b.Identity.HostUID), int(b.Identity.HostGID)); err != nil {
				return err
			}
		}
	}
	for i, m := range b.View.Mounts {
		if m.Target == "/workspace" {
			b.View.Mounts[i] = boundary.Mount{Kind: boundary.Overlay, Source: m.Source, Target: m.Target, Stage: stage}
		}
	}
	return nil
}

// unstage lets an ordinary user remove what the kernel made in a stage.
func (h *Host) unstage(name string) {
	for _, d := range []string{"work/work", "work/work/incompat", "work/work/incompat/volatile"} {
		_ = os.Chmod(filepath.Join(h.Dir, "stage-"+name, d), 0o700)
	}
}

func probeVerbs(name, table string, staged bool) func(context.Context, *Host) (outcome, error) {
	return func(ctx context.Context, h *Host) (outcome, error) {
		const file = "sub/protected"
		run := func(name string, protect ...boundary.Mount) (Answer, string, error) {
			dir, b, err := h.workspace(name, map[string]string{file: secretText})
			if err == nil {
				err = os.Chmod(filepath.Join(dir, file), 0o755)
			}
			if err == nil && staged {
				err = h.stage(name, &b)
				defer h.unstage(name)
			}
			if err != nil {
				return Answer{}, "", err
			}
			how := table
			if len(protect) == 0 {
				how = "control"
			}
			form := "live"
			if staged {
				form = "staged"
			}
			for _, m := range protect {
				if m.Kind == boundary.Bind {
					m.Source = filepath.Join(dir, file)
				}
				b.View.Mounts = append(b.View.Mounts, m)
			}
			before, err := snapshot(filepath.Join(dir, "sub"))
			if err != nil {
				return Answer{}, "", err
			}
			a, err := h.inside(ctx, b, nil, "verbs", how, form, file)
			if err != nil {
				return a, "", err
			}
			after, err := snapshot(filepath.Join(dir, "sub"))
			changed := ""
			if before != after {
				changed = "; the host's file changed"
			}
			return a, changed, err
		}
		control, changed, err := run(name + "-control")
		if err != nil {
			return outcome{}, err
		}
		seen := control.judge("", true)
		var m boundary.Mount
		switch table {
		case "masked file":
			m = boundary.Mount{Kind: boundary.Mask, Target: "/workspace/" + file}
		case "masked directory":
			m = boundary.Mount{Kind: boundary.Mask, Target: "/workspace/sub"}
		case "read-only file":
			m = boundary.Mount{Kind: boundary.Bind, Target: "/workspace/" + file, Owned: true}
			if staged {
				m = boundary.Mount{Kind: boundary.Pin, Target: m.Target}
			}
		}
		controlled := seen.held && (changed != "") == !staged
		a, changed, err := run(name, m)
		o := a.judge(fmt.Sprintf("without it, each of %d verbs works inside (%s)", len(verbs), seen.observed), controlled)
		if changed != "" {
			o.held, o.observed = false, o.observed+changed
		}
		return o, err
	}
}

// snapshot is all of a directory's files that a change would show in: names,
// modes, owners, sizes, times of content, number of names, content.
func snapshot(dir string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() { // a mount point inside may leave times of access only
			lines = append(lines, p)
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(p)
		lines = append(lines, fmt.Sprintf("%s %v %d %v %q", p, info.Mode(), info.Size(), info.ModTime().UnixNano(), text))
		return err
	})
	sort.Strings(lines)
	return strings.Join(lines, "\n"), err
}
