package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"confine/internal/egress"
)

// httpConn is one client connection that carries HTTP/1 requests in the clear.
// Each request is read by our own strict parser, decided by itself, and written
// anew by net/http, so that the server can't read another request in it than
// was decided.
type httpConn struct {
	*session
	client    *stream
	r         *bufio.Reader
	transport *http.Transport
	// bound is the place all requests go to; nil on the HTTP proxy, where each
	// request names its own.
	bound *egress.Verdict

	mu    sync.Mutex
	first net.Conn // dialled already, for the first request
}

// serveHTTP serves the requests of a connection. With a bound verdict each must
// be for its name and port; server, where not nil, is a connection to there.
func (s *session) serveHTTP(client *stream, bound *egress.Verdict, server net.Conn) {
	c := &httpConn{session: s, client: client, r: bufio.NewReaderSize(client, 4096), bound: bound, first: server}
	c.serve(nil)
}

// serve serves requests until one ends the connection. read is the head of the
// first, where it was read already.
func (c *httpConn) serve(read *head) {
	c.transport = &http.Transport{
		DialContext:            c.dialFor,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		MaxIdleConns:           4,
		MaxConnsPerHost:        2,
		ExpectContinueTimeout:  speakTime,
		MaxResponseHeaderBytes: 256 << 10,
		Protocols:              onlyHTTP1(),
	}
	defer func() {
		c.transport.CloseIdleConnections()
		if c.first != nil {
			c.first.Close()
		}
	}()
	for {
		h := read
		if h == nil {
			var err error
			if h, err = c.next(); err != nil {
				c.rejectHead(err)
				return
			}
		}
		read = nil
		a, refusal, err := c.judge(h)
		if err != nil {
			c.rejectHead(err)
			return
		}
		if refusal != nil {
			c.answer(403, c.report(*refusal, c.client.RemoteAddr()).Notice())
			return
		}
		if !c.exchange(h, a) {
			return
		}
	}
}

func onlyHTTP1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// next reads the next request's head.
func (c *httpConn) next() (*head, error) {
	c.client.limit(keepTime)
	if _, err := c.r.Peek(1); err != nil {
		return nil, err
	}
	c.client.limit(headTime)
	defer c.client.limit(0)
	return readHead(c.r)
}

// rejectHead ends the connection on a head that could not be read. A client
// that went away, or was silent, is told and recorded as nothing.
func (c *httpConn) rejectHead(err error) {
	var he *headError
	if !errors.As(err, &he) {
		return
	}
	r := egress.Refusal{Detail: he.why, Asked: "request to the HTTP proxy"}
	if c.bound != nil {
		r.Verdict, r.Asked = *c.bound, ""
	}
	r.Verdict.Allowed, r.Verdict.Reason = false, egress.ReasonNotHTTP
	c.answer(400, c.report(r, c.client.RemoteAddr()).Notice())
}

// answer writes a response of our own and ends the connection.
func (c *httpConn) answer(status int, text string) {
	if _, err := c.client.Write(httpAnswer(status, text)); err == nil {
		linger(c.client)
	}
}

// judge decides one request. It returns where the request goes, or the refusal,
// or an error for a request that says two things.
func (c *httpConn) judge(h *head) (egress.Attempt, *egress.Refusal, error) {
	var bound egress.Attempt
	if c.bound != nil {
		bound = c.bound.Attempt
	}
	to := bound
	if h.method == http.MethodConnect {
		return to, nil, malformed("CONNECT is not for this place")
	}
	if rest, ok := cutScheme(h.target); ok {
		authority, path := rest, "/"
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			authority, path = rest[:i], rest[i:]
		}
		if path[0] == '?' {
			path = "/" + path
		}
		a, err := parseAuthority(authority, 80)
		if err != nil {
			return c.unnamed(authority, err)
		}
		to, h.target = a, path
	} else if c.bound == nil {
		return to, nil, malformed("this is the HTTP proxy: requests name a host, as in CONNECT host:443 or GET http://host/")
	} else if h.target[0] != '/' && h.target != "*" {
		return to, nil, malformed("the request target is neither a path nor an http URL")
	}
	// A Host without a port means the port that the connection has.
	host, err := parseAuthority(h.host, to.Port)
	if err != nil {
		return c.unnamed(h.host, err)
	}
	for _, other := range []egress.Attempt{to, host} {
		if c.bound != nil && other != bound {
			return to, c.mismatch(other, bound), nil
		}
	}
	if host != to {
		return to, c.mismatch(host, to), nil
	}
	if v := c.decide(to); !v.Allowed {
		return to, &egress.Refusal{Verdict: v}, nil
	}
	return to, nil, nil
}

func cutScheme(target string) (string, bool) {
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return "", false
	}
	return target[len(scheme):], true
}

// unnamed is a request for something that is no host: refused where the name is
// at fault, malformed where the rest is.
func (c *httpConn) unnamed(text string, err error) (egress.Attempt, *egress.Refusal, error) {
	var he *headError
	if errors.As(err, &he) {
		return egress.Attempt{}, nil, err
	}
	return egress.Attempt{}, &egress.Refusal{Asked: text, Verdict: egress.Verdict{Reason: egress.ReasonMalformed}}, nil
}

// mismatch is a request for one host on the way to another.
func (c *httpConn) mismatch(asked, way egress.Attempt) *egress.Refusal {
	v := c.decide(asked)
	v.Allowed, v.Reason = false, egress.ReasonHTTPHost
	return &egress.Refusal{Verdict: v, Detail: "the request goes to " + way.String()}
}

// dialFor is the transport's dialer: address is "host:port" of a request that
// was allowed, and is decided once more.
func (c *httpConn) dialFor(ctx context.Context, _, address string) (net.Conn, error) {
	a, err := parseAuthority(address, 0)
	if err != nil {
		return nil, err
	}
	record := Connection{Start: c.opt.Now(), To: egress.HostPort{Host: a.Host, Port: a.Port}, Program: c.carriedBy(c.client)}
	c.mu.Lock()
	conn := c.first
	c.first = nil
	c.mu.Unlock()
	if conn == nil {
		if conn, err = c.dial(ctx, c.decide(a)); err != nil {
			return nil, err
		}
		if !c.track(conn) {
			return nil, net.ErrClosed
		}
	}
	record.Addr = conn.RemoteAddr().String()
	return &counted{Conn: conn, close: func(up, down int64) {
		c.release(conn)
		record.Up, record.Down = up, down
		c.carried(record)
	}}, nil
}

// counted is an upstream connection that counts what it carries.
type counted struct {
	net.Conn
	up, down atomic.Int64
	once     sync.Once
	close    func(up, down int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.down.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.up.Add(int64(n))
	return n, err
}

func (c *counted) Close() error {
	c.once.Do(func() { c.close(c.up.Load(), c.down.Load()) })
	return nil
}

// exchange carries one allowed request and its response. It returns whether the
// client's connection can carry another.
func (c *httpConn) exchange(h *head, a egress.Attempt) bool {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	// 100 Continue may be written from the transport's goroutine, and never
	// after the response was begun.
	var answering sync.Mutex
	var answered bool
	req, b, err := c.request(ctx, h, a, func() {
		answering.Lock()
		defer answering.Unlock()
		if !answered {
			_, _ = io.WriteString(c.client.Conn, "HTTP/1.1 100 Continue\r\n\r\n")
		}
	})
	if err != nil {
		c.rejectHead(err)
		return false
	}
	resp, err := c.transport.RoundTrip(req)
	answering.Lock()
	answered = true
	answering.Unlock()
	if err != nil {
		b.finish(c.interrupt)
		c.failed(a, err)
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		c.upgraded(req, resp)
		return false
	}
	for _, name := range hopByHop {
		resp.Header.Del(name)
	}
	resp.Proto, resp.ProtoMajor, resp.ProtoMinor = fmt.Sprintf("HTTP/1.%d", h.minor), 1, h.minor
	resp.Close = h.minor == 0 || h.lists("Connection", "close") || !b.complete()
	if resp.ContentLength < 0 && !slices.Contains(resp.TransferEncoding, "chunked") && h.minor == 1 && resp.Body != http.NoBody {
		resp.TransferEncoding = []string{"chunked"} // else only the end of the connection would say it is whole
	}
	if err := resp.Write(c.client.Conn); err != nil {
		abort(c.client) // a part must not look like the whole
		return false
	}
	if !b.finish(c.interrupt) || resp.Close {
		linger(c.client)
		return false
	}
	c.client.limit(0)
	return true
}

// interrupt ends a read of the client that waits.
func (c *httpConn) interrupt() { c.client.limit(-1) }

// failed answers a request that could not be carried.
func (c *httpConn) failed(a egress.Attempt, err error) {
	if r, ok := addrRefusal(c.decide(a), err); ok {
		c.answer(403, c.report(r, c.client.RemoteAddr()).Notice())
		return
	}
	c.answer(502, fmt.Sprintf("confine: %s: %s\n", a, faultText(err)))
}

// hopByHop are fields that end at a proxy (RFC 9110, section 7.6.1) or that
// net/http writes itself from the parsed request.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Http2-Settings",
	"Proxy-Authorization", "Proxy-Authenticate", "Transfer-Encoding", "Content-Length", "Host", "Expect",
}

// targetURL is the URL that net/http writes as target, byte by byte. url.Parse
// would refuse some paths that servers take, and write others anew.
func targetURL(target string) (*url.URL, error) {
	path, query, asks := strings.Cut(target, "?")
	u := &url.URL{Opaque: path, RawQuery: query, ForceQuery: asks}
	if strings.HasPrefix(path, "//") {
		// An opaque one would be written behind a scheme.
		decoded, err := url.PathUnescape(path)
		if u.Opaque, u.Path, u.RawPath = "", decoded, path; err != nil {
			u.Path = ""
		}
	}
	if u.RequestURI() != target {
		return nil, malformed("the request target begins with two slashes and is not fully escaped")
	}
	return u, nil
}

// request makes the request that goes upstream from the head that was decided.
// go100 tells the client to go on, where it waits for that.
func (c *httpConn) request(ctx context.Context, h *head, a egress.Attempt, go100 func()) (*http.Request, *body, error) {
	u, err := targetURL(h.target)
	if err != nil {
		return nil, nil, err
	}
	u.Scheme, u.Host = "http", a.String()
	header := http.Header{}
	for _, f := range h.fields {
		header.Add(f.name, f.value)
	}
	upgrade := h.lists("Connection", "upgrade") && strings.EqualFold(strings.Join(h.values("Upgrade"), ","), "websocket")
	for _, value := range h.values("Connection") {
		for _, name := range strings.Split(value, ",") {
			if name = strings.Trim(name, " \t"); isToken(name) {
				header.Del(name)
			}
		}
	}
	for _, name := range hopByHop {
		header.Del(name)
	}
	if upgrade {
		// Any other protocol, h2c above all, could carry requests for other
		// hosts that nobody decides: a server may ignore Upgrade, so it never
		// sees one.
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
	}
	if h.lists("Te", "trailers") {
		header.Set("Te", "trailers")
	}
	if _, ok := header[textproto.CanonicalMIMEHeaderKey("User-Agent")]; !ok {
		header["User-Agent"] = []string{""} // or net/http names itself
	}
	req := (&http.Request{Method: h.method, URL: u, Host: h.host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if h.minor == 1 && h.lists("Expect", "100-continue") {
		header.Set("Expect", "100-continue")
	} else {
		go100 = nil
	}
	b := newBody(h, c.r, go100)
	if b != nil {
		req.Body, req.ContentLength = b, b.left
	}
	return req, b, nil
}

// upgraded carries a connection that both sides turned into a WebSocket.
func (c *httpConn) upgraded(req *http.Request, resp *http.Response) {
	server, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || req.Header.Get("Upgrade") == "" {
		c.answer(502, "confine: the server switched protocols unasked\n")
		return
	}
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	var fields strings.Builder
	if resp.Header.Write(&fields) != nil {
		return
	}
	if _, err := c.client.Write(append(head, fields.String()+"\r\n"...)); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, c.r)
		if half, ok := server.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			server.Close()
		}
	}()
	_, _ = io.Copy(c.client.Conn, server)
	_ = closeWrite(c.client.Conn)
	c.client.limit(drainTime)
	<-done
}
