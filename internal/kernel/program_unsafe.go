//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// The runtime's own steps around a fork, which package syscall uses in the same
// order: signals are blocked, so that the child has none to handle, and the stack
// guard is poisoned so that any attempt to grow the stack is a crash and not a
// silent corruption.
//
//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

// forkOnStack is clone; see fork_linux_*.s.
func forkOnStack(flags, stack, main uintptr, a *arena) (pid uintptr)

// pointer is the memory at addr, which is in the region.
//
//go:norace
//go:nosplit
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

const exitStepFailed = 111

// Kinds of StatusRecord.
const (
	statusExited  = 'X'
	statusStopped = 'T'
)

// StatusRecord is what the inner init says of the command.
type StatusRecord struct {
	// Stopped: the command's job was stopped by Stop signal; it did not end.
	Stopped bool
	// Wait is the wait status of the command.
	Wait syscall.WaitStatus
}

// ReadStatus reads the next record from the status pipe.
func ReadStatus(r io.Reader) (StatusRecord, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return StatusRecord{}, err
	}
	return StatusRecord{Stopped: b[0] == statusStopped, Wait: syscall.WaitStatus(binary.NativeEndian.Uint32(b[4:]))}, nil
}

// Child is a started Program's first process.
type Child struct {
	// PID is its id in this process's namespace.
	PID int
	// errs is the pipe on which the program reports a failed step.
	errs  *os.File
	names []string
}

// Start forks and lets the child run the program. flags are clone's CLONE_NEW*
// flags. keep are this process's descriptors that the child holds on to: they
// are renumbered to KeptFD(keep, 0), KeptFD(keep, 1), … and every other one is
// closed. The child waits for nothing by itself.
func (p *Program) Start(flags uintptr, keep []int) (*Child, error) {
	defer p.Discard()
	if p.err != nil {
		return nil, p.err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	a, err := p.arena(keep, int(w.Fd()))
	if err == nil {
		err = p.mem.keepFromChild()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	runtime.LockOSThread()
	syscall.ForkLock.Lock()
	main := childMain // a function value is a pointer to the code's address
	pid := fork(flags|uintptr(syscall.SIGCHLD), p.mem.stack(), **(**uintptr)(unsafe.Pointer(&main)), a)
	syscall.ForkLock.Unlock()
	runtime.UnlockOSThread()
	if pid < 0 {
		r.Close()
		return nil, &StepError{Step: "clone", Err: syscall.Errno(-pid)}
	}
	return &Child{PID: pid, errs: r, names: append(p.names, ownSteps[:]...)}, nil
}

// arena makes the child's variables, in the child's memory.
func (p *Program) arena(keep []int, errs int) (*arena, error) {
	steps, err := p.link()
	if err != nil {
		return nil, err
	}
	mem, _ := p.alloc(int(unsafe.Sizeof(arena{})))
	kept, _ := p.alloc(8*len(keep) + 8)
	if p.err != nil {
		return nil, p.err
	}
	a := (*arena)(unsafe.Pointer(unsafe.SliceData(mem)))
	a.steps = steps
	a.kept = unsafe.Slice((*uintptr)(unsafe.Pointer(unsafe.SliceData(kept))), len(keep))
	for i, fd := range keep {
		a.kept[i] = uintptr(fd)
	}
	// Above every kept descriptor, so that it can be moved first.
	a.base = uintptr(keptBase(keep))
	a.errFD, a.errFrom = a.base+uintptr(len(keep)), uintptr(errs)
	a.own = uint16(len(p.names))
	return a, nil
}

// link puts all blocks behind one another in the child's memory and turns block
// numbers into places.
func (p *Program) link() ([]step, error) {
	total := 0
	for _, b := range p.blocks {
		b.start = total
		total += len(b.steps) + 1
	}
	mem, _ := p.alloc(total * int(unsafe.Sizeof(step{})))
	if p.err != nil {
		return nil, p.err
	}
	steps := unsafe.Slice((*step)(unsafe.Pointer(unsafe.SliceData(mem))), total)
	for _, b := range p.blocks {
		n := copy(steps[b.start:], b.steps)
		for i := range steps[b.start : b.start+n] {
			if s := &steps[b.start+i]; s.kind == stepFork {
				s.want = uintptr(p.blocks[s.want].start)
			}
		}
	}
	return steps, nil
}

// fork returns the child's process id, or a negative errno.
//
//go:noinline
//go:norace
//go:nosplit
func fork(flags, stack, main uintptr, a *arena) int {
	runtimeBeforeFork()
	pid := forkOnStack(flags, stack, main, a)
	runtimeAfterFork()
	return int(pid)
}

// ownSteps are what every child does before its program, named by their calls:
// a kernel or a filter may refuse them (close_range came with Linux 5.9).
var ownSteps = [...]string{ownMove: "move descriptors (dup3)", ownClose: "close descriptors (close_range)"}

const (
	ownMove = iota
	ownClose
)

// KeptFD is the number that descriptor i of keep has in the child.
func KeptFD(keep []int, i int) int { return keptBase(keep) + i }

// keptBase is above every kept descriptor, so that moving one there can't
// overwrite another, and above what the child will open by itself.
func keptBase(keep []int) int {
	base := 64
	for _, fd := range keep {
		if fd >= base {
			base = fd + 1
		}
	}
	return base
}

// Started waits until every process of the program has run its steps: the
// command was executed, or a step failed, which is the *StepError returned.
func (c *Child) Started() error {
	defer c.errs.Close()
	var b [8]byte
	n, err := io.ReadFull(c.errs, b[:])
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	i := binary.NativeEndian.Uint32(b[:4])
	errno := syscall.Errno(binary.NativeEndian.Uint32(b[4:]))
	if int(i) >= len(c.names) {
		return &StepError{Step: "unknown step", Err: errno}
	}
	return &StepError{Step: c.names[i], Err: errno}
}

// arena is all that the child writes to beside its stack and buffers.
type arena struct {
	regs    [maxRegs]uintptr
	steps   []step
	kept    []uintptr
	base    uintptr
	errFD   uintptr
	errFrom uintptr
	own     uint16 // where the names of ownSteps begin
	soft    uintptr
	rec     [2]uint32
	init    initMem
}

// childMain is the child: the program, step by step. It and what it calls use
// no memory but their arguments' and their own stack.
//
//go:norace
//go:nosplit
func childMain(a *arena) {
	takeDescriptors(a)
	for i := 0; i < len(a.steps); i++ {
		s := &a.steps[i]
		switch s.kind {
		case stepCall:
			call(a, s)
		case stepRepeat:
			repeat(a, s)
		case stepFork:
			r, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, s.args[0]|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
			if e != 0 {
				fail(a, s, uintptr(e))
			}
			if r == 0 {
				i = int(s.want) - 1
				continue
			}
			a.regs[s.out] = r
		case stepStore32:
			*(*uint32)(pointer(s.args[0])) = uint32(arg(a, s, 1))
		case stepErrno:
			if v := *(*int32)(pointer(s.args[0])); v != 0 {
				fail(a, s, uintptr(-v))
			}
		case stepInit:
			initLoop(&a.init, arg(a, s, 0), arg(a, s, 1), arg(a, s, 2))
		case stepWaitAll:
			waitAll()
		case stepFailSoft:
			if a.soft == 0 {
				a.soft = uintptr(syscall.ENOENT)
			}
			fail(a, s, a.soft)
		default:
			// The end of a block without an exec or a loop is a bug of the
			// builder: nothing may go on from here.
			exit(exitStepFailed)
		}
	}
	exit(exitStepFailed)
}

//go:norace
//go:nosplit
func call(a *arena, s *step) {
	r, _, e := syscall.RawSyscall6(s.nr, arg(a, s, 0), arg(a, s, 1), arg(a, s, 2), arg(a, s, 3), arg(a, s, 4), arg(a, s, 5))
	if e != 0 {
		if n := uint16(e); n != s.ok[0] && n != s.ok[1] && n != s.ok[2] {
			fail(a, s, uintptr(e))
		}
		if s.soft && (a.soft == 0 || e == syscall.EACCES) {
			a.soft = uintptr(e)
		}
		r = 0
	} else if s.expect && r != s.want {
		fail(a, s, uintptr(syscall.EPIPE))
	}
	a.regs[s.out] = r
}

//go:norace
//go:nosplit
func repeat(a *arena, s *step) {
	vary := &s.args[s.vary]
	for *vary = 0; *vary < s.want; *vary++ {
		_, _, e := syscall.RawSyscall6(s.nr, s.args[0], s.args[1], s.args[2], s.args[3], s.args[4], s.args[5])
		if e != 0 && e != syscall.EINVAL {
			fail(a, s, uintptr(e))
		}
	}
}

// takeDescriptors moves the kept descriptors to their known numbers and closes
// all others: whatever the engine had open stays outside.
//
//go:norace
//go:nosplit
func takeDescriptors(a *arena) {
	// All signals stay blocked in every process of the program until a block
	// says UnblockSignals, which the command's does before its exec: an init
	// must not die of one, and reads SIGCHLD from a descriptor.
	a.init.set = ^uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&a.init.set)), 0, 8, 0, 0)
	_, _, e := syscall.RawSyscall(syscall.SYS_DUP3, a.errFrom, a.errFD, syscall.O_CLOEXEC)
	if e != 0 {
		a.errFD = a.errFrom
		report(a, a.own+ownMove, uintptr(e))
	}
	for i := 0; i < len(a.kept); i++ {
		if _, _, e = syscall.RawSyscall(syscall.SYS_DUP3, a.kept[i], a.base+uintptr(i), syscall.O_CLOEXEC); e != 0 {
			report(a, a.own+ownMove, uintptr(e))
		}
	}
	_, _, e = syscall.RawSyscall(sysCloseRange, 0, a.base-1, 0)
	if e == 0 {
		_, _, e = syscall.RawSyscall(sysCloseRange, a.errFD+1, ^uintptr(0)>>32, 0)
	}
	if e != 0 {
		report(a, a.own+ownClose, uintptr(e))
	}
}

//go:norace
//go:nosplit
func arg(a *arena, s *step, i int) uintptr {
	if s.regs[i] != 0 {
		return a.regs[s.regs[i]]
	}
	return s.args[i]
}

//go:norace
//go:nosplit
func fail(a *arena, s *step, errno uintptr) { report(a, s.name, errno) }

// report says which step failed, and ends the process.
//
//go:norace
//go:nosplit
func report(a *arena, name uint16, errno uintptr) {
	a.rec[0], a.rec[1] = uint32(name), uint32(errno)
	syscall.RawSyscall(syscall.SYS_WRITE, a.errFD, uintptr(unsafe.Pointer(&a.rec)), 8)
	exit(exitStepFailed)
}

//go:norace
//go:nosplit
func exit(code uintptr) {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

//go:norace
//go:nosplit
func waitAll() {
	for {
		_, _, e := syscall.RawSyscall6(syscall.SYS_WAIT4, ^uintptr(0), 0, syscall.WALL, 0, 0, 0)
		switch e {
		case 0, syscall.EINTR:
		case syscall.ECHILD:
			exit(0)
		default:
			// Refused: to wait on would be for ever. The end of PID 1 ends
			// what it could not wait for.
			exit(exitStepFailed)
		}
	}
}

// initMem is the memory of initLoop.
type initMem struct {
	fds [2]struct {
		fd              int32
		events, revents int16
	}
	set    uint64
	status uint32
	rec    [2]uint32
	info   [128]byte // struct signalfd_siginfo
}

const pollIn = 1

// initLoop is PID 1 of the inner namespace. Its signals are all blocked; SIGCHLD
// comes through a signalfd so that one poll waits for everything.
//
//go:noinline
//go:norace
//go:nosplit
func initLoop(m *initMem, control, status, child uintptr) {
	m.set = 1 << (uint(syscall.SIGCHLD) - 1)
	sfd, _, e := syscall.RawSyscall6(sysSignalfd4, ^uintptr(0), uintptr(unsafe.Pointer(&m.set)), 8, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0, 0)
	if e != 0 {
		exit(exitStepFailed)
	}
	m.fds[0].fd, m.fds[0].events = int32(sfd), pollIn
	m.fds[1].fd, m.fds[1].events = int32(control), pollIn
	for {
		m.fds[0].revents, m.fds[1].revents = 0, 0
		_, _, e = syscall.RawSyscall6(sysPpoll, uintptr(unsafe.Pointer(&m.fds)), 2, 0, 0, 0, 0)
		if e != 0 && e != syscall.EINTR {
			exit(exitStepFailed)
		}
		if m.fds[1].revents != 0 {
			n, _, e := syscall.RawSyscall(syscall.SYS_READ, control, uintptr(unsafe.Pointer(&m.info)), 1)
			if e == 0 && n == 1 {
				syscall.RawSyscall(syscall.SYS_KILL, -child, uintptr(m.info[0]), 0)
			} else if e != syscall.EINTR && e != syscall.EAGAIN {
				// The engine is gone. The end of PID 1 is the end of all.
				exit(128 + uintptr(syscall.SIGKILL))
			}
		}
		for {
			n, _, e := syscall.RawSyscall(syscall.SYS_READ, sfd, uintptr(unsafe.Pointer(&m.info)), 128)
			if e != 0 || n == 0 {
				break
			}
		}
		reap(m, status, child)
	}
}

//go:norace
//go:nosplit
func reap(m *initMem, status, child uintptr) {
	for {
		pid, _, e := syscall.RawSyscall6(syscall.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&m.status)), syscall.WNOHANG|syscall.WUNTRACED|syscall.WALL, 0, 0, 0)
		if e != 0 && e != syscall.ECHILD {
			// Refused: the command's end would never be seen.
			exit(exitStepFailed)
		}
		if e != 0 || pid == 0 {
			return
		}
		if pid != child {
			continue
		}
		stopped := m.status&0xff == 0x7f
		m.rec[0], m.rec[1] = statusExited, m.status
		if stopped {
			m.rec[0] = statusStopped
		}
		syscall.RawSyscall(syscall.SYS_WRITE, status, uintptr(unsafe.Pointer(&m.rec)), 8)
		if !stopped {
			syscall.RawSyscall(syscall.SYS_KILL, ^uintptr(0), uintptr(syscall.SIGKILL), 0)
			waitAll()
		}
	}
}
