package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// bytesConn is a client that sends some bytes and ends.
type bytesConn struct {
	net.Conn
	r io.Reader
}

func (c bytesConn) Read(p []byte) (int, error)      { return c.r.Read(p) }
func (c bytesConn) SetReadDeadline(time.Time) error { return nil }

func streamOf(b []byte) *stream { return &stream{Conn: bytesConn{r: bytes.NewReader(b)}} }

func TestReadHelloHoldsAll(t *testing.T) {
	in := append(splitRecords(hello(t, "allowed.test"), 9), "more"...)
	s := streamOf(in)
	name, err := readHello(s)
	if err != nil || name != "allowed.test" {
		t.Fatalf("%q, %v", name, err)
	}
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, in) {
		t.Errorf("held %d bytes of %d, %v", len(got), len(in), err)
	}
}

// Extensions that say two names, or say one oddly.
func TestReadHelloIsStrict(t *testing.T) {
	sni := func(names string) string { return "\x00\x00" + vector16(vector16(names)) }
	one := sni("\x00" + vector16("a.test"))
	tests := []struct {
		name, ext string
		want      error
	}{
		{"one", one, nil},
		{"two extensions", one + one, errNotTLS},
		{"two names", sni("\x00" + vector16("a.test") + "\x00" + vector16("b.test")), errNotTLS},
		{"two types", sni("\x00" + vector16("a.test") + "\x01" + vector16("b.test")), errNotTLS},
		{"another type", sni("\x01" + vector16("a.test")), errNotTLS},
		{"empty name", sni("\x00" + vector16("")), errNotTLS},
		{"empty list", sni(""), errNotTLS},
		{"empty extension", "\x00\x00\x00\x00", errNotTLS},
		{"trailing bytes in the list", "\x00\x00" + vector16(vector16("\x00"+vector16("a.test"))+"x"), errNotTLS},
		{"cut extension", one + "\x00", errNotTLS},
		{"none", "", errNoName},
		{"another extension", "\x00\x17\x00\x00", errNoName},
	}
	for _, tt := range tests {
		if name, err := readHello(streamOf([]byte(rawHello(tt.ext)))); err != tt.want || (err == nil) != (name == "a.test") {
			t.Errorf("%s: %q, %v; want %v", tt.name, name, err, tt.want)
		}
	}
	good := rawHello(one)
	for n := range len(good) {
		if name, err := readHello(streamOf([]byte(good[:n]))); err == nil {
			t.Fatalf("%d of %d bytes gave %q", n, len(good), name)
		}
	}
	for what, in := range map[string]string{
		"bytes behind the hello in its record": "\x16\x03\x01" + vector16(good[5:]+"x"),
		"a record of another kind between":     "\x16\x03\x01\x00\x04" + good[5:9] + "\x14\x03\x01\x00\x01\x01" + "\x16\x03\x01" + vector16(good[9:]),
		"an empty record":                      "\x16\x03\x01\x00\x00" + good,
		"a record that is too long":            "\x16\x03\x01\x40\x01" + good[5:],
		"version 2":                            "\x16\x02\x01" + good[3:],
	} {
		if name, err := readHello(streamOf([]byte(in))); err != errNotTLS {
			t.Errorf("%s: %q, %v", what, name, err)
		}
	}
	// Short enough as a message, and not as what has to be held of it.
	long := splitRecords([]byte(rawHello(one+"\x00\x15"+vector16(strings.Repeat("\x00", 20<<10)))), 1)
	if name, err := readHello(streamOf(long)); !errors.Is(err, errTooLong) {
		t.Errorf("%d bytes of records: %q, %v", len(long), name, err)
	}
}

func vector16(s string) string { return string([]byte{byte(len(s) >> 8), byte(len(s))}) + s }

func rawHello(ext string) string {
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + vector16("\x13\x01") + "\x01\x00" + vector16(ext)
	return "\x16\x03\x01" + vector16("\x01\x00"+vector16(body))
}

// FuzzHello holds our reading of a ClientHello to that of crypto/tls: a hello
// that both accept has one name.
func FuzzHello(f *testing.F) {
	f.Add(hello(f, "allowed.test"))
	f.Add(hello(f, ""))
	f.Add(splitRecords(hello(f, "allowed.test"), 100))
	f.Add([]byte(rawHello("\x00\x00" + vector16(vector16("\x00"+vector16("a.test"))))))
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := streamOf(in)
		name, err := readHello(s)
		if len(s.buf) > maxHello*2 {
			t.Fatalf("%d bytes are held", len(s.buf))
		}
		if err != nil {
			return
		}
		seen := false
		var theirs string
		_ = tls.Server(helloConn{bytesConn{r: bytes.NewReader(in)}}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			seen, theirs = true, h.ServerName
			return nil, io.EOF
		}}).Handshake()
		if seen && theirs != "" && !strings.EqualFold(theirs, name) {
			t.Fatalf("we read %q, crypto/tls %q", name, theirs)
		}
	})
}

type helloConn struct{ bytesConn }

func (helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (helloConn) Close() error                     { return nil }
func (helloConn) SetDeadline(time.Time) error      { return nil }
func (helloConn) SetWriteDeadline(time.Time) error { return nil }
