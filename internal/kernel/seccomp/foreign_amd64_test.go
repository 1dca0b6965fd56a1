//go:build linux

package seccomp

var foreignABIs = []string{"x32", "i386"}

// callI386 makes the 32-bit call getpid: mov $20, %eax; int $0x80; ret.
func callI386() { run([]byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3}) }
