//go:build linux && cgo

package kernel

// A C library registers its threads for restartable sequences (rseq(2)); the
// kernel ends a child whose registered area it can't write to. Test builds with
// the race detector have one, so their children get all memory. The program that
// is shipped has none.
const keepMemoryFromChild = false
