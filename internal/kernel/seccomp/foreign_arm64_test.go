//go:build linux

package seccomp

// A 64-bit ARM process can't make 32-bit calls: there is no such instruction,
// and executing a 32-bit program is an exec like any other, of which the filter
// then sees the foreign architecture.
var foreignABIs []string

func callI386() {}
