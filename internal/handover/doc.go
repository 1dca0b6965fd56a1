// Package handover turns the commits of a hostile workspace into checked,
// rewritten commits of the engine, or into refusals that say which rule, commit,
// path and field.
//
// The steps, each a function, in this order:
//
//	Take     a second sandbox writes one bundle of one ref (export.go, export.sh)
//	Receive  the bundle's pack goes, strictly checked, into a new quarantine
//	Check    the rules over every new commit and over the whole (check.go …)
//	Rewrite  new commits get the engine's identity; trees stay as they are
//	Deliver  the rewritten head is pushed with a lease
//	Rescue   the raw bytes are kept when a step before refused
//
// It promises that no git process of the engine is given a path below a
// directory that an agent can write, that the quarantine borrows objects from
// engine-owned repositories only, that nothing is ever checked out, that every
// rule is applied to each new commit and not to the last tree alone, and that
// all refusals are found, not the first. Memory is bounded: bytes are streamed.
//
// It does not promise that the change does what it should (that is the gate's
// and a reviewer's part), that every secret is recognised (a secret can be
// encoded in ways without end; see docs/design), or that Git LFS and submodules
// work: their files are refused unless allowed, and never followed.
//
// The caller is engine. Text from commits is untrusted throughout: bytes in the
// fields, quoted in every String and Error.
package handover
