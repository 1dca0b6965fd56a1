package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

// TestHTTPTargetsArriveUnchanged: the server sees the target that the client
// wrote, byte by byte, or none, and then the client is told why.
func TestHTTPTargetsArriveUnchanged(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for target, why := range map[string]string{
		"/": "", "/plain?a=b": "", "/%zz": "", "/%": "", "/a|b": "", `/"<>^{}\` + "`": "", "/%7Euser/%2e%2E/x": "", "/a;b=c,d": "", "/?": "", "/??a?b": "", "/?q=%zz|<>": "",
		"//two": "", "//a%2Fb?x|y": "", "/a//b/./../c": "", "/[x]": "", "/:80": "",
		"//a|b":        "begins with two slashes and is not fully escaped",
		"//%zz":        "begins with two slashes and is not fully escaped",
		"/a#b":         `the request target holds "#"`,
		"/\x01":        `the request target holds "\x01"`,
		"/caf\xc3\xa9": `the request target holds "Ã"`,
	} {
		for _, prefix := range []string{"", "http://allowed.test"} {
			t.Run(prefix+target, func(t *testing.T) {
				f := newFixture(t, "allowed.test:80", nil)
				up := f.serve(allowedAddr+":80", func(c net.Conn) {
					if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
						_, _ = io.WriteString(c, answer)
					}
				})
				conn := f.dialName("allowed.test", 80)
				if prefix != "" {
					conn = f.dialRaw(f.connect)
				}
				send(t, conn, "GET "+prefix+target+" HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n")
				code, body := get(t, bufio.NewReader(conn))
				if why != "" {
					if code != 400 || !strings.Contains(body, why) || up.text() != "" {
						t.Errorf("%d %q, upstream %q", code, body, up.text())
					}
					return
				}
				if line, _, _ := strings.Cut(up.text(), "\r\n"); code != 200 || line != "GET "+target+" HTTP/1.1" {
					t.Errorf("%d %q, upstream %q", code, body, line)
				}
			})
		}
	}
}

// HTTP/1.0 knows no Host, and without one nobody can say which site is meant.
// CONNECT says it in its target, and old clients of it leave the Host out.
func TestHTTPWithoutHost(t *testing.T) {
	for _, version := range []string{"1.0", "1.1"} {
		f := newFixture(t, "allowed.test:80", nil)
		up := serveSite(f, allowedAddr+":80", "site")
		conn := f.dialName("allowed.test", 80)
		send(t, conn, "GET / HTTP/"+version+"\r\n\r\n")
		if code, body := get(t, bufio.NewReader(conn)); code != 400 || !strings.Contains(body, "there is no Host") || up.text() != "" {
			t.Errorf("%s: %d %q", version, code, body)
		}
		conn = f.dialName("allowed.test", 80)
		send(t, conn, "GET / HTTP/"+version+"\r\nHost: allowed.test\r\n\r\n")
		if code, body := get(t, bufio.NewReader(conn)); code != 200 {
			t.Errorf("%s: %d %q", version, code, body)
		}
		f = newFixture(t, "allowed.test:2222", nil)
		f.serve(allowedAddr+":2222", echo)
		conn = f.dialRaw(f.connect)
		send(t, conn, "CONNECT allowed.test:2222 HTTP/"+version+"\r\n\r\n")
		want := map[string]string{"1.0": "HTTP/1.1 200 ", "1.1": "HTTP/1.1 400 "}[version]
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("%s: CONNECT: %q %v", version, line, err)
		}
		// And for a name that is not listed it is no way.
		conn = f.dialRaw(f.connect)
		send(t, conn, "CONNECT denied.test:2222 HTTP/1.0\r\n\r\n")
		if code, body := get(t, bufio.NewReader(conn)); code != 403 || !strings.Contains(body, "denied.test:2222: not listed") {
			t.Errorf("CONNECT: %d %q", code, body)
		}
	}
}
