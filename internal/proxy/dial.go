package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"confine/internal/egress"
)

const (
	maxAddresses = 8
	// stagger is when the next address is tried while the one before it has
	// not answered (RFC 8305).
	stagger = 250 * time.Millisecond
)

// dial connects to what v allowed. An error that is an *egress.AddrError is a
// refusal; any other is the network's.
func (s *Server) dial(ctx context.Context, v egress.Verdict) (net.Conn, error) {
	if !v.Allowed {
		return nil, errors.New("dial: not allowed")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	to := egress.HostPort{Host: v.Attempt.Host, Port: v.Attempt.Port}
	for _, key := range []egress.HostPort{to, {Host: to.Host}} {
		if addr, ok := s.opt.NetMap[key]; ok {
			return s.dialAddr(ctx, addr, nil)
		}
	}
	// The final dot keeps the resolver from trying search domains: the name
	// that was decided is the whole name.
	found, err := s.opt.Resolver.LookupNetIP(ctx, "ip", string(to.Host)+".")
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", to.Host, err)
	}
	var addrs []netip.Addr
	var refused error
	for _, addr := range found {
		addr = addr.Unmap()
		if err := s.check(v, addr); err != nil {
			refused = err
		} else if len(addrs) < maxAddresses && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	switch {
	case len(addrs) > 0:
		return s.race(ctx, v, addrs)
	case refused != nil:
		return nil, refused
	}
	return nil, fmt.Errorf("resolve %s: %w", to.Host, &net.DNSError{Err: "no address", Name: string(to.Host), IsNotFound: true})
}

// check says whether v's name may be dialled at addr now.
func (s *Server) check(v egress.Verdict, addr netip.Addr) error {
	if err := s.opt.Policy.CheckAddr(v.Attempt.Host, addr, v.Rule); err != nil {
		return err
	}
	own, err := s.opt.OwnAddresses()
	if err != nil {
		return fmt.Errorf("list own addresses: %w", err)
	}
	if slices.Contains(own, addr.Unmap().WithZone("")) {
		return &egress.AddrError{Host: v.Attempt.Host, Port: v.Attempt.Port, Addr: addr, Range: "machine's own"}
	}
	return nil
}

// race tries the addresses in order, each a little after the one before or as
// soon as that failed, and returns the first that answers.
func (s *Server) race(ctx context.Context, v egress.Verdict, addrs []netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(addrs))
	next, pending := 0, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	// Late winners are closed by whoever is left to read the channel.
	defer func() {
		go func(n int) {
			for range n {
				if r := <-results; r.conn != nil {
					r.conn.Close()
				}
			}
		}(pending)
	}()
	var first error
	for {
		select {
		case <-timer.C:
			if next == len(addrs) {
				continue
			}
			to := netip.AddrPortFrom(addrs[next], v.Attempt.Port)
			next++
			pending++
			go func() {
				conn, err := s.dialAddr(ctx, to, &v)
				results <- result{conn, err}
			}()
			timer.Reset(stagger)
		case r := <-results:
			pending--
			if r.err == nil {
				return r.conn, nil
			}
			if first == nil {
				first = r.err
			}
			if next == len(addrs) && pending == 0 {
				return nil, first
			}
			timer.Reset(0)
		}
	}
}

// dialAddr dials one address. With a verdict, the address is checked again by
// what the kernel is about to connect to.
func (s *Server) dialAddr(ctx context.Context, to netip.AddrPort, v *egress.Verdict) (net.Conn, error) {
	d := s.opt.Dialer
	if d == nil {
		own := &net.Dialer{}
		own.SetMultipathTCP(false)
		if v != nil {
			own.Control = func(_, address string, _ syscall.RawConn) error {
				ap, err := netip.ParseAddrPort(address)
				if err != nil {
					return fmt.Errorf("check address: %w", err)
				}
				return s.check(*v, ap.Addr())
			}
		}
		d = own
	}
	return d.DialContext(ctx, "tcp", to.String())
}

func interfaceAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return addrs, nil
}

// faultText is what the program is told of a failed dial: what went wrong, and
// nothing of the machine's name servers or addresses that errors hold.
func faultText(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the name does not exist"
	case errors.As(err, &dns):
		return "the name could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused by the host"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "the host does not answer"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "no route to the host"
	}
	return "the connection failed"
}

// addrRefusal turns an address that was not let through into the refusal it is.
func addrRefusal(v egress.Verdict, err error) (egress.Refusal, bool) {
	var ae *egress.AddrError
	if !errors.As(err, &ae) {
		return egress.Refusal{}, false
	}
	v.Allowed, v.Reason = false, egress.ReasonAddress
	if ae.Private {
		v.Reason = egress.ReasonPrivate
	}
	return egress.Refusal{Verdict: v, Detail: ae.Range, Resolved: ae.Addr}, true
}
