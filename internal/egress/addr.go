package egress

import (
	"fmt"
	"net/netip"
)

// The addresses that the sandbox's resolver answers with. Nothing outside is
// ever dialled in them: they name a row of a table, for one run.
var (
	// ListedIPv4 and ListedIPv6 stand for listed names.
	ListedIPv4 = netip.MustParsePrefix("198.18.0.0/16")
	ListedIPv6 = netip.MustParsePrefix("fdc0:f14e:c0de:18::/64")
	// RefusedIPv4 and RefusedIPv6 stand for names that are not listed, so that
	// the attempt arrives with its port.
	RefusedIPv4 = netip.MustParsePrefix("198.19.0.0/16")
	RefusedIPv6 = netip.MustParsePrefix("fdc0:f14e:c0de:19::/64")
)

// class is what a range of addresses is good for.
type class uint8

const (
	never   class = iota // the zero value: not dialled under any policy
	private              // dialled only for a rule that is private
	public
)

type addrRange struct {
	prefix netip.Prefix
	class  class
	name   string
}

// ranges is read in order; the first match decides, and what matches nothing
// is never dialled. Sources: the IANA registries of special-purpose IPv4 and
// IPv6 addresses, and each cloud's own manual for its metadata address.
var ranges = []addrRange{
	// Metadata. Some lie inside ranges that a private rule opens.
	{cidr("169.254.169.254/32"), never, "metadata"},
	{cidr("169.254.170.2/32"), never, "metadata"},   // container credentials, AWS
	{cidr("168.63.129.16/32"), never, "metadata"},   // Azure
	{cidr("100.100.100.200/32"), never, "metadata"}, // Alibaba
	{cidr("192.0.0.192/32"), never, "metadata"},     // Oracle
	{cidr("fd00:ec2::/32"), never, "metadata"},      // AWS
	{cidr("fd20:ce::254/128"), never, "metadata"},   // Google
	{cidr("fd00:c1::a9fe:a9fe/128"), never, "metadata"},
	{cidr("fd00:42::42/128"), never, "metadata"}, // Scaleway

	{cidr("0.0.0.0/8"), never, "unspecified"}, // 0.0.0.0 dials the machine itself
	{cidr("127.0.0.0/8"), never, "loopback"},
	{cidr("169.254.0.0/16"), never, "link-local"},
	{cidr("192.0.0.0/24"), never, "protocol assignment"},
	{cidr("192.0.2.0/24"), never, "documentation"},
	{cidr("198.51.100.0/24"), never, "documentation"},
	{cidr("203.0.113.0/24"), never, "documentation"},
	{cidr("192.88.99.0/24"), never, "6to4 relay"},
	{cidr("198.18.0.0/15"), never, "synthetic"},
	{cidr("224.0.0.0/4"), never, "multicast"},
	{cidr("255.255.255.255/32"), never, "broadcast"},
	{cidr("240.0.0.0/4"), never, "reserved"},
	{cidr("10.0.0.0/8"), private, "private"},
	{cidr("172.16.0.0/12"), private, "private"},
	{cidr("192.168.0.0/16"), private, "private"},
	{cidr("100.64.0.0/10"), private, "shared (CGNAT)"},
	{cidr("0.0.0.0/0"), public, "public"},

	{cidr("::/128"), never, "unspecified"},
	{cidr("::1/128"), never, "loopback"},
	{cidr("64:ff9b:1::/48"), never, "local NAT64"},
	{cidr("fe80::/10"), never, "link-local"},
	{cidr("fec0::/10"), never, "site-local"},
	{cidr("ff00::/8"), never, "multicast"},
	{cidr("fdc0:f14e:c0de::/48"), never, "synthetic"},
	{cidr("fc00::/7"), private, "private (ULA)"},
	{cidr("2001::/32"), never, "Teredo"},
	{cidr("2001::/23"), never, "protocol assignment"},
	{cidr("2001:db8::/32"), never, "documentation"},
	{cidr("3fff::/20"), never, "documentation"},
	{cidr("2002::/16"), never, "6to4"},
	{cidr("2000::/3"), public, "public"},
	{cidr("::/0"), never, "reserved"},
}

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

var (
	compatible = cidr("::/96")
	nat64      = cidr("64:ff9b::/96")
)

// unembed returns the IPv4 address that a mapped or compatible IPv6 address
// means, and any other address as it is.
func unembed(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is6() && compatible.Contains(addr) {
		b := addr.As16()
		// :: and ::1 are addresses of their own.
		if b[12]|b[13]|b[14] != 0 || b[15] > 1 {
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return addr
}

// classify says what an address is good for and the name of its range.
//
// An IPv6 address that carries an IPv4 address to a translator is what that
// IPv4 address is. Only NAT64 is dialled at all, since IPv6-only networks
// depend on it; 6to4, Teredo and ISATAP would be tunnels past the check.
func classify(addr netip.Addr) (class, string) {
	if !addr.IsValid() || addr.Zone() != "" {
		return never, "invalid"
	}
	addr = unembed(addr)
	if addr.Is6() {
		b := addr.As16()
		if nat64.Contains(addr) {
			c, name := classify(netip.AddrFrom4([4]byte(b[12:])))
			return c, "NAT64 of " + name
		}
		// ISATAP (RFC 5214): 00-00-5E-FE or 02-00-5E-FE before the IPv4 address.
		if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
			return never, "ISATAP"
		}
	}
	for _, r := range ranges {
		if r.prefix.Contains(addr) {
			return r.class, r.name
		}
	}
	return never, "unknown"
}

// MetadataAddr reports whether addr is where a cloud serves the credentials of
// the machine, in any embedding.
func MetadataAddr(addr netip.Addr) bool {
	_, name := classify(addr)
	return name == "metadata" || name == "NAT64 of metadata" || embeddedMetadata(addr)
}

// embeddedMetadata looks into the tunnels that are never dialled, so that an
// attempt is reported as what it is.
func embeddedMetadata(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	var inner [4]byte
	switch _, name := classify(addr); name {
	case "6to4":
		inner = [4]byte(b[2:6])
	case "ISATAP", "local NAT64":
		inner = [4]byte(b[12:])
	case "Teredo": // the client's address, inverted (RFC 4380)
		inner = [4]byte{^b[12], ^b[13], ^b[14], ^b[15]}
	default:
		return false
	}
	_, name := classify(netip.AddrFrom4(inner))
	return name == "metadata"
}

// AddrError is a resolved address that the policy does not let a name lead to.
type AddrError struct {
	Host Host
	Port uint16
	Addr netip.Addr
	// Range is the name of the range the address lies in.
	Range string
	// Private: the rule could open the range with `private`.
	Private bool
}

func (e *AddrError) Error() string {
	return fmt.Sprintf("dial %s: %s is a %s address", HostPort{e.Host, e.Port}, e.Addr, e.Range)
}

// Hint is the change that would open the address, if there is one.
func (e *AddrError) Hint() string {
	if !e.Private {
		return ""
	}
	return "if this host of your own network is meant: " + privateLine(HostPort{e.Host, e.Port})
}

// CheckAddr says whether host, allowed by rule, may be dialled at addr, one of
// the addresses it resolved to. The error is an *AddrError. It is asked for
// each address, at the moment of dialling: a name may resolve to something else
// a second later.
func (p Policy) CheckAddr(host Host, addr netip.Addr, rule Rule) error {
	c, name := classify(addr)
	switch {
	case c == public:
		return nil
	case c == private && rule.Private && !rule.Wildcard && host != "" && rule.Host == host:
		return nil
	}
	return &AddrError{Host: host, Port: rule.Port, Addr: addr, Range: name, Private: c == private && !rule.Wildcard}
}
