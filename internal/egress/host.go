package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// Host is a host name in normal form: lower case A-labels, no trailing dot.
// Only ParseHost makes one; the zero value is no host and matches no rule.
type Host string

// The lengths of RFC 1035, in the textual form without the trailing dot, and
// what is read of a name before it is normal.
const (
	maxHost     = 253
	maxLabel    = 63
	maxHostText = 1024
)

// HostError is a text that is not a host name. The text is untrusted.
type HostError struct {
	Text string
	Why  string
}

func (e *HostError) Error() string { return fmt.Sprintf("parse host %.80q: %s", e.Text, e.Why) }

// ParseHost parses a DNS host name: letters, digits, hyphen and underscore,
// labels of 63 bytes, 253 in all, one trailing dot dropped. Names outside of
// ASCII become A-labels by the strict lookup profile of IDNA.
//
// It refuses whatever some C library would take for an address although Go's
// own parser calls it a name ("2852039166", "0x7f.1", "127.1"): the policy
// would then decide about one thing and the dialler reach another.
func ParseHost(s string) (Host, error) {
	name, why := normalHost(s)
	if why != "" {
		return "", &HostError{Text: s, Why: why}
	}
	return Host(name), nil
}

// normalHost returns the normal form of s, or why it has none.
func normalHost(s string) (name, why string) {
	if s == "" {
		return "", "it is empty"
	}
	if len(s) > maxHostText {
		return "", "it is too long"
	}
	for i := range len(s) {
		if c := s[i]; c < 0x80 && !hostByte(c) {
			return "", fmt.Sprintf("%s is not part of a host name", describeByte(c))
		}
	}
	name = s
	if !ascii(s) {
		// The profile drops these without a word, and nobody sees them.
		if strings.ContainsFunc(s, func(r rune) bool { return unicode.In(r, unicode.Cf, unicode.Variation_Selector) }) {
			return "", "it holds an invisible character"
		}
		// The profile also maps wide letters, digits and dots to plain ones, so
		// what it gives is checked below as if it had been written so.
		var err error
		if name, err = idna.Lookup.ToASCII(s); err != nil {
			return "", "it is not a valid international name"
		}
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > maxHost {
		return "", fmt.Sprintf("it is longer than %d bytes", maxHost)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if why := checkLabel(label); why != "" {
			return "", why
		}
	}
	if numeric(labels[len(labels)-1]) {
		return "", "programs may read it as an address"
	}
	return name, ""
}

func checkLabel(label string) string {
	switch {
	case label == "":
		return "it has an empty label"
	case len(label) > maxLabel:
		return fmt.Sprintf("a label is longer than %d bytes", maxLabel)
	case label[0] == '-' || label[len(label)-1] == '-':
		return "a label begins or ends with a hyphen"
	}
	for i := range len(label) {
		if c := label[i]; !hostByte(c) || c == '.' {
			return fmt.Sprintf("%s is not part of a host name", describeByte(c))
		}
	}
	if strings.HasPrefix(label, "xn--") {
		// An A-label that is no A-label of anything, or not the one its letters
		// have, is a second spelling of a name.
		again, err := idna.Lookup.ToASCII(label)
		if err != nil || again != label {
			return "a label is not a valid international label"
		}
	}
	return ""
}

// numeric reports whether a last label makes inet_aton, getaddrinfo or the
// parser of WHATWG URLs take the whole name for an IPv4 address: a decimal or
// octal number, or a hexadecimal one.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func hostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

func describeByte(c byte) string {
	switch c {
	case ' ':
		return "a space"
	case '@':
		return `"@" (user information)`
	case '[', ']':
		return "a bracket"
	}
	return strconv.QuoteToASCII(string(rune(c)))
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Within reports whether h is a name below parent (not parent itself).
func (h Host) Within(parent Host) bool {
	return parent != "" && strings.HasSuffix(string(h), "."+string(parent))
}

// metadataNames answer with credentials or user data on some cloud.
var metadataNames = map[Host]bool{
	"metadata":                     true,
	"metadata.google.internal":     true,
	"metadata.goog":                true,
	"metadata.azure.internal":      true,
	"instance-data":                true,
	"instance-data.ec2.internal":   true,
	"metadata.ec2.internal":        true,
	"metadata.tencentyun.com":      true,
	"metadata.packet.net":          true,
	"metadata.platformequinix.com": true,
	"metadata.oraclecloud.com":     true,
	"rancher-metadata":             true,
}

// Metadata reports whether h is a name under which a cloud serves the
// credentials of the machine. Such a name is never resolved or dialled.
func (h Host) Metadata() bool {
	for name := h; name != ""; {
		if metadataNames[name] {
			return true
		}
		_, parent, _ := strings.Cut(string(name), ".")
		// A single label is a name of its own, not the parent of others:
		// "x.metadata" is nobody's metadata.
		if !strings.Contains(parent, ".") {
			return false
		}
		name = Host(parent)
	}
	return false
}

// Local reports whether h means the machine that asks (RFC 6761).
func (h Host) Local() bool { return h == "localhost" || h.Within("localhost") }

// ParseAddr parses an IP address in its canonical form and nothing else: no
// zone, no brackets, no leading zeros, IPv6 as RFC 5952 writes it (in either
// case). An IPv4 address mapped into or compatible with IPv6 is returned as the
// IPv4 address it means.
func ParseAddr(s string) (netip.Addr, error) {
	fail := func(why string) (netip.Addr, error) {
		return netip.Addr{}, fmt.Errorf("parse address %.80q: %s", s, why)
	}
	if len(s) > 64 {
		return fail("it is too long")
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return fail("it is not an IP address")
	}
	if addr.Zone() != "" {
		return fail("a zone is not accepted")
	}
	if addr.String() != strings.ToLower(s) {
		return fail(fmt.Sprintf("write it as %s", addr))
	}
	return unembed(addr), nil
}

// HostPort is one place to reach, by name.
type HostPort struct {
	Host Host
	Port uint16
}

func (p HostPort) String() string { return string(p.Host) + ":" + strconv.Itoa(int(p.Port)) }

var errPort = errors.New("a port is a number from 1 to 65535")

// ParsePort parses a port: 1 to 65535, decimal, no leading zero or sign.
func ParsePort(s string) (uint16, error) {
	if len(s) == 0 || len(s) > 5 || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("parse port %.20q: %w", s, errPort)
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("parse port %.20q: %w", s, errPort)
	}
	return uint16(n), nil
}
