//go:build linux

package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	tableName = "confine"
	chainName = "capture"
	udpName   = "udp"
	// NF_IP_PRI_NAT_DST and NF_IP_PRI_FILTER (netfilter_ipv4.h).
	priorityNATDestination = -100
	priorityFilter         = 0
)

// Capture redirects every TCP connection to port, but those to loopback and to
// the two addresses of Loopback. The original destination stays readable with
// SO_ORIGINAL_DST.
//
// UDP to anywhere else fails where it is sent, with EPERM: it would arrive
// nowhere, and a program whose socket is not connected would wait for an answer
// instead of turning to TCP.
func Capture(v4, v6 netip.Addr, port uint16) Batch {
	seq := uint32(0)
	var out Batch
	add := func(kind uint16, flags uint16, family byte, resource uint16, attrs ...[]byte) {
		m := newMessage(kind, flags, seq)
		m.bytes(family, unix.NFNETLINK_V0).bytes(binary.BigEndian.AppendUint16(nil, resource)...)
		for _, a := range attrs {
			m.bytes(a...)
		}
		out.Bytes = append(out.Bytes, m.done()...)
		seq++
	}
	make := func(kind uint16, flags uint16, attrs ...[]byte) {
		add(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_ACK|unix.NLM_F_CREATE|flags, unix.NFPROTO_INET, 0, attrs...)
		out.Acks++
	}
	add(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	make(unix.NFT_MSG_NEWTABLE, 0, attr(unix.NFTA_TABLE_NAME, str(tableName)))
	// chain is a chain on what the namespace sends, in which one rule is for
	// what does not go to the namespace's own addresses.
	chain := func(name, kind string, priority int32, other ...[]byte) {
		make(unix.NFT_MSG_NEWCHAIN, 0,
			attr(unix.NFTA_CHAIN_TABLE, str(tableName)), attr(unix.NFTA_CHAIN_NAME, str(name)),
			nested(unix.NFTA_CHAIN_HOOK, attr(unix.NFTA_HOOK_HOOKNUM, be32(unix.NF_INET_LOCAL_OUT)), attr(unix.NFTA_HOOK_PRIORITY, be32(uint32(priority)))),
			attr(unix.NFTA_CHAIN_TYPE, str(kind)))
		rule := func(exprs ...[]byte) {
			make(unix.NFT_MSG_NEWRULE, unix.NLM_F_APPEND,
				attr(unix.NFTA_RULE_TABLE, str(tableName)), attr(unix.NFTA_RULE_CHAIN, str(name)),
				nested(unix.NFTA_RULE_EXPRESSIONS, exprs...))
		}
		rule(meta(unix.NFT_META_NFPROTO), equal(unix.NFPROTO_IPV4), destination4(1), equal(127), verdict(nfAccept))
		rule(meta(unix.NFT_META_NFPROTO), equal(unix.NFPROTO_IPV4), destination4(4), equal(v4.AsSlice()...), verdict(nfAccept))
		if v6.IsValid() {
			rule(meta(unix.NFT_META_NFPROTO), equal(unix.NFPROTO_IPV6), destination6(), equal(netip.IPv6Loopback().AsSlice()...), verdict(nfAccept))
			rule(meta(unix.NFT_META_NFPROTO), equal(unix.NFPROTO_IPV6), destination6(), equal(v6.AsSlice()...), verdict(nfAccept))
		}
		rule(other...)
	}
	chain(chainName, "nat", priorityNATDestination,
		meta(unix.NFT_META_L4PROTO), equal(unix.IPPROTO_TCP), load(binary.BigEndian.AppendUint16(nil, port)), redirect())
	chain(udpName, "filter", priorityFilter,
		meta(unix.NFT_META_L4PROTO), equal(unix.IPPROTO_UDP), verdict(nfDrop))
	add(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	return out
}

// Expressions work on one register.

func expr(name string, attrs ...[]byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, attr(unix.NFTA_EXPR_NAME, str(name)), nested(unix.NFTA_EXPR_DATA, attrs...))
}

func meta(key uint32) []byte {
	return expr("meta", attr(unix.NFTA_META_DREG, be32(unix.NFT_REG_1)), attr(unix.NFTA_META_KEY, be32(key)))
}

func equal(value ...byte) []byte {
	return expr("cmp", attr(unix.NFTA_CMP_SREG, be32(unix.NFT_REG_1)), attr(unix.NFTA_CMP_OP, be32(unix.NFT_CMP_EQ)),
		nested(unix.NFTA_CMP_DATA, attr(unix.NFTA_DATA_VALUE, value)))
}

func payload(offset, n uint32) []byte {
	return expr("payload", attr(unix.NFTA_PAYLOAD_DREG, be32(unix.NFT_REG_1)), attr(unix.NFTA_PAYLOAD_BASE, be32(unix.NFT_PAYLOAD_NETWORK_HEADER)),
		attr(unix.NFTA_PAYLOAD_OFFSET, be32(offset)), attr(unix.NFTA_PAYLOAD_LEN, be32(n)))
}

// destination4 loads the first n bytes of the IPv4 destination.
func destination4(n uint32) []byte { return payload(16, n) }

func destination6() []byte { return payload(24, 16) }

func load(value []byte) []byte {
	return expr("immediate", attr(unix.NFTA_IMMEDIATE_DREG, be32(unix.NFT_REG_1)),
		nested(unix.NFTA_IMMEDIATE_DATA, attr(unix.NFTA_DATA_VALUE, value)))
}

// The verdicts (netfilter.h).
const (
	nfDrop   = 0
	nfAccept = 1
)

func verdict(code uint32) []byte {
	return expr("immediate", attr(unix.NFTA_IMMEDIATE_DREG, be32(unix.NFT_REG_VERDICT)),
		nested(unix.NFTA_IMMEDIATE_DATA, nested(unix.NFTA_DATA_VERDICT, attr(unix.NFTA_VERDICT_CODE, be32(code)))))
}

func redirect() []byte {
	return expr("redir", attr(unix.NFTA_REDIR_REG_PROTO_MIN, be32(unix.NFT_REG_1)))
}
