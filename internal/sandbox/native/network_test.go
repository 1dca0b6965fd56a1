//go:build linux

package native

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// recorder answers every captured connection with where it wanted to go.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (rec *recorder) Serve(s sandbox.EgressSockets) (func(), error) {
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		for {
			c, err := s.Capture.Accept()
			if err != nil {
				return
			}
			dst := originalDestination(c.(*net.TCPConn))
			who := s.Who(c.RemoteAddr())
			rec.mu.Lock()
			rec.seen = append(rec.seen, dst+" "+who)
			rec.mu.Unlock()
			io.WriteString(c, "captured\n")
			c.Close()
		}
	}()
	go func() {
		defer wg.Done()
		buf := make([]byte, 512)
		for {
			n, from, err := s.DNS.ReadFrom(buf)
			if err != nil {
				return
			}
			s.DNS.WriteTo(buf[:n], from)
		}
	}()
	return func() {
		s.Capture.Close()
		s.DNS.Close()
		s.DNSTCP.Close()
		s.Connect.Close()
		wg.Wait()
	}, nil
}

func originalDestination(c *net.TCPConn) string {
	raw, _ := c.SyscallConn()
	out := ""
	raw.Control(func(fd uintptr) {
		if a, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
			out = fmt.Sprintf("%v:%d", net.IP(a.Multiaddr[4:8]), int(a.Multiaddr[2])<<8|int(a.Multiaddr[3]))
			return
		}
		if a, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); err == nil {
			p := a.Addr.Port
			out = fmt.Sprintf("[%v]:%d", net.IP(a.Addr.Addr[:]), int(p>>8|p<<8&0xff00))
		}
	})
	return out
}

func TestCapturedNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		driver Driver
		said   string
		seen   string
	}{
		"both":    {Driver{}, "captured captured", "203.0.113.7:5432 bash, [2001:db8::1]:443 bash"},
		"no IPv6": {Driver{noIPv6: true}, "captured unreachable", "203.0.113.7:5432 bash"},
	} {
		t.Run(name, func(t *testing.T) {
			b := base()
			b.Network = boundary.NetworkCaptured
			rec := &recorder{}
			var out bytes.Buffer
			script := `
exec 3<>/dev/tcp/203.0.113.7/5432; head -1 <&3
{ exec 4<>/dev/tcp/2001:db8::1/443; } 2>/dev/null && head -1 <&4 || echo unreachable
`
			r, err := c.driver.Start(context.Background(), sandbox.Spec{Boundary: b, Args: []string{"bash", "-c", script}, Stdout: &out, Stderr: &out, Egress: rec})
			if err != nil {
				t.Fatal(err)
			}
			if e := r.Wait(); !e.Success() {
				t.Errorf("exit %+v", e)
			}
			if got := strings.Join(strings.Fields(out.String()), " "); got != c.said {
				t.Errorf("output %q, want %q", got, c.said)
			}
			if got := strings.Join(rec.seen, ", "); got != c.seen {
				t.Errorf("seen %s, want %s", got, c.seen)
			}
		})
	}
}

func TestNetworkOffReachesNothing(t *testing.T) {
	out, _ := runIn(t, base(), "bash", "-c", `exec 3<>/dev/tcp/203.0.113.7/80 || echo refused; exec 3<>/dev/udp/203.0.113.7/53 && echo x >&3 || echo refused`)
	if strings.Count(out, "refused") != 2 || strings.Count(out, "/203.0.113.7/80: Network is unreachable") != 1 || strings.Count(out, "/203.0.113.7/53: Network is unreachable") != 1 {
		t.Errorf("output %q", out)
	}
}
