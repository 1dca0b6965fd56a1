//go:build linux

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// regionBytes caps a program with all its buffers. Only what is touched
	// costs memory.
	regionBytes = 64 << 20
	stackBytes  = 64 << 10
)

// region is the memory of a child, apart from everything else of this process.
//
// All other writable memory is marked MADV_DONTFORK before a fork, so that the
// child has only this, the program's text and its constants. That keeps the
// engine's secrets, arguments and environment out of the processes that a
// sandbox is made of, and makes the fork cheap: nothing else is copied or
// write-protected.
type region struct {
	mem   []byte
	used  int
	ready int // memory below this is there
}

// readyBytes is how much memory is asked for at once. One call for a few dozen
// pages costs less than a fault for each, many times less in a virtual machine.
const readyBytes = 128 << 10

func newRegion() (*region, error) {
	mem, err := unix.Mmap(-1, 0, regionBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map memory for a child: %w", err)
	}
	// The child's stack grows down from stackBytes.
	return &region{mem: mem, used: stackBytes}, nil
}

func (r *region) free() { _ = unix.Munmap(r.mem) }

// alloc returns n zero bytes, aligned to 16.
func (r *region) alloc(n int) ([]byte, uintptr, error) {
	if n < 0 || n > len(r.mem)-r.used-16 {
		return nil, 0, errors.New("the sandbox's files and commands take more than 64 MiB")
	}
	if end := r.used + n; end > r.ready && r.ready < len(r.mem) {
		from := r.ready
		r.ready = min(len(r.mem), (end+readyBytes-1)/readyBytes*readyBytes)
		// Without it (before Linux 5.14) the pages come one by one.
		_ = unix.Madvise(r.mem[from:r.ready], unix.MADV_POPULATE_WRITE)
	}
	b := r.mem[r.used : r.used+n : r.used+n]
	addr := r.base() + uintptr(r.used)
	r.used += (n + 15) &^ 15
	return b, addr, nil
}

func (r *region) base() uintptr { return AddressOf(r.mem) }

// stack is the top of the child's stack.
func (r *region) stack() uintptr { return r.base() + stackBytes }

// keepFromChild marks all other writable memory of this process. It is asked
// before each fork, as the heap grows in between; what is marked stays so.
func (r *region) keepFromChild() error {
	if !keepMemoryFromChild {
		return nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("list own memory: %w", err)
	}
	own := r.base()
	for line := range bytes.Lines(maps) {
		start, end, writable, err := parseMapping(line)
		if err != nil {
			return err
		}
		if !writable || start <= own && own < end {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTFORK); errno != 0 && errno != unix.EINVAL && errno != unix.ENOMEM {
			return fmt.Errorf("keep memory from a child: %w", errno)
		}
	}
	return nil
}

// parseMapping reads one line of /proc/PID/maps (proc_pid_maps(5)).
func parseMapping(line []byte) (start, end uintptr, writable bool, err error) {
	bad := fmt.Errorf("list own memory: unexpected line %.80q", line)
	addrs, rest, ok := bytes.Cut(line, []byte(" "))
	lo, hi, ok2 := bytes.Cut(addrs, []byte("-"))
	if !ok || !ok2 || len(rest) < 4 {
		return 0, 0, false, bad
	}
	s, err1 := strconv.ParseUint(string(lo), 16, 64)
	e, err2 := strconv.ParseUint(string(hi), 16, 64)
	if err1 != nil || err2 != nil || e <= s {
		return 0, 0, false, bad
	}
	return uintptr(s), uintptr(e), rest[1] == 'w', nil
}

// AddressOf is where b lies, for a raw system call. The caller keeps b alive.
func AddressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
