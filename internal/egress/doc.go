// Package egress is the egress policy as data: which hosts and ports a run may
// reach, the decision about one attempt, and the refusal that comes of it.
//
// It promises: one parser for host names (ParseHost), so that the name that is
// decided is the name that is dialled; one decision (Policy.Decide), in which
// deny wins, an empty policy allows nothing and every zero value refuses; one
// check of resolved addresses (Policy.CheckAddr), under which loopback,
// link-local, metadata and reserved addresses are never dialled by name; and
// for each refusal that a config could lift, the exact line that would do it.
//
// It does not open a socket, resolve a name or read a file: package proxy does
// the first two and is the caller of Decide and CheckAddr. It can't tell apart
// two sites that one server answers for under one name, can't stop data from
// leaving in the labels of a listed wildcard (the labels and the number of
// names are capped), and does not look below what TCP carries: names inside
// TLS are the proxy's business.
package egress
