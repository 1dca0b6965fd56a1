//go:build linux

package seccomp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// kept holds what the kernel was given the address of.
var kept [][]byte

func cstring(s string) uintptr {
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

func atCWD() uintptr { cwd := int32(unix.AT_FDCWD); return uintptr(cwd) }

// run executes machine code that takes nothing and clobbers nothing but the
// accumulator.
func run(code []byte) {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	copy(page, code)
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		panic(err)
	}
	entry := unsafe.Pointer(&page[0])
	closure := &entry
	(*(*func())(unsafe.Pointer(&closure)))()
}
