package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// Policy is what a run may reach. The zero value allows nothing.
type Policy struct {
	// Allow lists what may be reached; nil and empty mean nothing.
	Allow []Rule
	// Deny wins over Allow.
	Deny []Rule
	// Quiet refusals are recorded and never stop a run. Quiet opens nothing.
	Quiet []Rule
}

// Attempt is one try to reach something: a name, or an address that was dialled
// without a name.
type Attempt struct {
	Host Host
	Addr netip.Addr
	Port uint16
}

// String is the attempt as it was made: name or address, and port if known.
func (a Attempt) String() string {
	name := string(a.Host)
	if a.Addr.IsValid() {
		name = a.Addr.String()
		if a.Addr.Is6() && a.Port != 0 {
			name = "[" + name + "]"
		}
	}
	if a.Port == 0 {
		return name
	}
	return name + ":" + strconv.Itoa(int(a.Port))
}

// Reason says why an attempt was refused. The zero value is a refusal without
// a reason given, never an allowance.
type Reason string

// The reasons.
const (
	ReasonNotListed Reason = "not listed"
	ReasonPort      Reason = "listed, but not for this port"
	ReasonDenied    Reason = "denied by a rule"
	ReasonDeep      Reason = "too long or deep below a wildcard"
	ReasonNames     Reason = "too many names below a wildcard"
	ReasonLiteral   Reason = "an address without a name"
	ReasonMetadata  Reason = "cloud metadata"
	ReasonLocal     Reason = "loopback by name"
	ReasonMalformed Reason = "not a host name"
	// ReasonPrivate and ReasonAddress: the name is listed, and where it leads is not opened.
	ReasonPrivate Reason = "resolves to a private address"
	ReasonAddress Reason = "resolves to an address that is never dialled"
	// ReasonTLSName, ReasonNotTLS, ReasonHTTPHost, ReasonNotHTTP: the host is
	// listed, and what the connection carried is not for it.
	ReasonTLSName  Reason = "TLS for another name"
	ReasonNotTLS   Reason = "not TLS with a server name"
	ReasonHTTPHost Reason = "HTTP for another host"
	ReasonNotHTTP  Reason = "not plain HTTP"
	// ReasonBusy: a cap on connections or names of one run was reached.
	ReasonBusy Reason = "too many at once"
)

// Verdict is the decision about one attempt. The zero value refuses.
type Verdict struct {
	Allowed bool
	// Attempt is what was decided.
	Attempt Attempt
	// Rule is the allow rule that let it pass or the deny rule that did not;
	// zero where no rule decided.
	Rule Rule
	// Reason is set on every refusal by Decide.
	Reason Reason
	// Quiet: a quiet rule covers the refusal.
	Quiet bool
}

// Decide decides one attempt. It looks at nothing but the policy and the
// attempt, so that a decision can be explained and made again.
func (p Policy) Decide(a Attempt) Verdict {
	v := Verdict{Attempt: a}
	if v.Rule, v.Reason = p.decide(a); v.Reason == "" && v.Rule.Host != "" {
		v.Allowed = true
		return v
	}
	for _, r := range p.Quiet {
		v.Quiet = v.Quiet || r.matchAny(a)
	}
	return v
}

// decide returns the rule that allows, without a reason, or the reason of the
// refusal, with the rule that made it where one did.
func (p Policy) decide(a Attempt) (Rule, Reason) {
	switch {
	case a.Addr.IsValid() && MetadataAddr(a.Addr), a.Host.Metadata():
		return Rule{}, ReasonMetadata
	case a.Addr.IsValid():
		return Rule{}, ReasonLiteral
	case a.Host.Local():
		return Rule{}, ReasonLocal
	}
	// Names come from ParseHost. One that doesn't is decided as malformed, so
	// that a caller's mistake can't make a suffix match out of anything else.
	if name, why := normalHost(string(a.Host)); why != "" || name != string(a.Host) {
		return Rule{}, ReasonMalformed
	}
	for _, r := range p.Deny {
		if r.matchAny(a) {
			return r, ReasonDenied
		}
	}
	reason := ReasonNotListed
	var best Rule
	for _, r := range p.Allow {
		ok, deep := r.covers(a.Host)
		switch {
		case ok && r.Port == a.Port && r.Port != 0:
			// An exact rule says more than a wildcard (its protocol, private).
			if best.Host == "" || best.Wildcard && !r.Wildcard {
				best = r
			}
		case ok && reason == ReasonNotListed:
			reason = ReasonPort
		case deep && reason == ReasonNotListed:
			reason = ReasonDeep
		}
	}
	if best.Host != "" {
		return best, ""
	}
	return Rule{}, reason
}

// Ports returns the ports for which some allow rule covers host, in the order
// of the rules. Deny rules may still refuse them: Decide says.
func (p Policy) Ports(host Host) []uint16 {
	var ports []uint16
	for _, r := range p.Allow {
		if ok, _ := r.covers(host); ok && !slices.Contains(ports, r.Port) {
			ports = append(ports, r.Port)
		}
	}
	return ports
}

// MayResolve reports whether some port of host is allowed. No other name is
// ever asked of a name server.
func (p Policy) MayResolve(host Host) bool {
	return slices.ContainsFunc(p.Ports(host), func(port uint16) bool {
		return p.Decide(Attempt{Host: host, Port: port}).Allowed
	})
}

// ConfigLine is the line of a tenant's config that would allow the attempt, or
// "" when none can.
func (v Verdict) ConfigLine() string {
	at := HostPort{v.Attempt.Host, v.Attempt.Port}
	if v.inspected() {
		private := ""
		if v.Rule.Private {
			private = ", private: true"
		}
		return fmt.Sprintf("egress: {allow: [{host: %q, proto: tcp%s}]}", at.String(), private)
	}
	if !v.liftable() {
		return ""
	}
	if v.Reason == ReasonPrivate {
		return privateLine(at)
	}
	return fmt.Sprintf("egress: {allow: [%q]}", at.String())
}

// RunFlag is the flag of `confine run` that would allow the attempt, or "" when
// none can.
func (v Verdict) RunFlag() string {
	if !v.liftable() || v.Reason == ReasonPrivate {
		return ""
	}
	return "--net " + HostPort{v.Attempt.Host, v.Attempt.Port}.String()
}

func privateLine(at HostPort) string {
	return fmt.Sprintf("egress: {allow: [{host: %q, private: true}]}", at.String())
}

// inspected reports whether the connection was refused for what it carried on a
// port that says nothing of it: a rule for tcp would not have looked.
func (v Verdict) inspected() bool {
	switch {
	case v.Allowed || v.Attempt.Host == "" || v.Rule.Host == "" || v.Rule.Proto != ProtoAuto:
		return false
	case v.Attempt.Port == 0 || v.Attempt.Port == 80 || v.Attempt.Port == 443:
		return false
	}
	return v.Reason == ReasonNotHTTP || v.Reason == ReasonNotTLS
}

// liftable reports whether an allow rule for exactly this name and port would
// have changed the decision.
func (v Verdict) liftable() bool {
	if v.Allowed || v.Attempt.Host == "" || v.Attempt.Port == 0 {
		return false
	}
	switch v.Reason {
	case ReasonNotListed, ReasonPort, ReasonDeep, ReasonNames, ReasonPrivate:
		return true
	}
	return false
}
