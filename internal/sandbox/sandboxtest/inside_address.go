//go:build linux

package sandboxtest

import (
	"encoding/binary"

	"confine/internal/kernel"
)

// strPtr is the address of s as a C string, kept alive for the life of the
// probe, which is one process.
func strPtr(s string) uintptr { return bytesPtr(append([]byte(s), 0)) }

var kept [][]byte

func bytesPtr(b []byte) uintptr {
	kept = append(kept, b)
	return kernel.AddressOf(b)
}

// putPtr puts a word into a struct of the kernel's.
func putPtr(b []byte, v uintptr) { binary.NativeEndian.PutUint64(b, uint64(v)) }
