package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"confine/internal/egress"
	"confine/internal/plaintext"
)

// The caps of one sandbox. Past a cap an attempt is refused, never queued.
const (
	maxConnections = 1024
	maxDNSStreams  = 32
	maxNames       = 4096 // of each kind, listed and refused
	maxProgram     = 64
)

// The times the proxy waits for the first thing it needs to decide. None
// limits a connection that carries data.
const (
	headTime  = time.Minute      // for a ClientHello or a request's head
	keepTime  = 5 * time.Minute  // for the next request on a kept connection
	dialTime  = 30 * time.Second // for resolving and dialling
	speakTime = 300 * time.Millisecond
	drainTime = time.Second
)

// Resolver resolves listed names outside of the sandbox. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer dials an address that was checked; address is always "ip:port".
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options are what a Server is made of. The zero value of every field is usable
// and allows nothing.
type Options struct {
	Policy egress.Policy
	// NetMap dials a listed name at an address of the map, which is not
	// resolved or checked. For tests; port 0 means every port of the name.
	NetMap map[egress.HostPort]netip.AddrPort
	// Resolver is the system's by default.
	Resolver Resolver
	// Dialer is, by default, one that checks the address once more in its
	// control hook, right before connect(2).
	Dialer Dialer
	// OwnAddresses are the machine's, which are never dialled by name. The
	// default asks the system each time, since they change.
	OwnAddresses func() ([]netip.Addr, error)
	// OriginalDestination says where a captured connection was going. The
	// default asks the kernel (SO_ORIGINAL_DST).
	OriginalDestination func(net.Conn) (netip.AddrPort, error)
	Now                 func() time.Time
	// OnRefusal is told each refusal, OnConnection each connection that was
	// carried, when it ended. They are called from many goroutines.
	OnRefusal    func(egress.Refusal)
	OnConnection func(Connection)
}

// Connection is one that was carried, as a record.
type Connection struct {
	Start, End time.Time
	To         egress.HostPort
	// Addr is the address that was dialled.
	Addr string
	// Program is who connected: best effort, cleaned, untrusted.
	Program string
	// Up and Down are the bytes from and to the program.
	Up, Down int64
}

// Server decides and carries the connections of one run.
type Server struct {
	opt Options
	mu  sync.Mutex
	// below holds, for each wildcard, the names that were let through: they
	// count for the whole run, or a new sandbox would reset the cap.
	below map[egress.Host]map[egress.Host]bool
}

// New returns a server for the policy. The error is about the policy.
func New(opt Options) (*Server, error) {
	if err := opt.Policy.Validate(); err != nil {
		return nil, fmt.Errorf("check egress policy: %w", err)
	}
	if opt.Resolver == nil {
		opt.Resolver = &net.Resolver{PreferGo: true}
	}
	if opt.OwnAddresses == nil {
		opt.OwnAddresses = interfaceAddresses
	}
	if opt.OriginalDestination == nil {
		opt.OriginalDestination = originalDestination
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Server{opt: opt, below: map[egress.Host]map[egress.Host]bool{}}, nil
}

// Serve answers on the sockets of one sandbox until stop is called, and owns
// them from now on. capture receives redirected connections, connect is the
// HTTP proxy; who names the program behind a client's address and may be nil.
// stop returns when every connection is closed and every goroutine is gone; it
// may be called more than once.
func (s *Server) Serve(dns net.PacketConn, dnsTCP, capture, connect net.Listener, who func(net.Addr) string) (stop func(), err error) {
	if dns == nil || dnsTCP == nil || capture == nil || connect == nil {
		for _, c := range []interface{ Close() error }{dns, dnsTCP, capture, connect} {
			if c != nil {
				c.Close()
			}
		}
		return nil, errors.New("serve egress: a socket is missing")
	}
	ctx, cancel := context.WithCancel(context.Background())
	ses := newSession(ctx, s, who)
	ses.group.Go(func() { ses.serveDNS(dns) })
	ses.group.Go(func() { ses.accept(dnsTCP, ses.dnsSlots, ses.serveDNSStream) })
	ses.group.Go(func() { ses.accept(capture, ses.slots, ses.serveCapture) })
	ses.group.Go(func() { ses.accept(connect, ses.slots, ses.serveConnect) })
	return func() {
		cancel()
		dns.Close()
		for _, l := range []net.Listener{dnsTCP, capture, connect} {
			l.Close()
		}
		ses.closeAll()
		ses.group.Wait()
	}, nil
}

// session is one sandbox's share of a Server.
type session struct {
	*Server
	ctx             context.Context
	who             func(net.Addr) string
	names           nameTable
	slots, dnsSlots chan struct{}
	group           sync.WaitGroup

	openMu sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func newSession(ctx context.Context, s *Server, who func(net.Addr) string) *session {
	return &session{
		Server: s, ctx: ctx, who: who,
		slots:    make(chan struct{}, maxConnections),
		dnsSlots: make(chan struct{}, maxDNSStreams),
		open:     map[net.Conn]struct{}{},
	}
}

// accept serves each connection of l in a goroutine of its own while slots are
// free, and closes it at once when none is.
func (s *session) accept(l net.Listener, slots chan struct{}, serve func(net.Conn)) {
	for failures := 0; ; {
		conn, err := l.Accept()
		if err != nil {
			// Other errors pass: a client that is gone already, no descriptors.
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !s.pause(failures) {
				return
			}
			failures++
			continue
		}
		failures = 0
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			s.report(egress.Refusal{Verdict: egress.Verdict{Reason: egress.ReasonBusy}, Asked: "connection", Detail: fmt.Sprintf("%d are open", cap(slots))}, nil)
			continue
		}
		s.group.Go(func() {
			defer func() { <-slots }()
			if s.track(conn) {
				defer s.release(conn)
				serve(conn)
			}
		})
	}
}

// pause waits a little longer with each failure in a row. It returns false when
// the session ended.
func (s *session) pause(failures int) bool {
	timer := time.NewTimer(min(time.Second, 5*time.Millisecond<<min(failures, 10)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// track makes stop close conn; it returns false, and closes it, after stop.
func (s *session) track(conn net.Conn) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	s.open[conn] = struct{}{}
	return true
}

func (s *session) release(conn net.Conn) {
	conn.Close()
	s.openMu.Lock()
	defer s.openMu.Unlock()
	delete(s.open, conn)
}

func (s *session) closeAll() {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.closed = true
	for conn := range s.open {
		conn.Close()
	}
}

// decide is the one decision on an attempt: the policy's, and the cap on names
// below a wildcard.
func (s *Server) decide(a egress.Attempt) egress.Verdict {
	v := s.opt.Policy.Decide(a)
	if v.Allowed && v.Rule.Wildcard && !s.admit(v.Rule.Host, a.Host) {
		v.Allowed, v.Reason = false, egress.ReasonNames
	}
	return v
}

func (s *Server) admit(wildcard, host egress.Host) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.below[wildcard]
	if names[host] {
		return true
	}
	if len(names) >= egress.MaxWildcardNames {
		return false
	}
	if names == nil {
		names = map[egress.Host]bool{}
		s.below[wildcard] = names
	}
	names[host] = true
	return true
}

// listed reports whether some port of host may be reached.
func (s *Server) listed(host egress.Host) bool {
	for _, port := range s.opt.Policy.Ports(host) {
		if s.decide(egress.Attempt{Host: host, Port: port}).Allowed {
			return true
		}
	}
	return false
}

// report completes a refusal and hands it on. client is who tried, or nil.
func (s *session) report(r egress.Refusal, client net.Addr) egress.Refusal {
	r.Time, r.Count, r.Program = s.opt.Now(), 1, s.program(client)
	if s.opt.OnRefusal != nil {
		s.opt.OnRefusal(r)
	}
	return r
}

func (s *session) program(client net.Addr) string {
	if s.who == nil || client == nil {
		return ""
	}
	return plaintext.Line(s.who(client), maxProgram)
}
