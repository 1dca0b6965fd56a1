// Package boundary is the data that describes all limits around one run: what
// files it sees (View), who it is (Identity), its environment, whether it has a
// captured network, and its resource limits.
//
// The package promises that a Boundary which passes Validate means the same
// thing to every driver. It does not enforce anything, touch the host or know
// how a driver works: package sandbox does that. Everything here is a pure
// value; the zero value of every field is its safe form (read-only, no network,
// nothing may be missing).
package boundary

import "time"

// Version is the version of the wire form. A driver refuses any other.
const Version = 1

// MaxWireBytes caps the encoded form that a driver accepts.
const MaxWireBytes = 16 << 20

// Boundary is everything that limits one run.
type Boundary struct {
	// Version must be Version.
	Version int `json:"version"`
	// Tenant is whose run it is. It names cgroups and records; never empty.
	Tenant   TenantID `json:"tenant"`
	View     View     `json:"view"`
	Identity Identity `json:"identity"`
	// Env is the whole environment of the command, NAME=VALUE each. Nothing is
	// inherited.
	Env     []string `json:"env"`
	Network Network  `json:"network"`
	Limits  Limits   `json:"limits"`
	// AllowMissing names the layers whose absence on this host does not stop
	// the run. A layer that is missing and not named here is an error.
	AllowMissing []Layer `json:"allow_missing,omitempty"`
	// Profile opens the boundary for programs with a sandbox of their own.
	Profile Profile `json:"profile,omitempty"`
}

// TenantID names a tenant: 1-63 of a-z, 0-9 and '-', beginning with a letter.
type TenantID string

// View is the file system the run sees, built from empty.
//
// The driver always adds, and a View must not name: /proc (fresh), /dev (null,
// zero, full, random, urandom, tty, pts, shm, fd, stdin, stdout, stderr, ptmx).
// The root itself is a small read-only tmpfs.
type View struct {
	// Mounts are made in order; a later one may lie below an earlier one.
	Mounts []Mount `json:"mounts"`
	// Files are written into the root tmpfs (or a tmpfs mount of the view)
	// before anything starts. They are owned by root inside.
	Files []File `json:"files,omitempty"`
	// Links are symbolic links made in the root tmpfs.
	Links []Link `json:"links,omitempty"`
	// Workdir is the directory the command starts in, absolute, inside.
	Workdir string `json:"workdir"`
	// Hostname inside; empty means "sandbox".
	Hostname string `json:"hostname,omitempty"`
}

// MountKind says what a Mount puts at its target.
type MountKind string

// The kinds of mounts.
const (
	// Bind shows a host file or directory, with everything mounted below it.
	Bind MountKind = "bind"
	// Tmpfs is an empty, private directory in memory, of Size bytes at most.
	Tmpfs MountKind = "tmpfs"
	// Mask covers an existing file or directory of an earlier mount: a file
	// becomes an empty file that can't be opened for writing, moved or
	// deleted; a directory an empty one.
	Mask MountKind = "mask"
	// Overlay shows a host directory, the Source, that can be written to while
	// nothing of it changes: what is written lands in Stage.
	Overlay MountKind = "overlay"
	// Pin puts what an earlier mount shows at Target there once more, as a mount
	// point of its own: what is one can't be renamed or deleted.
	Pin MountKind = "pin"
)

// Mount is one thing put into the view.
type Mount struct {
	Kind MountKind `json:"kind"`
	// Target is where it appears: absolute and clean.
	Target string `json:"target"`
	// Source is the host path of a Bind: absolute, clean, with no symbolic
	// link in any component (the builder of a view resolves them; the driver
	// opens it without following any).
	Source string `json:"source,omitempty"`
	// Writable makes a Bind writable, and leaves a Pin so. They are read-only
	// otherwise.
	Writable bool `json:"writable,omitempty"`
	// Stage is an Overlay's own directory on the host. It holds two, on one file
	// system: upper, for what is written, and work, the kernel's scratch. As root
	// they belong to the run's id outside.
	Stage string `json:"stage,omitempty"`
	// Owned shows what the owner of a Bind's source owns as the run's own, as
	// is always so for a writable one: for read-only binds of what belongs to
	// the run's work, never of the host's system. Without it root's driver
	// shows files as somebody else's, readable only if everybody may.
	Owned bool `json:"owned,omitempty"`
	// NoExec forbids executing files of it.
	NoExec bool `json:"no_exec,omitempty"`
	// Size of a Tmpfs in bytes; 0 means the driver's default (64 MiB).
	Size int64 `json:"size,omitempty"`
	// Mode of a Tmpfs' root directory; 0 means 0755.
	Mode uint32 `json:"mode,omitempty"`
}

// File is a synthesised file.
type File struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	Data []byte `json:"data"`
}

// Link is a symbolic link.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Identity is who the command is inside. Outside it is always an unprivileged
// id: as an ordinary user the caller's own, as root one of the tenant's range.
type Identity struct {
	// UID and GID inside. 0 is "root" without any capability.
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	// HostUID and HostGID are the ids outside, used only when the driver runs
	// as root; they must not be 0 then. An ordinary user's driver takes its own.
	HostUID uint32 `json:"host_uid,omitempty"`
	HostGID uint32 `json:"host_gid,omitempty"`
}

// Network says what kind of network namespace the run gets. Which hosts may be
// reached is the egress policy's business, which the caller hands to the proxy.
type Network string

// The kinds of network.
const (
	// NetworkOff is a network namespace with a loopback device of its own and
	// nothing else: every other address is unreachable.
	NetworkOff Network = ""
	// NetworkCaptured delivers every TCP connection to the engine, which
	// decides it by the egress policy; names resolve at the engine's stub.
	NetworkCaptured Network = "captured"
)

// Limits are the resource limits of one run. Zero means the driver's default
// where one is named, else unlimited.
type Limits struct {
	// Memory in bytes, swap excluded. Layer cgroup; without it a watchdog.
	Memory int64 `json:"memory,omitempty"`
	// Pids is the number of processes and threads.
	Pids int64 `json:"pids,omitempty"`
	// CPU in thousandths of one processor. Layer cgroup.
	MilliCPU int64 `json:"milli_cpu,omitempty"`
	// Files is the number of descriptors one process may hold (default 4096).
	Files int64 `json:"files,omitempty"`
	// FileSize is the size of the largest file in bytes.
	FileSize int64 `json:"file_size,omitempty"`
	// Disk is the number of bytes that writable binds may grow to together
	// (sampled; the run is stopped with reason "disk").
	Disk int64 `json:"disk,omitempty"`
	// Output is the number of bytes of stdout and stderr together after which
	// further output is counted but dropped.
	Output int64 `json:"output,omitempty"`
	// Time is the wall time after which the run is killed.
	Time time.Duration `json:"time,omitempty"`
}

// Layer is one mechanism of the boundary, by the name used in allow_missing,
// doctor and reports.
type Layer string

// The layers that a host may lack.
const (
	LayerUserNS   Layer = "user_namespaces"
	LayerSeccomp  Layer = "seccomp"
	LayerLandlock Layer = "landlock"
	LayerCgroup   Layer = "cgroup"
	LayerProc     Layer = "proc" // a fresh /proc; without it a read-only bind of the outer one
	LayerNFTables Layer = "nf_tables"
	LayerIDMap    Layer = "idmapped_mounts"
	LayerOverlay  Layer = "overlay" // staged writes
)
