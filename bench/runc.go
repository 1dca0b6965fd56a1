package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// object is a JSON object of the OCI runtime specification.
type object = map[string]any

// runcIn returns how to run a command with runc: a bundle with a view like the
// others', and a new container each time.
func runcIn(work, workspace string) func(args ...string) (*exec.Cmd, error) {
	count := 0
	return func(args ...string) (*exec.Cmd, error) {
		// The file is rewritten only when the command changes: writing it is
		// no part of a start.
		bundle := filepath.Join(work, "runc-"+strings.ReplaceAll(strings.Join(args, "_"), "/", "-"))
		if _, err := os.Stat(bundle); err != nil {
			if err := writeBundle(bundle, workspace, args); err != nil {
				return nil, err
			}
		}
		count++
		return exec.Command("runc", "--root", filepath.Join(work, "runc-state"),
			"run", "--bundle", bundle, fmt.Sprintf("bench-%d-%d", os.Getpid(), count)), nil
	}
}

func writeBundle(bundle, workspace string, args []string) error {
	rootfs := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(rootfs, 0o755); err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev", "mode=1777"}},
		{"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev", "mode=755"}},
		{"destination": "/workspace", "type": "bind", "source": workspace, "options": []string{"rbind", "rw"}},
	}
	for _, path := range systemPaths {
		target, err := os.Readlink(path)
		if err == nil {
			if err := os.Symlink(target, filepath.Join(rootfs, path)); err != nil {
				return fmt.Errorf("make bundle: %w", err)
			}
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			continue // this host has no such part
		}
		// runc makes mount points itself, but not below a read-only root.
		if err := makeMountPoint(filepath.Join(rootfs, path), info.IsDir()); err != nil {
			return err
		}
		mounts = append(mounts, object{"destination": path, "type": "bind", "source": path, "options": []string{"rbind", "ro"}})
	}
	for _, dir := range []string{"proc", "dev", "tmp", "run", "workspace"} {
		if err := makeMountPoint(filepath.Join(rootfs, dir), true); err != nil {
			return err
		}
	}
	config := object{
		"ociVersion": "1.0.2",
		"process": object{
			"terminal": false, "cwd": "/workspace", "args": args, "env": environment, "noNewPrivileges": true,
			"user":         object{"uid": 0, "gid": 0},
			"capabilities": object{"bounding": []string{}, "effective": []string{}, "permitted": []string{}},
		},
		"root":     object{"path": "rootfs", "readonly": true},
		"hostname": "bench",
		"mounts":   mounts,
		"linux":    linux(),
	}
	data, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o644); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// linux asks for the namespaces the other contenders have. An ordinary user
// needs a user namespace with its own id in it; root goes without, as runc does
// by default.
func linux() object {
	namespaces := []object{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}
	l := object{}
	if os.Geteuid() != 0 {
		namespaces = append(namespaces, object{"type": "user"})
		l["uidMappings"] = []object{{"containerID": 0, "hostID": os.Geteuid(), "size": 1}}
		l["gidMappings"] = []object{{"containerID": 0, "hostID": os.Getegid(), "size": 1}}
	}
	l["namespaces"] = namespaces
	return l
}

func makeMountPoint(path string, dir bool) error {
	if dir {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return nil
}
