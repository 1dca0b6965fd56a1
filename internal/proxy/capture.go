package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"confine/internal/egress"
)

// serveCapture serves one connection that the sandbox's network namespace
// redirected here.
func (s *session) serveCapture(conn net.Conn) {
	dst, err := s.opt.OriginalDestination(conn)
	if err != nil || !redirected(conn, dst) {
		return
	}
	client := &stream{Conn: conn}
	a := egress.Attempt{Port: dst.Port()}
	if host, ok := s.names.lookup(dst.Addr().Unmap()); ok {
		a.Host = host
	} else {
		a.Addr = dst.Addr()
	}
	v := s.decide(a)
	if !v.Allowed {
		s.refuse(client, s.report(egress.Refusal{Verdict: v}, conn.RemoteAddr()))
		return
	}
	s.carry(client, v, nil)
}

// redirected reports whether dst is a destination that somebody dialled, and
// not this listener itself: who connects to it by its own address is served
// nothing, since no name was asked for.
func redirected(conn net.Conn, dst netip.AddrPort) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !dst.IsValid() || dst.Port() == 0 {
		return false
	}
	addr := dst.Addr().Unmap()
	return !addr.IsLoopback() && netip.AddrPortFrom(addr, dst.Port()) != netip.AddrPortFrom(local.AddrPort().Addr().Unmap(), local.AddrPort().Port())
}

// protoOf is what has to travel on a connection, with auto decided by port.
// ProtoAuto comes back where the first bytes decide.
func protoOf(v egress.Verdict) egress.Proto {
	if p := v.Rule.Proto; p != egress.ProtoAuto {
		return p
	}
	switch v.Attempt.Port {
	case 443:
		return egress.ProtoTLS
	case 80:
		return egress.ProtoHTTP
	}
	return egress.ProtoAuto
}

// carry carries a connection that is allowed by name. server is the connection
// to it, or nil where none was dialled yet.
func (s *session) carry(client *stream, v egress.Verdict, server net.Conn) {
	proto := protoOf(v)
	if proto == egress.ProtoHTTP {
		s.serveHTTP(client, &v, server)
		return
	}
	start, program := s.opt.Now(), s.carriedBy(client)
	var dialled <-chan dialResult
	if server != nil {
		dialled = ready(server)
	} else {
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		dialled = s.dialAhead(ctx, v)
	}
	// The client's first bytes are read while the dial goes on.
	if proto == egress.ProtoTLS {
		if r, ok := s.checkHello(client, v); !ok {
			s.drop(dialled)
			if r != nil {
				s.refuse(client, *r)
			}
			return
		}
	}
	d := <-dialled
	if d.err != nil {
		if r, ok := addrRefusal(v, d.err); ok {
			s.refuse(client, s.report(r, client.RemoteAddr()))
			return
		}
		abort(client) // as if the host had not answered
		return
	}
	if !s.track(d.conn) {
		return
	}
	defer s.release(d.conn)
	up := &stream{Conn: d.conn}

	var before func() error
	if proto == egress.ProtoAuto {
		switch ok, http := s.sniff(client, up, v); {
		case !ok:
			return
		case http:
			s.serveHTTP(client, &v, up)
			return
		case len(client.buf) == 0:
			// The server spoke first. What the client then begins with is
			// looked at all the same.
			before = func() error { return s.lateHello(client, v) }
		}
	}
	record := Connection{Start: start, To: egress.HostPort{Host: v.Attempt.Host, Port: v.Attempt.Port}, Addr: d.conn.RemoteAddr().String(), Program: program}
	record.Up, record.Down = splice(client, up, before)
	s.carried(record)
}

// sniff waits for either side's first bytes and judges the client's by what
// they are. ok is false when they were refused.
func (s *session) sniff(client, up *stream, v egress.Verdict) (ok, http bool) {
	if !firstToSpeak(client, up) {
		return true, false
	}
	if len(client.buf) == 0 { // it ended without a word
		return true, false
	}
	if client.buf[0] == recordHandshake {
		r, ok := s.checkHello(client, v)
		if r != nil {
			s.refuse(client, *r)
		}
		return ok, false
	}
	switch looksLikeHTTP(client, headTime) {
	case isHTTP:
		return true, true
	case notHTTP:
		return true, false
	}
	refusal := egress.Refusal{Verdict: v, Detail: "a request line was begun and not finished"}
	refusal.Verdict.Allowed, refusal.Verdict.Reason = false, egress.ReasonNotHTTP
	s.refuse(client, s.report(refusal, client.RemoteAddr()))
	return false, false
}

var errRefused = errors.New("refused")

func (s *session) lateHello(client *stream, v egress.Verdict) error {
	client.limit(0)
	if err := client.fill(1); err != nil || client.buf[0] != recordHandshake {
		return nil // splice meets the error itself
	}
	if _, ok := s.checkHello(client, v); !ok {
		return errRefused
	}
	return nil
}

// checkHello reads the ClientHello and compares its name with the one that was
// dialled. It returns the reported refusal, if there is one: a client that went
// away is none.
func (s *session) checkHello(client *stream, v egress.Verdict) (*egress.Refusal, bool) {
	client.limit(headTime)
	name, err := readHello(client)
	client.limit(0)
	refusal := egress.Refusal{Verdict: v}
	refusal.Verdict.Allowed = false
	switch {
	case err == nil && name == string(v.Attempt.Host):
		return nil, true
	case err == nil:
		refusal.Verdict.Reason, refusal.Detail = egress.ReasonTLSName, quote(name)
	case errors.Is(err, errNotTLS), errors.Is(err, errNoName), errors.Is(err, errTooLong):
		refusal.Verdict.Reason, refusal.Detail = egress.ReasonNotTLS, err.Error()
	case len(client.buf) > 0 && !errors.Is(err, net.ErrClosed):
		refusal.Verdict.Reason, refusal.Detail = egress.ReasonNotTLS, "the ClientHello was not finished"
	default:
		return nil, false
	}
	r := s.report(refusal, client.RemoteAddr())
	return &r, false
}

type dialResult struct {
	conn net.Conn
	err  error
}

func (s *session) dialAhead(ctx context.Context, v egress.Verdict) <-chan dialResult {
	done := make(chan dialResult, 1)
	s.group.Go(func() {
		conn, err := s.dial(ctx, v)
		done <- dialResult{conn, err}
	})
	return done
}

func ready(conn net.Conn) <-chan dialResult {
	done := make(chan dialResult, 1)
	done <- dialResult{conn: conn}
	return done
}

// drop closes what a dial that nobody waits for brings.
func (s *session) drop(dialled <-chan dialResult) {
	s.group.Go(func() {
		if d := <-dialled; d.conn != nil {
			d.conn.Close()
		}
	})
}

// carriedBy names the program of a connection that is carried, where anyone
// wants to know: to look is not free.
func (s *session) carriedBy(client *stream) string {
	if s.opt.OnConnection == nil {
		return ""
	}
	return s.program(client.RemoteAddr())
}

func (s *session) carried(c Connection) {
	if s.opt.OnConnection != nil {
		c.End = s.opt.Now()
		s.opt.OnConnection(c)
	}
}

// firstBytes waits a moment for what a refused program says first.
func firstBytes(client *stream) []byte {
	client.limit(speakTime)
	_ = client.fill(1)
	client.limit(0)
	return client.buf
}

// linger ends a connection so that the last bytes arrive: closing with unread
// bytes would reset it and take them away.
func linger(client *stream) {
	if closeWrite(client.Conn) != nil {
		return
	}
	client.limit(drainTime)
	buf := make([]byte, 4096)
	for range 64 << 10 / len(buf) {
		if _, err := client.Conn.Read(buf); err != nil {
			return
		}
	}
}
