package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func mustRules(t *testing.T, list string) []Rule {
	t.Helper()
	rules, err := ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func mustDeny(t *testing.T, s string) []Rule {
	t.Helper()
	r, err := ParseDenyRule(s)
	if err != nil {
		t.Fatal(err)
	}
	return []Rule{r}
}

// The table of case B7: wildcards and ports.
func TestDecideNamesAndPorts(t *testing.T) {
	deep := strings.Repeat("a.", 4)
	tests := []struct {
		rules  string
		host   Host
		port   uint16
		reason Reason // "" allows
	}{
		{"allowed.test", "allowed.test", 443, ""},
		{"allowed.test", "allowed.test", 22, ReasonPort},
		{"allowed.test", "allowed.test", 9999, ReasonPort},
		{"allowed.test", "allowed.test", 0, ReasonPort},
		{"allowed.test", "a.allowed.test", 443, ReasonNotListed},
		{"allowed.test", "xallowed.test", 443, ReasonNotListed},
		{"allowed.test", "test", 443, ReasonNotListed},
		{"allowed.test", "", 443, ReasonMalformed},
		{"allowed.test", "denied.test\x00.allowed.test", 443, ReasonMalformed},
		{"allowed.test", "Allowed.test", 443, ReasonMalformed},
		{"*.allowed.test", "denied.test\x00.allowed.test", 443, ReasonMalformed},
		{"*.allowed.test", "a.allowed.test", 443, ""},
		{"*.allowed.test", "a.b.allowed.test", 443, ""},
		{"*.allowed.test", Host(deep + "allowed.test"), 443, ""},
		{"*.allowed.test", Host("a." + deep + "allowed.test"), 443, ReasonDeep},
		{"*.allowed.test", Host(strings.Repeat("a", 50) + "." + strings.Repeat("b", 49) + ".allowed.test"), 443, ""},
		{"*.allowed.test", Host(strings.Repeat("a", 50) + "." + strings.Repeat("b", 50) + ".allowed.test"), 443, ReasonDeep},
		{"*.allowed.test", "allowed.test", 443, ReasonNotListed},
		{"*.allowed.test", "xallowed.test", 443, ReasonNotListed},
		{"*.allowed.test", "allowed.test.denied.test", 443, ReasonNotListed},
		{"*.allowed.test", "a.allowed.test", 22, ReasonPort},
		{"allowed.test,allowed.test:22", "allowed.test", 22, ""},
	}
	for _, tt := range tests {
		v := Policy{Allow: mustRules(t, tt.rules)}.Decide(Attempt{Host: tt.host, Port: tt.port})
		if v.Allowed != (tt.reason == "") || v.Reason != tt.reason {
			t.Errorf("%s: %q:%d: allowed %v, reason %q; want reason %q", tt.rules, tt.host, tt.port, v.Allowed, v.Reason, tt.reason)
		}
	}
}

func TestDecideEmptyAllowsNothing(t *testing.T) {
	for _, p := range []Policy{{}, {Allow: []Rule{}}, {Allow: []Rule{{}}}, {Quiet: mustDeny(t, "allowed.test")}} {
		for _, a := range []Attempt{{}, {Host: "allowed.test", Port: 443}, {Port: 443}, {Host: "allowed.test"}, {Addr: netip.MustParseAddr("192.0.2.1"), Port: 443}} {
			if v := p.Decide(a); v.Allowed || v.Reason == "" {
				t.Errorf("%+v: %+v: %+v", p, a, v)
			}
		}
		if p.MayResolve("allowed.test") {
			t.Errorf("%+v may resolve", p)
		}
	}
	if (Verdict{}).Allowed {
		t.Error("the zero verdict allows")
	}
}

func TestDecideDenyWins(t *testing.T) {
	p := Policy{Allow: mustRules(t, "*.allowed.test,*.allowed.test:22,allowed.test"), Deny: mustDeny(t, "bad.allowed.test")}
	for _, port := range []uint16{22, 443} {
		v := p.Decide(Attempt{Host: "bad.allowed.test", Port: port})
		if v.Allowed || v.Reason != ReasonDenied || v.Rule.Host != "bad.allowed.test" || v.ConfigLine() != "" {
			t.Errorf("port %d: %+v", port, v)
		}
		if v := p.Decide(Attempt{Host: "good.allowed.test", Port: port}); !v.Allowed {
			t.Errorf("neighbour on port %d: %+v", port, v)
		}
	}
	if p.MayResolve("bad.allowed.test") {
		t.Error("a denied name may be resolved")
	}
	p.Deny = mustDeny(t, "bad.allowed.test:22")
	if !p.MayResolve("bad.allowed.test") || p.Decide(Attempt{Host: "bad.allowed.test", Port: 22}).Allowed {
		t.Error("a deny rule with a port denies that port alone")
	}
	// A deny wildcard has no caps: what is denied stays so however deep.
	p.Deny = mustDeny(t, "*.bad.allowed.test")
	if v := p.Decide(Attempt{Host: "a.b.bad.allowed.test", Port: 443}); v.Reason != ReasonDenied {
		t.Errorf("deep: %+v", v)
	}
}

func TestDecideExactRuleBeforeWildcard(t *testing.T) {
	exact := Rule{Host: "db.corp.test", Port: 443, Private: true, Proto: ProtoTCP}
	wild := Rule{Host: "corp.test", Wildcard: true, Port: 443}
	for _, p := range []Policy{{Allow: []Rule{wild, exact}}, {Allow: []Rule{exact, wild}}} {
		if v := p.Decide(Attempt{Host: "db.corp.test", Port: 443}); v.Rule != exact {
			t.Errorf("rule %+v", v.Rule)
		}
	}
}

func TestDecideLiteralsAndMetadata(t *testing.T) {
	p := Policy{Allow: mustRules(t, "allowed.test,allowed.test:80")}
	tests := map[string]Reason{
		"192.0.2.1": ReasonLiteral, "2001:db8::1": ReasonLiteral, "127.0.0.1": ReasonLiteral, "1.1.1.1": ReasonLiteral,
		"169.254.169.254": ReasonMetadata, "::ffff:169.254.169.254": ReasonMetadata, "::169.254.169.254": ReasonMetadata,
		"fd00:ec2::254": ReasonMetadata, "168.63.129.16": ReasonMetadata, "100.100.100.200": ReasonMetadata,
		"64:ff9b::a9fe:a9fe": ReasonMetadata, "2002:a9fe:a9fe::": ReasonMetadata, "fe80::5efe:a9fe:a9fe": ReasonMetadata,
		"64:ff9b:1::a9fe:a9fe": ReasonMetadata, "2001:0:0:0:0:0:5601:5601": ReasonMetadata,
	}
	for addr, want := range tests {
		if v := p.Decide(Attempt{Addr: netip.MustParseAddr(addr), Port: 80}); v.Allowed || v.Reason != want || v.ConfigLine() != "" || v.RunFlag() != "" {
			t.Errorf("%s: %+v; want %q", addr, v, want)
		}
	}
	// An address wins over a name that comes with it.
	if v := p.Decide(Attempt{Host: "allowed.test", Addr: netip.MustParseAddr("192.0.2.1"), Port: 443}); v.Allowed {
		t.Error("an address passed with a listed name")
	}
	for host, want := range map[Host]Reason{"metadata.google.internal": ReasonMetadata, "instance-data": ReasonMetadata, "localhost": ReasonLocal} {
		all := Policy{Allow: []Rule{{Host: host, Port: 80}}} // can't be parsed; put together by hand
		if v := all.Decide(Attempt{Host: host, Port: 80}); v.Allowed || v.Reason != want {
			t.Errorf("%s: %+v", host, v)
		}
	}
}

func TestQuiet(t *testing.T) {
	p := Policy{Allow: mustRules(t, "allowed.test"), Quiet: append(mustDeny(t, "noise.test"), mustDeny(t, "169.254.169.254")...)}
	if v := p.Decide(Attempt{Host: "noise.test", Port: 443}); v.Allowed || !v.Quiet {
		t.Errorf("quiet name: %+v", v)
	}
	if v := p.Decide(Attempt{Addr: netip.MustParseAddr("::ffff:169.254.169.254"), Port: 80}); v.Allowed || !v.Quiet {
		t.Errorf("quiet address: %+v", v)
	}
	if v := p.Decide(Attempt{Host: "denied.test", Port: 443}); v.Quiet {
		t.Errorf("loud name: %+v", v)
	}
}

// What a refusal says would allow it does allow it.
func TestConfigLineAllows(t *testing.T) {
	p := Policy{Allow: mustRules(t, "*.allowed.test:22")}
	for _, a := range []Attempt{{Host: "denied.test", Port: 8443}, {Host: "a.allowed.test", Port: 443}, {Host: "a.b.c.d.e.allowed.test", Port: 22}} {
		v := p.Decide(a)
		if want := fmt.Sprintf("egress: {allow: [%q]}", a.String()); v.ConfigLine() != want {
			t.Errorf("config line %q; want %q", v.ConfigLine(), want)
		}
		list, ok := strings.CutPrefix(v.RunFlag(), "--net ")
		if !ok {
			t.Fatalf("run flag %q", v.RunFlag())
		}
		if !(Policy{Allow: mustRules(t, list)}).Decide(a).Allowed {
			t.Errorf("%s does not allow %s", v.RunFlag(), a)
		}
	}
	if v := p.Decide(Attempt{Host: "a.allowed.test", Port: 22}); v.ConfigLine() != "" {
		t.Errorf("an allowed attempt has the line %q", v.ConfigLine())
	}
}

func TestCheckAddr(t *testing.T) {
	exact := Rule{Host: "db.test", Port: 5432, Private: true}
	tests := []struct {
		addr  string
		class class
		name  string
	}{
		{"1.1.1.1", public, "public"}, {"2606:4700::1111", public, "public"}, {"64:ff9b::101:101", public, "NAT64 of public"},
		{"::ffff:1.1.1.1", public, "public"},
		{"10.1.2.3", private, "private"}, {"172.16.0.1", private, "private"}, {"172.31.255.255", private, "private"}, {"172.32.0.1", public, "public"},
		{"192.168.1.1", private, "private"}, {"100.64.0.1", private, "shared (CGNAT)"}, {"fd12::1", private, "private (ULA)"},
		{"::ffff:10.0.0.1", private, "private"}, {"64:ff9b::a00:1", private, "NAT64 of private"}, {"::a00:1", private, "private"},
		{"127.0.0.1", never, "loopback"}, {"127.255.255.254", never, "loopback"}, {"::1", never, "loopback"}, {"::ffff:127.0.0.1", never, "loopback"},
		{"0.0.0.0", never, "unspecified"}, {"0.1.2.3", never, "unspecified"}, {"::", never, "unspecified"}, {"::ffff:0.0.0.0", never, "unspecified"},
		{"169.254.1.1", never, "link-local"}, {"fe80::1", never, "link-local"}, {"fec0::1", never, "site-local"},
		{"169.254.169.254", never, "metadata"}, {"169.254.170.2", never, "metadata"}, {"168.63.129.16", never, "metadata"}, {"100.100.100.200", never, "metadata"},
		{"192.0.0.192", never, "metadata"}, {"fd00:ec2::254", never, "metadata"}, {"fd20:ce::254", never, "metadata"}, {"fd00:42::42", never, "metadata"},
		{"fd00:c1::a9fe:a9fe", never, "metadata"}, {"64:ff9b::a9fe:a9fe", never, "NAT64 of metadata"}, {"::a9fe:a9fe", never, "metadata"},
		{"192.0.0.8", never, "protocol assignment"}, {"192.0.2.1", never, "documentation"}, {"198.51.100.1", never, "documentation"}, {"203.0.113.1", never, "documentation"},
		{"2001:db8::1", never, "documentation"}, {"3fff::1", never, "documentation"}, {"198.18.0.1", never, "synthetic"}, {"198.19.0.1", never, "synthetic"},
		{"fdc0:f14e:c0de:18::1", never, "synthetic"}, {"192.88.99.1", never, "6to4 relay"}, {"224.0.0.1", never, "multicast"}, {"ff02::1", never, "multicast"},
		{"240.0.0.1", never, "reserved"}, {"255.255.255.255", never, "broadcast"}, {"2002:101:101::1", never, "6to4"}, {"2001::1", never, "Teredo"},
		{"2001:20::1", never, "protocol assignment"}, {"64:ff9b:1::101:101", never, "local NAT64"}, {"2606:4700::5efe:101:101", never, "ISATAP"},
		{"2606:4700::200:5efe:101:101", never, "ISATAP"}, {"100::1", never, "reserved"}, {"5f00::1", never, "reserved"}, {"4000::1", never, "reserved"},
		{"fe80::1%eth0", never, "invalid"}, {"2606:4700::1%eth0", never, "invalid"},
	}
	for _, tt := range tests {
		addr := netip.MustParseAddr(tt.addr)
		if c, name := classify(addr); c != tt.class || name != tt.name {
			t.Errorf("classify(%s) = %d, %q; want %d, %q", addr, c, name, tt.class, tt.name)
		}
		plain := exact
		plain.Private = false
		err := Policy{}.CheckAddr("db.test", addr, plain)
		if (err == nil) != (tt.class == public) {
			t.Errorf("%s without private: %v", addr, err)
		}
		var ae *AddrError
		if err != nil && (!errors.As(err, &ae) || ae.Range != tt.name || ae.Private != (tt.class == private) || (ae.Hint() != "") != ae.Private) {
			t.Errorf("%s: error %+v", addr, err)
		}
		if err := (Policy{}).CheckAddr("db.test", addr, exact); (err == nil) != (tt.class != never) {
			t.Errorf("%s with private: %v", addr, err)
		}
	}
	lan := netip.MustParseAddr("10.0.0.1")
	if err := (Policy{}).CheckAddr("a.db.test", lan, Rule{Host: "db.test", Wildcard: true, Port: 1, Private: true}); err == nil {
		t.Error("a wildcard opened a private address")
	}
	if err := (Policy{}).CheckAddr("other.test", lan, exact); err == nil {
		t.Error("another name's rule opened a private address")
	}
	if err := (Policy{}).CheckAddr("", netip.Addr{}, Rule{}); err == nil {
		t.Error("the zero address passed")
	}
}

func TestRefusalRender(t *testing.T) {
	r := Refusal{Verdict: Policy{}.Decide(Attempt{Host: "denied.test", Port: 443}), Program: "cu\x1b[31mrl\u202e", Count: 3}
	want := `denied.test:443 by "cu\x1b[31mrl\u202e" (3 times): not listed; to allow it: egress: {allow: ["denied.test:443"]} or --net denied.test:443`
	if got := r.Render(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := r.Notice(); !strings.Contains(got, "blocked by egress rule: denied.test:443: not listed\n") || !strings.Contains(got, `--net denied.test:443`) {
		t.Errorf("notice %q", got)
	}
	odd := Refusal{Asked: "a\x00\x1b]0;x\a", Verdict: Verdict{Reason: ReasonMalformed}}
	if got := odd.Render(); strings.ContainsAny(got, "\x00\x1b\a") || !strings.Contains(got, "not a host name") {
		t.Errorf("got %q", got)
	}
	p := Policy{Deny: mustDeny(t, "denied.test")}
	if got := (Refusal{Verdict: p.Decide(Attempt{Host: "denied.test", Port: 443})}).Render(); got != "denied.test:443: denied by a rule denied.test" {
		t.Errorf("got %q", got)
	}
	private := Refusal{Verdict: Verdict{Attempt: Attempt{Host: "db.corp", Port: 5432}, Reason: ReasonPrivate}}
	if got := private.Render(); !strings.Contains(got, `private: true`) || strings.Contains(got, "--net") {
		t.Errorf("got %q", got)
	}
}

func TestCollector(t *testing.T) {
	var c Collector
	if c.Loud() || len(c.Refusals()) != 0 {
		t.Error("the zero collector holds something")
	}
	at := time.Unix(0, 0)
	quiet := Refusal{Time: at, Verdict: Verdict{Attempt: Attempt{Host: "noise.test", Port: 443}, Reason: ReasonNotListed, Quiet: true}}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 5 {
				c.Add(quiet)
			}
		})
	}
	group.Wait()
	if got := c.Refusals(); len(got) != 1 || got[0].Count != 20 || c.Loud() {
		t.Errorf("%+v loud %v", got, c.Loud())
	}
	other := quiet
	other.Program, other.Time = "curl", at.Add(-time.Second)
	c.Add(other)
	if got := c.Refusals(); len(got) != 2 || got[0].Program != "curl" {
		t.Errorf("%+v", got)
	}
	// A flood of quiet refusals does not hide a loud one.
	for i := range 2 * MaxRefusals {
		flood := quiet
		flood.Verdict.Attempt.Host = Host(fmt.Sprintf("n%d.test", i))
		c.Add(flood)
	}
	if c.Loud() || len(c.Refusals()) != MaxRefusals || c.Dropped() != MaxRefusals+2 {
		t.Errorf("%d kept, %d dropped", len(c.Refusals()), c.Dropped())
	}
	c.Add(Refusal{Verdict: Verdict{Reason: ReasonNotListed}})
	if !c.Loud() {
		t.Error("a loud refusal was lost")
	}
}

// One fault must not hide another of the same target and program.
func TestCollectorKeepsFaultsApart(t *testing.T) {
	var c Collector
	fault := func(detail string) Refusal {
		return Refusal{Asked: "request to the HTTP proxy", Verdict: Verdict{Reason: ReasonNotHTTP}, Detail: detail, Program: "curl"}
	}
	for i := range 6 {
		r := fault("the port is missing")
		r.Time = time.Unix(int64(i), 0)
		c.Add(r)
		c.Add(fault("Host and the CONNECT target differ"))
	}
	named := Refusal{Verdict: Verdict{Reason: ReasonAddress, Attempt: Attempt{Host: "allowed.test", Port: 443}}, Detail: "loopback"}
	for _, addr := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.1"} {
		named.Resolved = netip.MustParseAddr(addr)
		c.Add(named)
	}
	got := map[string]int{}
	for _, r := range c.Refusals() {
		got[r.Detail+r.Resolved.String()] += r.Count
	}
	if len(c.Refusals()) != 4 || got["the port is missinginvalid IP"] != 6 || got["Host and the CONNECT target differinvalid IP"] != 6 || got["loopback127.0.0.1"] != 2 {
		t.Errorf("%v", got)
	}
	// What was asked for is untrusted and of any length.
	c.Add(Refusal{Asked: strings.Repeat("\u00e9", 60<<10)})
	for _, r := range c.Refusals() {
		if len(r.Asked) > 4*maxAsked {
			t.Errorf("%d bytes kept", len(r.Asked))
		}
	}
}

// A refusal of what a connection carried names the rule that would not look, and
// only where the port says nothing and the rule left it open.
func TestConfigLineForWhatIsInspected(t *testing.T) {
	rule := Rule{Host: "a.test", Port: 8090}
	tests := []struct {
		port   uint16
		change func(*Rule)
		reason Reason
		want   string
	}{
		{8090, nil, ReasonNotHTTP, `egress: {allow: [{host: "a.test:8090", proto: tcp}]}`},
		{8090, nil, ReasonNotTLS, `egress: {allow: [{host: "a.test:8090", proto: tcp}]}`},
		{8090, func(r *Rule) { r.Private = true }, ReasonNotHTTP, `egress: {allow: [{host: "a.test:8090", proto: tcp, private: true}]}`},
		{8090, func(r *Rule) { r.Proto = ProtoHTTP }, ReasonNotHTTP, ""},
		{8090, nil, ReasonHTTPHost, ""},
		{8090, nil, ReasonTLSName, ""},
		{80, nil, ReasonNotHTTP, ""},
		{443, nil, ReasonNotTLS, ""},
	}
	for _, tt := range tests {
		v := Verdict{Attempt: Attempt{Host: "a.test", Port: tt.port}, Rule: rule, Reason: tt.reason}
		if tt.change != nil {
			tt.change(&v.Rule)
		}
		if got := v.ConfigLine(); got != tt.want || v.RunFlag() != "" {
			t.Errorf("%+v: %q, %q", tt, got, v.RunFlag())
		}
	}
}
