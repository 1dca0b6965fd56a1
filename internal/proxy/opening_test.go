package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"confine/internal/egress"
)

// Requests that servers take and that are none to a parser for HTTP/1.1. Each
// is for another host than the one that was dialled.
var lenientRequests = map[string]struct {
	send   string
	reason egress.Reason
}{
	"small letters":           {"get / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonHTTPHost},
	"a capital":               {"Get / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonHTTPHost},
	"a hyphen":                {"M-SEARCH / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonHTTPHost},
	"a long method":           {"VERSION-CONTROL / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonHTTPHost},
	"a longer method":         {strings.Repeat("A", 200) + " / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"no token":                {"(GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"trailing space":          {"GET / HTTP/1.1 \r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"more words":              {"GET / HTTP/1.1 x\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"small version":           {"GET / http/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"other version":           {"GET / HTTP/1.2\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"version 3":               {"GET / HTTP/3\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"leading space":           {" GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"leading tab":             {"\tGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"leading odd spaces":      {"\xa0\x85\x1f\v\fGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"one empty line":          {"\r\nGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonHTTPHost},
	"empty lines":             {"\r\n\n\r\nGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"tabs between":            {"GET\t/\tHTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"zero bytes between":      {"GET /\x00HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"a space in the target":   {"GET /a b HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"a zero byte":             {"GET /\x00 HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"bare LF":                 {"GET / HTTP/1.1\nHost: denied.test\n\n", egress.ReasonNotHTTP},
	"bare CR":                 {"X\rGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"HTTP/2":                  {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", egress.ReasonNotHTTP},
	"HTTP/0.9 with a Host":    {"GET /\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"HTTP/0.9 with a URL":     {"GET http://denied.test/\r\n", egress.ReasonNotHTTP},
	"RTSP, which Node takes":  {"OPTIONS / RTSP/1.0\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"ICE, which Node takes":   {"SOURCE / ICE/1.0\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"PROXY protocol":          {"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\nGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"PROXY protocol, binary":  {"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0cGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
	"a line that is too long": {"GET /" + strings.Repeat("a", 70<<10) + " HTTP/1.1\r\nHost: denied.test\r\n\r\n", egress.ReasonNotHTTP},
}

const auto = 8090

func TestLenientRequestsAreDecided(t *testing.T) {
	for name, tt := range lenientRequests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Control: where nothing is looked at, all of it arrives.
			open := newFixture(t, "", func(o *Options) {
				o.Policy.Allow = []egress.Rule{{Host: "allowed.test", Port: auto, Proto: egress.ProtoTCP}}
			})
			open.serve(allowedAddr+":8090", echo)
			conn := open.dialName("allowed.test", auto)
			go io.WriteString(conn, tt.send)
			got := make([]byte, len(tt.send))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != tt.send {
				t.Fatalf("control: %.80q %v", got, err)
			}

			f := newFixture(t, "allowed.test:8090", nil)
			up := f.serve(allowedAddr+":8090", echo)
			conn = f.dialName("allowed.test", auto)
			send(t, conn, tt.send+"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
			r := f.refusal()
			if r.Verdict.Reason != tt.reason {
				t.Errorf("%+v", r)
			}
			line := `egress: {allow: [{host: "allowed.test:8090", proto: tcp}]}`
			if tt.reason == egress.ReasonNotHTTP && !strings.Contains(r.Render(), line) {
				t.Errorf("%s", r.Render())
			}
			if answer, _ := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 40") || !strings.Contains(string(answer), string(tt.reason)) {
				t.Errorf("told %.200q", answer)
			}
			if _, n := up.counts(); n != 0 {
				t.Errorf("%d bytes went upstream: %.80q", n, up.text())
			}
		})
	}
}

// A neighbour of the above: what is strict is decided and carried.
func TestLenientRequestsNeighbour(t *testing.T) {
	f := newFixture(t, "allowed.test:8090", nil)
	serveSite(f, allowedAddr+":8090", "site")
	conn := f.dialName("allowed.test", auto)
	r := bufio.NewReader(conn)
	for _, method := range []string{"GET", "get", "M-SEARCH", "VERSION-CONTROL"} {
		send(t, conn, method+" / HTTP/1.1\r\nHost: allowed.test:8090\r\n\r\n")
		if code, body := get(t, r); code != 200 || body != `site: `+method+` allowed.test:8090 / ""` {
			t.Errorf("%s: %d %q", method, code, body)
		}
	}
	// Each by itself, to the last.
	send(t, conn, "get / HTTP/1.1\r\nHost: denied.test\r\n\r\n")
	if code, body := get(t, r); code != 403 || !strings.Contains(body, "HTTP for another host") {
		t.Errorf("%d %q", code, body)
	}
}

// Requests in parts, with a server that waits for its end, and behind a greeting.
func TestLateRequestsAreRefused(t *testing.T) {
	const greet = "hello\r\n"
	for name, tt := range map[string]struct {
		greeting string
		parts    []string
		most     string // may have gone upstream
	}{
		"behind a greeting":               {greet, []string{"GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"}, ""},
		"behind a greeting, HTTP/2":       {greet, []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, ""},
		"behind a greeting, in parts":     {greet, []string{"G", "ET / HT", "TP/1.1\r\nHost: denied.test\r\n\r\n"}, "GET / HT"},
		"behind a greeting, other spaces": {greet, []string{"\r\n", " get\t/", " http/1.1\r\n\r\n"}, "\r\n get\t/"},
		"in parts":                        {"", []string{"ge", "t x HTTP/", "1.1\r\nHost: denied.test\r\n\r\n"}, "get x HTTP/"},
		"in parts, hopeless":              {"", []string{" GET /", " HTTP/1.1\r\nHost: denied.test\r\n\r\n"}, " GET /"},
		"an empty line ahead":             {"", []string{"\r\n", "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"}, "\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "allowed.test:8090", nil)
			up := f.serve(allowedAddr+":8090", func(c net.Conn) {
				_, _ = io.WriteString(c, tt.greeting)
				echo(c)
			})
			conn := f.dialName("allowed.test", auto)
			got := make([]byte, len(tt.greeting))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != tt.greeting {
				t.Fatalf("greeted with %q, %v", got, err)
			}
			for i, part := range tt.parts {
				send(t, conn, part)
				if i == len(tt.parts)-1 {
					break
				}
				// What went upstream comes back: the next part is one of its own.
				_ = conn.SetReadDeadline(time.Now().Add(3 * speakTime))
				_, _ = io.ReadFull(conn, make([]byte, len(part)))
			}
			if r := f.refusal(); r.Verdict.Reason != egress.ReasonNotHTTP || !strings.Contains(r.Render(), "proto: tcp") {
				t.Errorf("%s", r.Render())
			}
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.ReadAll(conn)
			if !strings.HasPrefix(tt.most, up.text()) {
				t.Errorf("upstream got %q", up.text())
			}
		})
	}
}

// The first lines of other protocols, sent first and after a greeting: they
// arrive whole, and nothing is refused.
func TestOtherProtocolsWork(t *testing.T) {
	for name, first := range map[string]string{
		"SMTP": "EHLO allowed.test\r\n", "SMTP, bare LF": "HELO allowed.test\n", "LMTP": "LHLO x\r\n",
		"IMAP": "a001 LOGIN \"me\" \"pass / word\"\r\n", "POP3": "USER me\r\n", "FTP": "USER anonymous\r\n", "FTP path": "RETR /pub/file\r\n",
		"Redis": "PING\r\n", "Redis, inline": "GET key\r\n", "Redis, two words": "SET k v\r\n", "Redis, RESP": "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
		"memcached": "get key1 key2\r\n", "SSH": "SSH-2.0-OpenSSH_9.6\r\n", "IRC": "NICK me\r\nUSER me 0 * :me\r\n", "NNTP": "MODE READER\r\n",
		"PostgreSQL": "\x00\x00\x00\x20\x00\x03\x00\x00user\x00me\x00database\x00db\x00\x00\x00", "PostgreSQL asks for TLS": "\x00\x00\x00\x08\x04\xd2\x16\x2f",
		"MySQL": "\x20\x00\x00\x01\x85\xa6\xff\x01", "MongoDB": "\x3a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xd4\x07\x00\x00", "Kafka": "\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x06client",
		"git": "003cgit-upload-pack /project.git\x00host=allowed.test\x00\x00..", "NATS": "CONNECT {\"verbose\":false}\r\n", "STOMP": "CONNECT\nhost:a\n\n\x00",
		"AMQP": "AMQP\x00\x00\x09\x01", "MQTT": "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", "LDAP": "\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00",
		"SIP": "REGISTER sip:a.test SIP/2.0\r\n", "gopher": "/path\r\n", "JSON": `{"method":"HTTP/1.1"}`, "whois": "example.com\r\n", "D-Bus": "\x00AUTH EXTERNAL 30\r\n",
		"a response": "HTTP/1.1 200 OK\r\n\r\n", "a later line": "DATA\r\nGET / HTTP/1.1\r\n",
		"TLS": string(hello(t, "allowed.test")),
	} {
		for _, greeting := range []string{"", "220 hello\r\n"} {
			t.Run(name+" "+greeting, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, "allowed.test:8090", nil)
				f.serve(allowedAddr+":8090", func(c net.Conn) {
					_, _ = io.WriteString(c, greeting)
					echo(c)
				})
				conn := f.dialName("allowed.test", auto)
				want := greeting + first
				got := make([]byte, len(want))
				if _, err := io.ReadFull(conn, got[:len(greeting)]); err != nil {
					t.Fatal(err)
				}
				// The client waits for the answer to it before it ends.
				send(t, conn, first)
				if _, err := io.ReadFull(conn, got[len(greeting):]); err != nil || string(got) != want {
					t.Errorf("got %q, %v", got, err)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.refusals) != 0 {
					t.Errorf("%+v", f.refusals)
				}
			})
		}
	}
}

// What is no request must not wait: a server is asked at once, whatever is said.
func TestOpeningDoesNotHold(t *testing.T) {
	for _, first := range []string{"\x00\x00\x00\x08", "PING\r\n", "003cgit-upload-pack /p.git\x00host=a\x00", "\x20\x00\x00\x01", "\xffSMB"} {
		o := new(opening)
		if kind := o.scan([]byte(first)); kind == isHTTP || kind == unclear && !o.hopeless {
			t.Errorf("%q: %v", first, kind)
		}
	}
}

// The scan finds at least what the strict parser takes, in any parts.
func FuzzOpening(f *testing.F) {
	for _, tt := range lenientRequests {
		f.Add([]byte(tt.send), 3)
	}
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		whole := new(opening)
		kind := whole.scan(in)
		parts := new(opening)
		at = max(0, min(at, len(in)))
		got := parts.scan(in[:at])
		if got == unclear {
			got = parts.scan(in[at:])
		}
		if got != kind {
			t.Fatalf("%q: %v whole, %v in parts", in, kind, got)
		}
		if _, err := readHead(bufio.NewReader(strings.NewReader(string(in)))); err == nil && kind != isHTTP {
			t.Fatalf("%q is a request and was not found", in)
		}
	})
}
