//go:build linux

package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/kernel/netlink"
	"confine/internal/sandbox"
)

const (
	dnsPort     = 53
	connectPort = 3128
	// capturePort is where captured connections arrive. A program that
	// connects to it itself is not served: its destination was not redirected.
	capturePort = 61053
)

// The sandbox's own addresses beside loopback: the first of the range for
// benchmarks (RFC 2544), which no network routes, and one of a local prefix.
var (
	address4 = netip.AddrFrom4([4]byte{198, 18, 0, 1})
	address6 = netip.MustParseAddr("fd63:6f6e:6669::1")
)

// The sockets of a captured network, in the order they are handed out. The last
// one is only there where the host has IPv6.
const (
	socketDNS = iota
	socketDNSTCP
	socketConnect
	socketOwner
	socketCapture4
	socketCapture6
)

// hasIPv6 reports whether the kernel has the protocol at all: a host that was
// booted with ipv6.disable=1 has no socket for it.
var hasIPv6 = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return !errors.Is(err, unix.EAFNOSUPPORT)
	}
	unix.Close(fd)
	return true
})

// buildNetwork brings up the sandbox's own loopback device and, for a captured
// network, the sockets that the engine will accept on from outside. Nothing else
// ever leaves or enters this namespace.
func (pl *plan) buildNetwork() {
	o := pl.outer
	o.Call("network: open socket", unix.SYS_SOCKET, kernel.Int(unix.AF_INET), kernel.Int(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), kernel.Int(0)).Into(pl.scratchA)
	req := make([]byte, 40) // struct ifreq
	copy(req, "lo")
	binary.NativeEndian.PutUint16(req[unix.IFNAMSIZ:], unix.IFF_UP)
	o.Call("network: loopback up", unix.SYS_IOCTL, pl.scratchA.Arg(), kernel.Int(unix.SIOCSIFFLAGS), pl.p.Bytes(req))
	o.Call("network: close socket", unix.SYS_CLOSE, pl.scratchA.Arg())
	if pl.b.Network != boundary.NetworkCaptured {
		return
	}
	own6 := address6
	if pl.noIPv6 {
		own6 = netip.Addr{}
	}
	pl.replay("network: addresses and routes", unix.NETLINK_ROUTE, netlink.Loopback(address4, own6))
	pl.replay("nf_tables: capture", unix.NETLINK_NETFILTER, netlink.Capture(address4, own6, capturePort))
	loop4, loop6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	pl.handed = append(pl.handed,
		pl.socket("dns", unix.SOCK_DGRAM, netip.AddrPortFrom(loop4, dnsPort)),
		pl.socket("dns over tcp", unix.SOCK_STREAM, netip.AddrPortFrom(loop4, dnsPort)),
		pl.socket("connect proxy", unix.SOCK_STREAM, netip.AddrPortFrom(loop4, connectPort)),
		o.Call("network: socket owners", unix.SYS_SOCKET, kernel.Int(unix.AF_NETLINK), kernel.Int(unix.SOCK_RAW|unix.SOCK_CLOEXEC), kernel.Int(unix.NETLINK_SOCK_DIAG)).Result(),
		pl.socket("capture", unix.SOCK_STREAM, netip.AddrPortFrom(loop4, capturePort)))
	if !pl.noIPv6 {
		pl.handed = append(pl.handed, pl.socket("capture", unix.SOCK_STREAM, netip.AddrPortFrom(loop6, capturePort)))
	}
}

// replay sends prepared netlink messages and checks every answer.
func (pl *plan) replay(name string, protocol int, batch netlink.Batch) {
	o := pl.outer
	sock := o.Call(name+": open socket", unix.SYS_SOCKET, kernel.Int(unix.AF_NETLINK), kernel.Int(unix.SOCK_RAW|unix.SOCK_CLOEXEC), kernel.Int(protocol)).Result()
	addr := make([]byte, unix.SizeofSockaddrNetlink)
	binary.NativeEndian.PutUint16(addr, unix.AF_NETLINK)
	o.Call(name+": send", unix.SYS_SENDTO, sock.Arg(), pl.p.Bytes(batch.Bytes), kernel.Int(len(batch.Bytes)), kernel.Int(0), pl.p.Bytes(addr), kernel.Int(len(addr)))
	answer := pl.p.Buffer(netlink.AckBytes)
	for range batch.Acks {
		o.Call(name+": answer", unix.SYS_RECVFROM, sock.Arg(), answer, kernel.Int(netlink.AckBytes), kernel.Int(0), kernel.Int(0), kernel.Int(0))
		o.CheckErrno(name, answer, netlink.AckErrno)
	}
	o.Call(name+": close socket", unix.SYS_CLOSE, sock.Arg())
}

// socket makes a bound, listening socket inside.
func (pl *plan) socket(name string, kind int, at netip.AddrPort) kernel.Reg {
	o := pl.outer
	name = "network: " + name
	family := unix.AF_INET
	addr := make([]byte, unix.SizeofSockaddrInet4)
	if at.Addr().Is6() {
		family, addr = unix.AF_INET6, make([]byte, unix.SizeofSockaddrInet6)
		copy(addr[8:], at.Addr().AsSlice())
	} else {
		copy(addr[4:], at.Addr().AsSlice())
	}
	binary.NativeEndian.PutUint16(addr, uint16(family))
	binary.BigEndian.PutUint16(addr[2:], at.Port())
	s := o.Call(name+": socket", unix.SYS_SOCKET, kernel.Int(family), kernel.Int(kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), kernel.Int(0)).Result()
	o.Call(name+": bind", unix.SYS_BIND, s.Arg(), pl.p.Bytes(addr), kernel.Int(len(addr)))
	if kind == unix.SOCK_STREAM {
		o.Call(name+": listen", unix.SYS_LISTEN, s.Arg(), kernel.Int(512))
	}
	return s
}

// serveNetwork gives the handed-out sockets to the egress server.
func (r *run) serveNetwork(fds []int) (stop func(), err error) {
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "egress")
		defer files[i].Close() // net makes its own copies
	}
	want := socketCapture6 + 1
	if r.plan.noIPv6 {
		want = socketCapture6
	}
	if len(files) != want {
		return nil, &sandbox.StartError{Step: "serve network", Err: fmt.Errorf("%d sockets, want %d", len(files), want)}
	}
	var made []interface{ Close() error }
	defer func() {
		if err != nil {
			for _, c := range made {
				c.Close()
			}
			err = &sandbox.StartError{Step: "serve network", Err: err}
		}
	}()
	dns, err := net.FilePacketConn(files[socketDNS])
	if err != nil {
		return nil, err
	}
	made = append(made, dns)
	listen := func(i int) net.Listener {
		if err != nil {
			return nil
		}
		var l net.Listener
		if l, err = net.FileListener(files[i]); err == nil {
			made = append(made, l)
		}
		return l
	}
	dnsTCP, connect := listen(socketDNSTCP), listen(socketConnect)
	var captures []net.Listener
	for i := range files[socketCapture4:] {
		captures = append(captures, listen(socketCapture4+i))
	}
	if err != nil {
		return nil, err
	}
	owners, err := newOwners(int(files[socketOwner].Fd()), r.child.PID)
	if err != nil {
		return nil, err
	}
	made = append(made, owners)
	stopServer, err := r.spec.Egress.Serve(sandbox.EgressSockets{
		DNS: dns, DNSTCP: dnsTCP, Capture: merge(captures...), Connect: connect, Who: owners.program,
	})
	if err != nil {
		return nil, err
	}
	return func() { stopServer(); owners.Close() }, nil
}

// merged is two listeners as one.
type merged struct {
	parts []net.Listener
	conns chan net.Conn
	errs  chan error
	quit  chan struct{}
	once  sync.Once
}

func merge(parts ...net.Listener) net.Listener {
	m := &merged{parts: parts, conns: make(chan net.Conn), errs: make(chan error, len(parts)), quit: make(chan struct{})}
	for _, l := range parts {
		go m.accept(l)
	}
	return m
}

func (m *merged) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, unix.ECONNABORTED) {
				continue
			}
			m.errs <- err
			return
		}
		select {
		case m.conns <- c:
		case <-m.quit:
			c.Close()
			return
		}
	}
}

// Accept implements net.Listener.
func (m *merged) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case err := <-m.errs:
		return nil, err
	case <-m.quit:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *merged) Close() error {
	var err error
	m.once.Do(func() {
		close(m.quit)
		for _, l := range m.parts {
			err = errors.Join(err, l.Close())
		}
	})
	return err
}

// Addr implements net.Listener.
func (m *merged) Addr() net.Addr { return m.parts[0].Addr() }

// owners finds which program inside holds a connection.
type owners struct {
	mu   sync.Mutex
	fd   int
	root int
}

func newOwners(fd, root int) (*owners, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// An answer comes at once or not at all.
	if err := unix.SetsockoptTimeval(own, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		unix.Close(own)
		return nil, err
	}
	return &owners{fd: own, root: root}, nil
}

// Close ends look-ups.
func (o *owners) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fd < 0 {
		return nil
	}
	err := unix.Close(o.fd)
	o.fd = -1
	return err
}

// program is the name of the program that holds the connection from client: best
// effort, as the program may be gone, and untrusted, as it names itself.
func (o *owners) program(client net.Addr) string {
	tcp, ok := client.(*net.TCPAddr)
	if !ok {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fd < 0 {
		return ""
	}
	inode, err := netlink.Owner(o.fd, tcp.AddrPort())
	if err != nil || inode == 0 {
		return ""
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	for _, pid := range processes(o.root) {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if l, err := os.Readlink(dir + "/" + e.Name()); err != nil || l != want {
				continue
			}
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			return strings.TrimSuffix(string(name), "\n")
		}
	}
	return ""
}
