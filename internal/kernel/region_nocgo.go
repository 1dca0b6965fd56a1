//go:build linux && !cgo

package kernel

const keepMemoryFromChild = true
