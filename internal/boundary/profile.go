package boundary

import "slices"

// Profile opens a boundary as far as one kind of program needs it that brings a
// sandbox of its own. Each has weaker points, which are named wherever a run is
// told or recorded.
type Profile string

// The profiles. The zero value is the strict one.
const (
	// ProfileNone makes no namespace inside.
	ProfileNone Profile = ""
	// ProfileBrowser is for Chromium's own sandbox: user, process id and network
	// namespaces, a bounded number of each, and no mounts.
	ProfileBrowser Profile = "browser"
	// ProfileNesting is for bubblewrap, and agents that use it: a bounded number of
	// namespaces of every kind, and mounts in them.
	ProfileNesting Profile = "nesting"
)

// Profiles are all that can be named.
var Profiles = []Profile{ProfileBrowser, ProfileNesting}

// Weaker are the points in which a boundary with this profile is weaker than one
// without, one line each.
func (p Profile) Weaker() []string {
	const (
		capable = "a process inside can have capabilities, in namespaces of its own only"
		network = "the kernel's code that configures networks is reached, in namespaces without a way out"
	)
	switch p {
	case ProfileNone:
		return nil
	case ProfileBrowser:
		return []string{capable, network}
	case ProfileNesting:
		return []string{capable, network,
			"the kernel's code that mounts is reached, in mount namespaces in which the boundary's own mounts are locked",
			"Landlock does not hold files, as it would forbid all mounts: view, mount flags and the system call filter do",
		}
	}
	return []string{"it is not known"}
}

func checkProfile(b Boundary) error {
	if b.Profile != ProfileNone && !slices.Contains(Profiles, b.Profile) {
		return invalid("profile", "%q is not a profile; known: %v", string(b.Profile), Profiles)
	}
	return nil
}
