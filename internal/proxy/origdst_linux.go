package proxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of
// linux/netfilter_ipv4.h and linux/netfilter_ipv6/ip6_tables.h.
const soOriginalDst = 80

// originalDestination asks the kernel where a redirected connection was going.
//
// The two getters are those whose values are as large as the socket addresses
// the kernel writes (20 bytes for one of 16, 32 for one of 28), so that it can
// be asked without unsafe.
func originalDestination(conn net.Conn) (netip.AddrPort, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("read original destination: not a TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read original destination: %w", err)
	}
	v4 := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().Is4()
	var dst netip.AddrPort
	var asked error
	err = raw.Control(func(fd uintptr) {
		if v4 {
			dst, asked = originalIPv4(int(fd))
		} else {
			dst, asked = originalIPv6(int(fd))
		}
	})
	if err == nil {
		err = asked
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read original destination: %w", err)
	}
	return dst, nil
}

func originalIPv4(fd int) (netip.AddrPort, error) {
	value, err := unix.GetsockoptIPv6Mreq(fd, unix.IPPROTO_IP, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	b := value.Multiaddr // struct sockaddr_in: family, port, address
	if family := binary.NativeEndian.Uint16(b[0:]); family != unix.AF_INET {
		return netip.AddrPort{}, syscall.EAFNOSUPPORT
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), nil
}

func originalIPv6(fd int) (netip.AddrPort, error) {
	value, err := unix.GetsockoptIPv6MTUInfo(fd, unix.IPPROTO_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if value.Addr.Family != unix.AF_INET6 {
		return netip.AddrPort{}, syscall.EAFNOSUPPORT
	}
	// The port is in network order inside a native integer.
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, value.Addr.Port))
	return netip.AddrPortFrom(netip.AddrFrom16(value.Addr.Addr), port), nil
}
