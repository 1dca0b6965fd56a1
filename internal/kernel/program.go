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
// A Program is built by one goroutine, started once with Start, and then
// thrown away. Blocks are the parts run by one process each: the first block
// belongs to the child of Start, Fork gives a block to a child of the child.
//
// It promises nothing about what the calls mean; package sandbox/native does.
type Program struct {
	names []string
	keep  []any
	regs  []uintptr
	main  *Block
	err   error
}

// Block is a list of steps run by one process.
type Block struct {
	p     *Program
	steps []step
}

// Reg holds the result of an earlier step. The zero Reg is none.
type Reg int

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
	stepCall     stepKind = iota // one system call
	stepFork                     // clone; the child runs child
	stepStore32                  // *(*uint32)(args[0]) = args[1]
	stepZero                     // zero args[1] bytes at args[0]
	stepInit                     // the loop of the inner init; never returns
	stepWaitAll                  // wait until no child is left, then exit
	stepFailSoft                 // fail with the remembered soft error
	stepRepeat                   // a call for each value of its second argument below want
	stepErrno                    // fail if the int32 at args[0] is not 0
)

type step struct {
	kind   stepKind
	soft   bool    // a tolerated error is remembered for stepFailSoft
	expect bool    // the result must equal want
	want   uintptr //
	name   uint32  // index into names
	nr     uintptr
	args   [6]Arg
	out    Reg
	ok     [3]uintptr // tolerated errnos
	child  *Block
}

// NewProgram makes an empty program and its first block.
func NewProgram() (*Program, *Block) {
	p := &Program{regs: make([]uintptr, 1, 128), names: make([]string, 0, 512), keep: make([]any, 0, 512)}
	p.main = p.NewBlock()
	return p, p.main
}

// NewBlock makes a block for a Fork.
func (p *Program) NewBlock() *Block { return &Block{p: p, steps: make([]step, 0, 128)} }

// NewReg makes a register that later steps may set with Into.
func (p *Program) NewReg() Reg {
	p.regs = append(p.regs, 0)
	return Reg(len(p.regs) - 1)
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
	}
	b := make([]byte, len(s)+1)
	copy(b, s)
	return p.Bytes(b)
}

// Bytes is the address of b, which must not be empty.
func (p *Program) Bytes(b []byte) Arg {
	if len(b) == 0 {
		p.Fail(errors.New("system call program: empty buffer"))
		b = make([]byte, 1)
	}
	p.keep = append(p.keep, b)
	return Arg{val: addressOf(b)}
}

func (b *Block) add(name string, s step) *step {
	s.name = uint32(len(b.p.names))
	b.p.names = append(b.p.names, name)
	b.steps = append(b.steps, s)
	return &b.steps[len(b.steps)-1]
}

// Call is one system call. Any error ends the program with the step's name,
// unless an option tolerates it.
func (b *Block) Call(name string, nr uintptr, args ...Arg) *Step {
	s := step{kind: stepCall, nr: nr}
	if len(args) > len(s.args) {
		b.p.Fail(fmt.Errorf("%s: too many arguments", name))
		args = args[:len(s.args)]
	}
	copy(s.args[:], args)
	b.add(name, s)
	return &Step{b, len(b.steps) - 1}
}

// Repeat is one system call for each number from 0 to n-1 as its second argument.
func (b *Block) Repeat(name string, n int, nr uintptr, first Arg) {
	b.add(name, step{kind: stepRepeat, nr: nr, want: uintptr(n), args: [6]Arg{first}})
}

// Fork clones the process; the child goes on with block child. The result is
// the child's process id as seen by the parent.
func (b *Block) Fork(name string, flags uintptr, child *Block) Reg {
	r := b.p.NewReg()
	b.add(name, step{kind: stepFork, args: [6]Arg{{val: flags}}, child: child, out: r})
	return r
}

// Store32 writes the low 32 bits of v to the 4 bytes at dst (from Bytes),
// off bytes further on.
func (b *Block) Store32(dst Arg, off int, v Arg) {
	b.add("store", step{kind: stepStore32, args: [6]Arg{{val: dst.val + uintptr(off)}, v}})
}

// Zero overwrites the n bytes at address addr of this process.
func (b *Block) Zero(addr, n uintptr) {
	b.add("zero", step{kind: stepZero, args: [6]Arg{{val: addr}, {val: n}}})
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
	b.add("init", step{kind: stepInit, args: [6]Arg{fds.Control, fds.Status, fds.Child.Arg()}})
}

// WaitAll waits until the process has no child left and exits 0.
func (b *Block) WaitAll() { b.add("wait", step{kind: stepWaitAll}) }

// FailSoft ends the program with the worst soft error seen: EACCES before
// anything else, else ENOENT.
func (b *Block) FailSoft(name string) { b.add(name, step{kind: stepFailSoft}) }

// CheckErrno ends the program if the four bytes at mem (from Bytes), off bytes
// further on, hold a negative errno.
func (b *Block) CheckErrno(name string, mem Arg, off int) {
	b.add(name, step{kind: stepErrno, args: [6]Arg{{val: mem.val + uintptr(off)}}})
}

// Step refines the call it belongs to.
type Step struct {
	b *Block
	i int
}

// Tolerate lets the program go on when the call fails with one of these (three
// at most).
func (s *Step) Tolerate(errnos ...uintptr) *Step {
	st := &s.b.steps[s.i]
	if len(errnos) > len(st.ok) {
		s.b.p.Fail(errors.New("system call program: too many tolerated errors"))
		return s
	}
	copy(st.ok[:], errnos)
	return s
}

// Soft remembers a tolerated error for FailSoft.
func (s *Step) Soft() *Step { s.b.steps[s.i].soft = true; return s }

// Expect makes any other result than v an error (EPIPE).
func (s *Step) Expect(v uintptr) *Step {
	st := &s.b.steps[s.i]
	st.expect, st.want = true, v
	return s
}

// Result keeps the result in a new register.
func (s *Step) Result() Reg {
	r := s.b.p.NewReg()
	s.b.steps[s.i].out = r
	return r
}

// Into keeps the result in r, so that a long list can use few registers.
func (s *Step) Into(r Reg) *Step { s.b.steps[s.i].out = r; return s }

// StepError is a step that failed in the child.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// Words is the address of an array of 64-bit words, for structures made of
// numbers and addresses.
func (p *Program) Words(words ...Arg) Arg {
	b := make([]byte, 8*len(words))
	for i, w := range words {
		if w.reg != 0 {
			p.Fail(errors.New("system call program: a register is not known beforehand"))
		}
		binary.NativeEndian.PutUint64(b[8*i:], uint64(w.val))
	}
	return p.Bytes(b)
}
