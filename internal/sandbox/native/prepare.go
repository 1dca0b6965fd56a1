//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/sandbox"
)

// preparedMount is a mount whose facts on the host were looked up.
type preparedMount struct {
	boundary.Mount
	dir   bool
	owner owner
}

type owner struct{ uid, gid uint32 }

// prepareMounts looks at every source once. It decides nothing by names: what it
// saw is checked again by the child, which opens without following links.
func prepareMounts(v boundary.View) ([]preparedMount, error) {
	out := make([]preparedMount, len(v.Mounts))
	for i, m := range v.Mounts {
		out[i] = preparedMount{Mount: m, dir: m.Kind == boundary.Tmpfs}
		host := m.Source
		switch m.Kind {
		case boundary.Tmpfs:
			continue
		case boundary.Mask, boundary.Pin:
			var ok bool
			if host, ok = hostPath(v.Mounts[:i], m.Target); !ok {
				return nil, &boundary.InvalidError{Field: fmt.Sprintf("view.mounts[%d]", i), Why: fmt.Sprintf("%s %q: no mount before it shows that of the host", m.Kind, m.Target)}
			}
		}
		var st unix.Stat_t
		if err := unix.Lstat(host, &st); err != nil {
			return nil, &sandbox.StartError{Step: fmt.Sprintf("open %q for %q", host, m.Target), Err: err, Hint: "the path must exist and be readable by the user who runs confine"}
		}
		kind := st.Mode & unix.S_IFMT
		channel := kind == unix.S_IFSOCK || kind == unix.S_IFIFO
		switch {
		case kind == unix.S_IFDIR:
			out[i].dir = true
		case kind == unix.S_IFREG, channel && m.Kind == boundary.Mask:
		default:
			return nil, &sandbox.StartError{Step: fmt.Sprintf("open %q for %q", host, m.Target), Err: errors.New("not a file or directory"), Hint: "links, sockets and devices can't be part of a view"}
		}
		out[i].owner = owner{st.Uid, st.Gid}
	}
	return out, nil
}

// checkFileSize says whose limit it is that the view's own files don't fit in:
// the child inherits the caller's, and would only see a write cut short.
func checkFileSize(files []boundary.File) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return &sandbox.StartError{Step: "read file size limit", Err: err}
	}
	for _, f := range files {
		if uint64(len(f.Data)) > limit.Cur {
			return &sandbox.StartError{Step: fmt.Sprintf("write %q", f.Path), Err: unix.EFBIG, Hint: fmt.Sprintf("it has %d bytes, and files may have %d here: raise the file size limit of the shell or service that starts confine (ulimit -f, LimitFSIZE)", len(f.Data), limit.Cur)}
		}
	}
	return nil
}

// hostPath is the host's path of what a view shows at target.
func hostPath(mounts []boundary.Mount, target string) (string, bool) {
	for i := len(mounts) - 1; i >= 0; i-- {
		m := mounts[i]
		if m.Kind == boundary.Pin {
			continue // shows what an earlier one does
		}
		shows := m.Kind == boundary.Bind || m.Kind == boundary.Overlay
		if target == m.Target {
			return m.Source, shows
		}
		if rest, ok := strings.CutPrefix(target, m.Target+"/"); ok {
			return path.Join(m.Source, rest), shows
		}
	}
	return "", false
}

// openPrivileged makes the detached trees of every bind as root: a source may
// lie where the tenant's id can't go, and a writable one is mounted with its
// owner shown as the tenant, so that no file on disk is ever owned by an id that
// only exists for the sandbox.
func (r *run) openPrivileged() error {
	maps := map[owner]*os.File{}
	defer func() {
		for _, f := range maps {
			f.Close()
		}
	}()
	id := r.spec.Boundary.Identity
	for i, m := range r.plan.mounts {
		if m.Kind == boundary.Overlay {
			fd, err := cloneTree(m.Stage, &unix.MountAttr{Attr_set: attrBase | attrNoDev})
			if err != nil {
				return &sandbox.StartError{Step: fmt.Sprintf("open stage %q", m.Stage), Err: err}
			}
			r.own(fd)
			r.plan.fds.stages[i] = r.plan.fds.add(fd)
		} else if m.Kind != boundary.Bind {
			continue
		}
		owned := m.Writable || m.Owned || m.Kind == boundary.Overlay
		attr := unix.MountAttr{Attr_set: bindAttr(m.Mount)}
		if owned {
			ns, ok := maps[m.owner]
			if !ok {
				var err error
				if ns, err = idmap(m.owner, owner{id.HostUID, id.HostGID}); err != nil {
					return &sandbox.StartError{Step: "make id map", Err: err}
				}
				maps[m.owner] = ns
			}
			attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
			attr.Userns_fd = uint64(ns.Fd())
		}
		fd, err := cloneTree(m.Source, &attr)
		if errors.Is(err, unix.EINVAL) && owned {
			return &kernel.MissingError{Layer: boundary.LayerIDMap, What: fmt.Sprintf("the file system of %q has no idmapped mounts", m.Source), Fix: "use a directory on ext4, xfs, btrfs or tmpfs, or run confine as an ordinary user"}
		}
		if errors.Is(err, unix.EPERM) {
			return &kernel.MissingError{Layer: boundary.LayerIDMap, What: fmt.Sprintf("root may not mount here (%v): it is a container's, without CAP_SYS_ADMIN", err), Fix: "run confine as an ordinary user of the container: docker run --user 1000, or su"}
		}
		if err != nil {
			return &sandbox.StartError{Step: fmt.Sprintf("bind %q", m.Source), Err: err}
		}
		r.own(fd)
		r.plan.fds.mounts[i] = r.plan.fds.add(fd)
	}
	return nil
}

func cloneTree(source string, attr *unix.MountAttr) (int, error) {
	p, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return -1, fmt.Errorf("open: %w", err)
	}
	defer unix.Close(p)
	fd, err := unix.OpenTree(p, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("clone: %w", err)
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set attributes: %w", err)
	}
	return fd, nil
}

// idmap makes a user namespace whose map shows the owner on disk as the tenant,
// and returns a descriptor of it. The namespace has no process once that is open.
func idmap(disk, tenant owner) (*os.File, error) {
	stop, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stop.Close()
	defer hold.Close()
	keep := []int{int(stop.Fd())}
	p, b := kernel.NewProgram()
	b.Call("wait", unix.SYS_READ, kernel.Int(kernel.KeptFD(keep, 0)), p.Buffer(1), kernel.Int(1))
	b.Call("end", unix.SYS_EXIT_GROUP, kernel.Int(0))
	child, err := p.Start(unix.CLONE_NEWUSER, keep)
	if err != nil {
		return nil, err
	}
	defer func() {
		hold.Close()
		_ = child.Started()
		var ws unix.WaitStatus
		unix.Wait4(child.PID, &ws, 0, nil)
	}()
	if err := writeMaps(child.PID, disk, tenant, true); err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", child.PID))
}

// writeMaps gives the user namespace of a process its one user and one group.
func writeMaps(pid int, inside, outside owner, privileged bool) error {
	proc := fmt.Sprintf("/proc/%d/", pid)
	if !privileged {
		if err := os.WriteFile(proc+"setgroups", []byte("deny"), 0); err != nil {
			return err
		}
	}
	if err := os.WriteFile(proc+"uid_map", fmt.Appendf(nil, "%d %d 1", inside.uid, outside.uid), 0); err != nil {
		return err
	}
	return os.WriteFile(proc+"gid_map", fmt.Appendf(nil, "%d %d 1", inside.gid, outside.gid), 0)
}
