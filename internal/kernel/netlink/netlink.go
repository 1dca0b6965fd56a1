//go:build linux

// Package netlink builds the few netlink messages that a sandbox's network is
// made of, as bytes that a process without a language runtime can replay, and
// reads socket owners from a socket handed out of it.
//
// It sends nothing by itself but the question of Owner.
package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Batch is a datagram for one netlink socket and the number of answers to read:
// each is an acknowledgement whose error is at AckErrno.
type Batch struct {
	Bytes []byte
	Acks  int
}

// AckErrno is where an acknowledgement holds its negative errno, 0 for success
// (struct nlmsgerr behind struct nlmsghdr).
const AckErrno = unix.SizeofNlMsghdr

// AckBytes is room enough for one acknowledgement.
const AckBytes = 4096

// message is one netlink message under construction.
type message struct{ b []byte }

func newMessage(kind, flags uint16, seq uint32) *message {
	b := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return &message{b}
}

func (m *message) bytes(b ...byte) *message { m.b = append(m.b, b...); return m }

func (m *message) attr(kind uint16, data []byte) *message {
	m.b = append(m.b, attr(kind, data)...)
	return m
}

func (m *message) done() []byte {
	binary.NativeEndian.PutUint32(m.b, uint32(len(m.b)))
	return m.b
}

// attr is one attribute, padded to four bytes.
func attr(kind uint16, data []byte) []byte {
	n := unix.SizeofNlAttr + len(data)
	b := make([]byte, (n+3)&^3)
	binary.NativeEndian.PutUint16(b, uint16(n))
	binary.NativeEndian.PutUint16(b[2:], kind)
	copy(b[unix.SizeofNlAttr:], data)
	return b
}

func nested(kind uint16, attrs ...[]byte) []byte {
	var data []byte
	for _, a := range attrs {
		data = append(data, a...)
	}
	return attr(kind|unix.NLA_F_NESTED, data)
}

func str(s string) []byte { return append([]byte(s), 0) }

func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func host32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// loopback is the index of lo, the first device of every network namespace.
const loopback = 1

// Loopback gives lo two more addresses and delivers every destination there is
// to it: a program that connects anywhere reaches this namespace.
//
// The addresses are not loopback addresses, as getaddrinfo with AI_ADDRCONFIG
// finds no IPv4 or IPv6 on a host that has only those. The zero v6 leaves IPv6
// out, for a kernel without it.
func Loopback(v4, v6 netip.Addr) Batch {
	const flags = unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_EXCL
	var out Batch
	add := func(m *message) {
		out.Bytes = append(out.Bytes, m.done()...)
		out.Acks++
	}
	addrs := []netip.Addr{v4, v6}
	if !v6.IsValid() {
		addrs = addrs[:1]
	}
	for i, a := range addrs {
		family, bits := family(a)
		m := newMessage(unix.RTM_NEWADDR, flags, uint32(i))
		m.bytes(family, bits, unix.IFA_F_NODAD, unix.RT_SCOPE_HOST).bytes(host32(loopback)...)
		add(m.attr(unix.IFA_LOCAL, a.AsSlice()).attr(unix.IFA_ADDRESS, a.AsSlice()))
	}
	for i, a := range addrs {
		family, _ := family(a)
		m := newMessage(unix.RTM_NEWROUTE, flags, uint32(2+i))
		m.bytes(family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
		add(m.attr(unix.RTA_OIF, host32(loopback)).attr(unix.RTA_PREFSRC, a.AsSlice()))
	}
	return out
}

func family(a netip.Addr) (family, bits byte) {
	if a.Is4() {
		return unix.AF_INET, 32
	}
	return unix.AF_INET6, 128
}
