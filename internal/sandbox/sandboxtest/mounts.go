//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// openDir makes a directory of the host that everybody may write to, with a file
// and a FIFO, so that no mode hides what a mount should refuse.
func (h *Host) openDir(name string) (string, error) {
	dir := filepath.Join(h.Dir, name)
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, []byte("text"), 0o666); err != nil {
		return "", err
	}
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		return "", err
	}
	for p, mode := range map[string]uint32{dir: 0o777, file: 0o666, fifo: 0o666} {
		if err := unix.Chmod(p, mode); err != nil { // whatever the umask is
			return "", err
		}
	}
	return dir, nil
}

// openInside is where the probes show an openDir. It lies below no writable
// mount: Landlock's rules hold for everything below their directory, and can't
// be taken back for a part of it.
const openInside = "/confine-probe"

// withOpenDir runs an attempt with an openDir shown, read-only, and owned by the
// command as the workspace is. The attempt's arguments are the directory and the
// workspace; outside both are the host's directory.
func withOpenDir(name, control string, want ...string) func(context.Context, *Host) (outcome, error) {
	return func(ctx context.Context, h *Host) (outcome, error) {
		dir, err := h.openDir(name + "-open")
		if err != nil {
			return outcome{}, err
		}
		own, b, err := h.workspace(name, nil)
		if err != nil {
			return outcome{}, err
		}
		free, err := h.outside(ctx, nil, name, dir, own)
		if err != nil {
			return outcome{}, err
		}
		if dir, err = h.openDir(name + "-inside"); err != nil {
			return outcome{}, err
		}
		b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: dir, Target: openInside, Owned: true})
		a, err := h.inside(ctx, b, nil, name, openInside, "/workspace")
		// What lies in the openDir is what a user may write outside.
		controlled := free.Neighbour == "ok" && len(free.Tries) > 0
		for _, t := range free.Tries {
			if strings.HasSuffix(t.What, " "+openWord) && t.Result != "ok" {
				controlled = false
				control += "; outside, " + t.What + ": " + t.Result
			}
		}
		return a.judge(control, controlled, want...), err
	}
}

// openWord ends the name of each try in an openDir.
const openWord = "where all may write"

var (
	probeReadOnly = withOpenDir("read-only", "outside, the same calls write where all may")
	probeFIFO     = withOpenDir("read-only-fifo", "outside, the FIFO can be written")
)

// tryReadOnly is given an openDir and a writable directory.
func tryReadOnly(args []string) (a Answer) {
	open, own := args[0], args[1]
	readOnly := func(what string, err error) { a.expect(what, err, "EROFS") }
	for _, p := range []string{"/", "/usr", "/usr/bin", "/etc", "/dev"} {
		if own == "/workspace" { // outside, as root, it would be done
			readOnly("create in "+p, os.WriteFile(p+"/probe", nil, 0o600))
		}
	}
	if own == "/workspace" {
		readOnly("chmod", unix.Chmod("/usr/bin/env", 0o777))
		readOnly("remove", unix.Unlink("/usr/bin/env"))
		for _, p := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces"} {
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err == nil {
				f.Close()
			}
			if !os.IsNotExist(err) { // a kernel without it has nothing to write
				a.expect("open "+p, err, "EACCES")
			}
		}
	}
	file := filepath.Join(open, "file")
	all := func(what string, err error) { readOnly(what+" "+openWord, err) }
	all("create", os.WriteFile(filepath.Join(open, "made"), nil, 0o600))
	all("write", os.WriteFile(file, []byte("x"), 0))
	all("make directory", os.Mkdir(filepath.Join(open, "directory"), 0o700))
	all("link", os.Symlink("file", filepath.Join(open, "link")))
	all("change time", unix.Utimes(file, make([]unix.Timeval, 2)))
	all("rename", os.Rename(file, filepath.Join(open, "renamed")))
	all("remove", unix.Unlink(filepath.Join(open, "fifo")))
	a.neighbour(os.WriteFile(filepath.Join(own, "probe"), nil, 0o600))
	return a
}

// tryFIFO is given an openDir and a writable directory. A read-only mount says
// nothing about what lies behind a FIFO: Landlock alone refuses it.
func tryFIFO(args []string) (a Answer) {
	write := func(p string, flags int) error {
		fd, err := unix.Open(p, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	fifo := filepath.Join(args[0], "fifo")
	a.expect("open "+openWord, write(fifo, unix.O_RDWR), "EACCES")
	err := write(fifo, unix.O_RDONLY)
	for _, own := range []string{filepath.Join(args[1], "fifo"), filepath.Join(args[1], "other")} {
		if err == nil {
			err = unix.Mkfifo(own, 0o600)
		}
		if err == nil {
			err = write(own, unix.O_RDWR)
			os.Remove(own)
		}
	}
	a.neighbour(err)
	return a
}

// flagNames are the restrictions of a mount, as mountinfo has them.
var flagNames = []string{"ro", "nosuid", "nodev", "noexec"}

// mountFlags are the restrictions of each mount point of a mountinfo, and what
// the file system there was mounted with.
func mountFlags(info string) (points []string, flags, super map[string]string) {
	flags, super = map[string]string{}, map[string]string{}
	for _, line := range strings.Split(info, "\n") {
		f := strings.Fields(line)
		if len(f) < 10 {
			continue
		}
		var has []string
		for _, name := range flagNames {
			if slices.Contains(strings.Split(f[5], ","), name) {
				has = append(has, name)
			}
		}
		// The last one is what is seen there.
		point := unescape.Replace(f[4])
		points, flags[point], super[point] = append(points, point), strings.Join(has, ","), f[len(f)-1]
	}
	return points, flags, super
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// wantedFlags is what each mount of a boundary must have at least. What lies
// below one, and is not named, must have the same.
func wantedFlags(b boundary.Boundary) map[string]string {
	const base = "nosuid,nodev"
	want := map[string]string{
		"/": "ro," + base, "/proc": base + ",noexec", "/dev": "ro," + base + ",noexec", "/dev/shm": base, "/dev/pts": "nosuid,noexec", "/dev/mqueue": base + ",noexec",
	}
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		want["/dev/"+d] = "nosuid,noexec"
	}
	for _, m := range b.View.Mounts {
		f := base
		switch {
		case m.Kind == boundary.Mask:
			f += ",ro,noexec"
		case m.Kind == boundary.Bind && !m.Writable:
			f += ",ro"
		}
		if m.NoExec {
			f += ",noexec"
		}
		want[m.Target] = f
	}
	return want
}

func tryMountFlags([]string) (a Answer) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		a.try("read mountinfo", err)
	}
	a.saw("mountinfo", string(info))
	a.neighbour(os.WriteFile("/workspace/probe", nil, 0o600))
	return a
}

func probeMountFlags(ctx context.Context, h *Host) (outcome, error) {
	_, b, err := h.workspace("mount-flags", map[string]string{".env": "TOKEN=x", "private/key": "secret"})
	if err != nil {
		return outcome{}, err
	}
	dir, err := h.openDir("mount-flags-open")
	if err != nil {
		return outcome{}, err
	}
	b.View.Mounts = append(b.View.Mounts,
		boundary.Mount{Kind: boundary.Mask, Target: "/workspace/.env"}, boundary.Mount{Kind: boundary.Mask, Target: "/workspace/private"},
		boundary.Mount{Kind: boundary.Bind, Source: dir, Target: openInside},
		boundary.Mount{Kind: boundary.Bind, Source: dir, Target: openInside + "-writable", Writable: true, NoExec: true},
		boundary.Mount{Kind: boundary.Tmpfs, Target: openInside + "-memory", NoExec: true})
	seen, err := h.inside(ctx, b, nil, "mount-flags")
	if err != nil {
		return outcome{}, err
	}
	want := wantedFlags(b)
	want[programInside] = "ro,nosuid,nodev"
	a := Answer{Neighbour: seen.Neighbour}
	points, flags, super := mountFlags(seen.Tries[len(seen.Tries)-1].Result)
	for point := range want {
		if _, ok := flags[point]; !ok {
			a.saw(point, "is no mount")
		}
	}
	for _, point := range points {
		at := point
		for want[at] == "" {
			at = path.Dir(at)
		}
		var lacks []string
		for _, f := range strings.Split(want[at], ",") {
			if !slices.Contains(strings.Split(flags[point], ","), f) {
				lacks = append(lacks, f)
			}
		}
		if len(lacks) > 0 {
			a.saw(point, "lacks "+strings.Join(lacks, ","))
		} else {
			a.saw(point, "as the boundary says")
		}
	}
	if !strings.Contains(super["/proc"], "hidepid=ptraceable") && !strings.Contains(super["/proc"], "hidepid=4") {
		a.saw("/proc", "shows processes of others")
	}
	outside, err := os.ReadFile("/proc/self/mountinfo")
	points, flags, _ = mountFlags(string(outside))
	open := 0
	for _, point := range points {
		if !strings.Contains(flags[point], "nosuid") {
			open++
		}
	}
	return a.judge(fmt.Sprintf("outside, %d of %d mounts take set-id files", open, len(points)), open > 0, "as the boundary says"), err
}
