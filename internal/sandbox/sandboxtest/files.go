//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

func fileProbes() []Probe {
	return []Probe{
		{Name: "workspace-only", Group: "files", Expected: "/workspace holds this tenant's files and no others", run: probeWorkspaceOnly},
		{Name: "host-file", Group: "files", Expected: "a file of the host is not there, by any spelling", run: probeHostFile},
		{Name: "dotenv-outside", Group: "files", Expected: "a dotenv file beside the workspace is not there", run: probeDotenvOutside},
		{Name: "dotenv-masked", Group: "files", Expected: "a masked file and directory can't be read, moved or deleted", run: probeMasked},
		{Name: "directory-descriptor", Group: "files", Expected: "a directory given as standard input does not come in", run: probeDirectoryDescriptor},
		{Name: "set-id", Group: "files", Expected: "no set-id bit can be set, in any call that sets a mode", run: probeSetID},
		{Name: "devices", Group: "files", Expected: "no device can be made, and /dev can't be changed", run: attempt("devices", controlDevices, "EPERM", "EROFS", "EACCES")},
		{Name: "read-only", Group: "files", Expected: "nothing of the host's system, nor a directory that all may write to, can be written", run: probeReadOnly},
		{Name: "read-only-fifo", Group: "files", Expected: "a FIFO of the host in a read-only directory can't be written, which mounts and modes would allow", run: probeFIFO},
		{Name: "mount-flags", Group: "files", Expected: "every mount is read-only, without set-id files, devices or programs, as the boundary says", run: probeMountFlags},
	}
}

func probeWorkspaceOnly(ctx context.Context, h *Host) (outcome, error) {
	if err := os.WriteFile(filepath.Join(h.Dir, "neighbour.txt"), nil, 0o644); err != nil {
		return outcome{}, err
	}
	_, b, err := h.workspace("only", map[string]string{"own.txt": "own"})
	if err != nil {
		return outcome{}, err
	}
	entries, err := os.ReadDir(h.Dir)
	a, insideErr := h.inside(ctx, b, nil, "list", "/workspace")
	return a.judge("outside, the parent directory holds more", err == nil && len(entries) > 1, "own.txt"), insideErr
}

// hidden runs the "paths" attempt on a host file that is readable outside.
func (h *Host) hidden(ctx context.Context, file string, b boundary.Boundary) (outcome, error) {
	text, err := os.ReadFile(file)
	a, insideErr := h.inside(ctx, b, nil, "paths", file)
	return a.judge("outside, the file is readable", err == nil && len(text) > 0, "ENOENT", "EACCES", "ENOTDIR"), insideErr
}

func probeHostFile(ctx context.Context, h *Host) (outcome, error) {
	file := filepath.Join(h.Dir, "canary")
	if err := os.WriteFile(file, []byte("canary"), 0o644); err != nil {
		return outcome{}, err
	}
	_, b, err := h.workspace("host-file", nil)
	if err != nil {
		return outcome{}, err
	}
	return h.hidden(ctx, file, b)
}

func probeDotenvOutside(ctx context.Context, h *Host) (outcome, error) {
	file := filepath.Join(h.Dir, ".env")
	if err := os.WriteFile(file, []byte("TOKEN=x"), 0o644); err != nil {
		return outcome{}, err
	}
	_, b, err := h.workspace("dotenv", nil)
	if err != nil {
		return outcome{}, err
	}
	return h.hidden(ctx, file, b)
}

func probeMasked(ctx context.Context, h *Host) (outcome, error) {
	dir, b, err := h.workspace("masked", map[string]string{".env": "TOKEN=x", "private/key": "secret", "own.txt": "own"})
	if err != nil {
		return outcome{}, err
	}
	open, err := h.inside(ctx, b, nil, "masked", ".env", "private/key")
	if err != nil {
		return outcome{}, err
	}
	controlled := len(open.Tries) > 0 && open.Tries[0].Result == "read 7 bytes"
	if err := os.WriteFile(filepath.Join(dir, ".env"), []byte("TOKEN=x"), 0o644); err != nil {
		return outcome{}, err
	}
	b.View.Mounts = append(b.View.Mounts,
		boundary.Mount{Kind: boundary.Mask, Target: "/workspace/.env"}, boundary.Mount{Kind: boundary.Mask, Target: "/workspace/private"})
	a, err := h.inside(ctx, b, nil, "masked", ".env", "private/key")
	o := a.judge("without the mask both are readable inside", controlled, "read 0 bytes", "ENOENT", "EBUSY", "EROFS", "EACCES", "EPERM", "EXDEV")
	if text, readErr := os.ReadFile(filepath.Join(dir, ".env")); readErr != nil || string(text) != "TOKEN=x" {
		o.held, o.observed = false, o.observed+"; the host's file changed"
	}
	return o, err
}

func probeDirectoryDescriptor(ctx context.Context, h *Host) (outcome, error) {
	d, err := os.Open("/")
	if err != nil {
		return outcome{}, err
	}
	defer d.Close()
	_, b, err := h.workspace("fd", nil)
	if err != nil {
		return outcome{}, err
	}
	var out strings.Builder
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: h.Program, Target: programInside})
	r, err := h.Driver.Start(ctx, sandbox.Spec{Boundary: b, Args: []string{programInside, ProgramArgument, "descriptors"}, Stdin: d, Stdout: &out})
	if err != nil {
		return outcome{}, err
	}
	if e := r.Wait(); !e.Success() {
		return outcome{}, fmt.Errorf("probe ended: %s, status %d", e.Reason, e.Status)
	}
	a, err := parseAnswer(out.String())
	var st unix.Stat_t
	statErr := unix.Fstatat(int(d.Fd()), "etc", &st, 0)
	return a.judge("outside, the descriptor leads to /etc", statErr == nil, "pipe", "ENOTDIR"), err
}

func probeSetID(ctx context.Context, h *Host) (outcome, error) {
	dir, b, err := h.workspace("setid", map[string]string{"tool": "#!/bin/sh\n"})
	if err != nil {
		return outcome{}, err
	}
	own := filepath.Join(h.Dir, "own-tool")
	controlErr := os.WriteFile(own, nil, 0o755)
	if controlErr == nil {
		controlErr = unix.Chmod(own, 0o4755)
	}
	a, err := h.inside(ctx, b, nil, "set-id", "tool")
	o := a.judge("outside, the owner may set the bit", controlErr == nil, "EPERM", "ENOSYS")
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if info, err := os.Lstat(p); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 && info.Mode().IsRegular() {
			o.held, o.observed = false, o.observed+"; the host has "+filepath.Base(p)+" with a set-id bit"
		}
		return nil
	})
	return o, err
}

// listenUnix serves a path or abstract socket of the host until stop.
func listenUnix(name string) (stop func(), reachable bool, err error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, false, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	c, err := net.Dial("unix", name)
	if err == nil {
		c.Close()
	}
	return func() { l.Close() }, err == nil, nil
}

func controlDevices() (string, bool) {
	err := unix.Access("/dev/null", unix.W_OK)
	return "outside, the device files that the driver binds are usable", err == nil
}
