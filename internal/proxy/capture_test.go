package proxy

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"confine/internal/egress"
)

func TestCaptureTLS(t *testing.T) {
	f := newFixture(t, "allowed.test", nil)
	f.serve(allowedAddr+":443", serveTLS)
	conn := tls.Client(f.dialName("allowed.test", 443), &tls.Config{ServerName: "allowed.test", InsecureSkipVerify: true})
	send(t, conn, "ping")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, conn); got != "ping" {
		t.Errorf("got %q", got)
	}
	conn.Close()
	<-f.told
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.refusals) != 0 || len(f.carried) != 1 {
		t.Fatalf("refused %+v carried %+v", f.refusals, f.carried)
	}
	if c := f.carried[0]; c.To.String() != "allowed.test:443" || c.Up < 100 || c.Down < 100 || c.Program != "curl" {
		t.Errorf("%+v", c)
	}
}

// Case B10: what the ClientHello says has to be what was dialled.
func TestCaptureTLSName(t *testing.T) {
	good := hello(t, "allowed.test")
	records := splitRecords(good, 7)
	noName := hello(t, "")
	tests := []struct {
		name   string
		pieces []string
		reason egress.Reason // "" passes
	}{
		{"whole", []string{string(good)}, ""},
		{"byte by byte", strings.Split(string(good), ""), ""},
		{"many records", []string{string(records)}, ""},
		{"many records byte by byte", strings.Split(string(records), ""), ""},
		{"upper case", []string{strings.Replace(string(good), "allowed.test", "AllOWed.TEST", 1)}, ""},
		{"with early data", []string{string(good) + "\x14\x03\x03\x00\x01\x01"}, ""},
		{"other name", []string{string(hello(t, "denied.test"))}, egress.ReasonTLSName},
		{"other name byte by byte", strings.Split(string(hello(t, "denied.test")), ""), egress.ReasonTLSName},
		{"name with a zero byte", []string{strings.Replace(string(good), "allowed.test", "allowed.tes\x00", 1)}, egress.ReasonTLSName},
		{"no name", []string{string(noName)}, egress.ReasonNotTLS},
		{"not TLS", []string{"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"}, egress.ReasonNotTLS},
		{"SSLv2", []string{"\x80\x2e\x01\x03\x01\x00\x15"}, egress.ReasonNotTLS},
		{"alert", []string{"\x15\x03\x01\x00\x02\x01\x00"}, egress.ReasonNotTLS},
		{"server hello", []string{"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"}, egress.ReasonNotTLS},
		{"endless", []string{"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + strings.Repeat("x", 16380)}, egress.ReasonNotTLS},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, "allowed.test", nil)
			up := f.serve(allowedAddr+":443", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			conn := f.dialName("allowed.test", 443)
			want := strings.Join(tt.pieces, "")
			for _, piece := range tt.pieces {
				if _, err := io.WriteString(conn, piece); err != nil {
					break // refused before all was sent
				}
			}
			if tt.reason == "" {
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				readAll(t, conn)
				if up.text() != want {
					t.Errorf("upstream got %d bytes, want %d", len(up.text()), len(want))
				}
				return
			}
			got, _ := io.ReadAll(conn)
			if r := f.refusal(); r.Verdict.Reason != tt.reason || r.Verdict.Allowed || r.Target() != "allowed.test:443" {
				t.Errorf("%+v", r)
			}
			if wantAlert := strings.HasPrefix(want, "\x16"); wantAlert != (string(got) == "\x15\x03\x03\x00\x02\x02\x31") {
				t.Errorf("told %q", got)
			}
			f.stop()
			if _, n := up.counts(); n != 0 {
				t.Errorf("%d bytes went upstream", n)
			}
		})
	}
}

// splitRecords puts a record's content into records of n bytes.
func splitRecords(record []byte, n int) []byte {
	var out []byte
	for rest := record[5:]; len(rest) > 0; {
		part := rest[:min(n, len(rest))]
		rest = rest[len(part):]
		out = append(append(out, 22, 3, 1, 0, byte(len(part))), part...)
	}
	return out
}

func TestCaptureRefusesByDestination(t *testing.T) {
	tests := []struct {
		name   string
		dst    func(*fixture) netip.AddrPort
		target string
		reason egress.Reason
	}{
		{"unlisted name", named("s3cr3t.denied.test", 443), "s3cr3t.denied.test:443", egress.ReasonNotListed},
		{"unlisted port", named("allowed.test", 22), "allowed.test:22", egress.ReasonPort},
		{"literal", literal("192.0.2.1:5432"), "192.0.2.1:5432", egress.ReasonLiteral},
		{"literal IPv6", literal("[2001:db8::1]:80"), "[2001:db8::1]:80", egress.ReasonLiteral},
		{"literal of a listed host", literal(allowedAddr + ":443"), allowedAddr + ":443", egress.ReasonLiteral},
		{"metadata", literal("169.254.169.254:80"), "169.254.169.254:80", egress.ReasonMetadata},
		{"metadata mapped", literal("[::ffff:169.254.169.254]:80"), "[::ffff:169.254.169.254]:80", egress.ReasonMetadata},
		{"metadata IPv6", literal("[fd00:ec2::254]:80"), "[fd00:ec2::254]:80", egress.ReasonMetadata},
		{"guessed synthetic address", literal("198.18.1.77:443"), "198.18.1.77:443", egress.ReasonLiteral},
		{"guessed refused address", literal("198.19.1.77:443"), "198.19.1.77:443", egress.ReasonLiteral},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, "allowed.test", nil)
			conn := f.dialCapture(tt.dst(f))
			send(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if got := readAll(t, conn); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "blocked by egress rule: "+tt.target) {
				t.Errorf("told %q", got)
			}
			r := f.refusal()
			if r.Verdict.Reason != tt.reason || r.Target() != tt.target || r.Program != "curl" || r.Count != 1 || r.Time.IsZero() {
				t.Errorf("%+v", r)
			}
			if len(f.lookedUp())+len(f.dialled()) != 0 {
				t.Errorf("looked up %q, dialled %q", f.lookedUp(), f.dialled())
			}
		})
	}
}

func named(name string, port uint16) func(*fixture) netip.AddrPort {
	return func(f *fixture) netip.AddrPort {
		_, addrs := f.query(name, dnsmessage.TypeA)
		return netip.AddrPortFrom(addrs[0], port)
	}
}

func literal(s string) func(*fixture) netip.AddrPort {
	return func(*fixture) netip.AddrPort { return netip.MustParseAddrPort(s) }
}

// A connection that nobody redirected has no destination but the listener.
func TestCaptureServesNothingDirectly(t *testing.T) {
	for _, dst := range []func(*fixture) netip.AddrPort{
		func(f *fixture) netip.AddrPort { return netip.MustParseAddrPort(f.capture) },
		literal("127.0.0.1:443"), literal("[::1]:443"), literal("[::ffff:127.0.0.1]:443"), literal("1.1.1.1:0"),
		func(*fixture) netip.AddrPort { return netip.AddrPort{} },
	} {
		f := newFixture(t, "allowed.test", nil)
		to := dst(f)
		if got := readAll(t, f.dialCapture(to)); got != "" {
			t.Errorf("%v: got %q", to, got)
		}
		f.stop()
		if len(f.refusals)+len(f.dialled()) != 0 {
			t.Errorf("%v: %+v, dialled %q", to, f.refusals, f.dialled())
		}
	}
}

func TestCaptureIPv6Answer(t *testing.T) {
	f := newFixture(t, "allowed.test:9999", nil)
	f.serve(allowedAddr+":9999", echo)
	_, addrs := f.query("allowed.test", dnsmessage.TypeAAAA)
	conn := f.dialCapture(netip.AddrPortFrom(addrs[0], 9999))
	send(t, conn, "ping")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, conn); got != "ping" {
		t.Errorf("got %q", got)
	}
}

// Ports without a protocol of their own carry whoever speaks first.
func TestCaptureAutoOnOtherPorts(t *testing.T) {
	banner := func(c net.Conn) {
		_, _ = io.WriteString(c, "220 hello\r\n")
		_, _ = io.Copy(c, c)
	}
	tests := []struct {
		name  string
		serve func(net.Conn)
		read  string // before sending
		send  string
		want  string // after sending and half-closing
		fails egress.Reason
	}{
		{name: "client first", serve: echo, send: "\x00\x01binary", want: "\x00\x01binary"},
		{name: "client first, one byte", serve: echo, send: "G", want: "G"},
		{name: "client first, a line", serve: echo, send: "GET key\r\n", want: "GET key\r\n"},
		{name: "git", serve: answerFirst(40), send: "003cgit-upload-pack /project.git\x00host=allowed.test\x00\x00..", want: "40 read"},
		{name: "one small letter", serve: answerFirst(1), send: "x", want: "1 read"},
		{name: "server first", serve: banner, read: "220 hello\r\n", send: "EHLO x\r\n", want: "EHLO x\r\n"},
		{name: "server only", serve: func(c net.Conn) { _, _ = io.WriteString(c, "bye") }, want: "bye"},
		{name: "TLS", serve: echo, send: string(hello(t, "allowed.test")), want: string(hello(t, "allowed.test"))},
		{name: "TLS for another name", serve: echo, send: string(hello(t, "denied.test")), fails: egress.ReasonTLSName},
		{name: "TLS without a name", serve: echo, send: string(hello(t, "")), fails: egress.ReasonNotTLS},
		{name: "server first, then TLS for another name", serve: banner, read: "220 hello\r\n", send: string(hello(t, "denied.test")), fails: egress.ReasonTLSName},
		{name: "HTTP for another host", serve: echo, send: "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", fails: egress.ReasonHTTPHost},
		{name: "HTTP for another host after empty lines", serve: echo, send: "\r\n\r\nGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", fails: egress.ReasonNotHTTP},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, "allowed.test:2222", nil)
			up := f.serve(allowedAddr+":2222", tt.serve)
			conn := f.dialName("allowed.test", 2222)
			if tt.read != "" {
				got := make([]byte, len(tt.read))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != tt.read {
					t.Fatalf("read %q, %v", got, err)
				}
			}
			send(t, conn, tt.send)
			if strings.HasSuffix(tt.want, " read") { // the client waits before it ends
				got := make([]byte, len(tt.want))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != tt.want {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if tt.fails != "" {
				if r := f.refusal(); r.Verdict.Reason != tt.fails {
					t.Errorf("%+v", r)
				}
				_, _ = io.ReadAll(conn)
				if _, n := up.counts(); n != 0 {
					t.Errorf("%d bytes went upstream", n)
				}
				return
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, conn); len(got) != len(tt.want) || tt.name != "TLS" && got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// answerFirst answers as soon as it has n bytes.
func answerFirst(n int) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, n)); err == nil {
			fmt.Fprintf(c, "%d read", n)
		}
	}
}

func TestRuleProtoDecides(t *testing.T) {
	proto := func(p egress.Proto, port uint16) func(*Options) {
		return func(o *Options) { o.Policy.Allow = []egress.Rule{{Host: "allowed.test", Port: port, Proto: p}} }
	}
	// tcp on 443: what is no TLS passes.
	f := newFixture(t, "", proto(egress.ProtoTCP, 443))
	f.serve(allowedAddr+":443", echo)
	conn := f.dialName("allowed.test", 443)
	send(t, conn, "ping")
	_ = conn.CloseWrite()
	if got := readAll(t, conn); got != "ping" {
		t.Errorf("tcp: got %q", got)
	}
	// tls and http elsewhere: what is neither does not.
	for p, want := range map[egress.Proto]egress.Reason{egress.ProtoTLS: egress.ReasonNotTLS, egress.ProtoHTTP: egress.ReasonNotHTTP} {
		f := newFixture(t, "", proto(p, 2222))
		up := f.serve(allowedAddr+":2222", echo)
		conn := f.dialName("allowed.test", 2222)
		send(t, conn, "ping\r\n\r\n")
		if r := f.refusal(); r.Verdict.Reason != want {
			t.Errorf("%s: %+v", p, r)
		}
		_, _ = io.ReadAll(conn)
		if _, n := up.counts(); n != 0 {
			t.Errorf("%s: %d bytes went upstream", p, n)
		}
	}
}

// Case B4: ssh prints why.
func TestCaptureTellsSSH(t *testing.T) {
	for name, say := range map[string]string{"client speaks": "SSH-2.0-OpenSSH_9\r\n", "client waits": ""} {
		f := newFixture(t, "allowed.test", nil)
		conn := f.dialName("allowed.test", 22)
		send(t, conn, say)
		got := readAll(t, conn)
		packet, ok := strings.CutPrefix(got, "SSH-2.0-confine\r\n")
		if !ok || len(packet)%8 != 0 || len(packet) < 24 {
			t.Fatalf("%s: got %q", name, got)
		}
		length, padding := int(packet[2])<<8|int(packet[3]), int(packet[4])
		if length != len(packet)-4 || padding < 4 || packet[5] != 1 || !strings.Contains(packet, "blocked by egress rule: allowed.test:22") || !strings.Contains(packet, "https instead of ssh") {
			t.Errorf("%s: packet %q", name, packet)
		}
		f.refusal()
	}
}

// Case B13: equal checksums both ways through one connection.
func TestCaptureLargeTransfer(t *testing.T) {
	const size = 100 << 20
	f := newFixture(t, "", func(o *Options) {
		o.Policy.Allow = []egress.Rule{{Host: "allowed.test", Port: 9999}}
	})
	sums := make(chan [32]byte, 1)
	f.serve(allowedAddr+":9999", func(c net.Conn) {
		h := sha256.New()
		_, _ = io.Copy(h, c) // to the half-close
		sums <- [32]byte(h.Sum(nil))
		_, _ = io.CopyN(c, rand.NewChaCha8([32]byte{2}), size)
	})
	conn := f.dialName("allowed.test", 9999)
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(conn, rand.NewChaCha8([32]byte{1}), size); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-sums; got != sum(1, size) {
		t.Error("what went up differs")
	}
	h := sha256.New()
	if _, err := io.Copy(h, conn); err != nil {
		t.Fatal(err)
	}
	if [32]byte(h.Sum(nil)) != sum(2, size) {
		t.Error("what came down differs")
	}
	<-f.told
	if c := f.carried[0]; c.Up != size || c.Down != size {
		t.Errorf("%+v", c)
	}
}

func sum(seed byte, size int64) [32]byte {
	h := sha256.New()
	_, _ = io.CopyN(h, rand.NewChaCha8([32]byte{seed}), size)
	return [32]byte(h.Sum(nil))
}

// A connection that upstream broke must not look like one that ended.
func TestCaptureResetIsNotAnEnd(t *testing.T) {
	f := newFixture(t, "allowed.test:9999", nil)
	f.serve(allowedAddr+":9999", func(c net.Conn) {
		_, _ = io.WriteString(c, "part")
		one := make([]byte, 1)
		_, _ = c.Read(one)
		_ = c.(recorded).SetLinger(0)
	})
	conn := f.dialName("allowed.test", 9999)
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatal(err)
	}
	send(t, conn, "x")
	if rest, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v; want a reset", rest, err)
	}
}

// A name that resolves to something else after the check: each dial is checked.
func TestRebinding(t *testing.T) {
	f := newFixture(t, "allowed.test:9999", nil)
	f.serve(allowedAddr+":9999", echo)
	f.serve("10.0.0.1:9999", echo)
	conn := f.dialName("allowed.test", 9999)
	send(t, conn, "ping")
	_ = conn.CloseWrite()
	if got := readAll(t, conn); got != "ping" {
		t.Fatalf("control: got %q", got)
	}
	<-f.told
	for addr, want := range map[string]egress.Reason{
		"10.0.0.1": egress.ReasonPrivate, "100.64.0.1": egress.ReasonPrivate, "fd12::1": egress.ReasonPrivate,
		"127.0.0.1": egress.ReasonAddress, "::1": egress.ReasonAddress, "169.254.169.254": egress.ReasonAddress,
		"::ffff:169.254.169.254": egress.ReasonAddress, "64:ff9b::a9fe:a9fe": egress.ReasonAddress, "fe80::1%lo": egress.ReasonAddress,
		"0.0.0.0": egress.ReasonAddress, "198.18.1.0": egress.ReasonAddress,
	} {
		f.mu.Lock()
		f.answers["allowed.test."] = []string{addr}
		f.dials = nil
		f.mu.Unlock()
		conn := f.dialName("allowed.test", 9999)
		_, _ = io.ReadAll(conn)
		r := f.refusal()
		if r.Verdict.Reason != want || !r.Resolved.IsValid() {
			t.Errorf("%s: %+v", addr, r)
		}
		if strings.Contains(r.Notice(), addr) || !strings.Contains(r.Render(), r.Resolved.String()) {
			t.Errorf("%s: the program is told %q, the operator %q", addr, r.Notice(), r.Render())
		}
		if d := f.dialled(); len(d) != 0 {
			t.Errorf("%s: dialled %q", addr, d)
		}
	}
	// Of several addresses only the checked ones are dialled.
	f.mu.Lock()
	f.answers["allowed.test."] = []string{"10.0.0.1", allowedAddr, "127.0.0.1"}
	f.mu.Unlock()
	conn = f.dialName("allowed.test", 9999)
	send(t, conn, "ping")
	_ = conn.CloseWrite()
	if got := readAll(t, conn); got != "ping" {
		t.Errorf("got %q", got)
	}
	if d := f.dialled(); len(d) != 1 || d[0] != allowedAddr+":9999" {
		t.Errorf("dialled %q", d)
	}
}

func TestPrivateRule(t *testing.T) {
	f := newFixture(t, "", func(o *Options) {
		o.Policy.Allow = []egress.Rule{{Host: "db.corp.test", Port: 5432, Private: true}}
	})
	f.answers["db.corp.test."] = []string{"10.0.0.1"}
	f.serve("10.0.0.1:5432", echo)
	conn := f.dialName("db.corp.test", 5432)
	send(t, conn, "ping")
	_ = conn.CloseWrite()
	if got := readAll(t, conn); got != "ping" {
		t.Errorf("got %q", got)
	}
}

func TestOwnAddressIsNotDialled(t *testing.T) {
	own := netip.MustParseAddr(allowedAddr)
	f := newFixture(t, "allowed.test:9999", func(o *Options) {
		o.OwnAddresses = func() ([]netip.Addr, error) { return []netip.Addr{own}, nil }
	})
	_, _ = io.ReadAll(f.dialName("allowed.test", 9999))
	if r := f.refusal(); r.Verdict.Reason != egress.ReasonAddress || r.Detail != "machine's own" {
		t.Errorf("%+v", r)
	}
}

// The default dialer looks at what connect(2) is about to be given.
func TestDialerChecksAgain(t *testing.T) {
	f := newFixture(t, "allowed.test", func(o *Options) { o.Dialer = nil })
	l := listen(t)
	to := netip.MustParseAddrPort(l.Addr().String())
	v := f.server.decide(egress.Attempt{Host: "allowed.test", Port: 443})
	if conn, err := f.server.dialAddr(t.Context(), to, nil); err != nil {
		t.Errorf("control: %v", err)
	} else {
		conn.Close()
	}
	conn, err := f.server.dialAddr(t.Context(), to, &v)
	var ae *egress.AddrError
	if !errors.As(err, &ae) || ae.Range != "loopback" {
		t.Errorf("dialled %v, %v", conn, err)
	}
	if _, err := f.server.dial(t.Context(), egress.Verdict{Attempt: v.Attempt}); err == nil {
		t.Error("a verdict that does not allow was dialled")
	}
}

func TestNetMap(t *testing.T) {
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); echo(c) }()
		}
	}()
	to := netip.MustParseAddrPort(l.Addr().String())
	for _, key := range []egress.HostPort{{Host: "allowed.test"}, {Host: "allowed.test", Port: 9999}} {
		f := newFixture(t, "allowed.test:9999", func(o *Options) {
			o.NetMap, o.Dialer = map[egress.HostPort]netip.AddrPort{key: to}, nil
		})
		conn := f.dialName("allowed.test", 9999)
		send(t, conn, "ping")
		_ = conn.CloseWrite()
		if got := readAll(t, conn); got != "ping" || len(f.lookedUp()) != 0 {
			t.Errorf("%v: got %q, looked up %q", key, got, f.lookedUp())
		}
		// A map opens nothing by itself.
		_, _ = io.ReadAll(f.dialName("allowed.test", 22))
		<-f.told
		if f.mu.Lock(); len(f.refusals) != 1 {
			t.Errorf("%v: %+v", key, f.refusals)
		}
		f.mu.Unlock()
	}
}

func TestDeadFirstAddress(t *testing.T) {
	f := newFixture(t, "allowed.test:9999", nil)
	f.answers["allowed.test."] = []string{"1.0.0.1", "2606:4700::1", allowedAddr} // two that never answer
	f.serve(allowedAddr+":9999", echo)
	conn := f.dialName("allowed.test", 9999)
	send(t, conn, "ping")
	_ = conn.CloseWrite()
	if got := readAll(t, conn); got != "ping" {
		t.Errorf("got %q", got)
	}
	if d := fmt.Sprint(f.dialled()); d != "[1.0.0.1:9999 [2606:4700::1]:9999 1.1.1.1:9999]" {
		t.Errorf("dialled %s", d)
	}
}
