//go:build linux

package native

import (
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/kernel"
)

// buildInner is the second step: a namespace in which every mount of the first
// is locked, and whose PID 1 the command can neither see into nor outlive.
func (pl *plan) buildInner() {
	in := pl.inner
	// Outer is our parent and in no Landlock domain, so its death reaches us.
	in.Call("die with outer", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_PDEATHSIG), kernel.Int(int(unix.SIGKILL)))
	uid, gid := strconv.FormatUint(uint64(pl.b.Identity.UID), 10), strconv.FormatUint(uint64(pl.b.Identity.GID), 10)
	pl.writeFile(in, pl.procDir.Arg(), "self/setgroups", "deny")
	pl.writeFile(in, pl.procDir.Arg(), "self/uid_map", uid+" "+uid+" 1")
	pl.writeFile(in, pl.procDir.Arg(), "self/gid_map", gid+" "+gid+" 1")
	// From here on nothing inside may look into this process: it still has
	// the engine's memory (copied at the fork).
	in.Call("hide init", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_DUMPABLE), kernel.Int(0))
	in.Call("name init", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_NAME), pl.p.Str("init"))
	if !pl.weakProc {
		pl.mountProc(in, "mount /proc", "/proc")
	}
	in.Call("start session", unix.SYS_SETSID)
	if pl.tty != nil {
		// init leads the session, so that the command's process group is not
		// an orphaned one: the kernel would not let Ctrl-Z stop it.
		in.Call("take terminal", unix.SYS_IOCTL, pl.slave.Arg(), kernel.Int(unix.TIOCSCTTY), kernel.Int(0))
	}
	child := in.Fork("fork command", 0, pl.cmd)
	pl.restPrivileges(in)
	control, status := pl.fd(pl.fds.control), pl.fd(pl.fds.status)
	pl.closeAllBut(in, pl.fds.control, pl.fds.status)
	in.Init(kernel.InitFDs{Control: control, Status: status, Child: child})
}

// closeAllBut closes every descriptor but two neighbouring kept ones.
func (pl *plan) closeAllBut(b *kernel.Block, first, second int) {
	lo, hi := kernel.KeptFD(pl.fds.list, first), kernel.KeptFD(pl.fds.list, second)
	b.Call("close descriptors", unix.SYS_CLOSE_RANGE, kernel.Int(0), kernel.Int(lo-1), kernel.Int(0))
	b.Call("close descriptors", unix.SYS_CLOSE_RANGE, kernel.Int(hi+1), kernel.Int(uint32(1<<32-1)), kernel.Int(0))
}

// buildCommand gives up everything and executes the command.
func (pl *plan) buildCommand() {
	c := pl.cmd
	pl.standardStreams()
	c.Call("close descriptors at exec", unix.SYS_CLOSE_RANGE, kernel.Int(3), kernel.Int(uint32(1<<32-1)), kernel.Int(unix.CLOSE_RANGE_CLOEXEC))
	c.Call("set umask", unix.SYS_UMASK, kernel.Int(0o022))
	for _, l := range pl.rlimits() {
		lim := make([]byte, 16)
		binary.NativeEndian.PutUint64(lim, l.value)
		binary.NativeEndian.PutUint64(lim[8:], l.value)
		c.Call(step("set limit %s", l.name), unix.SYS_PRLIMIT64, kernel.Int(0), kernel.Int(l.resource), pl.p.Bytes(lim), kernel.Int(0))
	}
	pl.dropCapabilities(c)
	pl.restrictFiles(c)
	c.Call(step("change to working directory %q", pl.b.View.Workdir), unix.SYS_CHDIR, pl.p.Str(pl.b.View.Workdir))
	c.UnblockSignals()
	pl.filterCalls(c)
	argv, env := pl.p.Vector(pl.args), pl.p.Vector(pl.b.Env)
	for _, path := range candidates(pl.args[0], pl.b.Env) {
		c.Exec(execStep, pl.p.Str(path), argv, env).Tolerate(uintptr(unix.ENOENT), uintptr(unix.ENOTDIR), uintptr(unix.EACCES)).Soft()
	}
	c.FailSoft(execStep)
}

// execStep is the one step whose failure is the user's command and not the
// sandbox.
const execStep = "execute command"

func (pl *plan) standardStreams() {
	c := pl.cmd
	if pl.tty == nil {
		c.Call("start session", unix.SYS_SETSID)
		for i, k := range []int{pl.fds.stdin, pl.fds.stdout, pl.fds.stderr} {
			c.Call("set standard stream", unix.SYS_DUP3, pl.fd(k), kernel.Int(i), kernel.Int(0))
		}
		return
	}
	c.Call("start process group", unix.SYS_SETPGID, kernel.Int(0), kernel.Int(0))
	pid := c.Call("get process id", unix.SYS_GETPID).Result()
	mem := pl.p.Buffer(4)
	c.Store32(mem, 0, pid.Arg())
	// Allowed from the background as SIGTTOU is blocked until the exec.
	c.Call("take terminal's foreground", unix.SYS_IOCTL, pl.slave.Arg(), kernel.Int(unix.TIOCSPGRP), mem)
	// The slave can be one of the three numbers itself.
	high := c.Call("move terminal", unix.SYS_FCNTL, pl.slave.Arg(), kernel.Int(unix.F_DUPFD_CLOEXEC), kernel.Int(3)).Result()
	streams := [3]kernel.Arg{high.Arg(), high.Arg(), high.Arg()}
	if pl.errorsApart {
		streams[2] = pl.fd(pl.fds.stderr)
	}
	for i, from := range streams {
		c.Call("set standard stream", unix.SYS_DUP3, from, kernel.Int(i), kernel.Int(0))
	}
}

type rlimit struct {
	name     string
	resource int
	value    uint64
}

const (
	defaultFiles = 4096
	defaultPids  = 4096
	// queuedSignals is how many signals and timers a run may have. The kernel
	// counts them for the user as well, who is everybody's as an ordinary user:
	// without a limit of its own one run took what all programs of that user
	// have together (tried).
	queuedSignals = 8192
)

func (pl *plan) rlimits() []rlimit {
	l := pl.b.Limits
	files := uint64(defaultFiles)
	if l.Files > 0 {
		files = uint64(l.Files)
	}
	pids := uint64(defaultPids)
	if l.Pids > 0 {
		pids = uint64(l.Pids)
	}
	out := []rlimit{
		{"core size", unix.RLIMIT_CORE, 0},
		{"open files", unix.RLIMIT_NOFILE, files},
		// Counted per user namespace, so this sandbox's alone; init is in it.
		{"processes", unix.RLIMIT_NPROC, pids + 1},
		{"queued signals", unix.RLIMIT_SIGPENDING, queuedSignals},
	}
	if l.FileSize > 0 {
		out = append(out, rlimit{"file size", unix.RLIMIT_FSIZE, uint64(l.FileSize)})
	}
	for i := range out {
		// A lower one of the caller's holds: it is the stricter, and only a
		// privileged process could raise it.
		var have unix.Rlimit
		if unix.Getrlimit(out[i].resource, &have) == nil {
			if out[i].resource == unix.RLIMIT_SIGPENDING {
				have.Max /= 2 // leaves some where there are few
			}
			out[i].value = min(out[i].value, have.Max)
		}
	}
	return out
}

// candidates are the paths to try for a command's name, in order.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var out []string
	for _, e := range env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			for _, dir := range strings.Split(p, ":") {
				// An empty entry would mean the working directory, which is
				// the agent's to write.
				if strings.HasPrefix(dir, "/") {
					out = append(out, strings.TrimSuffix(dir, "/")+"/"+name)
				}
			}
		}
	}
	return out
}
