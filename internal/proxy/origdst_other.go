//go:build !linux

package proxy

import (
	"errors"
	"net"
	"net/netip"
)

// originalDestination needs netfilter.
func originalDestination(net.Conn) (netip.AddrPort, error) {
	return netip.AddrPort{}, errors.New("read original destination: missing ability: this system has no netfilter")
}
