package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"confine/internal/egress"
)

func TestNewChecksPolicy(t *testing.T) {
	if _, err := New(Options{}); err != nil {
		t.Errorf("control: %v", err)
	}
	if _, err := New(Options{Policy: egress.Policy{Allow: []egress.Rule{{}}}}); err == nil {
		t.Error("a policy with an empty rule was accepted")
	}
}

func TestServeWantsEverySocket(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	if _, err := s.Serve(nil, l, l, l, nil); err == nil || !strings.Contains(err.Error(), "socket is missing") {
		t.Errorf("%v", err)
	}
	if conn, err := l.Accept(); err == nil {
		conn.Close()
		t.Error("the other sockets were left open")
	}
}

// An empty policy refuses by every way in, and resolves nothing.
func TestEmptyPolicy(t *testing.T) {
	f := newFixture(t, "", nil)
	ways := map[string]func() string{
		"name": func() string {
			c := f.dialName("allowed.test", 443)
			send(t, c, "GET / HTTP/1.1\r\n\r\n")
			return readAll(t, c)
		},
		"literal": func() string {
			c := f.dialCapture(netip.MustParseAddrPort("1.1.1.1:443"))
			send(t, c, "GET / HTTP/1.1\r\n\r\n")
			return readAll(t, c)
		},
		"CONNECT": func() string {
			c := f.dialRaw(f.connect)
			send(t, c, "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
			return readAll(t, c)
		},
	}
	for name, way := range ways {
		if got := way(); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
			t.Errorf("%s: %q", name, got)
		}
		f.refusal()
	}
	if len(f.lookedUp())+len(f.dialled()) != 0 {
		t.Errorf("looked up %q, dialled %q", f.lookedUp(), f.dialled())
	}
}

// Past the cap a connection is closed at once; below it the next is served.
func TestConnectionsAreCapped(t *testing.T) {
	f := newFixture(t, "allowed.test:9999", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ses := newSession(ctx, f.server, nil)
	l := listen(t)
	slots := make(chan struct{}, 2)
	ses.group.Go(func() {
		ses.accept(l, slots, func(c net.Conn) { _, _ = io.Copy(c, c) })
	})
	defer func() { cancel(); l.Close(); ses.closeAll(); ses.group.Wait() }()
	ping := func(c net.Conn) bool {
		_, _ = io.WriteString(c, "x")
		one := make([]byte, 1)
		_, err := io.ReadFull(c, one)
		return err == nil
	}
	a, b := f.dialRaw(l.Addr().String()), f.dialRaw(l.Addr().String())
	if !ping(a) || !ping(b) {
		t.Fatal("control: not served below the cap")
	}
	if ping(f.dialRaw(l.Addr().String())) {
		t.Error("served past the cap")
	}
	if r := f.refusal(); r.Verdict.Reason != egress.ReasonBusy {
		t.Errorf("%+v", r)
	}
	_ = a.CloseWrite()
	readAll(t, a)
	slots <- struct{}{} // freed by the first
	<-slots
	if !ping(f.dialRaw(l.Addr().String())) || !ping(b) {
		t.Error("not served after one ended")
	}
}

// stop ends what is under way, in every state, and leaves no goroutine.
func TestStop(t *testing.T) {
	f := newFixture(t, "allowed.test,allowed.test:80,allowed.test:9999,dead.test:9999", nil)
	f.answers["dead.test."] = []string{"1.0.0.1"} // never answers
	f.serve(allowedAddr+":9999", echo)
	f.serve(allowedAddr+":80", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	f.serve(allowedAddr+":443", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	spliced := f.dialName("allowed.test", 9999)
	send(t, spliced, "x")
	one := make([]byte, 1)
	if _, err := io.ReadFull(spliced, one); err != nil {
		t.Fatal(err)
	}
	waiting := f.dialName("allowed.test", 80)
	send(t, waiting, "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 10\r\n\r\n")
	conns := []net.Conn{
		spliced, waiting,
		f.dialName("allowed.test", 80),   // waits for a request
		f.dialName("allowed.test", 443),  // waits for a ClientHello
		f.dialName("allowed.test", 9999), // waits for either side
		f.dialName("dead.test", 9999),    // dials
		f.dialRaw(f.connect), f.dialRaw(f.dnsTCP),
	}
	f.stop()
	f.stop()
	for i, c := range conns {
		if _, err := io.ReadAll(c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	for _, address := range []string{f.capture, f.connect, f.dnsTCP} {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			t.Errorf("%s still listens", address)
		}
	}
}

func TestProgramIsCleaned(t *testing.T) {
	f := newFixture(t, "", nil)
	ses := newSession(t.Context(), f.server, func(net.Addr) string { return "\x1b[31mevil\u202e\x00" + strings.Repeat("x", 1000) })
	if got := ses.program(&net.TCPAddr{}); strings.ContainsAny(got, "\x1b\x00\u202e") || len([]rune(got)) > maxProgram {
		t.Errorf("%q", got)
	}
	if got := newSession(t.Context(), f.server, nil).program(&net.TCPAddr{}); got != "" {
		t.Errorf("%q", got)
	}
}
