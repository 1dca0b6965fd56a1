//go:build linux

package native

import (
	"context"
	"testing"

	"confine/internal/sandbox"
)

// BenchmarkStart is one sandbox from a resident process, start to end.
func BenchmarkStart(b *testing.B) {
	spec := sandbox.Spec{Boundary: base(), Args: []string{"/bin/true"}}
	for b.Loop() {
		r, err := Driver{}.Start(context.Background(), spec)
		if err != nil {
			b.Fatal(err)
		}
		if e := r.Wait(); !e.Success() {
			b.Fatalf("%+v", e)
		}
	}
}

// BenchmarkPlan is the part of a start before the fork.
func BenchmarkPlan(b *testing.B) {
	bd := base()
	mounts, err := prepareMounts(bd.View)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		pl := plan{b: bd, args: []string{"/bin/true"}, landlock: true, mounts: mounts, fds: descriptors{mounts: map[int]int{}}}
		pl.build().Discard()
	}
}
