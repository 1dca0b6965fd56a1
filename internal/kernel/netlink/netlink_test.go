//go:build linux

package netlink

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace is the argument with which the test runs this program again as
// root of a user and network namespace of its own.
const inNamespace = "in-namespace"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == inNamespace {
		facts := map[string]string{}
		if err := useNetwork(facts); err != nil {
			facts["error"] = err.Error()
		}
		if json.NewEncoder(os.Stdout).Encode(facts) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var (
	own4 = netip.MustParseAddr("198.18.0.1")
	own6 = netip.MustParseAddr("fd63:6f6e:6669::1")
)

const port = 61053

// send replays a batch as a sandbox's child does and returns the first errno.
func send(protocol int, batch Batch) (unix.Errno, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return 0, err
	}
	if err := unix.Sendto(fd, batch.Bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	first := unix.Errno(0)
	buf := make([]byte, AckBytes)
	for i := range batch.Acks {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return 0, fmt.Errorf("answer %d of %d: %w", i+1, batch.Acks, err)
		}
		if n < AckErrno+4 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
			return 0, fmt.Errorf("answer %d of %d is none: %x", i+1, batch.Acks, buf[:n])
		}
		if e := int32(binary.NativeEndian.Uint32(buf[AckErrno:])); e != 0 && first == 0 {
			first = unix.Errno(-e)
		}
	}
	return first, nil
}

// useNetwork builds the network in steps and notes what each one changed.
func useNetwork(facts map[string]string) error {
	dial := func(name, addr string) net.Conn {
		c, err := net.DialTimeout("tcp", addr, 5*time.Second)
		var errno unix.Errno
		switch {
		case err == nil:
			facts[name] = "connected"
		case errors.As(err, &errno):
			facts[name] = unix.ErrnoName(errno)
		default:
			facts[name] = err.Error()
		}
		return c
	}
	const far4, far6 = "203.0.113.7:5432", "[2001:db8::1]:443"
	// The sockets of these are not connected: no error of a datagram that
	// arrives nowhere would reach them.
	datagram := func(name, to string) {
		c, err := net.ListenPacket("udp", ":0")
		if err != nil {
			facts[name] = err.Error()
			return
		}
		defer c.Close()
		_, err = c.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
		facts[name] = "sent"
		var errno unix.Errno
		if errors.As(err, &errno) {
			facts[name] = unix.ErrnoName(errno)
		} else if err != nil {
			facts[name] = err.Error()
		}
	}
	dial("nothing, IPv4", far4)
	dial("nothing, IPv6", far6)
	if err := loopbackUp(); err != nil {
		return err
	}
	batch := Loopback(own4, own6)
	if errno, err := send(unix.NETLINK_ROUTE, batch); err != nil || errno != 0 {
		return fmt.Errorf("loopback: %v %v", errno, err)
	}
	errno, err := send(unix.NETLINK_ROUTE, batch)
	if err != nil {
		return err
	}
	facts["twice"] = unix.ErrnoName(errno)
	dial("routes, IPv4", far4)
	dial("routes, IPv6", far6)
	datagram("routes, UDP over IPv4", far4)
	datagram("routes, UDP over IPv6", far6)

	if errno, err := send(unix.NETLINK_NETFILTER, Capture(own4, own6, port)); err != nil || errno != 0 {
		return fmt.Errorf("capture: %v %v", errno, err)
	}
	if err := serve(facts, "captured", "127.0.0.1:61053", far4, dial); err != nil {
		return err
	}
	if err := serve(facts, "captured", "[::1]:61053", far6, dial); err != nil {
		return err
	}
	for _, to := range []string{far4, far6, "8.8.8.8:53", "224.0.0.251:5353", "127.0.0.1:53", "127.9.9.9:53", "198.18.0.1:53", "[::1]:53", "[fd63:6f6e:6669::1]:53"} {
		datagram("UDP to "+to, to)
	}
	// A dual-stack program connects to IPv4 by a mapped address.
	if err := serve(facts, "captured", "127.0.0.1:61053", "[::ffff:203.0.113.8]:22", dial); err != nil {
		return err
	}
	for _, local := range []string{"127.0.0.1:443", "127.9.9.9:443", "[::1]:443", "198.18.0.1:8080", "[fd63:6f6e:6669::1]:8080"} {
		if err := serve(facts, "local", local, local, dial); err != nil {
			return err
		}
	}
	return nil
}

// serve listens at one address, connects to another, and notes where the
// listener was told that the connection was going, and whose it is.
func serve(facts map[string]string, name, at, to string, dial func(string, string) net.Conn) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	defer l.Close()
	name += " " + to
	c := dial(name, to)
	if c == nil {
		return nil
	}
	defer c.Close()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	s, err := l.Accept()
	if err != nil {
		facts[name] = "not accepted: " + err.Error()
		return nil
	}
	defer s.Close()
	facts[name] = original(s.(*net.TCPConn))
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return err
	}
	inode, err := Owner(fd, s.RemoteAddr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return fmt.Errorf("owner of %s: %w", to, err)
	}
	if want := inodeOf(c.(*net.TCPConn)); uint64(inode) != want {
		facts[name] += fmt.Sprintf(" of %d instead of %d", inode, want)
	}
	if _, err := Owner(fd, netip.MustParseAddrPort("192.0.2.9:1")); !errors.Is(err, ErrNoOwner) {
		facts[name] += fmt.Sprintf("; nobody's address: %v", err)
	}
	return nil
}

func inodeOf(c *net.TCPConn) uint64 {
	var st unix.Stat_t
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Fstat(int(fd), &st) })
	return st.Ino
}

// original is the destination before the redirect, "own" where none was
// redirected or where it is the listener's own address.
func original(c *net.TCPConn) string {
	out := "own"
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	_ = raw.Control(func(fd uintptr) {
		var at netip.AddrPort
		if a, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
			at = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Multiaddr[4:8])), binary.BigEndian.Uint16(a.Multiaddr[2:]))
		} else if a, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); err == nil {
			var p [2]byte
			binary.NativeEndian.PutUint16(p[:], a.Addr.Port)
			at = netip.AddrPortFrom(netip.AddrFrom16(a.Addr.Addr), binary.BigEndian.Uint16(p[:]))
		}
		if at.IsValid() && at != c.LocalAddr().(*net.TCPAddr).AddrPort() {
			out = at.String()
		}
	})
	return out
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func TestNetworkOfASandbox(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, inNamespace)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	want := map[string]string{
		// Without anything no address is reached, with the routes every one
		// is, but nobody listens there.
		"nothing, IPv4": "ENETUNREACH", "nothing, IPv6": "EADDRNOTAVAIL",
		"routes, IPv4": "ECONNREFUSED", "routes, IPv6": "ECONNREFUSED",
		"routes, UDP over IPv4": "sent", "routes, UDP over IPv6": "sent",
		"UDP to 203.0.113.7:5432": "EPERM", "UDP to [2001:db8::1]:443": "EPERM", "UDP to 8.8.8.8:53": "EPERM", "UDP to 224.0.0.251:5353": "EPERM",
		"UDP to 127.0.0.1:53": "sent", "UDP to 127.9.9.9:53": "sent", "UDP to 198.18.0.1:53": "sent", "UDP to [::1]:53": "sent", "UDP to [fd63:6f6e:6669::1]:53": "sent",
		// A message that the kernel refuses is seen in its answer.
		"twice":                            "EEXIST",
		"captured 203.0.113.7:5432":        "203.0.113.7:5432",
		"captured [2001:db8::1]:443":       "[2001:db8::1]:443",
		"captured [::ffff:203.0.113.8]:22": "203.0.113.8:22",
		"local 127.0.0.1:443":              "own",
		"local 127.9.9.9:443":              "own",
		"local [::1]:443":                  "own",
		"local 198.18.0.1:8080":            "own",
		"local [fd63:6f6e:6669::1]:8080":   "own",
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %q, want %q", name, got[name], w)
		}
		delete(got, name)
	}
	for name, g := range got {
		t.Errorf("%s: %s", name, g)
	}
}

// TestMessagesAreWellFormed walks each batch as the kernel does.
func TestMessagesAreWellFormed(t *testing.T) {
	for name, batch := range map[string]Batch{"loopback": Loopback(own4, own6), "capture": Capture(own4, own6, port)} {
		acks := 0
		for b := batch.Bytes; len(b) > 0; {
			if len(b) < unix.SizeofNlMsghdr {
				t.Fatalf("%s: %d bytes left over", name, len(b))
			}
			n := int(binary.NativeEndian.Uint32(b))
			if n < unix.SizeofNlMsghdr || n > len(b) || n%4 != 0 {
				t.Fatalf("%s: a message of %d bytes", name, n)
			}
			flags := binary.NativeEndian.Uint16(b[6:])
			if flags&unix.NLM_F_REQUEST == 0 {
				t.Errorf("%s: a message that is no request", name)
			}
			if flags&unix.NLM_F_ACK != 0 {
				acks++
			}
			b = b[n:]
		}
		if acks != batch.Acks || acks == 0 {
			t.Errorf("%s: %d messages ask for an answer, %d are expected", name, acks, batch.Acks)
		}
	}
}
