//go:build linux

package seccomp

var native = aarch64
