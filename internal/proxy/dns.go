package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"confine/internal/egress"
)

const (
	maxQuery    = 1232 // bytes; no query for one name is near it
	dnsTTL      = 30   // seconds; rows of the table live as long as the sandbox
	dnsIdleTime = 10 * time.Second
)

// serveDNS answers queries over UDP, one after the other: an answer needs
// nothing but the table.
func (s *session) serveDNS(conn net.PacketConn) {
	buf := make([]byte, maxQuery)
	for failures := 0; ; {
		n, client, err := conn.ReadFrom(buf)
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !s.pause(failures) {
				return
			}
			failures++
			continue
		}
		failures = 0
		if reply := s.answer(buf[:n], client); reply != nil {
			// A client that is gone is no concern of ours.
			_, _ = conn.WriteTo(reply, client)
		}
	}
}

// serveDNSStream answers queries over TCP.
func (s *session) serveDNSStream(conn net.Conn) {
	var length [2]byte
	buf := make([]byte, maxQuery)
	for {
		if conn.SetDeadline(time.Now().Add(dnsIdleTime)) != nil {
			return
		}
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n > len(buf) {
			return
		}
		if _, err := io.ReadFull(conn, buf[:n]); err != nil {
			return
		}
		reply := s.answer(buf[:n], conn.RemoteAddr())
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answer returns the reply to one query, or nil when none is due. Nothing is
// asked of anyone else for it.
func (s *session) answer(query []byte, client net.Addr) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}
	reply := dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, Authoritative: true,
		RecursionDesired: head.RecursionDesired,
		// Without it Go's resolver takes an empty answer for a lame server.
		RecursionAvailable: true,
	}
	if head.OpCode != 0 {
		reply.RCode = dnsmessage.RCodeNotImplemented
		return pack(reply, nil, nil)
	}
	q, err := p.Question()
	if err != nil {
		reply.RCode = dnsmessage.RCodeFormatError
		return pack(reply, nil, nil)
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		reply.RCode = dnsmessage.RCodeFormatError
		return pack(reply, nil, nil)
	}
	if q.Class != dnsmessage.ClassINET {
		reply.RCode = dnsmessage.RCodeRefused
		return pack(reply, &q, nil)
	}
	var addrs []netip.Addr
	reply.RCode, addrs = s.resolve(q, client)
	return pack(reply, &q, addrs)
}

// resolve decides one question: the response code and the addresses.
func (s *session) resolve(q dnsmessage.Question, client net.Addr) (dnsmessage.RCode, []netip.Addr) {
	refuse := func(r egress.Refusal) (dnsmessage.RCode, []netip.Addr) {
		s.report(r, client)
		return dnsmessage.RCodeNameError, nil
	}
	text := q.Name.String()
	if text == "." {
		return dnsmessage.RCodeSuccess, nil
	}
	host, err := egress.ParseHost(text)
	if err != nil {
		return refuse(egress.Refusal{Asked: text, Verdict: egress.Verdict{Reason: egress.ReasonMalformed}})
	}
	if host.Metadata() {
		return refuse(egress.Refusal{Verdict: s.decide(egress.Attempt{Host: host})})
	}
	var v4, v6 netip.Addr
	switch {
	case q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA:
		// No such record. HTTPS and SVCB would bring other ports, addresses and
		// the keys of encrypted ClientHellos.
		return dnsmessage.RCodeSuccess, nil
	case host.Local():
		v4, v6 = netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	default:
		var ok bool
		v4, v6, ok = s.names.assign(host, func() int {
			if s.listed(host) {
				return kindListed
			}
			return kindRefused
		})
		if !ok {
			v := s.decide(egress.Attempt{Host: host})
			v.Allowed, v.Reason = false, egress.ReasonBusy
			return refuse(egress.Refusal{Verdict: v, Detail: "too many names were asked for"})
		}
	}
	if q.Type == dnsmessage.TypeA {
		return dnsmessage.RCodeSuccess, []netip.Addr{v4}
	}
	return dnsmessage.RCodeSuccess, []netip.Addr{v6}
}

// pack writes a reply. It returns nil if it can't be written, which a name that
// came out of a parsed query does not bring about.
func pack(head dnsmessage.Header, q *dnsmessage.Question, addrs []netip.Addr) []byte {
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), head)
	b.EnableCompression() // the answer's name is the question's: 512 bytes are never passed
	if q != nil {
		if b.StartQuestions() != nil || b.Question(*q) != nil {
			return nil
		}
	}
	if len(addrs) > 0 {
		if b.StartAnswers() != nil {
			return nil
		}
		for _, addr := range addrs {
			rh := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: dnsTTL}
			var err error
			if addr.Is4() {
				err = b.AResource(rh, dnsmessage.AResource{A: addr.As4()})
			} else {
				err = b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: addr.As16()})
			}
			if err != nil {
				return nil
			}
		}
	}
	msg, err := b.Finish()
	if err != nil {
		return nil
	}
	return msg
}
