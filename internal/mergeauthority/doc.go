//go:build unix

// Package mergeauthority is the one component that merges.
//
// It promises that a pull request is merged only if, at that moment: it is open
// and its head and base are the ones that the gate's verdict is about; the
// verdict passed, is complete, and is about the tree that git makes of these two
// now, under the current config and view; the base's protection exists, can be
// read wholly, and checks the base on a merge; no person with write access asked
// for changes; and the tenant's merge rule holds. What was read from the host
// before is not believed: everything is read again. The decision is on record
// before the merge is asked for, the merge carries the head and base it was
// decided on, and afterwards the tree that landed is compared with the tree that
// was tested: a difference stops all merges into that base until a person has
// looked. Merges into one base queue, also those of other processes.
//
// It does not run the gate, does not change a head or a base by other ways than
// the host's merge call, and never uses a right to pass by a protection. What the
// host's own administrators do, it can only see. The caller is the engine, which
// hands in an account of the host that may do nothing but merge where the host
// can narrow it.
package mergeauthority
