//go:build linux

package seccomp

import (
	"encoding/binary"
	"sort"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// plain is the policy read word by word: what the compiled form must answer.
func plain(p Policy, a arch, audit, nr uint32, args [6]uint64) Action {
	if audit != a.audit || nr&a.foreign != 0 && nr != 0xffffffff {
		return Kill
	}
	name := ""
	for _, c := range a.calls {
		if c.nr == nr {
			name = c.name
		}
	}
	if r, ok := p.Rules[name]; ok {
		for _, c := range r.Clauses {
			holds := true
			for _, t := range c.When {
				v := uint32(args[t.Arg])
				if t.Any {
					holds = holds && v&t.Mask != 0
				} else {
					if t.Mask != 0 {
						v &= t.Mask
					}
					holds = holds && v == t.Value
				}
			}
			if holds {
				return c.Then
			}
		}
		return r.Else
	}
	for _, n := range p.Allowed {
		if n == name {
			return Allow
		}
	}
	for _, n := range p.Refused {
		if n == name {
			return Refuse
		}
	}
	return Absent
}

type machine struct{ vm *bpf.VM }

func newMachine(t testing.TB, a arch) machine {
	code, err := compile(Default(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instructions", len(code))
	ins := make([]bpf.Instruction, len(code))
	for i, c := range code {
		ins[i] = bpf.RawInstruction{Op: c.Code, Jt: c.Jt, Jf: c.Jf, K: c.K}.Disassemble()
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	return machine{vm}
}

// run evaluates the filter. The VM reads big-endian words, the kernel's are the
// machine's.
func (m machine) run(t testing.TB, audit, nr uint32, args [6]uint64) Action {
	b := make([]byte, 64)
	binary.BigEndian.PutUint32(b, nr)
	binary.BigEndian.PutUint32(b[4:], audit)
	for i, v := range args {
		binary.BigEndian.PutUint32(b[16+8*i:], uint32(v))
		binary.BigEndian.PutUint32(b[20+8*i:], uint32(v>>32))
	}
	v, err := m.vm.Run(b)
	if err != nil {
		t.Fatal(err)
	}
	return Action(uint32(v))
}

func TestCompiledAnswersAsPlain(t *testing.T) {
	values := []uint64{0, 1, 2, 3, 5, 6, 10, 16, 17, 31, 38, 262, 0o755, 0o4755, 0o2755, 0o20666, 0o60666, 0o10600, unix.O_CREAT, unix.TIOCSTI, 1<<32 | unix.TIOCSTI, unix.CLONE_NEWUSER, 1 << 32, 1<<32 | 1, 0xffffffff, 0x40000}
	for _, a := range []arch{x86_64, aarch64} {
		m := newMachine(t, a)
		for nr := range uint32(600) {
			for i, v := range values {
				args := [6]uint64{v, values[(i+1)%len(values)], values[(i+5)%len(values)], v, v, v}
				if got, want := m.run(t, a.audit, nr, args), plain(Default(), a, a.audit, nr, args); got != want {
					t.Fatalf("arch %#x call %d args %#x: %#x, want %#x", a.audit, nr, args, got, want)
				}
			}
		}
		for _, other := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
			if got := m.run(t, other, 0, [6]uint64{}); got != Kill {
				t.Errorf("foreign architecture %#x: %#x", other, got)
			}
		}
	}
	for nr, want := range map[uint32]Action{0x40000000: Kill, 0x4000003b: Kill, 0xfffffffe: Kill, 0xffffffff: Absent, 0x80000000: Absent} {
		if got := newMachine(t, x86_64).run(t, unix.AUDIT_ARCH_X86_64, nr, [6]uint64{}); got != want {
			t.Errorf("call %#x: %#x, want %#x", nr, got, want)
		}
	}
}

func FuzzCompiledAnswersAsPlain(f *testing.F) {
	f.Add(uint32(41), uint64(2), uint64(3), uint64(1))
	f.Add(uint32(56), uint64(unix.CLONE_NEWUSER), uint64(0), uint64(0))
	f.Add(uint32(257), uint64(0), uint64(0), uint64(0o4755))
	f.Fuzz(func(t *testing.T, nr uint32, a0, a1, a2 uint64) {
		args := [6]uint64{a0, a1, a2, a2, 0, 0}
		if got, want := newMachine(t, x86_64).run(t, x86_64.audit, nr, args), plain(Default(), x86_64, x86_64.audit, nr, args); got != want {
			t.Fatalf("call %d args %#x: %#x, want %#x", nr, args, got, want)
		}
	})
}

// absent are the calls of the tables that deliberately don't exist inside.
var absent = map[string]bool{
	"_sysctl": true, "afs_syscall": true, "clone3": true, "epoll_ctl_old": true, "epoll_wait_old": true, "file_getattr": true,
	"get_kernel_syms": true, "getpmsg": true, "listmount": true, "listns": true, "lookup_dcookie": true, "lsm_get_self_attr": true, "lsm_list_modules": true,
	"nfsservctl": true, "openat2": true, "putpmsg": true, "query_module": true, "security": true, "statmount": true,
	"sysfs": true, "tuxcall": true, "uselib": true, "vserver": true, "arch_specific_syscall": true,
}

// TestEveryCallHasOneAnswer makes a new call in the tables a decision.
func TestEveryCallHasOneAnswer(t *testing.T) {
	p := Default()
	for _, a := range []arch{x86_64, aarch64} {
		if !sort.SliceIsSorted(a.calls, func(i, j int) bool { return a.calls[i].name < a.calls[j].name }) {
			t.Error("table is not sorted by name")
		}
		for _, c := range a.calls {
			n := 0
			for _, list := range [][]string{p.Allowed, p.Refused} {
				for _, name := range list {
					if name == c.name {
						n++
					}
				}
			}
			if _, ok := p.Rules[c.name]; ok {
				n++
			}
			if absent[c.name] {
				n++
			}
			if n != 1 {
				t.Errorf("%s has %d answers", c.name, n)
			}
		}
	}
}

func TestTableMatchesUnix(t *testing.T) {
	for name, want := range map[string]uint32{
		"read": unix.SYS_READ, "clone": unix.SYS_CLONE, "socket": unix.SYS_SOCKET, "unshare": unix.SYS_UNSHARE, "bpf": unix.SYS_BPF,
		"io_uring_setup": unix.SYS_IO_URING_SETUP, "clone3": unix.SYS_CLONE3, "openat2": unix.SYS_OPENAT2, "mount_setattr": unix.SYS_MOUNT_SETATTR,
		"landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF, "fchmodat2": unix.SYS_FCHMODAT2, "keyctl": unix.SYS_KEYCTL, "ptrace": unix.SYS_PTRACE,
		"mseal": unix.SYS_MSEAL, "statmount": unix.SYS_STATMOUNT, "ioctl": unix.SYS_IOCTL, "openat": unix.SYS_OPENAT, "setns": unix.SYS_SETNS,
	} {
		if got, ok := native.number(name); !ok || got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}
