package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	tests := []struct {
		in   string
		want Rule
	}{
		{"allowed.test", Rule{Host: "allowed.test", Port: 443}},
		{"allowed.test:443", Rule{Host: "allowed.test", Port: 443}},
		{"allowed.test:22", Rule{Host: "allowed.test", Port: 22}},
		{"*.allowed.test", Rule{Host: "allowed.test", Wildcard: true, Port: 443}},
		{"*.allowed.test:65535", Rule{Host: "allowed.test", Wildcard: true, Port: 65535}},
		{"db:5432", Rule{Host: "db", Port: 5432}},
		{"_x.allowed.test", Rule{Host: "_x.allowed.test", Port: 443}},
	}
	for _, tt := range tests {
		got, err := ParseRule(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("ParseRule(%q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
			continue
		}
		if again, err := ParseRule(got.String()); err != nil || again != got {
			t.Errorf("ParseRule(%q) = %+v, %v; its text does not round trip", got, again, err)
		}
	}
}

// Each text is refused at load, with an error that says why and a hint.
func TestParseRuleRefuses(t *testing.T) {
	tests := []struct{ in, why, hint string }{
		{"", "empty", "host:port"},
		{"*", "every host", ""},
		{"*:443", "every host", ""},
		{"*.", "every host", ""},
		{"*.com", "anyone can register", ""},
		{"*.co.uk", "anyone can register", ""},
		{"*.github.io", "anyone can register", ""},
		{"*.test", "anyone can register", ""},
		{"https://x", "URL", ""},
		{"https://allowed.test:443/", "URL", ""},
		{" x ", "space", ""},
		{"a.test ", "space", ""},
		{"a.test/", "more than a host", ""},
		{"u@a.test", "more than a host", ""},
		{"a.test:0", "port", ""},
		{"a.test:65536", "port", ""},
		{"a.test:", "port", ""},
		{"a.test:0443", "port", ""},
		{"a.test:443:444", "port", ""},
		{"registry:go", "port", ""},
		{"a.*.test", "wildcard", ""},
		{"*.*.a.test", "wildcard", ""},
		{"**.a.test", "wildcard", ""},
		{"*a.test", "wildcard", ""},
		{"192.0.2.1", "addresses can't be listed", ""},
		{"192.0.2.1:80", "addresses can't be listed", ""},
		{"169.254.169.254:80", "metadata addresses never", ""},
		{"::1", "addresses can't be listed", ""},
		{"[fd00:ec2::254]:80", "addresses can't be listed", ""},
		{"2852039166", "read it as an address", ""},
		{"0x7f.1:80", "read it as an address", ""},
		{"127.1:80", "read it as an address", ""},
		{"Allowed.test", "normal form", `"allowed.test:443"`},
		{"allowed.test.:22", "normal form", `"allowed.test:22"`},
		{"*.BÜCHER.test", "normal form", `"*.xn--bcher-kva.test:443"`},
		{"localhost:8080", "loopback", ""},
		{"a.localhost", "loopback", ""},
		{"metadata.google.internal:80", "metadata", ""},
		{"a\x00.test", "not part of a host name", ""},
	}
	for _, tt := range tests {
		r, err := ParseRule(tt.in)
		var re *RuleError
		if !errors.As(err, &re) || !strings.Contains(err.Error(), tt.why) || !strings.Contains(re.Hint(), tt.hint) {
			t.Errorf("ParseRule(%q) = %+v, %v; want an error with %q and a hint with %q", tt.in, r, err, tt.why, tt.hint)
		}
		if r != (Rule{}) {
			t.Errorf("ParseRule(%q) returned %+v with an error", tt.in, r)
		}
	}
}

func TestParseRules(t *testing.T) {
	rules, err := ParseRules("example.com,*.example.org:443")
	if err != nil || len(rules) != 2 || rules[1] != (Rule{Host: "example.org", Wildcard: true, Port: 443}) {
		t.Errorf("ParseRules = %+v, %v", rules, err)
	}
	for _, in := range []string{"", ",", "a.test,", "a.test,,b.test", "a.test, b.test", "a.test,*"} {
		if rules, err := ParseRules(in); err == nil || rules != nil {
			t.Errorf("ParseRules(%q) = %+v, %v; want an error", in, rules, err)
		}
	}
}

func TestParseDenyRule(t *testing.T) {
	tests := []struct {
		in   string
		want Rule
	}{
		{"denied.test", Rule{Host: "denied.test"}},
		{"denied.test:25", Rule{Host: "denied.test", Port: 25}},
		{"*.com", Rule{Host: "com", Wildcard: true}},
		{"metadata.google.internal", Rule{Host: "metadata.google.internal"}},
		{"169.254.169.254", Rule{Addr: netip.MustParseAddr("169.254.169.254")}},
		{"169.254.169.254:80", Rule{Addr: netip.MustParseAddr("169.254.169.254"), Port: 80}},
		{"[fd00:ec2::254]:80", Rule{Addr: netip.MustParseAddr("fd00:ec2::254"), Port: 80}},
	}
	for _, tt := range tests {
		if got, err := ParseDenyRule(tt.in); err != nil || got != tt.want {
			t.Errorf("ParseDenyRule(%q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", "*", "https://x", "Denied.test", "a.test:0", "[169.254.169.254]", "2852039166", "fe80::1%lo"} {
		if got, err := ParseDenyRule(in); err == nil {
			t.Errorf("ParseDenyRule(%q) = %+v; want an error", in, got)
		}
	}
}

func TestParseProto(t *testing.T) {
	for in, want := range map[string]Proto{"": ProtoAuto, "auto": ProtoAuto, "tls": ProtoTLS, "http": ProtoHTTP, "tcp": ProtoTCP} {
		if got, err := ParseProto(in); err != nil || got != want {
			t.Errorf("ParseProto(%q) = %q, %v", in, got, err)
		}
	}
	if _, err := ParseProto("udp"); err == nil {
		t.Error("ParseProto(udp) succeeded")
	}
}

func TestPolicyValidate(t *testing.T) {
	ok := Policy{Allow: []Rule{{Host: "db.corp", Port: 5432, Private: true}}, Deny: []Rule{{Host: "com", Wildcard: true}}, Quiet: []Rule{{Addr: netip.MustParseAddr("169.254.169.254")}}}
	if err := ok.Validate(); err != nil {
		t.Errorf("valid policy: %v", err)
	}
	for name, p := range map[string]Policy{
		"zero rule":        {Allow: []Rule{{}}},
		"private wildcard": {Allow: []Rule{{Host: "db.corp", Wildcard: true, Port: 1, Private: true}}},
		"no port":          {Allow: []Rule{{Host: "a.test"}}},
		"unknown proto":    {Allow: []Rule{{Host: "a.test", Port: 1, Proto: "udp"}}},
		"address":          {Allow: []Rule{{Addr: netip.MustParseAddr("192.0.2.1"), Port: 1}}},
		"not normal":       {Allow: []Rule{{Host: "A.test", Port: 1}}},
		"zero deny":        {Deny: []Rule{{}}},
		"odd quiet":        {Quiet: []Rule{{Host: "a b"}}},
	} {
		if err := p.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"a.test", "*.a.test:22", "*", "*.com", "https://x", "127.1:80", "[::1]:80", "A.test", "a:0", "bücher.test:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("ParseRule(%q) = %+v, which is not valid: %v", s, r, err)
		}
		if text := r.String(); text != s && text != s+":443" {
			t.Fatalf("ParseRule(%q) = %q: accepted although not normal", s, text)
		}
		if !r.Wildcard && !(Policy{Allow: []Rule{r}}).Decide(Attempt{Host: r.Host, Port: r.Port}).Allowed {
			t.Fatalf("ParseRule(%q) can't match", s)
		}
	})
}
