//go:build linux

package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sendTo makes a socket and sends one packet or opens one connection.
func sendTo(family, kind, protocol int, to unix.Sockaddr, flags int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 3})
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	if kind != unix.SOCK_DGRAM && kind != unix.SOCK_RAW && flags == 0 {
		return unix.Connect(fd, to)
	}
	if kind == unix.SOCK_DGRAM && flags == 0 {
		// Connected, an answer of "unreachable" comes back as an error.
		if err := unix.Connect(fd, to); err != nil {
			return err
		}
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			return err
		}
		_, err := unix.Read(fd, make([]byte, 100))
		if err == nil {
			return nil
		}
		return err
	}
	return unix.Sendto(fd, []byte("x"), flags, to)
}

func sockaddr(s string) unix.Sockaddr {
	a := netip.MustParseAddrPort(s)
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

const (
	protocolMPTCP = 262
	protocolSCTP  = 132
)

// protocolTries go beyond plain TCP.
func (a *Answer) protocolTries(targets ...string) {
	for _, t := range targets {
		to, family := sockaddr(t), unix.AF_INET
		if strings.HasPrefix(t, "[") {
			family = unix.AF_INET6
		}
		a.try("udp "+t, sendTo(family, unix.SOCK_DGRAM, 0, to, 0))
		a.try("icmp "+t, sendTo(family, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, to, 0))
		a.try("raw "+t, sendTo(family, unix.SOCK_RAW, unix.IPPROTO_RAW, to, 0))
		a.try("mptcp "+t, sendTo(family, unix.SOCK_STREAM, protocolMPTCP, to, 0))
		a.try("sctp "+t, sendTo(family, unix.SOCK_STREAM, protocolSCTP, to, 0))
	}
	a.try("packet", func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err }())
}

func tryNetwork(args []string) (a Answer) {
	for _, t := range []string{args[0], "203.0.113.7:443", "[2001:db8::1]:443", "169.254.169.254:80", "10.0.0.1:22"} {
		family := unix.AF_INET
		if strings.HasPrefix(t, "[") {
			family = unix.AF_INET6
		}
		a.try("tcp "+t, sendTo(family, unix.SOCK_STREAM, 0, sockaddr(t), 0))
		a.try("tcp fast open "+t, sendTo(family, unix.SOCK_STREAM, 0, sockaddr(t), unix.MSG_FASTOPEN))
	}
	a.protocolTries("203.0.113.7:53", "[2001:db8::1]:53")
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	_, err := net.DefaultResolver.LookupHost(ctx, "example.com")
	a.try("resolve", err)
	a.neighbour(ownServer("127.0.0.1:443"))
	return a
}

// ownServer shows that servers inside work, on any port.
func ownServer(at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "own")
			c.Close()
		}
	}()
	c, err := net.DialTimeout("tcp", at, dialTime)
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if err == nil && string(b) != "own" {
		err = fmt.Errorf("got %.40q", b)
	}
	return err
}

func tryUnix(args []string) (a Answer) {
	name := args[0]
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		a.try("connect", sendTo(unix.AF_UNIX, kind, 0, &unix.SockaddrUnix{Name: name}, 0))
		if kind == unix.SOCK_DGRAM {
			a.try("send", sendTo(unix.AF_UNIX, kind, 0, &unix.SockaddrUnix{Name: name}, unix.MSG_NOSIGNAL))
		}
	}
	a.neighbour(func() error {
		l, err := net.Listen("unix", "/tmp/own")
		if err != nil {
			return err
		}
		defer l.Close()
		c, err := net.Dial("unix", "/tmp/own")
		if err == nil {
			c.Close()
		}
		return err
	}())
	return a
}

// ask sends an HTTP request to a connection that exists and says what came back:
// "got an answer" when it was the listed server's or any 200.
func ask(c io.ReadWriter, host, answer string) string {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); err != nil {
		return "closed"
	}
	b, _ := io.ReadAll(io.LimitReader(c, 1<<16))
	switch s := string(b); {
	case strings.Contains(s, answer), strings.HasPrefix(s, "HTTP/1.1 200"):
		return "got an answer"
	case strings.HasPrefix(s, "HTTP/1.1 403"):
		return "refused"
	case s == "":
		return "closed"
	default:
		return fmt.Sprintf("%.60q", s)
	}
}

func dialAndAsk(network, target, host, answer string) string {
	c, err := net.DialTimeout(network, target, dialTime)
	if err != nil {
		return result(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dialTime))
	return ask(c, host, answer)
}

// rawAsk does the same without any library: socket, connect, write, read.
func rawAsk(target, answer string) string {
	to := sockaddr(target)
	family := unix.AF_INET
	if _, ok := to.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return result(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3})
	if err := unix.Connect(fd, to); err != nil {
		return result(err)
	}
	return ask(f, "169.254.169.254", answer)
}

func (a *Answer) listedNeighbour(listed, answer string) {
	if got := dialAndAsk("tcp", listed+":80", listed, answer); got != "got an answer" {
		a.Neighbour = "the listed name: " + got
		return
	}
	a.neighbour(ownServer("127.0.0.1:443"))
}

func tryMetadata(args []string) (a Answer) {
	listed, answer := args[0], args[1]
	for _, s := range []string{
		"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "168.63.129.16:80",
		"[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::1]:80", "[::a9fe:a9fe]:80",
	} {
		a.saw("raw "+s, rawAsk(s, answer))
		a.saw("dial "+s, dialAndAsk("tcp", s, "169.254.169.254", answer))
	}
	for _, n := range []string{"metadata.google.internal", "metadata", "instance-data", "169.254.169.254.nip.io"} {
		a.saw("dial "+n, dialAndAsk("tcp", net.JoinHostPort(n, "80"), n, answer))
	}
	a.saw("link-local", result(sendTo(unix.AF_INET6, unix.SOCK_STREAM, 0, &unix.SockaddrInet6{Port: 80, ZoneId: 1, Addr: [16]byte{0: 0xfe, 1: 0x80, 12: 0xa9, 13: 0xfe, 14: 0xa9, 15: 0xfe}}, 0)))
	// A connected socket to a captured link-local address says nothing yet.
	if last := &a.Tries[len(a.Tries)-1]; last.Result == "ok" {
		last.Result = dialAndAsk("tcp6", "[fe80::a9fe:a9fe%lo]:80", "x", answer)
	}
	// The proxy itself, asked by every spelling.
	for _, s := range []string{"169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:a9fe:a9fe]", "169.254.169.254."} {
		a.saw("connect "+s, viaProxy(s+":80", answer))
	}
	a.listedNeighbour(listed, answer)
	return a
}

// viaProxy asks the sandbox's CONNECT endpoint.
func viaProxy(target, answer string) string {
	c, err := net.DialTimeout("tcp", "127.0.0.1:3128", dialTime)
	if err != nil {
		return result(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dialTime))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if n == 0 && (errors.Is(err, io.EOF) || err != nil) {
		return "closed"
	}
	if s := string(buf[:n]); strings.HasPrefix(s, "HTTP/1.1 403") || strings.HasPrefix(s, "HTTP/1.1 400") {
		return "refused"
	} else if !strings.HasPrefix(s, "HTTP/1.1 200") {
		return fmt.Sprintf("%.60q", s)
	}
	return ask(c, "169.254.169.254", answer)
}

func tryUnlisted(args []string) (a Answer) {
	listed, answer := args[0], args[1]
	for _, t := range []string{"denied.test:80", "x" + listed + ":80", listed + ":8080", "203.0.113.7:80", "127.0.0.2:80", "198.18.0.1:80", "198.19.0.9:80"} {
		host, _, _ := net.SplitHostPort(t)
		a.saw("dial "+t, dialAndAsk("tcp", t, host, answer))
	}
	a.saw("another host header", dialAndAsk("tcp", listed+":80", "denied.test", answer))
	a.saw("capture port itself", dialAndAsk("tcp", "127.0.0.1:61053", listed, answer))
	a.saw("connect", viaProxy("denied.test:80", answer))
	a.listedNeighbour(listed, answer)
	return a
}

func tryProtocols(args []string) (a Answer) {
	a.protocolTries("203.0.113.7:53", "8.8.8.8:443", "[2001:db8::1]:443", args[0])
	a.neighbour(ownServer("[::1]:8080"))
	return a
}
