package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := []struct{ in, want string }{
		{"allowed.test", "allowed.test"},
		{"Allowed.TEST", "allowed.test"},
		{"allowed.test.", "allowed.test"},
		{"_dmarc.x_y.test", "_dmarc.x_y.test"},
		{"r3---sn-a.test", "r3---sn-a.test"},
		{"localhost", "localhost"},
		{"bücher.test", "xn--bcher-kva.test"},
		{"BÜCHER.test", "xn--bcher-kva.test"},
		{"xn--bcher-kva.test", "xn--bcher-kva.test"},
		{"XN--BCHER-KVA.test", "xn--bcher-kva.test"},
		{"ａllowed。test", "allowed.test"}, // wide letter, ideographic full stop
		{"1.2.3.4.test", "1.2.3.4.test"},
		{"7.x0x", "7.x0x"},
		{long + ".test", long + ".test"},
		{strings.Repeat("abc.", 62) + "abcde", strings.Repeat("abc.", 62) + "abcde"}, // 253
	}
	for _, tt := range tests {
		if got, err := ParseHost(tt.in); err != nil || string(got) != tt.want {
			t.Errorf("ParseHost(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}

func TestParseHostRefuses(t *testing.T) {
	refused := []string{
		"", ".", "..", "a..test", ".a.test", "a.test..", "a b.test", " a.test", "a.test ",
		"denied.test\x00.allowed.test", "a\r\nb.test", "a\n", "a\t", "a%2e.test", "a%00", "user@a.test", "a.test:443",
		"[a.test]", "[::1]", "::1", "fe80::1%lo", "a/b", "a?b", "a#b", "a\\b", "*.a.test", "a,b",
		"-a.test", "a-.test", "a.-", strings.Repeat("a", 64) + ".test",
		strings.Repeat("abc.", 62) + "abcdef", strings.Repeat("a", 2000),
		"127.0.0.1", "127.0.0.1.", "127.1", "2852039166", "0251.0376.0251.0376", "0xa9fea9fe", "0xA9FEA9FE", "0x7f.1", "0x", "1.2.3.0x4", "1.2.3.256", "a.1", "a.0x1f",
		"１２７.０.０.１", "２８５２０３９１６６", // wide digits
		"xn--", "xn--a", "xn--abc-.test", "xn--bcher-KVA\u00fc.test", "xn--0.test",
		"a\u202e.test", "a\u200b.test", "a\u00ad\u0000.test", "\xff.test", "a\u2024test",
	}
	for _, in := range refused {
		if got, err := ParseHost(in); err == nil {
			t.Errorf("ParseHost(%q) = %q; want an error", in, got)
		} else if _, ok := err.(*HostError); !ok || strings.ContainsAny(err.Error(), "\x00\r\n\u202e") {
			t.Errorf("ParseHost(%q): error %q is not a plain *HostError", in, err)
		}
	}
}

func TestParseAddr(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1", "2001:DB8::1": "2001:db8::1",
		"::ffff:169.254.169.254": "169.254.169.254", "::a9fe:a9fe": "169.254.169.254", "::1": "::1", "::": "::",
	} {
		if got, err := ParseAddr(in); err != nil || got.String() != want {
			t.Errorf("ParseAddr(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "fe80::1%lo", "::1%1", "[::1]", "0:0:0:0:0:0:0:1", "::01", "2001:db8:0:0::1", "::169.254.169.254",
		"127.1", "0x7f.0.0.1", "2852039166", "192.0.2.1.", "192.0.2.01", " 192.0.2.1", "192.0.2.1:80", "192.0.2.1\x00", "a", strings.Repeat("1", 100),
	} {
		if got, err := ParseAddr(in); err == nil {
			t.Errorf("ParseAddr(%q) = %v; want an error", in, got)
		}
	}
}

func TestParsePort(t *testing.T) {
	for in, want := range map[string]uint16{"1": 1, "443": 443, "65535": 65535} {
		if got, err := ParsePort(in); err != nil || got != want {
			t.Errorf("ParsePort(%q) = %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "00", "0443", "65536", "99999999999", "-1", "+1", "4 43", "http", "1e3"} {
		if got, err := ParsePort(in); err == nil {
			t.Errorf("ParsePort(%q) = %d; want an error", in, got)
		}
	}
}

func TestMetadataNames(t *testing.T) {
	for _, h := range []Host{"metadata", "metadata.google.internal", "instance-data", "x.metadata.google.internal"} {
		if !h.Metadata() {
			t.Errorf("%s is not metadata", h)
		}
	}
	for _, h := range []Host{"", "google.internal", "metadata.test", "mymetadata", "x.metadata", "notmetadata.google.internal"} {
		if h.Metadata() {
			t.Errorf("%s is metadata", h)
		}
	}
}

// inetAton is the grammar of inet_aton as C libraries have it: one to four
// parts, each decimal, octal or hexadecimal, the last filling what is left.
func inetAton(s string) bool {
	if s == "" {
		return false
	}
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return false
	}
	for i, part := range parts {
		digits, base := part, uint64(10)
		switch {
		case strings.HasPrefix(part, "0x") || strings.HasPrefix(part, "0X"):
			digits, base = part[2:], 16
		case len(part) > 1 && part[0] == '0':
			digits, base = part[1:], 8
		}
		var n uint64
		for _, c := range []byte(strings.ToLower(digits)) {
			d := uint64(strings.IndexByte("0123456789abcdef", c))
			if d >= base || n > 1<<32 {
				return false
			}
			n = n*base + d
		}
		limit := uint64(1) << 8
		if i == len(parts)-1 {
			limit = 1 << (8 * (5 - len(parts)))
		}
		if part == "" || n >= limit {
			return false
		}
	}
	return true
}

func TestInetAtonGrammar(t *testing.T) {
	for _, s := range []string{"127.1", "2852039166", "0x7f.1", "0251.0376.0251.0376", "1.2.3.4", "0", "0xa9fea9fe", "1.65536", "0x"} {
		if !inetAton(s) {
			t.Errorf("inetAton(%q) = false", s)
		}
	}
	for _, s := range []string{"", "a", "1.2.3.4.5", "1..2", "256.1.1.1", "4294967296", "1.2.3.4.", "08"} {
		if inetAton(s) {
			t.Errorf("inetAton(%q) = true", s)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{
		"allowed.test", "Allowed.test.", "2852039166", "0x7f.1", "127.1", "1.2.3.4", "::1", "::ffff:1.2.3.4", "fe80::1%lo",
		"evil\x00.allowed.test", "a\r\nb", "bücher.test", "xn--bcher-kva", "１２７.１", "a。b", "user@h", "%41.test", "0", "0x", "a..b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHost(s)
		if err != nil {
			if h != "" {
				t.Fatalf("ParseHost(%q) returned %q with an error", s, h)
			}
			return
		}
		name := string(h)
		if again, err := ParseHost(name); err != nil || again != h {
			t.Fatalf("ParseHost(%q) = %q, which parses to %q, %v", s, h, again, err)
		}
		// What Go or a C library would take for an address. The text as it came
		// counts too: a program may hand that on.
		for _, text := range []string{name, strings.TrimSuffix(s, ".")} {
			if _, err := netip.ParseAddr(text); err == nil {
				t.Fatalf("ParseHost(%q) = %q, an address for Go", s, h)
			}
			if inetAton(text) {
				t.Fatalf("ParseHost(%q) = %q, an address for inet_aton", s, h)
			}
		}
		if len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || strings.Contains(name, "..") ||
			strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			t.Fatalf("ParseHost(%q) = %q is not normal", s, h)
		}
	})
}

func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "::1", "::ffff:1.2.3.4", "::102:304", "fe80::1%lo", "2001:DB8::1", "127.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		addr, err := ParseAddr(s)
		if err != nil {
			return
		}
		if addr.Is4In6() || addr.Zone() != "" || !addr.IsValid() {
			t.Fatalf("ParseAddr(%q) = %v", s, addr)
		}
		if h, err := ParseHost(s); err == nil {
			t.Fatalf("%q is the address %v and the host %q", s, addr, h)
		}
	})
}
