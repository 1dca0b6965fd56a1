//go:build linux

package native

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/kernel/landlock"
	"confine/internal/kernel/seccomp"
)

func landlockPresent() bool { return landlock.Probe() > 0 }

// restrictFiles puts Landlock on top of the view: a second answer to every write
// outside the writable mounts, and the end of signals and abstract sockets to
// anything outside of the command's own processes. It comes after all mounts,
// as it forbids making any.
func (pl *plan) restrictFiles(c *kernel.Block) {
	if !pl.landlock {
		return
	}
	abi := landlock.Probe()
	if pl.b.Profile == boundary.ProfileNesting {
		pl.restrictReach(c, abi)
		return
	}
	attr := abi.Ruleset()
	set := c.Call("landlock: create rules", unix.SYS_LANDLOCK_CREATE_RULESET, pl.p.Bytes(attr), kernel.Int(len(attr)), kernel.Int(0)).Result()
	allow := func(path string, r landlock.Rights) {
		name := step("landlock: allow %q", path)
		c.Call(name+": open", unix.SYS_OPENAT, kernel.Int(unix.AT_FDCWD), pl.p.Str(path), kernel.Int(unix.O_PATH|unix.O_CLOEXEC)).Into(pl.scratchA)
		rule := pl.p.Bytes(landlock.Rule(r))
		c.Store32(rule, landlock.RuleFD, pl.scratchA.Arg())
		c.Call(name, unix.SYS_LANDLOCK_ADD_RULE, set.Arg(), kernel.Int(landlock.RulePathBeneath), rule, kernel.Int(0))
		c.Call(name+": close", unix.SYS_CLOSE, pl.scratchA.Arg())
	}
	allow("/", abi.ReadExec())
	// Terminals and null are written to and asked about by ioctl; /proc/self
	// has files that programs write about themselves.
	allow("/dev", abi.ReadWrite())
	allow("/proc", abi.ReadWrite())
	if hasQueues() {
		allow(queueDir, abi.ReadWrite())
	}
	for _, m := range pl.mounts {
		switch {
		case m.Kind == boundary.Tmpfs, m.Kind == boundary.Overlay, m.Kind == boundary.Bind && m.Writable && m.dir:
			allow(m.Target, abi.ReadWrite())
		case m.Kind == boundary.Bind && m.Writable:
			allow(m.Target, abi.ReadWriteFile())
		}
	}
	c.Call("landlock: restrict", unix.SYS_LANDLOCK_RESTRICT_SELF, set.Arg(), kernel.Int(0))
}

// restrictReach is what is left of Landlock where mounts are to be made, which it
// forbids to whoever has rules of files: the end of signals and abstract sockets to
// anything outside.
func (pl *plan) restrictReach(c *kernel.Block, abi landlock.ABI) {
	if abi.Scopes() == 0 {
		return
	}
	attr := abi.Reach()
	set := c.Call("landlock: create rules", unix.SYS_LANDLOCK_CREATE_RULESET, pl.p.Bytes(attr), kernel.Int(len(attr)), kernel.Int(0)).Result()
	c.Call("landlock: restrict", unix.SYS_LANDLOCK_RESTRICT_SELF, set.Arg(), kernel.Int(0))
}

// filterCalls loads the seccomp filter, the last thing before the exec.
func (pl *plan) filterCalls(c *kernel.Block) {
	filter, err := seccomp.Compile(seccomp.For(pl.b.Profile))
	if err != nil {
		pl.p.Fail(fmt.Errorf("compile seccomp filter: %w", err))
	}
	code := make([]byte, 0, 8*len(filter))
	for _, f := range filter {
		code = binary.NativeEndian.AppendUint16(code, f.Code)
		code = append(code, f.Jt, f.Jf)
		code = binary.NativeEndian.AppendUint32(code, f.K)
	}
	prog := pl.p.Words(kernel.Int(len(filter)), pl.p.Bytes(code))
	const setModeFilter = 1
	c.Call("load seccomp filter", unix.SYS_SECCOMP, kernel.Int(setModeFilter), kernel.Int(0), prog)
}
