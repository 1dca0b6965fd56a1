package proxy

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"confine/internal/egress"
)

// firstIndex leaves the low addresses of each range out: the sandbox's loopback
// device carries some of them.
const firstIndex = 256

// nameTable gives names synthetic addresses, the same for as long as the
// sandbox lives, and finds the name back. Its zero value is ready.
type nameTable struct {
	mu    sync.Mutex
	rows  map[egress.Host]row
	names [2][]egress.Host // by kind
}

type row struct {
	kind  int // of ranges below
	index int // into names[kind]
}

const (
	kindListed = iota
	kindRefused
)

var ranges4 = [2]netip.Prefix{kindListed: egress.ListedIPv4, kindRefused: egress.RefusedIPv4}
var ranges6 = [2]netip.Prefix{kindListed: egress.ListedIPv6, kindRefused: egress.RefusedIPv6}

// assign returns the addresses of host. A name keeps its row, whatever kind
// says later: the verdict is made when it is connected to. ok is false when
// the table is full.
func (t *nameTable) assign(host egress.Host, kind func() int) (v4, v6 netip.Addr, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, found := t.rows[host]
	if !found {
		r.kind = kind()
		if r.index = len(t.names[r.kind]); r.index >= maxNames {
			return netip.Addr{}, netip.Addr{}, false
		}
		if t.rows == nil {
			t.rows = map[egress.Host]row{}
		}
		t.names[r.kind] = append(t.names[r.kind], host)
		t.rows[host] = r
	}
	n := uint32(r.index + firstIndex)
	b4 := ranges4[r.kind].Addr().As4()
	binary.BigEndian.PutUint32(b4[:], binary.BigEndian.Uint32(b4[:])|n)
	b6 := ranges6[r.kind].Addr().As16()
	binary.BigEndian.PutUint32(b6[12:], n)
	return netip.AddrFrom4(b4), netip.AddrFrom16(b6), true
}

// lookup returns the name that addr was given to.
func (t *nameTable) lookup(addr netip.Addr) (egress.Host, bool) {
	for kind := range ranges4 {
		var n uint32
		switch {
		case ranges4[kind].Contains(addr):
			b := addr.As4()
			n = uint32(b[2])<<8 | uint32(b[3])
		case ranges6[kind].Contains(addr):
			b := addr.As16()
			if binary.BigEndian.Uint32(b[8:]) != 0 {
				return "", false
			}
			n = binary.BigEndian.Uint32(b[12:])
		default:
			continue
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if n < firstIndex || int(n-firstIndex) >= len(t.names[kind]) {
			return "", false
		}
		return t.names[kind][n-firstIndex], true
	}
	return "", false
}
