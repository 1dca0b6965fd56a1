//go:build linux

package sandboxtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file makes calls by every entry that a processor has besides its own: a
// 64-bit program's int 0x80, a 32-bit program, the numbers of x32. A call ends
// the process, so each is made by a program of a few instructions, written here.

const (
	loadedAt = 0x400000
	x32Bit   = 0x40000000
)

// foreignCall is one call and what memory it may point to.
type foreignCall struct {
	nr     uint32
	args   [3]uint64
	memory [3]uint32
}

// entry is one way into the kernel.
type entry struct {
	name string
	// program is an executable that makes one call and then ends with status 0.
	program func(foreignCall) []byte
	// Numbers of the entry's own. indirect is socketcall, which reads its
	// arguments from memory where no filter can look.
	socket, socketpair, indirect uint32
}

var foreignEntries = []entry{
	{"int 0x80", program64(code32(code64Exit)), 359, 360, 102},
	{"32-bit program", program32, 359, 360, 102},
	{"x32", program64(codeX32), x32Bit | unix.SYS_SOCKET, x32Bit | unix.SYS_SOCKETPAIR, 0},
}

var (
	code64Exit = []byte{0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05} // xor edi,edi; mov eax,exit_group; syscall
	code32Exit = []byte{0x31, 0xdb, 0xb8, 1, 0, 0, 0, 0xcd, 0x80}   // xor ebx,ebx; mov eax,exit; int 0x80
)

// code32 is the same in both modes: mov eax,NR; mov ebx,A; mov ecx,B; mov edx,C;
// int 0x80.
func code32(exit []byte) func(foreignCall) []byte {
	return func(c foreignCall) []byte {
		code := binary.LittleEndian.AppendUint32([]byte{0xb8}, c.nr)
		for i, mov := range []byte{0xbb, 0xb9, 0xba} {
			code = binary.LittleEndian.AppendUint32(append(code, mov), uint32(c.args[i]))
		}
		return append(append(code, 0xcd, 0x80), exit...)
	}
}

// codeX32 is mov eax,NR; movabs rdi,A; movabs rsi,B; movabs rdx,C; syscall.
func codeX32(c foreignCall) []byte {
	code := binary.LittleEndian.AppendUint32([]byte{0xb8}, c.nr)
	for i, mov := range []byte{0xbf, 0xbe, 0xba} {
		code = binary.LittleEndian.AppendUint64(append(code, 0x48, mov), c.args[i])
	}
	return append(append(code, 0x0f, 0x05), code64Exit...)
}

// program64 is a 64-bit executable that is one segment.
func program64(code func(foreignCall) []byte) func(foreignCall) []byte {
	return func(c foreignCall) []byte {
		text := code(c)
		var b bytes.Buffer
		b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
		size := uint64(textAt + len(text))
		for _, v := range []any{
			uint16(2), uint16(62), uint32(1), uint64(loadedAt + textAt), uint64(64), uint64(0), uint32(0), // executable, x86-64
			uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
			uint32(1), uint32(7), uint64(0), uint64(loadedAt), uint64(loadedAt), size, size, uint64(0x1000), // one segment to load
		} {
			_ = binary.Write(&b, binary.LittleEndian, v)
		}
		return c.file(&b, text)
	}
}

func program32(c foreignCall) []byte {
	text := code32(code32Exit)(c)
	var b bytes.Buffer
	b.WriteString("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	size := uint32(textAt + len(text))
	for _, v := range []any{
		uint16(2), uint16(3), uint32(1), uint32(loadedAt + textAt), uint32(52), uint32(0), uint32(0), // executable, i386
		uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(0), uint32(loadedAt), uint32(loadedAt), size, size, uint32(7), uint32(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	return c.file(&b, text)
}

// Before the code, at argsAt, are the three words that socketcall reads.
const (
	argsAt = 128
	textAt = argsAt + 12
)

func (c foreignCall) file(header *bytes.Buffer, text []byte) []byte {
	out := append(header.Bytes(), make([]byte, argsAt-header.Len())...)
	for _, word := range c.memory {
		out = binary.LittleEndian.AppendUint32(out, word)
	}
	return append(out, text...)
}

// callBy runs one such program and says how it ended.
func callBy(file string, program []byte) string {
	if err := os.WriteFile(file, program, 0o700); err != nil {
		return result(err)
	}
	var ended *exec.ExitError
	switch err := exec.Command(file).Run(); {
	case err == nil:
		return "goes on"
	case errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS:
		return "killed"
	default:
		return result(err)
	}
}

// tryForeignSockets makes every family of socket by every foreign entry. Its
// arguments are the results that hold, one for each entry; without them it is the
// control and makes a few, to see which entries the kernel has.
func tryForeignSockets(want []string) (a Answer) {
	if runtime.GOARCH != "amd64" {
		a.saw("foreign socket", "none exists")
		a.neighbour(nil)
		return a
	}
	dir, err := os.MkdirTemp("", "foreign")
	if err != nil {
		a.neighbour(err)
		return a
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "call")
	if len(want) != len(foreignEntries) {
		for _, e := range foreignEntries {
			c := foreignCall{nr: e.socket, args: [3]uint64{unix.AF_UNIX, unix.SOCK_STREAM}}
			a.saw(e.name, callBy(file, e.program(c)))
		}
		a.neighbour(nil)
		return a
	}
	for i, e := range foreignEntries {
		m := a.matrix(e.name)
		for _, family := range families()[:48] {
			kinds := []uint64{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW}
			if family > unix.AF_INET {
				kinds = kinds[i : i+1] // each is a process: the entries take turns
			}
			for _, kind := range kinds {
				e.cells(uint64(family), kind, func(what string, c foreignCall) {
					m.cell(func() string { return fmt.Sprintf("%s by %s, family %d, type %d", what, e.name, family, kind) },
						callBy(file, e.program(c)), want[i])
				})
			}
		}
		m.done()
	}
	a.neighbour(exec.Command("/proc/self/exe", ProgramArgument, "list", ".").Run())
	return a
}

// cells are the forms in which an entry can ask for a socket.
func (e entry) cells(family, kind uint64, each func(string, foreignCall)) {
	memory := [3]uint32{uint32(family), uint32(kind)}
	each("socket", foreignCall{e.socket, [3]uint64{family, kind}, memory})
	if family < 3 {
		each("socketpair", foreignCall{e.socketpair, [3]uint64{family, kind}, memory})
	}
	if e.indirect == 0 {
		each("socket with high bits", foreignCall{e.socket, [3]uint64{family | highBits, kind | highBits, highBits}, memory})
		return
	}
	const sysSocket = 1
	each("socketcall", foreignCall{e.indirect, [3]uint64{sysSocket, loadedAt + argsAt}, memory})
}
