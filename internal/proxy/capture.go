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

	var inspect func(*stream) (bool, error)
	if proto == egress.ProtoAuto {
		switch kind, rest := s.sniff(client, up, v); kind {
		case isRefused:
			return
		case isRequest:
			s.serveHTTP(client, &v, up)
			return
		case isOther:
			inspect = rest
		}
	}
	record := Connection{Start: start, To: egress.HostPort{Host: v.Attempt.Host, Port: v.Attempt.Port}, Addr: d.conn.RemoteAddr().String(), Program: program}
	record.Up, record.Down = splice(client, up, inspect)
	s.carried(record)
}

// found is what a connection of no given protocol turned out to be.
type found int

const (
	isRefused found = iota
	isRequest
	isOther
)

// sniff waits for either side's first bytes and judges the client's by what
// they are. For what is neither a request nor refused it returns how to look at
// the bytes that follow, or nil where that need not be.
func (s *session) sniff(client, up *stream, v egress.Verdict) (found, func(*stream) (bool, error)) {
	line := new(opening)
	if !firstToSpeak(client, up) {
		// The server spoke first. What the client then begins with is looked at
		// all the same.
		return isOther, s.inspect(v, line)
	}
	if len(client.buf) == 0 { // it ended without a word
		return isOther, nil
	}
	if client.buf[0] == recordHandshake {
		r, ok := s.checkHello(client, v)
		if r != nil {
			s.refuse(client, *r)
		}
		if !ok {
			return isRefused, nil
		}
		return isOther, nil
	}
	switch line.hold(client, headTime) {
	case isHTTP:
		return isRequest, nil
	case notHTTP:
		return isOther, nil
	}
	if !line.request() {
		return isOther, s.inspect(v, line)
	}
	s.refuse(client, s.report(notPlainHTTP(v, "a request line was begun and not finished"), client.RemoteAddr()))
	return isRefused, nil
}

func notPlainHTTP(v egress.Verdict, detail string) egress.Refusal {
	v.Allowed, v.Reason = false, egress.ReasonNotHTTP
	return egress.Refusal{Verdict: v, Detail: detail}
}

var errRefused = errors.New("refused")

// inspect returns what looks at a client's bytes on their way, each once, until
// it returns true. line is what it has begun with.
func (s *session) inspect(v egress.Verdict, line *opening) func(*stream) (bool, error) {
	return func(client *stream) (bool, error) {
		if line.seen == 0 && client.buf[0] == recordHandshake {
			if _, ok := s.checkHello(client, v); !ok {
				return false, errRefused
			}
			return true, nil
		}
		switch line.scan(client.buf) {
		case notHTTP:
			return true, nil
		case isHTTP:
			s.report(notPlainHTTP(v, "a request that came late or in parts"), client.RemoteAddr())
			return false, errRefused
		}
		return false, nil
	}
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
