package hostview

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"confine/internal/boundary"
)

// Options say for whom the host's system is shown.
type Options struct {
	// UID and GID inside. UID 0 is root with the home /root.
	UID, GID uint32
	// Network decides what resolv.conf says.
	Network boundary.Network
	// SafeDirectories are the paths inside whose repositories git trusts even
	// though another id may own them: exactly these, never all.
	SafeDirectories []string
	// GitMasked are files, as paths below a work tree, that are masked: git finds
	// them empty and is told to leave them alone. None may hold a control
	// character.
	GitMasked []string
	// Git is an identity that the run may commit as; the zero value lends none.
	Git GitIdentity
	// Home is a host directory, links resolved, to be the writable home; empty
	// makes it a private one in memory.
	Home string
	// HomeBytes and TmpBytes cap the home (in memory) and /tmp; 0 means 4 GiB
	// and 1 GiB. They are caps, not reservations.
	HomeBytes, TmpBytes int64

	root string // another host, for tests
}

// GitIdentity is a name and an address for commits.
type GitIdentity struct{ Name, Email string }

// Part is a piece of a boundary.View, to be put together with others in order.
type Part struct {
	Mounts []boundary.Mount
	Files  []boundary.File
	Links  []boundary.Link
}

// AddTo appends the part to a view.
func (p Part) AddTo(v *boundary.View) {
	v.Mounts = append(v.Mounts, p.Mounts...)
	v.Files = append(v.Files, p.Files...)
	v.Links = append(v.Links, p.Links...)
}

// Report says what was not put in although a table names it and the host has it.
type Report struct {
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Skipped is something of the host that stays outside.
type Skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// The sizes of the directories in memory.
const (
	defaultHome = 4 << 30
	defaultTmp  = 1 << 30
	varTmpBytes = 256 << 20
	runBytes    = 64 << 20
)

// Hostname is the host name inside.
const Hostname = "sandbox"

// HomeDir is the home of uid inside.
func HomeDir(uid uint32) string {
	if uid == 0 {
		return "/root"
	}
	return "/home/agent"
}

// System is the host's programs and libraries, a chosen and partly made-up
// /etc, and private directories in memory. It fails when the host has no /usr or
// an option can't be written into a file, never because something optional is
// not there.
func System(o Options) (Part, Report, error) {
	b := &builder{host: newHost(o.root), o: o}
	for _, step := range []func() error{b.checkOptions, b.addSystem, b.addMemory, b.addMadeUp, b.addEtc} {
		if err := step(); err != nil {
			return Part{}, Report{}, fmt.Errorf("show the host's system: %w", err)
		}
	}
	return b.part, b.report, nil
}

type builder struct {
	host   host
	o      Options
	part   Part
	report Report
}

func (b *builder) checkOptions() error {
	for _, dir := range b.o.SafeDirectories {
		if !boundary.CleanAbs(dir) || hasControl(dir) {
			return fmt.Errorf("safe directory %q: want an absolute clean path", dir)
		}
	}
	for _, p := range b.o.GitMasked {
		if p == "" || !boundary.CleanAbs("/"+p) || hasControl(p) {
			return fmt.Errorf("masked file %.200q: want a clean path below a work tree", p)
		}
	}
	for _, text := range []string{b.o.Git.Name, b.o.Git.Email} {
		if hasControl(text) || len(text) > 256 {
			return fmt.Errorf("git identity %.40q: too long or holds a control character", text)
		}
	}
	if b.o.Home != "" && !boundary.CleanAbs(b.o.Home) {
		return fmt.Errorf("home %q: want an absolute clean path", b.o.Home)
	}
	if b.o.HomeBytes < 0 || b.o.TmpBytes < 0 {
		return errors.New("a size is negative")
	}
	return nil
}

func (b *builder) skip(p, why string) {
	b.report.Skipped = append(b.report.Skipped, Skipped{Path: p, Why: why})
}

// bind shows a host directory or file read-only at the same path.
func (b *builder) bind(p string) error {
	source, err := b.host.resolve(p)
	if err != nil {
		return err
	}
	b.part.Mounts = append(b.part.Mounts, boundary.Mount{Kind: boundary.Bind, Target: p, Source: b.host.real(source)})
	return nil
}

// addSystem shows /usr, and what lies beside it the way the host has it: links
// where /usr was merged, directories elsewhere.
func (b *builder) addSystem() error {
	if err := b.bind("/usr"); err != nil {
		return fmt.Errorf("find /usr: %w", err)
	}
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec"} {
		info, err := b.host.lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.Mode()&os.ModeSymlink != 0:
			err = b.linkOrBind(p)
		case info.IsDir():
			err = b.bind(p)
		}
		if err != nil {
			b.skip(p, "can't be resolved")
		}
	}
	return b.addNix()
}

// linkOrBind makes the same link inside when it leads into /usr.
func (b *builder) linkOrBind(p string) error {
	target, err := b.host.resolve(p)
	if err != nil {
		return err
	}
	if !within(target, "/usr") {
		return b.bind(p)
	}
	b.part.Links = append(b.part.Links, boundary.Link{Path: p, Target: target})
	return nil
}

// addNix shows the store of a host whose programs live there. Everyone may read
// it by design, so it holds no secrets that others have not.
func (b *builder) addNix() error {
	if !b.host.isDir("/nix/store") {
		return nil
	}
	if err := b.bind("/nix/store"); err != nil {
		return err
	}
	if target, err := b.host.resolve("/run/current-system"); err == nil && within(target, "/nix/store") {
		b.part.Links = append(b.part.Links, boundary.Link{Path: "/run/current-system", Target: target})
	}
	return nil
}

func orDefault(n, def int64) int64 {
	if n == 0 {
		return def
	}
	return n
}

func (b *builder) addMemory() error {
	home := boundary.Mount{Kind: boundary.Tmpfs, Target: HomeDir(b.o.UID), Size: orDefault(b.o.HomeBytes, defaultHome), Mode: 0o700}
	if b.o.Home != "" {
		home = boundary.Mount{Kind: boundary.Bind, Target: home.Target, Source: b.o.Home, Writable: true}
	}
	b.part.Mounts = append(b.part.Mounts,
		boundary.Mount{Kind: boundary.Tmpfs, Target: "/tmp", Size: orDefault(b.o.TmpBytes, defaultTmp), Mode: 0o1777},
		boundary.Mount{Kind: boundary.Tmpfs, Target: "/var/tmp", Size: varTmpBytes, Mode: 0o1777},
		boundary.Mount{Kind: boundary.Tmpfs, Target: "/run", Size: runBytes, Mode: 0o755},
		home)
	b.part.Links = append(b.part.Links,
		boundary.Link{Path: "/var/run", Target: "/run"},
		boundary.Link{Path: "/etc/mtab", Target: "/proc/self/mounts"})
	return nil
}

// shell is the login shell inside.
func (b *builder) shell() string {
	for _, p := range []string{"/bin/bash", "/usr/bin/bash"} {
		if _, err := b.host.resolve(p); err == nil {
			return p
		}
	}
	return "/bin/sh"
}

// hasControl reports whether text holds a character that ends a line or a
// field somewhere.
func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}
