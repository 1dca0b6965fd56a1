//go:build linux

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// nestingCalls are what bubblewrap and its like make a view with. setns stays
// refused: nothing inside has a namespace to enter that it did not make.
var nestingCalls = []string{
	"chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree", "pivot_root", "sethostname", "umount2", "unshare",
}

// For is the policy of a profile: the default one, and what the profile opens.
func For(p boundary.Profile) Policy {
	policy := Default()
	switch p {
	case boundary.ProfileBrowser:
		policy.open("chroot")
		policy.Rules["clone"] = Rule{Clauses: []Clause{{When: []Test{any(0, newNamespaces&^browserNamespaces)}, Then: Refuse}}, Else: Allow}
		// Its zygote makes one within the one that clone made, to be rid of rights.
		policy.close("unshare")
		policy.Rules["unshare"] = Rule{Clauses: []Clause{{When: []Test{is(0, 0, unix.CLONE_NEWUSER)}, Then: Allow}}, Else: Refuse}
	case boundary.ProfileNesting:
		policy.open(nestingCalls...)
		delete(policy.Rules, "clone")
		policy.Allowed = append(policy.Allowed, "clone")
	}
	return policy
}

// browserNamespaces are the kinds that Chromium's sandbox makes.
const browserNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// open moves calls from the refused to the allowed.
func (p *Policy) open(names ...string) {
	p.close(names...)
	p.Allowed = append(p.Allowed, names...)
}

// close takes calls out of the refused ones, for a rule of their own.
func (p *Policy) close(names ...string) {
	p.Refused = slices.DeleteFunc(p.Refused, func(n string) bool { return slices.Contains(names, n) })
}
