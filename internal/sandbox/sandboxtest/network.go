//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"

	"confine/internal/boundary"
)

func networkProbes() []Probe {
	return []Probe{
		{Name: "network-off", Group: "network", Expected: "no family, type or protocol reaches anything", run: probeNetworkOff},
		{Name: "host-unix-path", Group: "network", Expected: "a Unix socket of the host is not there", run: probeUnixPath},
		{Name: "host-unix-abstract", Group: "network", Expected: "an abstract Unix socket of the host is not reached", run: probeUnixAbstract},
		{Name: "metadata-raw", Group: "network", Expected: "the metadata address is refused to a static program and raw system calls, in every spelling", run: probeMetadata("metadata")},
		{Name: "metadata-libc", Group: "network", Expected: "the metadata address is refused to a C-library program, in every spelling", run: probeMetadataShell},
		{Name: "unlisted-host", Group: "network", Expected: "with hosts listed, an unlisted name and a literal address are refused", run: probeMetadata("unlisted")},
		{Name: "other-protocols", Group: "network", Expected: "with hosts listed, UDP, ICMP, raw and MPTCP still go nowhere", run: probeOtherProtocols},
	}
}

func probeNetworkOff(ctx context.Context, h *Host) (outcome, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return outcome{}, err
	}
	defer l.Close()
	c, dialErr := net.Dial("tcp", l.Addr().String())
	if dialErr == nil {
		c.Close()
	}
	_, b, err := h.workspace("off", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "network", l.Addr().String())
	return a.judge("outside, the host's server on "+l.Addr().String()+" answers", dialErr == nil,
		"ENETUNREACH", "ECONNREFUSED", "EPERM", "EACCES", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EAFNOSUPPORT", "ENOSYS", "no such host"), err
}

func probeUnixPath(ctx context.Context, h *Host) (outcome, error) {
	path := filepath.Join(h.Dir, "s")
	stop, reachable, err := listenUnix(path)
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	_, b, err := h.workspace("unix", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "unix", path)
	return a.judge("outside, the socket answers", reachable, "ENOENT", "ECONNREFUSED", "EACCES"), err
}

func probeUnixAbstract(ctx context.Context, h *Host) (outcome, error) {
	name := "@confine-probe-" + filepath.Base(h.Dir)
	stop, reachable, err := listenUnix(name)
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	_, b, err := h.workspace("abstract", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "unix", name)
	return a.judge("outside, the socket answers", reachable, "ECONNREFUSED", "EPERM"), err
}

// listed is the one name that the probes' policy allows.
const listed = "allowed.test"

// answering is a server that stands for the listed name.
type answering struct {
	net.Listener
	mu      sync.Mutex
	refused []string
}

const answer = "confine-probe-answer"

func newAnswering() (*answering, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &answering{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				if _, err := c.Read(buf); err == nil {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\nConnection: close\r\n\r\n"+answer)
				}
			}()
		}
	}()
	return s, nil
}

func (s *answering) refuse(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, target)
}

// captured gives a boundary with a captured network whose policy is the one
// listed name on port 80.
func (h *Host) captured(name string) (*answering, boundary.Boundary, error) {
	s, err := newAnswering()
	if err != nil {
		return nil, boundary.Boundary{}, err
	}
	_, b, err := h.workspace(name, nil)
	b.Network = boundary.NetworkCaptured
	return s, b, err
}

func probeMetadata(attempt string) func(context.Context, *Host) (outcome, error) {
	return func(ctx context.Context, h *Host) (outcome, error) {
		s, b, err := h.captured(attempt)
		if err != nil {
			return outcome{}, err
		}
		defer s.Close()
		egress, err := h.Egress(listed+":80", s.Addr().String(), s.refuse)
		if err != nil {
			return outcome{}, err
		}
		// The neighbour inside is the listed name, by the same calls.
		a, err := h.inside(ctx, b, egress, attempt, listed, answer)
		o := a.judge("the same calls reach a listed name", true, "closed", "refused", "ECONNREFUSED", "ENETUNREACH", "EINVAL", "EHOSTUNREACH", "no such host")
		o.observed += fmt.Sprintf("; %d refusals recorded", len(s.refused))
		return o, err
	}
}

// spellings of the metadata addresses that some C library takes.
var spellings = []string{
	"169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518", "::ffff:169.254.169.254",
	"fd00:ec2::254", "fe80::a9fe:a9fe%lo", "100.100.100.200", "168.63.129.16", "metadata.google.internal", "169.254.169.254.",
}

func probeMetadataShell(ctx context.Context, h *Host) (outcome, error) {
	s, b, err := h.captured("libc")
	if err != nil {
		return outcome{}, err
	}
	defer s.Close()
	egress, err := h.Egress(listed+":80", s.Addr().String(), s.refuse)
	if err != nil {
		return outcome{}, err
	}
	var script strings.Builder
	script.WriteString("unset LD_PRELOAD\nask() { (exec 3<>\"/dev/tcp/$1/80\" && printf 'GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' \"$1\" >&3 && timeout 5 cat <&3) 2>&1; echo \"==$1\"; }\n")
	// All at once, as a refusal takes its time; told in order.
	for i, n := range append([]string{listed}, spellings...) {
		fmt.Fprintf(&script, "ask '%s' >/tmp/answer-%02d &\n", n, i)
	}
	script.WriteString("wait\ncat /tmp/answer-*\n")
	out, err := h.shell(ctx, b, egress, script.String())
	if err != nil {
		return outcome{}, err
	}
	parts := strings.Split(out, "==")
	o := outcome{control: "the same program reaches a listed name", held: len(parts) == len(spellings)+2, controlled: strings.Contains(parts[0], answer)}
	for i, p := range parts[1:] {
		if strings.Contains(p, answer) || strings.Contains(p, " 200 ") {
			o.held = false
			o.observed += "an answer after " + strings.SplitN(parts[i+1], "\n", 2)[0] + "; "
		}
	}
	o.observed += fmt.Sprintf("no answer to %d spellings; %d refusals recorded", len(spellings), len(s.refused))
	return o, nil
}

func probeOtherProtocols(ctx context.Context, h *Host) (outcome, error) {
	s, b, err := h.captured("protocols")
	if err != nil {
		return outcome{}, err
	}
	defer s.Close()
	egress, err := h.Egress(listed+":80", s.Addr().String(), s.refuse)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, egress, "protocols", s.Addr().String())
	return a.judge("a TCP connection to a listed name works", true, "EPERM", "EACCES", "ENOSYS", "ECONNREFUSED", "ENETUNREACH", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EAFNOSUPPORT", "EINVAL"), err
}
