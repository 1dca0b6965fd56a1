package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"confine/internal/egress"
)

// The addresses that the fake resolver gives out. They are public, so that the
// real checks let them pass, and the fake dialer dials a server of the test.
const (
	allowedAddr = "1.1.1.1"
	deniedAddr  = "8.8.8.8"
)

// fixture is a Server on loopback sockets, with fakes for what lies outside:
// the resolver, which counts, the dialer, and the kernel's redirect table.
type fixture struct {
	t       *testing.T
	server  *Server
	stop    func()
	dnsUDP  string
	dnsTCP  string
	capture string
	connect string

	mu       sync.Mutex
	lookups  []string
	dials    []string
	answers  map[string][]string // name without its dot to addresses
	servers  map[string]string   // "ip:port" to a listener of the test
	refusals []egress.Refusal
	carried  []Connection
	told     chan struct{} // one for each refusal or connection

	redirects sync.Map // client address to chan netip.AddrPort
}

func (f *fixture) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookups = append(f.lookups, host)
	var addrs []netip.Addr
	for _, a := range f.answers[host] {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	if addrs == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addrs, nil
}

func (f *fixture) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dials = append(f.dials, address)
	to, ok := f.servers[address]
	f.mu.Unlock()
	if !ok { // an address that never answers
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to)
}

func (f *fixture) redirect(client string) chan netip.AddrPort {
	c, _ := f.redirects.LoadOrStore(client, make(chan netip.AddrPort, 1))
	return c.(chan netip.AddrPort)
}

func newFixture(t *testing.T, rules string, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{
		t:       t,
		answers: map[string][]string{"allowed.test.": {allowedAddr}, "denied.test.": {deniedAddr}},
		servers: map[string]string{},
		told:    make(chan struct{}, 4096),
	}
	opt := Options{
		Resolver: f, Dialer: f,
		OwnAddresses:        func() ([]netip.Addr, error) { return nil, nil },
		OriginalDestination: func(c net.Conn) (netip.AddrPort, error) { return <-f.redirect(c.RemoteAddr().String()), nil },
		Now:                 func() time.Time { return time.Unix(1e9, 0) },
		OnRefusal: func(r egress.Refusal) {
			f.mu.Lock()
			f.refusals = append(f.refusals, r)
			f.mu.Unlock()
			f.told <- struct{}{}
		},
		OnConnection: func(c Connection) {
			f.mu.Lock()
			f.carried = append(f.carried, c)
			f.mu.Unlock()
			f.told <- struct{}{}
		},
	}
	if rules != "" {
		var err error
		if opt.Policy.Allow, err = egress.ParseRules(rules); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(&opt)
	}
	var err error
	if f.server, err = New(opt); err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var listeners [3]net.Listener
	for i := range listeners {
		listeners[i] = listen(t)
	}
	f.dnsUDP, f.dnsTCP, f.capture, f.connect = udp.LocalAddr().String(), listeners[0].Addr().String(), listeners[1].Addr().String(), listeners[2].Addr().String()
	f.stop, err = f.server.Serve(udp, listeners[0], listeners[1], listeners[2], func(net.Addr) string { return "cu\x1b[31mrl\u202e" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.stop)
	return f
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// upstream serves address ("ip:port" as the resolver gives it) by serve, and
// counts the bytes and connections that arrive.
type upstream struct {
	mu    sync.Mutex
	got   bytes.Buffer
	conns int
}

func (u *upstream) counts() (conns, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conns, u.got.Len()
}

// text is what arrived so far.
func (u *upstream) text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.got.String()
}

// recorded hides the connection's own WriteTo, which would pass Read by.
type recorded struct {
	net.Conn
	u *upstream
}

func (r recorded) SetLinger(sec int) error { return r.Conn.(*net.TCPConn).SetLinger(sec) }

func (r recorded) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.u.mu.Lock()
	r.u.got.Write(p[:n])
	r.u.mu.Unlock()
	return n, err
}

func (f *fixture) serve(address string, serve func(net.Conn)) *upstream {
	l := listen(f.t)
	f.mu.Lock()
	f.servers[address] = l.Addr().String()
	f.mu.Unlock()
	u := &upstream{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.conns++
			u.mu.Unlock()
			go func() {
				defer conn.Close()
				serve(recorded{conn, u})
			}()
		}
	}()
	return u
}

// dialCapture connects as a program would that dialled dst.
func (f *fixture) dialCapture(dst netip.AddrPort) *net.TCPConn {
	f.t.Helper()
	conn := f.dialRaw(f.capture)
	f.redirect(conn.LocalAddr().String()) <- dst
	return conn
}

func (f *fixture) dialRaw(address string) *net.TCPConn {
	f.t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// dialName resolves a name as a program would, and connects to the answer.
func (f *fixture) dialName(name string, port uint16) *net.TCPConn {
	f.t.Helper()
	_, addrs := f.query(name, dnsmessage.TypeA)
	if len(addrs) != 1 {
		f.t.Fatalf("%s has the addresses %v", name, addrs)
	}
	return f.dialCapture(netip.AddrPortFrom(addrs[0], port))
}

func (f *fixture) query(name string, kind dnsmessage.Type) (dnsmessage.RCode, []netip.Addr) {
	f.t.Helper()
	conn, err := net.Dial("udp", f.dnsUDP)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	if _, err := conn.Write(question(f.t, name, kind)); err != nil {
		f.t.Fatal(err)
	}
	buf := make([]byte, 1500)
	n, err := conn.Read(buf)
	if err != nil {
		f.t.Fatal(err)
	}
	return parseReply(f.t, buf[:n])
}

func question(t *testing.T, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	q := dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}
	msg, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{q}}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func parseReply(t *testing.T, reply []byte) (dnsmessage.RCode, []netip.Addr) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil {
		t.Fatal(err)
	}
	if !m.Response || m.ID != 7 || len(m.Questions) != 1 {
		t.Fatalf("reply %+v", m)
	}
	var addrs []netip.Addr
	for _, a := range m.Answers {
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			addrs = append(addrs, netip.AddrFrom4(b.A))
		case *dnsmessage.AAAAResource:
			addrs = append(addrs, netip.AddrFrom16(b.AAAA))
		default:
			t.Errorf("answer %v", a)
		}
	}
	return m.RCode, addrs
}

// refusal waits for the next report and returns it, the only one so far.
func (f *fixture) refusal() egress.Refusal {
	f.t.Helper()
	select {
	case <-f.told:
	case <-time.After(20 * time.Second):
		f.t.Fatal("no refusal was reported")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.refusals) != 1 {
		f.t.Fatalf("refusals %+v, carried %+v", f.refusals, f.carried)
	}
	r := f.refusals[0]
	f.refusals = nil
	return r
}

func (f *fixture) lookedUp() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.lookups...)
}

func (f *fixture) dialled() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.dials...)
}

// readAll reads to a clean end.
func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("read to the end: %v after %q", err, b)
	}
	return string(b)
}

func send(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// hello returns the bytes of a real client's ClientHello for a name.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		theirs.Close()
	}()
	defer ours.Close()
	buf := make([]byte, 16<<10)
	n, err := ours.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

var testCertificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"allowed.test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// serveTLS is a TLS server that echoes.
func serveTLS(conn net.Conn) {
	c := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{testCertificate()}})
	_, _ = io.Copy(c, c)
}
