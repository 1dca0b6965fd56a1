//go:build linux

package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrNoOwner means that no TCP socket has the address.
var ErrNoOwner = errors.New("no socket with this address")

const (
	sizeofDiagRequest = 56
	sizeofDiagMessage = 72
)

// Owner finds the inode of the TCP socket whose local address is local, by
// asking a NETLINK_SOCK_DIAG socket; the answer speaks of the network namespace
// that the socket was made in. The socket must have a receive timeout.
func Owner(fd int, local netip.AddrPort) (inode uint32, err error) {
	fam, _ := family(local.Addr().Unmap())
	families := []byte{fam}
	if fam == unix.AF_INET {
		// A dual-stack client has an IPv6 socket with a mapped address.
		families = append(families, unix.AF_INET6)
	}
	for _, f := range families {
		if inode, err = owner(fd, f, local); !errors.Is(err, ErrNoOwner) {
			return inode, err
		}
	}
	return 0, ErrNoOwner
}

func owner(fd int, family byte, local netip.AddrPort) (uint32, error) {
	m := newMessage(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, 1)
	req := make([]byte, sizeofDiagRequest)
	req[0], req[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(req[4:], ^uint32(0)) // every state
	if err := unix.Sendto(fd, m.bytes(req...).done(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask for socket owner: %w", err)
	}
	buf := make([]byte, 32<<10)
	found, result := false, uint32(0)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return 0, fmt.Errorf("read socket owner: %w", err)
		}
		for b := buf[:n]; len(b) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr || size > len(b) {
				return 0, errors.New("read socket owner: malformed message")
			}
			switch binary.NativeEndian.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				if !found {
					return 0, ErrNoOwner
				}
				return result, nil
			case unix.NLMSG_ERROR:
				return 0, errors.New("read socket owner: the kernel refused")
			}
			if msg := b[unix.SizeofNlMsghdr:size]; len(msg) >= sizeofDiagMessage && !found && localAddress(msg) == addrKey(local) {
				found, result = true, binary.NativeEndian.Uint32(msg[68:])
			}
			b = b[min(len(b), (size+3)&^3):]
		}
	}
}

func addrKey(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// localAddress reads the local end of struct inet_diag_msg.
func localAddress(msg []byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(msg[4:])
	if msg[0] == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(msg[8:12])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(msg[8:24])).Unmap(), port)
}
