//go:build linux

package seccomp

import (
	"fmt"
	"sort"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; the architectures are little-endian.
const (
	offsetNumber  = 0
	offsetArch    = 4
	offsetArgsLow = 16
)

// noCall is the number with which a debugger lets its child skip a call. It has
// the bits of every foreign ABI and is none: it is absent like any other number
// without a call.
const noCall = 0xffffffff

// Compile turns a policy into the filter of this program's architecture.
func Compile(p Policy) ([]unix.SockFilter, error) { return compile(p, native) }

// arch is one architecture's ABI.
type arch struct {
	audit uint32
	calls []number
	// foreign are bits that mark another ABI's numbers (x32).
	foreign uint32
}

var (
	x86_64  = arch{audit: unix.AUDIT_ARCH_X86_64, calls: callsX86_64, foreign: 0x40000000}
	aarch64 = arch{audit: unix.AUDIT_ARCH_AARCH64, calls: callsAarch64}
)

func (a arch) number(name string) (uint32, bool) {
	i := sort.Search(len(a.calls), func(i int) bool { return a.calls[i].name >= name })
	if i < len(a.calls) && a.calls[i].name == name {
		return a.calls[i].nr, true
	}
	return 0, false
}

// compile writes, in this order: the ABI check; the calls with argument rules
// (their filters run every time, so they come first); a search tree over ranges of
// numbers with one answer, which keeps the rest short.
func compile(p Policy, a arch) ([]unix.SockFilter, error) {
	var code []unix.SockFilter
	code = append(code,
		load(offsetArch),
		jump(unix.BPF_JEQ, a.audit, 1, 0),
		ret(Kill),
		load(offsetNumber))
	if a.foreign != 0 {
		code = append(code, jump(unix.BPF_JSET, a.foreign, 0, 2), jump(unix.BPF_JEQ, noCall, 1, 0), ret(Kill))
	}
	names := make([]string, 0, len(p.Rules))
	for name := range p.Rules {
		names = append(names, name)
	}
	sort.Strings(names)
	ruled := map[uint32]bool{}
	for _, name := range names {
		nr, ok := a.number(name)
		if !ok {
			continue // the architecture never had it
		}
		block, err := compileRule(p.Rules[name])
		if err != nil {
			return nil, fmt.Errorf("compile rule of %s: %w", name, err)
		}
		ruled[nr] = true
		if len(block) > 255 {
			return nil, fmt.Errorf("compile rule of %s: %d instructions", name, len(block))
		}
		code = append(code, jump(unix.BPF_JEQ, nr, 0, uint8(len(block))))
		code = append(code, block...)
	}
	answers := map[uint32]Action{}
	for _, list := range []struct {
		names []string
		then  Action
	}{{p.Allowed, Allow}, {p.Refused, Refuse}} {
		for _, name := range list.names {
			nr, ok := a.number(name)
			if !ok {
				continue
			}
			if _, dup := answers[nr]; dup || ruled[nr] {
				return nil, fmt.Errorf("compile policy: %s has two answers", name)
			}
			answers[nr] = list.then
		}
	}
	code = append(code, tree(segments(answers, ruled))...)
	if len(code) > 4096 { // BPF_MAXINSNS
		return nil, fmt.Errorf("compile policy: %d instructions", len(code))
	}
	return code, nil
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, Jt: yes, Jf: no, K: k}
}

func ret(a Action) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(a)}
}

func compileRule(r Rule) ([]unix.SockFilter, error) {
	var code []unix.SockFilter
	for _, c := range r.Clauses {
		var clause []unix.SockFilter
		// From the last test backwards, so that the distance to the clause's
		// end is known.
		clause = append(clause, ret(c.Then))
		for i := len(c.When) - 1; i >= 0; i-- {
			t := c.When[i]
			if t.Arg < 0 || t.Arg > 5 {
				return nil, fmt.Errorf("argument %d", t.Arg)
			}
			test := []unix.SockFilter{load(uint32(offsetArgsLow + 8*t.Arg))}
			out := uint8(len(clause))
			if t.Any {
				test = append(test, jump(unix.BPF_JSET, t.Mask, 0, out))
			} else {
				if t.Mask != 0 {
					test = append(test, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: t.Mask})
				}
				test = append(test, jump(unix.BPF_JEQ, t.Value, 0, out))
			}
			clause = append(test, clause...)
		}
		code = append(code, clause...)
	}
	return append(code, ret(r.Else)), nil
}

// segment is a range of numbers, from from to the next segment, with one answer.
type segment struct {
	from uint32
	then Action
}

// segments cuts the numbers into as few ranges as possible; numbers with rules
// were answered before and fit anywhere.
func segments(answers map[uint32]Action, ruled map[uint32]bool) []segment {
	top := uint32(0)
	for nr := range answers {
		top = max(top, nr)
	}
	out := []segment{}
	for nr := uint32(0); nr <= top+1; nr++ {
		then, ok := answers[nr]
		if !ok {
			if ruled[nr] && len(out) > 0 {
				continue
			}
			then = Absent
		}
		if len(out) == 0 || out[len(out)-1].then != then {
			out = append(out, segment{nr, then})
		}
	}
	return out
}

// tree answers the number in the accumulator.
func tree(s []segment) []unix.SockFilter {
	if len(s) == 1 {
		return []unix.SockFilter{ret(s[0].then)}
	}
	mid := len(s) / 2
	left, right := tree(s[:mid]), tree(s[mid:])
	var code []unix.SockFilter
	if len(left) <= 255 {
		code = append(code, jump(unix.BPF_JGE, s[mid].from, uint8(len(left)), 0))
	} else {
		// A conditional jump reaches 255 instructions; the plain one any.
		code = append(code, jump(unix.BPF_JGE, s[mid].from, 0, 1),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(left))})
	}
	return append(append(code, left...), right...)
}
