// Package probe finds out what a host has of the abilities a boundary is made
// of, and for each that it lacks the one change that mends it.
//
// It promises that an ability is reported as present only after it was used: a
// child makes the namespace, mounts the file system, loads the filter. What
// files say (sysctls, mounts) only explains a failure. A probe that could not
// run is reported as missing. Nothing on the host is changed but what
// cgroup.Discover does at every start. It does not prove that a boundary holds:
// `confine verify` does. Package cli calls it for `confine doctor`.
package probe

import "confine/internal/boundary"

// Item is one ability of the host.
type Item struct {
	// Name says what it is, in words for people.
	Name string `json:"name"`
	// Layer is the name used in allow_missing, "" if it can't be named there.
	Layer boundary.Layer `json:"layer,omitempty"`
	// Present: it was used with success.
	Present bool `json:"present"`
	// Needed: without it a run with no allow_missing and no flag does not start.
	Needed bool `json:"needed"`
	// Detail is what was seen. It may hold text of the host.
	Detail string `json:"detail"`
	// Without says what a host that lacks it can't do.
	Without string `json:"without,omitempty"`
	// Fix is the one change that mends a lack; "" if present.
	Fix string `json:"fix,omitempty"`
	// After names the item that this one could not be looked at without.
	After string `json:"after,omitempty"`
}

// Report is every ability, in the order in which a lack of one causes others.
type Report struct {
	Items []Item `json:"abilities"`
}

// Lacks lists the items that are needed and not present.
func (r Report) Lacks() []Item {
	var out []Item
	for _, i := range r.Items {
		if i.Needed && !i.Present {
			out = append(out, i)
		}
	}
	return out
}
