package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"confine/internal/egress"
)

// serveConnect serves one connection to the HTTP proxy of the sandbox's
// loopback: CONNECT for anything, requests for http:// URLs. It opens nothing
// that the captured network does not: programs that know proxies are told more.
func (s *session) serveConnect(conn net.Conn) {
	client := &stream{Conn: conn}
	c := &httpConn{session: s, client: client, r: bufio.NewReaderSize(client, 4096)}
	h, err := c.next()
	if err != nil {
		c.rejectHead(err)
		return
	}
	if h.method != http.MethodConnect {
		c.serve(h)
		return
	}
	asked := h.target
	a, err := parseAuthority(asked, 0)
	host := a
	if err == nil && h.host != "" {
		// Many clients leave the port out of it.
		asked = h.host
		host, err = parseAuthority(asked, a.Port)
	}
	var he *headError
	switch {
	case err == nil && (h.chunked || h.length > 0):
		err = malformed("CONNECT has no body")
		c.rejectHead(err)
		return
	case errors.As(err, &he):
		c.rejectHead(err)
		return
	case err != nil:
		c.answer(403, s.report(egress.Refusal{Asked: asked, Verdict: egress.Verdict{Reason: egress.ReasonMalformed}}, conn.RemoteAddr()).Notice())
		return
	}
	if host != a {
		c.answer(403, s.report(*c.mismatch(host, a), conn.RemoteAddr()).Notice())
		return
	}
	v := s.decide(a)
	if !v.Allowed {
		c.answer(403, s.report(egress.Refusal{Verdict: v}, conn.RemoteAddr()).Notice())
		return
	}
	server, err := s.dial(s.ctx, v)
	if err != nil {
		c.failed(a, err)
		return
	}
	if !s.track(server) {
		return
	}
	defer s.release(server)
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	// What the client sent ahead is held by the reader.
	held, _ := c.r.Peek(c.r.Buffered())
	client.buf = append(append([]byte(nil), held...), client.buf...)
	s.carry(client, v, server)
}
