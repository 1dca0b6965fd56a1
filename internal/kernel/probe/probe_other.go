//go:build !linux

package probe

import "runtime"

// Host reports that the boundary is made of what Linux has.
func Host() Report {
	return Report{Items: []Item{{
		Name: "kernel", Needed: true, Detail: "this is " + runtime.GOOS,
		Fix: "run confine on Linux, for example in a virtual machine",
	}}}
}
