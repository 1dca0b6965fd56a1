//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A Program is a prepared list of system calls, run by a forked child that has
// no Go runtime: after the fork nothing is allocated, no Go function that can
// grow its stack is called, and no decision is made that was not written down
// before. Building a sandbox is therefore a list that can be read from top to
// bottom, and a failing step has a name.
//
// The child gets the program and nothing else of this process's memory: not its
// heap, not its stacks, not its arguments and environment (see region). What it
// becomes, such as the first process of a sandbox, has no secret of the engine
// to lose.
//
// A Program is built by one goroutine and started once with Start, or thrown
// away with Discard. Blocks are the parts run by one process each: the first
// block belongs to the child of Start, Fork gives a block to a child of the
// child.
//
// It promises nothing about what the calls mean; package sandbox/native does.
type Program struct {
	names  []string
	mem    *region
	regs   int
	main   *Block
	blocks []*Block
	err    error
}

// Block is a list of steps run by one process.
type Block struct {
	p     *Program
	steps []step
	// start is where the block's steps begin in the child's list.
	start int
}

// Reg holds the result of an earlier step. The zero Reg is none.
type Reg uint16

// Arg is one argument of a system call: a number or the result of a step.
type Arg struct {
	val uintptr
	reg Reg
}

// Int is an argument known beforehand.
func Int[T ~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64 | ~uintptr](v T) Arg {
	return Arg{val: uintptr(v)}
}

// Arg is the result of an earlier step as an argument.
func (r Reg) Arg() Arg { return Arg{reg: r} }

type stepKind uint8

const (
	stepEnd      stepKind = iota // the end of a block, which is never reached
	stepCall                     // one system call
	stepFork                     // clone; the child goes on at step want
	stepStore32                  // *(*uint32)(args[0]) = args[1]
	stepInit                     // the loop of the inner init; never returns
	stepWaitAll                  // wait until no child is left, then exit
	stepFailSoft                 // fail with the remembered soft error
	stepErrno                    // fail if the int32 at args[0] is not 0
	stepRepeat                   // a call for each value of one argument below want
)

// maxRegs is how many results a program can keep.
const maxRegs = 8192

type step struct {
	args   [6]uintptr
	want   uintptr
	nr     uintptr
	regs   [6]Reg    // a register instead of the number in args
	ok     [3]uint16 // tolerated errnos
	name   uint16    // index into names
	out    Reg
	kind   stepKind
	vary   uint8 // the argument that stepRepeat counts up
	soft   bool  // a tolerated error is remembered for stepFailSoft
	expect bool  // the result must equal want
}

// NewProgram makes an empty program and its first block.
func NewProgram() (*Program, *Block) {
	p := &Program{names: make([]string, 0, 512), regs: 1}
	p.mem, p.err = newRegion()
	p.main = p.NewBlock()
	return p, p.main
}

// Discard frees a program that was not started.
func (p *Program) Discard() {
	if p.mem != nil {
		p.mem.free()
		p.mem = nil
	}
}

// NewBlock makes a block for a Fork.
func (p *Program) NewBlock() *Block {
	b := &Block{p: p, steps: make([]step, 0, 128)}
	p.blocks = append(p.blocks, b)
	return b
}

// NewReg makes a register that later steps may set with Into.
func (p *Program) NewReg() Reg {
	if p.regs >= maxRegs {
		p.Fail(fmt.Errorf("the sandbox takes more than %d descriptors: show fewer files and directories", maxRegs))
		return 0
	}
	p.regs++
	return Reg(p.regs - 1)
}

// Fail makes Start return err; the first one wins. Builders call it for input
// that has no form as a system call.
func (p *Program) Fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Str is the address of s as a C string. A NUL in s fails the program.
func (p *Program) Str(s string) Arg {
	if strings.IndexByte(s, 0) >= 0 {
		p.Fail(fmt.Errorf("path %q: contains NUL", s))
		return Arg{}
	}
	b, addr := p.alloc(len(s) + 1)
	copy(b, s)
	return Arg{val: addr}
}

// Bytes is the address of a copy of b, which must not be empty.
func (p *Program) Bytes(data []byte) Arg {
	if len(data) == 0 {
		p.Fail(errors.New("system call program: empty buffer"))
	}
	b, addr := p.alloc(len(data))
	copy(b, data)
	return Arg{val: addr}
}

// Buffer is the address of n zero bytes.
func (p *Program) Buffer(n int) Arg {
	_, addr := p.alloc(n)
	return Arg{val: addr}
}

func (p *Program) alloc(n int) ([]byte, uintptr) {
	if p.err == nil {
		b, addr, err := p.mem.alloc(n)
		if err == nil {
			return b, addr
		}
		p.Fail(err)
	}
	return make([]byte, n), 0
}

// Words is the address of an array of 64-bit words, for structures made of
// numbers and addresses.
func (p *Program) Words(words ...Arg) Arg {
	b, addr := p.alloc(8 * len(words))
	for i, w := range words {
		if w.reg != 0 {
			p.Fail(errors.New("system call program: a register is not known beforehand"))
		}
		binary.NativeEndian.PutUint64(b[8*i:], uint64(w.val))
	}
	return Arg{val: addr}
}

// Vector is the address of a NULL-terminated array of C strings.
func (p *Program) Vector(list []string) Arg {
	words := make([]Arg, len(list)+1)
	for i, s := range list {
		words[i] = p.Str(s)
	}
	return p.Words(words...)
}

func (b *Block) add(name string, s step, args ...Arg) {
	s.name = uint16(len(b.p.names))
	if len(b.p.names) >= 1<<16-len(ownSteps) || len(args) > len(s.args) {
		b.p.Fail(fmt.Errorf("system call program: %s: too many steps or arguments", name))
		return
	}
	for i, a := range args {
		s.args[i], s.regs[i] = a.val, a.reg
	}
	b.p.names = append(b.p.names, name)
	b.steps = append(b.steps, s)
}

// Call is one system call. Any error ends the program with the step's name,
// unless an option tolerates it.
func (b *Block) Call(name string, nr uintptr, args ...Arg) *Step {
	b.add(name, step{kind: stepCall, nr: nr}, args...)
	return &Step{b, len(b.steps) - 1}
}

// Repeat is one system call for each number from 0 to n-1 as the argument with
// index vary; EINVAL is tolerated.
func (b *Block) Repeat(name string, vary, n int, nr uintptr, args ...Arg) {
	b.add(name, step{kind: stepRepeat, nr: nr, want: uintptr(n), vary: uint8(vary)}, args...)
}

// Fork clones the process; the child goes on with block child. The result is
// the child's process id as seen by the parent.
func (b *Block) Fork(name string, flags uintptr, child *Block) Reg {
	r := b.p.NewReg()
	for i, x := range b.p.blocks {
		if x == child {
			// The block's place is known when all are complete.
			b.add(name, step{kind: stepFork, want: uintptr(i), out: r}, Int(flags))
		}
	}
	return r
}

// Store32 writes the low 32 bits of v to the 4 bytes at dst (from Bytes or
// Buffer), off bytes further on.
func (b *Block) Store32(dst Arg, off int, v Arg) {
	b.add("store", step{kind: stepStore32}, Arg{val: dst.val + uintptr(off)}, v)
}

// InitFDs are what the inner init works with.
type InitFDs struct {
	// Control delivers signal numbers, one byte each; its end means that the
	// engine is gone.
	Control Arg
	// Status receives StatusRecords.
	Status Arg
	// Child is the command's process id.
	Child Reg
}

// Init is the loop of a PID 1: it reaps, forwards signals from fds.Control to
// the process group of the command, reports stops and the end of the command on
// fds.Status, and then ends every other process of its namespace. It never
// returns.
func (b *Block) Init(fds InitFDs) {
	b.add("init", step{kind: stepInit}, fds.Control, fds.Status, fds.Child.Arg())
}

// WaitAll waits until the process has no child left and exits 0.
func (b *Block) WaitAll() { b.add("wait", step{kind: stepWaitAll}) }

// FailSoft ends the program with the worst soft error seen: EACCES before
// anything else, else ENOENT.
func (b *Block) FailSoft(name string) { b.add(name, step{kind: stepFailSoft}) }

// CheckErrno ends the program if the four bytes at mem (from Buffer), off bytes
// further on, hold a negative errno.
func (b *Block) CheckErrno(name string, mem Arg, off int) {
	b.add(name, step{kind: stepErrno}, Arg{val: mem.val + uintptr(off)})
}

// Exec replaces the process. Use it with Tolerate and Soft for each candidate of
// a search path, and FailSoft at the end.
func (b *Block) Exec(name string, path, argv, env Arg) *Step {
	return b.Call(name, sysExecve, path, argv, env)
}

// UnblockSignals lets the process take signals again, with their default
// actions, for the moment before an exec.
func (b *Block) UnblockSignals() {
	// Blocked until here, so no handler of the engine's can have run; one
	// that did would find none of its memory.
	b.Repeat("reset signal", 0, 65, sysSigaction, Int(0), b.p.Buffer(32), Int(0), Int(8))
	b.Call("unblock signals", sysSigprocmask, Int(sigSetmask), b.p.Buffer(8), Int(0), Int(8))
}

// Step refines the call it belongs to.
type Step struct {
	b *Block
	i int
}

// step is the call, or a spare one if adding it failed.
func (s *Step) step() *step {
	if s.i < 0 || s.i >= len(s.b.steps) {
		return new(step)
	}
	return &s.b.steps[s.i]
}

// Tolerate lets the program go on when the call fails with one of these (three
// at most).
func (s *Step) Tolerate(errnos ...uintptr) *Step {
	st := s.step()
	if len(errnos) > len(st.ok) {
		s.b.p.Fail(errors.New("system call program: too many tolerated errors"))
		return s
	}
	for i, e := range errnos {
		st.ok[i] = uint16(e)
	}
	return s
}

// Soft remembers a tolerated error for FailSoft.
func (s *Step) Soft() *Step { s.step().soft = true; return s }

// Expect makes any other result than v an error (EPIPE).
func (s *Step) Expect(v uintptr) *Step {
	st := s.step()
	st.expect, st.want = true, v
	return s
}

// Result keeps the result in a new register.
func (s *Step) Result() Reg {
	r := s.b.p.NewReg()
	s.step().out = r
	return r
}

// Into keeps the result in r, so that a long list can use few registers.
func (s *Step) Into(r Reg) *Step { s.step().out = r; return s }

// StepError is a step that failed in the child.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }
