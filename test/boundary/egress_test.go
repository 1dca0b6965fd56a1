//go:build linux

package boundary

import (
	"bytes"
	"encoding/hex"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// site is a server on loopback that takes anything for a request: it greets
// where it is told to, and answers what comes first.
type site struct {
	net.Listener
	mu  sync.Mutex
	got bytes.Buffer
}

const served = "HTTP/1.1 200 served\r\nContent-Length: 0\r\n\r\n"

func newSite(t *testing.T, greeting string, after func(net.Conn)) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &site{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, greeting)
				buf := make([]byte, 4096)
				n, err := c.Read(buf)
				s.mu.Lock()
				s.got.Write(buf[:n])
				s.mu.Unlock()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, served)
				if after != nil {
					after(c)
				}
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return s
}

// took is what arrived since the last call.
func (s *site) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.got.Reset()
	return s.got.String()
}

// talk connects for each argument, reads a greeting, sends and prints the first
// line of what comes back.
const talk = `import socket,sys
greeting=int(sys.argv[3])
for h in sys.argv[4:]:
    s=socket.create_connection((sys.argv[1],int(sys.argv[2])),10)
    if greeting and len(s.recv(greeting,socket.MSG_WAITALL))<greeting: print("no greeting"); continue
    s.sendall(bytes.fromhex(h))
    try: r=s.recv(4096)
    except OSError as e: r=b""
    print(r.split(b"\r\n")[0].decode("latin1") or "closed")
`

func talkArgs(host, port, greeting string, messages []string) []string {
	args := []string{"-c", talk, host, port, greeting}
	for _, m := range messages {
		args = append(args, hex.EncodeToString([]byte(m)))
	}
	return args
}

// TestEachRequestIsDecidedOnEveryPort: what a lenient server could take for a
// request to another of its sites is refused on ports that say nothing of what
// they carry, and other protocols go on.
func TestEachRequestIsDecidedOnEveryPort(t *testing.T) {
	const denied = "\r\nHost: denied.test\r\n\r\n"
	bad := []string{
		"GET / HTTP/1.1" + denied, "get / HTTP/1.1" + denied, "M-SEARCH / HTTP/1.1" + denied, "VERSION-CONTROL / HTTP/1.1" + denied, "Get / HTTP/1.1" + denied,
		"GET / HTTP/1.1 " + denied, "GET / http/1.1" + denied, "GET / HTTP/1.2" + denied, " GET / HTTP/1.1" + denied, "\tGET / HTTP/1.1" + denied,
		"\r\n\r\nGET / HTTP/1.1" + denied, "GET /" + denied, "OPTIONS / RTSP/1.0" + denied, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	}
	good := []string{
		"EHLO allowed.test\r\n", "PING\r\n", "GET key\r\n", "a001 LOGIN me word\r\n", "SSH-2.0-x\r\n", "USER anonymous\r\n",
		"\x00\x00\x00\x08\x04\xd2\x16\x2f", "GET / HTTP/1.1\r\nHost: allowed.test:8090\r\n\r\n",
	}
	for _, tt := range []struct {
		name, greeting, length, refusal string
		good                            []string
	}{
		{"client first", "", "0", "HTTP/1.1 40", good},
		// Behind a greeting no request is one: the last of the good.
		{"server first", "220 hello\r\n", "11", "closed", good[:len(good)-1]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, tt.greeting, nil)
			host, port, _ := net.SplitHostPort(s.Addr().String())
			check := func(out, start string, n int) {
				t.Helper()
				lines := strings.Split(strings.TrimSpace(out), "\n")
				if len(lines) != n {
					t.Errorf("%d lines, want %d: %q", len(lines), n, out)
				}
				for i, line := range lines {
					if !strings.HasPrefix(line, start) {
						t.Errorf("message %d: %q, want %q", i, line, start)
					}
				}
			}
			control, err := exec.Command("python3", talkArgs(host, port, tt.length, bad)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			check(string(control), "HTTP/1.1 200 served", len(bad))
			if got := s.took(); strings.Count(got, "denied.test") < 10 {
				t.Fatalf("control: %q", got)
			}
			inside := func(messages []string) (string, string) {
				args := append([]string{"--net", "allowed.test:8090", "--net-map", "allowed.test:8090=" + s.Addr().String(), "--", "python3"}, talkArgs("allowed.test", "8090", tt.length, messages)...)
				out, errs, status := confined(t, t.TempDir(), nil, args...)
				if status != 0 {
					t.Fatalf("status %d: %s", status, errs)
				}
				return out, errs
			}
			out, errs := inside(bad)
			check(out, tt.refusal, len(bad))
			if got := s.took(); got != "" {
				t.Errorf("the server got %q", got)
			}
			if !strings.Contains(errs, "allowed.test:8090") || !strings.Contains(errs, `egress: {allow: [{host: "allowed.test:8090", proto: tcp}]}`) {
				t.Errorf("told %s", errs)
			}
			out, errs = inside(tt.good)
			check(out, "HTTP/1.1 200 served", len(tt.good))
			if strings.Contains(errs, "refused") {
				t.Errorf("told %s", errs)
			}
		})
	}
}

// TestServerTextStaysOffTheTerminal: net/http logs what a server says unasked,
// and would log it where the person reads confine's own words.
func TestServerTextStaysOffTheTerminal(t *testing.T) {
	const lie = "confine: error: run rm -rf ~"
	s := newSite(t, "", func(c net.Conn) { _, _ = io.WriteString(c, lie+"\r\n") })
	var logged lockedBuffer
	was := log.Writer()
	log.SetOutput(&logged)
	defer log.SetOutput(was)
	transport := &http.Transport{}
	resp, err := transport.RoundTrip(mustRequest(t, "http://"+s.Addr().String()+"/"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(logged.String(), lie) && time.Now().Before(end); {
		if resp, err := transport.RoundTrip(mustRequest(t, "http://"+s.Addr().String()+"/")); err == nil {
			resp.Body.Close()
		}
	}
	if !strings.Contains(logged.String(), lie) {
		t.Fatalf("control: net/http logged %q", logged.String())
	}
	ask := `import socket,time
for i in range(10):
    s=socket.create_connection(("allowed.test",8090),10)
    s.sendall(b"GET / HTTP/1.1\r\nHost: allowed.test:8090\r\n\r\n")
    print(s.recv(4096).split(b"\r\n")[0].decode())
    time.sleep(0.05)
`
	for _, flags := range [][]string{nil, {"--json"}} {
		out, errs, status := confined(t, t.TempDir(), nil, append(flags, "--net", "allowed.test:8090", "--net-map", "allowed.test:8090="+s.Addr().String(), "--", "python3", "-c", ask)...)
		if status != 0 || strings.Count(out, "HTTP/1.1 200 served") != 10 {
			t.Errorf("%v: status %d: %s %s", flags, status, out, errs)
		}
		if strings.Contains(out+errs, "rm -rf") || strings.Contains(errs, "nsolicited") {
			t.Errorf("%v: %s %s", flags, out, errs)
		}
	}
}

func mustRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestProxyFaultsAreToldApart: many equal faults don't hide a different one.
func TestProxyFaultsAreToldApart(t *testing.T) {
	s := newSite(t, "", nil)
	ask := `import socket
for r in ["CONNECT allowed.test HTTP/1.1\r\nHost: allowed.test\r\n\r\n"]*13+["CONNECT allowed.test:8090 HTTP/1.1\r\nHost: "+h+":8090\r\n\r\n" for h in ("denied.test","allowed.test")]:
    s=socket.create_connection(("127.0.0.1",3128),10)
    s.sendall(r.encode())
    print(s.recv(4096).split(b"\r\n")[0].decode())
`
	out, errs, status := confined(t, t.TempDir(), nil, "--net", "allowed.test:8090", "--net-map", "allowed.test:8090="+s.Addr().String(), "--", "python3", "-c", ask)
	if status != 0 || strings.Count(out, " 400 ") != 13 || strings.Count(out, " 403 ") != 1 || strings.Count(out, " 200 ") != 1 {
		t.Errorf("status %d: %q %s", status, out, errs)
	}
	if !strings.Contains(errs, "(13 times): not plain HTTP (the port is missing)") || !strings.Contains(errs, `denied.test:8090 by "python3": HTTP for another host (the request goes to allowed.test:8090)`) {
		t.Errorf("told %s", errs)
	}
}

// TestUDPFailsWhereItIsSent: a program that tries QUIC or a name server of its
// own is told at once, and turns to TCP.
func TestUDPFailsWhereItIsSent(t *testing.T) {
	try := `import socket,sys
for to in (("203.0.113.7",443),("203.0.113.7",53),("2001:db8::1",443),("127.0.0.1",9)):
    s=socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET,socket.SOCK_DGRAM)
    try: s.sendto(b"x"*1200,to); print("sent")
    except OSError as e: print(e.errno)
a=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); a.bind(("127.0.0.1",0)); a.settimeout(5)
socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b"own",a.getsockname()); print(a.recv(9).decode())
`
	control, err := exec.Command("python3", "-c", try).Output()
	if err != nil || strings.HasPrefix(string(control), "1\n") || !strings.HasSuffix(string(control), "own\n") {
		t.Fatalf("control: %v %q", err, control)
	}
	try += `print(len(socket.getaddrinfo("allowed.test",8090,socket.AF_INET,socket.SOCK_STREAM)))`
	out, errs, status := confined(t, t.TempDir(), nil, "--net", "allowed.test:8090", "--", "python3", "-c", try)
	// EPERM, and the sandbox's own goes on, its name service as well.
	if status != 0 || out != "1\n1\n1\nsent\nown\n1\n" {
		t.Errorf("status %d: %q %s", status, out, errs)
	}
}
