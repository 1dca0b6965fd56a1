package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"confine/internal/egress"
)

// serveSite is an HTTP server that says which host and path it was asked for.
func serveSite(f *fixture, address, name string) *upstream {
	return f.serve(address, func(c net.Conn) {
		l := &oneConn{conn: c, done: make(chan struct{})}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s: %s %s %s %q", name, r.Method, r.Host, r.RequestURI, body)
		}), ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(l.done)
			}
		}}
		_ = srv.Serve(l)
	})
}

// oneConn is a listener of one connection, which ends when that is closed.
type oneConn struct {
	conn net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, io.EOF
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func get(t *testing.T, r *bufio.Reader) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestCaptureHTTP(t *testing.T) {
	f := newFixture(t, "allowed.test:80", nil)
	up := serveSite(f, allowedAddr+":80", "site")
	conn := f.dialName("allowed.test", 80)
	r := bufio.NewReader(conn)
	for _, tt := range []struct{ request, want string }{
		{"GET /a?b=c%2f HTTP/1.1\r\nHost: allowed.test\r\n\r\n", `site: GET allowed.test /a?b=c%2f ""`},
		{"\r\nGET //odd/../path HTTP/1.1\r\nHost: Allowed.Test:80\r\n\r\n", `site: GET Allowed.Test:80 //odd/../path ""`},
		{"GET http://allowed.test/x HTTP/1.1\r\nHost: allowed.test\r\n\r\n", `site: GET allowed.test /x ""`},
		{"POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\n\r\nbody", `site: POST allowed.test / "body"`},
		{"POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\nTrailer: x\r\n\r\n", `site: POST allowed.test / "body"`},
		{"OPTIONS * HTTP/1.1\r\nHost: allowed.test\r\n\r\n", ``},
		{"GET /last HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n", `site: GET allowed.test /last ""`},
	} {
		send(t, conn, tt.request)
		if code, body := get(t, r); code != 200 || body != tt.want {
			t.Errorf("%q: %d %q; want %q", tt.request, code, body, tt.want)
		}
	}
	if rest := readAll(t, r); rest != "" {
		t.Errorf("after the last: %q", rest)
	}
	if conns, _ := up.counts(); conns != 1 {
		t.Errorf("%d connections upstream", conns)
	}
	if got := up.text(); strings.Contains(got, "User-Agent") || strings.Contains(got, "Accept-Encoding") || strings.Contains(got, "http://") {
		t.Errorf("upstream got %q", got)
	}
}

func TestCaptureHTTPPipelined(t *testing.T) {
	f := newFixture(t, "allowed.test:80", nil)
	serveSite(f, allowedAddr+":80", "site")
	denied := serveSite(f, deniedAddr+":80", "denied")
	conn := f.dialName("allowed.test", 80)
	send(t, conn, "GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\nPOST /2 HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 2\r\n\r\nxx"+
		"GET /3 HTTP/1.1\r\nHost: denied.test\r\n\r\nGET /4 HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	r := bufio.NewReader(conn)
	for _, want := range []string{"/1", "/2"} {
		if code, body := get(t, r); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d %q", code, body)
		}
	}
	if code, body := get(t, r); code != 403 || !strings.Contains(body, "blocked by egress rule: denied.test:80: HTTP for another host") {
		t.Errorf("%d %q", code, body)
	}
	if rest := readAll(t, r); rest != "" {
		t.Errorf("after the refusal: %q", rest)
	}
	if conns, _ := denied.counts(); conns != 0 || len(f.lookedUp()) != 1 {
		t.Errorf("%d connections to the denied host, looked up %q", conns, f.lookedUp())
	}
}

// Case B1, on a captured connection and on the HTTP proxy: what is refused or
// says two things, and that nothing of it goes upstream.
func TestHTTPRefuses(t *testing.T) {
	const ok = "Host: allowed.test\r\n"
	captured := []struct {
		name, request string
		code          int
	}{
		{"other host", "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", 403},
		{"other port", "GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n", 403},
		{"address", "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", 403},
		{"zero byte in the host", "GET / HTTP/1.1\r\nHost: denied.test\x00.allowed.test\r\n\r\n", 400},
		{"no host name", "GET / HTTP/1.1\r\nHost: 2852039166\r\n\r\n", 403},
		{"URI of another", "GET http://denied.test/ HTTP/1.1\r\n" + ok + "\r\n", 403},
		{"URI allowed, host of another", "GET http://allowed.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n", 403},
		{"user in the URI", "GET http://u@allowed.test/ HTTP/1.1\r\n" + ok + "\r\n", 403},
		{"https URI", "GET https://allowed.test/ HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"two hosts", "GET / HTTP/1.1\r\n" + ok + "Host: denied.test\r\n\r\n", 400},
		{"the same host twice", "GET / HTTP/1.1\r\n" + ok + ok + "\r\n", 400},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"no host 1.0", "GET / HTTP/1.0\r\n\r\n", 400},
		{"length and chunked", "POST / HTTP/1.1\r\n" + ok + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"two lengths", "POST / HTTP/1.1\r\n" + ok + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody!", 400},
		{"a list of lengths", "POST / HTTP/1.1\r\n" + ok + "Content-Length: 4, 4\r\n\r\nbody", 400},
		{"signed length", "POST / HTTP/1.1\r\n" + ok + "Content-Length: +4\r\n\r\nbody", 400},
		{"huge length", "POST / HTTP/1.1\r\n" + ok + "Content-Length: 99999999999999999999\r\n\r\n", 400},
		{"other coding", "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
		{"odd coding", "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
		{"chunked in 1.0", "POST / HTTP/1.0\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"folded line", "GET / HTTP/1.1\r\n" + ok + "X: a\r\n b\r\n\r\n", 400},
		{"folded host", "GET / HTTP/1.1\r\nHost: allowed.test\r\n .denied.test\r\n\r\n", 400},
		{"space before the colon", "GET / HTTP/1.1\r\nHost : allowed.test\r\n\r\n", 400},
		{"bare line feeds", "GET / HTTP/1.1\nHost: allowed.test\n\n", 400},
		{"bare CR", "GET / HTTP/1.1\r\n" + ok + "X: a\rHost: denied.test\r\n\r\n", 400},
		{"tab in the request line", "GET\t/\tHTTP/1.1\r\n" + ok + "\r\n", 400},
		{"two spaces", "GET  / HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		{"HTTP/0.9", "GET /\r\n", 400},
		{"no slash", "GET x HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"CONNECT", "CONNECT allowed.test:80 HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"too many lines", "GET / HTTP/1.1\r\n" + ok + strings.Repeat("X: y\r\n", 300) + "\r\n", 400},
		{"too long", "GET / HTTP/1.1\r\n" + ok + "X: " + strings.Repeat("y", 70<<10) + "\r\n\r\n", 400},
		{"TLS", string(hello(t, "allowed.test")), 0},
	}
	run := func(t *testing.T, name, request string, code int, dial func(*fixture) *net.TCPConn) {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "allowed.test:80", nil)
			ups := []*upstream{serveSite(f, allowedAddr+":80", "site"), serveSite(f, deniedAddr+":80", "denied"), serveSite(f, allowedAddr+":8080", "port")}
			conn := dial(f)
			send(t, conn, request)
			if code != 0 {
				if got, body := get(t, bufio.NewReader(conn)); got != code || !strings.Contains(body, "blocked by egress rule") {
					t.Errorf("%d %q; want %d", got, body, code)
				}
			} else {
				conn.Close()
			}
			if r := f.refusal(); r.Verdict.Allowed || r.Verdict.Reason == "" || strings.ContainsAny(r.Render(), "\x00\r\n") {
				t.Errorf("%+v", r)
			}
			f.stop()
			for _, up := range ups {
				if conns, n := up.counts(); conns+n != 0 {
					t.Errorf("%d connections upstream with %d bytes", conns, n)
				}
			}
		})
	}
	for _, tt := range captured {
		run(t, tt.name, tt.request, tt.code, func(f *fixture) *net.TCPConn { return f.dialName("allowed.test", 80) })
	}
	proxied := []struct {
		name, request string
		code          int
	}{
		{"denied", "GET http://denied.test/?q=s HTTP/1.1\r\nHost: denied.test\r\n\r\n", 403},
		{"unlisted port", "GET http://allowed.test:8080/ HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n", 403},
		{"URI allowed, host of another", "GET http://allowed.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n", 403},
		{"URI of another, host allowed", "GET http://denied.test/ HTTP/1.1\r\n" + ok + "\r\n", 403},
		{"metadata", "GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", 403},
		{"loopback", "GET http://127.0.0.1:8124/ HTTP/1.1\r\nHost: 127.0.0.1:8124\r\n\r\n", 403},
		{"localhost", "GET http://localhost:8124/ HTTP/1.1\r\nHost: localhost:8124\r\n\r\n", 403},
		{"two hosts", "GET http://allowed.test/ HTTP/1.1\r\n" + ok + "Host: denied.test\r\n\r\n", 400},
		{"no proxy request", "GET / HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"https URI", "GET https://allowed.test/ HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"CONNECT denied", "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n", 403},
		{"CONNECT unlisted port", "CONNECT allowed.test:22 HTTP/1.1\r\n" + ok + "\r\n", 403},
		{"CONNECT address", "CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n", 403},
		{"CONNECT IPv6", "CONNECT [fd00:ec2::254]:80 HTTP/1.1\r\nHost: [fd00:ec2::254]:80\r\n\r\n", 403},
		{"CONNECT numeric", "CONNECT 0xa9fea9fe:80 HTTP/1.1\r\nHost: 0xa9fea9fe:80\r\n\r\n", 403},
		{"CONNECT zero byte", "CONNECT denied.test\x00.allowed.test:80 HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"CONNECT other host", "CONNECT allowed.test:80 HTTP/1.1\r\nHost: denied.test\r\n\r\n", 403},
		{"CONNECT without port", "CONNECT allowed.test HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"CONNECT port 0", "CONNECT allowed.test:0 HTTP/1.1\r\n" + ok + "\r\n", 400},
		{"CONNECT with a user", "CONNECT u@allowed.test:80 HTTP/1.1\r\n" + ok + "\r\n", 403},
		{"CONNECT with a body", "CONNECT allowed.test:80 HTTP/1.1\r\n" + ok + "Content-Length: 3\r\n\r\nabc", 400},
	}
	for _, tt := range proxied {
		run(t, "proxy "+tt.name, tt.request, tt.code, func(f *fixture) *net.TCPConn { return f.dialRaw(f.connect) })
	}
}

func TestProxyHTTP(t *testing.T) {
	f := newFixture(t, "allowed.test:80,other.test:8080", nil)
	f.answers["other.test."] = []string{"9.9.9.9"}
	serveSite(f, allowedAddr+":80", "site")
	serveSite(f, "9.9.9.9:8080", "other")
	conn := f.dialRaw(f.connect)
	r := bufio.NewReader(conn)
	for _, tt := range []struct{ request, want string }{
		{"GET http://allowed.test?q HTTP/1.1\r\nHost: allowed.test\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n\r\n", `site: GET allowed.test /?q ""`},
		{"GET http://other.test:8080/a HTTP/1.1\r\nHost: other.test:8080\r\n\r\n", `other: GET other.test:8080 /a ""`},
		{"GET HTTP://allowed.test/b HTTP/1.1\r\nHost: allowed.test\r\n\r\n", `site: GET allowed.test /b ""`},
	} {
		send(t, conn, tt.request)
		if code, body := get(t, r); code != 200 || body != tt.want {
			t.Errorf("%q: %d %q", tt.request, code, body)
		}
	}
	send(t, conn, "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n")
	if code, body := get(t, r); code != 403 || !strings.Contains(body, `egress: {allow: ["denied.test:80"]}`) || !strings.Contains(body, "--net denied.test:80") {
		t.Errorf("%d %q", code, body)
	}
}

func TestConnect(t *testing.T) {
	f := newFixture(t, "allowed.test,allowed.test:2222", nil)
	f.serve(allowedAddr+":443", serveTLS)
	f.serve(allowedAddr+":2222", func(c net.Conn) {
		send(t, c, "banner\r\n")
		echo(c)
	})
	conn := f.dialRaw(f.connect)
	// The client does not wait for the answer to CONNECT.
	send(t, conn, "CONNECT allowed.test:2222 HTTP/1.1\r\nHost: allowed.test:2222\r\n\r\nahead")
	_ = conn.CloseWrite()
	if got := readAll(t, conn); got != "HTTP/1.1 200 Connection established\r\n\r\nbanner\r\nahead" {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]egress.Reason{"denied.test": egress.ReasonTLSName, "": egress.ReasonNotTLS} {
		f := newFixture(t, "allowed.test", nil)
		up := f.serve(allowedAddr+":443", serveTLS)
		conn := f.dialRaw(f.connect)
		send(t, conn, "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"+string(hello(t, name)))
		if got := readAll(t, conn); !strings.HasSuffix(got, "\r\n\r\n\x15\x03\x03\x00\x02\x02\x31") {
			t.Errorf("%q: got %q", name, got)
		}
		if r := f.refusal(); r.Verdict.Reason != want {
			t.Errorf("%q: %+v", name, r)
		}
		if _, n := up.counts(); n != 0 {
			t.Errorf("%q: %d bytes went upstream", name, n)
		}
	}
}

// What goes wrong outside is told without the machine's own addresses.
func TestProxyTellsFaults(t *testing.T) {
	f := newFixture(t, "allowed.test:80,gone.test,gone.test:80", nil)
	l := listen(t)
	f.servers[allowedAddr+":80"] = l.Addr().String()
	l.Close()
	for request, want := range map[string]string{
		"CONNECT gone.test:443 HTTP/1.1\r\nHost: gone.test\r\n\r\n":       "confine: gone.test:443: the name does not exist\n",
		"GET http://gone.test/ HTTP/1.1\r\nHost: gone.test\r\n\r\n":       "confine: gone.test:80: the name does not exist\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n": "confine: allowed.test:80: connection refused by the host\n",
	} {
		conn := f.dialRaw(f.connect)
		send(t, conn, request)
		if code, body := get(t, bufio.NewReader(conn)); code != 502 || body != want {
			t.Errorf("%q: %d %q", request, code, body)
		}
	}
	f.answers["allowed.test."] = []string{"10.0.0.1"}
	conn := f.dialRaw(f.connect)
	send(t, conn, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	if code, body := get(t, bufio.NewReader(conn)); code != 403 || strings.Contains(body, "10.0.0.1") || !strings.Contains(body, "private: true") {
		t.Errorf("%d %q", code, body)
	}
	if r := f.refusal(); r.Verdict.Reason != egress.ReasonPrivate || r.Resolved.String() != "10.0.0.1" {
		t.Errorf("%+v", r)
	}
}

// serveRaw answers each connection with fixed text after the first read.
func serveRaw(text string, end func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			return
		}
		_, _ = io.WriteString(c, text)
		if end != nil {
			end(c)
		}
	}
}

func TestHTTPResponses(t *testing.T) {
	tests := []struct {
		name, request, response, want string
		rest                          string
	}{
		{"chunked with a trailer", "GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n2\r\nok\r\n0\r\nT: v\r\n\r\n", "ok", ""},
		{"until the end", "GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n\r\nok", "ok", ""},
		{"until the end 1.0", "GET / HTTP/1.0\r\n", "HTTP/1.1 200 OK\r\n\r\nok", "ok", ""},
		{"chunked to 1.0", "GET / HTTP/1.0\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", ""},
		{"no content", "GET / HTTP/1.1\r\n", "HTTP/1.1 204 No Content\r\n\r\n", "", ""},
		{"not modified", "GET / HTTP/1.1\r\n", "HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", "", ""},
		{"hints first", "GET / HTTP/1.1\r\n", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, "allowed.test:80", nil)
			f.serve(allowedAddr+":80", serveRaw(tt.response, nil))
			conn := f.dialName("allowed.test", 80)
			send(t, conn, tt.request+"Host: allowed.test\r\nConnection: close\r\n\r\n")
			r := bufio.NewReader(conn)
			code, body := get(t, r)
			if body != tt.want || code > 304 {
				t.Errorf("%d %q", code, body)
			}
			if rest := readAll(t, r); rest != "" {
				t.Errorf("then %q", rest)
			}
		})
	}
}

// A response that upstream broke off must not look whole, framed or not.
func TestHTTPBrokenResponse(t *testing.T) {
	for _, head := range []string{"Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n", ""} {
		f := newFixture(t, "allowed.test:80", nil)
		f.serve(allowedAddr+":80", serveRaw("HTTP/1.1 200 OK\r\n"+head+"\r\n", func(c net.Conn) {
			_ = c.(recorded).SetLinger(0)
		}))
		for _, version := range []string{"1.0", "1.1"} {
			conn := f.dialName("allowed.test", 80)
			send(t, conn, "GET / HTTP/"+version+"\r\nHost: allowed.test\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && resp.StatusCode == 200 {
				_, err = io.ReadAll(resp.Body)
			} else if err == nil {
				err = syscall.ECONNRESET // told by a 502
			}
			if err == nil || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q HTTP/%s: %v", head, version, err)
			}
		}
	}
}

func TestHTTPExpectContinue(t *testing.T) {
	f := newFixture(t, "allowed.test:80", nil)
	serveSite(f, allowedAddr+":80", "site")
	conn := f.dialName("allowed.test", 80)
	r := bufio.NewReader(conn)
	for range 2 {
		send(t, conn, "POST / HTTP/1.1\r\nHost: allowed.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
		line, err := r.ReadString('\n')
		if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		send(t, conn, "body")
		if code, body := get(t, r); code != 200 || !strings.Contains(body, `"body"`) {
			t.Errorf("%d %q", code, body)
		}
	}
}

// A server may answer before it has the whole body, and wants no more of it.
func TestHTTPEarlyAnswer(t *testing.T) {
	f := newFixture(t, "allowed.test:80", nil)
	f.serve(allowedAddr+":80", serveRaw("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", nil))
	conn := f.dialName("allowed.test", 80)
	send(t, conn, "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 1000000\r\n\r\nbegin")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 413 || !resp.Close {
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestHTTPWebSocket(t *testing.T) {
	f := newFixture(t, "allowed.test:80", nil)
	up := f.serve(allowedAddr+":80", func(c net.Conn) {
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
		_, _ = io.Copy(c, r)
	})
	conn := f.dialName("allowed.test", 80)
	send(t, conn, "GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%+v, %v", resp, err)
	}
	send(t, conn, "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n") // frames: no requests any more
	want := "hiGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	// Protocols that could carry requests nobody decides do not get upgraded.
	for _, value := range []string{"h2c", "HTTP/2.0", "websocket, h2c", "TLS/1.0"} {
		conn := f.dialName("allowed.test", 80)
		send(t, conn, "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+value+"\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
		if code, body := get(t, bufio.NewReader(conn)); code != 200 || body != "ok" {
			t.Errorf("%s: %d %q", value, code, body)
		}
	}
	if strings.Contains(up.text(), "h2c") || strings.Contains(up.text(), "Settings") {
		t.Errorf("upstream got %q", up.text())
	}
}

// Case B13 for HTTP: both framings, both ways, without holding the body.
func TestHTTPLargeTransfer(t *testing.T) {
	const size = 20 << 20
	f := newFixture(t, "allowed.test:80", nil)
	f.serve(allowedAddr+":80", func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			h := sha256.New()
			_, _ = io.Copy(h, req.Body)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Sum: %x\r\n\r\n", size, h.Sum(nil))
			_, _ = io.CopyN(c, rand.NewChaCha8([32]byte{2}), size)
		}
	})
	conn := f.dialName("allowed.test", 80)
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Dial: func(string, string) (net.Conn, error) { return conn, nil }}}
	for _, length := range []int64{size, -1} {
		req, err := http.NewRequest("PUT", "http://allowed.test/", io.NopCloser(io.LimitReader(rand.NewChaCha8([32]byte{1}), size)))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := resp.Header.Get("X-Sum"), fmt.Sprintf("%x", sum(1, size)); got != want {
			t.Errorf("length %d: what went up differs", length)
		}
		h := sha256.New()
		if _, err := io.Copy(h, resp.Body); err != nil || [32]byte(h.Sum(nil)) != sum(2, size) {
			t.Errorf("length %d: what came down differs: %v", length, err)
		}
	}
}

// FuzzHead holds our strict reading of a request's head to net/http's: what we
// accept it accepts, and reads in the same way.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", "\r\nGET / HTTP/1.0\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		h, err := readHead(r)
		if err != nil {
			return
		}
		_, _ = parseAuthority(h.host, 80)
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.TrimPrefix(in, []byte("\r\n")))))
		if err != nil {
			// net/http checks the target as a URL and the host's letters, which
			// we do when the request is decided.
			return
		}
		want := h.length
		if h.length < 0 && !h.chunked {
			want = 0
		}
		if req.Method != h.method || req.RequestURI != h.target || req.ContentLength != want || (len(req.TransferEncoding) > 0) != h.chunked {
			t.Fatalf("%q: we read %+v, net/http %+v", in, h, req)
		}
		if req.URL.Host == "" && req.Host != h.host {
			t.Fatalf("%q: we read the host %q, net/http %q", in, h.host, req.Host)
		}
	})
}

// A captured connection is for the host that was dialled, also where the policy
// allows the other one.
func TestCaptureHTTPStaysBound(t *testing.T) {
	f := newFixture(t, "allowed.test:80,denied.test:80", nil)
	other := serveSite(f, deniedAddr+":80", "other")
	conn := f.dialName("allowed.test", 80)
	send(t, conn, "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n")
	if code, body := get(t, bufio.NewReader(conn)); code != 403 {
		t.Errorf("%d %q", code, body)
	}
	if r := f.refusal(); r.Verdict.Reason != egress.ReasonHTTPHost || r.Verdict.ConfigLine() != "" {
		t.Errorf("%+v", r)
	}
	if conns, _ := other.counts(); conns != 0 {
		t.Errorf("%d connections to the other host", conns)
	}
}

// The refusal arrives although the program went on sending.
func TestRefusalArrives(t *testing.T) {
	f := newFixture(t, "", nil)
	for name, dial := range map[string]func() *net.TCPConn{
		"CONNECT": func() *net.TCPConn { return f.dialRaw(f.connect) },
		"capture": func() *net.TCPConn { return f.dialName("denied.test", 80) },
	} {
		conn := dial()
		send(t, conn, "CONNECT denied.test:80 HTTP/1.1\r\nHost: denied.test\r\n\r\n"+strings.Repeat("x", 16<<10))
		if got := readAll(t, conn); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "--net denied.test:80\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
