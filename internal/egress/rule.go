package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Proto says what has to travel on a connection that a rule allows.
type Proto string

// The protocols. Auto is the zero value: TLS on port 443, HTTP on port 80, and
// on any other port what the client's first bytes are, checked as that.
const (
	ProtoAuto Proto = ""
	ProtoTLS  Proto = "tls"  // a ClientHello that names the host, else closed
	ProtoHTTP Proto = "http" // each request decided by itself, else closed
	ProtoTCP  Proto = "tcp"  // anything; the host's name is all that is checked
)

// ParseProto parses the `proto` field of a rule.
func ParseProto(s string) (Proto, error) {
	switch p := Proto(s); p {
	case "auto":
		return ProtoAuto, nil
	case ProtoAuto, ProtoTLS, ProtoHTTP, ProtoTCP:
		return p, nil
	}
	return ProtoAuto, fmt.Errorf("parse proto %.20q: it is one of auto, tls, http, tcp", s)
}

func (p Proto) String() string {
	if p == ProtoAuto {
		return "auto"
	}
	return string(p)
}

// What a wildcard covers below its own name. The labels reach the name server
// of that domain when the name is resolved, so they are a way out for data.
const (
	// MaxWildcardDepth is how many labels.
	MaxWildcardDepth = 4
	// MaxWildcardLabels is how many bytes, dots included.
	MaxWildcardLabels = 100
	// MaxWildcardNames is how many distinct names in one run; package proxy
	// counts them.
	MaxWildcardNames = 256
)

// Rule is one entry of a policy. ParseRule and ParseDenyRule make rules; the
// zero value matches nothing.
type Rule struct {
	// Host is the name, or for a wildcard the name below which it covers.
	Host Host
	// Wildcard covers the names below Host and not Host itself.
	Wildcard bool
	// Addr is an address instead of a name. Only deny and quiet rules have one.
	Addr netip.Addr
	// Port is the port. 0 means every port, and only in deny and quiet rules.
	Port uint16
	// Proto and Private are for allow rules alone.
	Proto Proto
	// Private lets one exact name lead to RFC 1918, ULA and CGNAT addresses.
	Private bool
}

// RuleError is a rule that can't be used: a refusal at load.
type RuleError struct {
	Text string
	Why  string
	// Normal is the form to write, where the rule only isn't normal.
	Normal string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("parse egress rule %.80q: %s", e.Text, e.Why)
}

// Hint is what to write instead.
func (e *RuleError) Hint() string {
	if e.Normal != "" {
		return "write " + strconv.Quote(e.Normal)
	}
	return `a rule is "host", "host:port", "*.host" or "*.host:port"; without a port it means 443`
}

// String returns the rule as it is written, always with its port.
func (r Rule) String() string {
	name := string(r.Host)
	switch {
	case r.Addr.IsValid():
		name = r.Addr.String()
		if r.Addr.Is6() && r.Port != 0 {
			name = "[" + name + "]"
		}
	case r.Host == "":
		return ""
	case r.Wildcard:
		name = "*." + name
	}
	if r.Port == 0 {
		return name
	}
	return name + ":" + strconv.Itoa(int(r.Port))
}

// ParseRule parses one allow rule: host or *.host, with :port or 443.
func ParseRule(s string) (Rule, error) { return parseRule(s, false) }

// ParseDenyRule parses a deny or quiet rule. It differs from an allow rule in
// that no port means every port, any wildcard is accepted, and an IP address
// or metadata name may stand for the host: those are refused in any case, and
// can be made quiet.
func ParseDenyRule(s string) (Rule, error) { return parseRule(s, true) }

// ParseRules parses a comma-separated list of allow rules, as `--net` takes it.
func ParseRules(list string) ([]Rule, error) {
	var rules []Rule
	for _, part := range strings.Split(list, ",") {
		r, err := ParseRule(part)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(s string, deny bool) (Rule, error) {
	fail := func(why string) (Rule, error) { return Rule{}, &RuleError{Text: s, Why: why} }
	if why := notARule(s); why != "" {
		return fail(why)
	}
	if addr, port, ok := literal(s); ok {
		if !deny {
			return fail("addresses can't be listed, only names; metadata addresses never")
		}
		r := Rule{Addr: addr, Port: port}
		if r.String() != s {
			return Rule{}, &RuleError{Text: s, Why: "it is not in normal form", Normal: r.String()}
		}
		return r, nil
	}
	name, portText, hasPort := strings.Cut(s, ":")
	r := Rule{Port: 443}
	if deny {
		r.Port = 0
	}
	if hasPort {
		port, err := ParsePort(portText)
		if err != nil {
			return fail(fmt.Sprintf("%.20q is no port: %v", portText, errPort))
		}
		r.Port = port
	}
	base, wildcard := strings.CutPrefix(name, "*.")
	if strings.Contains(base, "*") {
		return fail("a wildcard is *. before a name, once")
	}
	host, why := normalHost(base)
	if why != "" {
		return fail(why)
	}
	r.Host, r.Wildcard = Host(host), wildcard
	if host != base {
		return Rule{}, &RuleError{Text: s, Why: "it is not in normal form", Normal: r.String()}
	}
	if !deny {
		if err := r.Validate(); err != nil {
			return Rule{}, err
		}
	}
	return r, nil
}

// notARule names the common texts that are no rule, better than the host parser could.
func notARule(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case len(s) > maxHostText:
		return "it is too long"
	case s == "*" || s == "*." || strings.HasPrefix(s, "*:"):
		return "it would open every host"
	case strings.ContainsAny(s, " \t\r\n"):
		return "it holds a space"
	case strings.Contains(s, "://"):
		return "it is a URL; a rule is a host and a port"
	case strings.ContainsAny(s, "/?#@"):
		return "it holds more than a host and a port"
	}
	return ""
}

// literal parses an address with or without a port. It is lenient, so that an
// address that is written oddly is still named as one.
func literal(s string) (addr netip.Addr, port uint16, ok bool) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return unembed(a.WithZone("")), 0, true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return unembed(ap.Addr().WithZone("")), ap.Port(), true
	}
	return netip.Addr{}, 0, false
}

// Validate says whether an allow rule, also one put together from the fields of
// a config, can be used. The error is a *RuleError.
func (r Rule) Validate() error {
	for _, check := range allowChecks {
		if why := check(r); why != "" {
			return &RuleError{Text: r.String(), Why: why}
		}
	}
	return nil
}

// allowChecks are what an allow rule has to pass, in order.
var allowChecks = []func(Rule) string{
	checkName, checkPort, checkProto, checkReachable, checkSuffix, checkPrivate,
}

func checkName(r Rule) string {
	if r.Addr.IsValid() {
		return "addresses can't be listed, only names; metadata addresses never"
	}
	name, why := normalHost(string(r.Host))
	if why == "" && name != string(r.Host) {
		why = "it is not in normal form"
	}
	return why
}

func checkPort(r Rule) string {
	if r.Port == 0 {
		return errPort.Error()
	}
	return ""
}

func checkProto(r Rule) string {
	if _, err := ParseProto(string(r.Proto)); err != nil {
		return err.Error()
	}
	return ""
}

// checkReachable refuses rules that could never match: silence would look like
// a host that is down.
func checkReachable(r Rule) string {
	switch {
	case r.Host.Local():
		return "loopback is never dialled by name; inside the sandbox localhost is the sandbox's own"
	case r.Host.Metadata():
		return "metadata names are never opened"
	}
	return ""
}

// checkSuffix refuses a wildcard over names that belong to different owners:
// anyone can register one, and with it receive what a run sends.
func checkSuffix(r Rule) string {
	if !r.Wildcard {
		return ""
	}
	if suffix, _ := publicsuffix.PublicSuffix(string(r.Host)); suffix == string(r.Host) {
		return fmt.Sprintf("anyone can register a name below %q; list the names that are meant", suffix)
	}
	return ""
}

func checkPrivate(r Rule) string {
	if r.Private && r.Wildcard {
		return "private opens one exact name, not a wildcard"
	}
	return ""
}

// matchName reports whether the rule's name covers host, whatever the port and
// however deep: the form of deny and quiet rules.
func (r Rule) matchName(host Host) bool {
	switch {
	case host == "" || r.Host == "":
		return false
	case r.Wildcard:
		return host.Within(r.Host)
	}
	return host == r.Host
}

// covers reports whether an allow rule's name covers host, within the caps of
// a wildcard; deep says that only the caps stood against it.
func (r Rule) covers(host Host) (ok, deep bool) {
	if !r.matchName(host) {
		return false, false
	}
	if !r.Wildcard {
		return true, false
	}
	labels := strings.TrimSuffix(string(host), "."+string(r.Host))
	if len(labels) > MaxWildcardLabels || strings.Count(labels, ".") >= MaxWildcardDepth {
		return false, true
	}
	return true, false
}

// matchAny reports whether a deny or quiet rule covers an attempt.
func (r Rule) matchAny(a Attempt) bool {
	if r.Port != 0 && r.Port != a.Port {
		return false
	}
	if r.Addr.IsValid() {
		return a.Addr.IsValid() && r.Addr == unembed(a.Addr)
	}
	return r.matchName(a.Host)
}

// Validate says whether every rule of the policy can be used. Callers that put
// a policy together from fields call it once, at load.
func (p Policy) Validate() error {
	var errs []error
	for _, r := range p.Allow {
		errs = append(errs, r.Validate())
	}
	for _, list := range [][]Rule{p.Deny, p.Quiet} {
		for _, r := range list {
			if r.Addr.IsValid() {
				continue
			}
			if why := checkName(r); why != "" {
				errs = append(errs, &RuleError{Text: r.String(), Why: why})
			}
		}
	}
	return errors.Join(errs...)
}
