//go:build linux

package seccomp

var native = x86_64
