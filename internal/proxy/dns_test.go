package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"confine/internal/egress"
)

func TestDNS(t *testing.T) {
	f := newFixture(t, "allowed.test,*.wild.test:22", nil)
	tests := []struct {
		name string
		kind dnsmessage.Type
		code dnsmessage.RCode
		in   netip.Prefix // of the one answer; zero means no answer
	}{
		{"allowed.test", dnsmessage.TypeA, dnsmessage.RCodeSuccess, egress.ListedIPv4},
		{"ALLOWED.test", dnsmessage.TypeA, dnsmessage.RCodeSuccess, egress.ListedIPv4},
		{"allowed.test", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, egress.ListedIPv6},
		{"a.wild.test", dnsmessage.TypeA, dnsmessage.RCodeSuccess, egress.ListedIPv4},
		{"wild.test", dnsmessage.TypeA, dnsmessage.RCodeSuccess, egress.RefusedIPv4},
		{"s3cr3t.denied.test", dnsmessage.TypeA, dnsmessage.RCodeSuccess, egress.RefusedIPv4},
		{"s3cr3t.denied.test", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, egress.RefusedIPv6},
		{"a.allowed.test", dnsmessage.TypeA, dnsmessage.RCodeSuccess, egress.RefusedIPv4},
		{"allowed.test", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, netip.Prefix{}},
		{"allowed.test", dnsmessage.Type(65), dnsmessage.RCodeSuccess, netip.Prefix{}}, // HTTPS
		{"allowed.test", dnsmessage.Type(64), dnsmessage.RCodeSuccess, netip.Prefix{}}, // SVCB
		{"s3cr3t.denied.test", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, netip.Prefix{}},
		{"1.0.18.198.in-addr.arpa", dnsmessage.TypePTR, dnsmessage.RCodeSuccess, netip.Prefix{}},
		{"localhost", dnsmessage.TypeA, dnsmessage.RCodeSuccess, netip.MustParsePrefix("127.0.0.1/32")},
		{"localhost", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, netip.MustParsePrefix("::1/128")},
		{"metadata.google.internal", dnsmessage.TypeA, dnsmessage.RCodeNameError, netip.Prefix{}},
		{"instance-data", dnsmessage.TypeAAAA, dnsmessage.RCodeNameError, netip.Prefix{}},
		{"metadata.google.internal", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, netip.Prefix{}},
		{"a b.test", dnsmessage.TypeA, dnsmessage.RCodeNameError, netip.Prefix{}},
		{"denied.test\x00.allowed.test", dnsmessage.TypeA, dnsmessage.RCodeNameError, netip.Prefix{}},
		{"2852039166", dnsmessage.TypeA, dnsmessage.RCodeNameError, netip.Prefix{}},
		{"127.1", dnsmessage.TypeA, dnsmessage.RCodeNameError, netip.Prefix{}},
	}
	for _, tt := range tests {
		code, addrs := f.query(tt.name, tt.kind)
		ok := code == tt.code && len(addrs) == 0
		if tt.in.IsValid() {
			ok = code == tt.code && len(addrs) == 1 && tt.in.Contains(addrs[0])
		}
		if !ok {
			t.Errorf("%q %v: %v %v; want %v in %v", tt.name, tt.kind, code, addrs, tt.code, tt.in)
		}
		if _, again := f.query(tt.name, tt.kind); fmt.Sprint(again) != fmt.Sprint(addrs) {
			t.Errorf("%q %v: %v, then %v", tt.name, tt.kind, addrs, again)
		}
	}
	if n := f.lookedUp(); len(n) != 0 {
		t.Errorf("names were resolved outside: %q", n)
	}
}

func TestDNSReportsMetadata(t *testing.T) {
	f := newFixture(t, "", nil)
	f.query("metadata.google.internal", dnsmessage.TypeA)
	if r := f.refusal(); r.Verdict.Reason != egress.ReasonMetadata || r.Target() != "metadata.google.internal" || r.Program != "curl" {
		t.Errorf("%+v", r)
	}
	f.query("a b.test", dnsmessage.TypeA)
	if r := f.refusal(); r.Verdict.Reason != egress.ReasonMalformed || r.Target() != `"a b.test."` {
		t.Errorf("%+v", r)
	}
}

func TestDNSOverTCP(t *testing.T) {
	f := newFixture(t, "allowed.test", nil)
	conn := f.dialRaw(f.dnsTCP)
	for range 2 { // two queries on one connection
		q := question(t, "allowed.test", dnsmessage.TypeA)
		send(t, conn, string(binary.BigEndian.AppendUint16(nil, uint16(len(q))))+string(q))
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, reply); err != nil {
			t.Fatal(err)
		}
		if code, addrs := parseReply(t, reply); code != 0 || len(addrs) != 1 || !egress.ListedIPv4.Contains(addrs[0]) {
			t.Errorf("%v %v", code, addrs)
		}
	}
	send(t, conn, "\xff\xff")
	if got, _ := io.ReadAll(conn); len(got) != 0 {
		t.Errorf("an oversized query was answered with %q", got)
	}
}

func TestDNSTablesAreCapped(t *testing.T) {
	f := newFixture(t, "allowed.test", nil)
	ses := newSession(t.Context(), f.server, nil)
	ask := func(name string) (dnsmessage.RCode, []netip.Addr) {
		return parseReply(t, ses.answer(question(t, name, dnsmessage.TypeA), &net.UDPAddr{}))
	}
	seen := map[netip.Addr]bool{}
	for i := range maxNames {
		code, addrs := ask(fmt.Sprintf("n%d.denied.test", i))
		if code != 0 || len(addrs) != 1 || seen[addrs[0]] || !egress.RefusedIPv4.Contains(addrs[0]) {
			t.Fatalf("name %d: %v %v", i, code, addrs)
		}
		seen[addrs[0]] = true
		if host, ok := ses.names.lookup(addrs[0]); !ok || host != egress.Host(fmt.Sprintf("n%d.denied.test", i)) {
			t.Fatalf("name %d: %v leads to %q", i, addrs, host)
		}
	}
	if code, addrs := ask("one.more.test"); code != dnsmessage.RCodeNameError || len(addrs) != 0 {
		t.Errorf("past the cap: %v %v", code, addrs)
	}
	if r := f.refusal(); r.Verdict.Reason != egress.ReasonBusy {
		t.Errorf("%+v", r)
	}
	if code, addrs := ask("allowed.test"); code != 0 || len(addrs) != 1 || !egress.ListedIPv4.Contains(addrs[0]) {
		t.Errorf("a listed name with the other table full: %v %v", code, addrs)
	}
	if code, _ := ask("n0.denied.test"); code != 0 {
		t.Errorf("a name that is in the table: %v", code)
	}
}

func TestDNSWildcardNamesAreCapped(t *testing.T) {
	f := newFixture(t, "*.wild.test,exact.wild.test", nil)
	for i := range egress.MaxWildcardNames {
		if _, addrs := f.query(fmt.Sprintf("n%d.wild.test", i), dnsmessage.TypeA); len(addrs) != 1 || !egress.ListedIPv4.Contains(addrs[0]) {
			t.Fatalf("name %d: %v", i, addrs)
		}
	}
	if _, addrs := f.query("more.wild.test", dnsmessage.TypeA); len(addrs) != 1 || !egress.RefusedIPv4.Contains(addrs[0]) {
		t.Errorf("past the cap: %v", addrs)
	}
	if _, addrs := f.query("exact.wild.test", dnsmessage.TypeA); len(addrs) != 1 || !egress.ListedIPv4.Contains(addrs[0]) {
		t.Errorf("a name with its own rule: %v", addrs)
	}
	// The cap is the run's: another sandbox of it does not get a new one.
	if v := f.server.decide(egress.Attempt{Host: "other.wild.test", Port: 443}); v.Allowed || v.Reason != egress.ReasonNames {
		t.Errorf("%+v", v)
	}
	if v := f.server.decide(egress.Attempt{Host: "n0.wild.test", Port: 443}); !v.Allowed {
		t.Errorf("%+v", v)
	}
}

func TestNameTableRefusesGuesses(t *testing.T) {
	var table nameTable
	v4, v6, ok := table.assign("allowed.test", func() int { return kindListed })
	if !ok {
		t.Fatal("not assigned")
	}
	for _, a := range []netip.Addr{v4, v6} {
		if host, ok := table.lookup(a); !ok || host != "allowed.test" {
			t.Errorf("%s leads to %q", a, host)
		}
	}
	for _, a := range []string{"198.18.0.1", "198.18.0.0", "198.18.1.1", "198.18.255.255", "198.19.1.0", "1.1.1.1", "fdc0:f14e:c0de:18::1", "fdc0:f14e:c0de:18:1::100", "fdc0:f14e:c0de:18::1:100", "fdc0:f14e:c0de:19::100"} {
		if host, ok := table.lookup(netip.MustParseAddr(a)); ok {
			t.Errorf("%s leads to %q", a, host)
		}
	}
}

func FuzzDNS(f *testing.F) {
	server, err := New(Options{Policy: egress.Policy{Allow: []egress.Rule{{Host: "allowed.test", Port: 443}}}, Resolver: noResolver{f}})
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"allowed.test", "denied.test", "metadata", "localhost", strings.Repeat("a.", 120) + "b"} {
		q := dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
		msg, err := (&dnsmessage.Message{Questions: []dnsmessage.Question{q}}).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(msg)
	}
	f.Add([]byte{})
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	ses := newSession(f.Context(), server, nil)
	f.Fuzz(func(t *testing.T, query []byte) {
		reply := ses.answer(query, &net.UDPAddr{})
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("the reply to %x can't be read: %v", query, err)
		}
		if len(reply) > 512 || !m.Response || len(m.Answers) > 1 {
			t.Fatalf("reply to %x: %d bytes, %+v", query, len(reply), m)
		}
	})
}

// noResolver fails a test that resolves anything.
type noResolver struct{ testing.TB }

func (r noResolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	r.Errorf("%q was resolved", host)
	return nil, net.ErrClosed
}
