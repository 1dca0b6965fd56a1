//go:build linux

package sandboxtest

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAMatrixNamesWrongCellsAndCountsRightOnes, and one wrong cell among many is
// enough.
func TestAMatrixNamesWrongCellsAndCountsRightOnes(t *testing.T) {
	name := func(s string) func() string { return func() string { return s } }
	var good, bad Answer
	for _, a := range []*Answer{&good, &bad} {
		m := a.matrix("table")
		for range 1000 {
			m.cell(name("cell"), "EPERM", "EPERM")
		}
		m.cell(name("cell"), letThrough, letThrough)
		if a == &bad {
			m.cell(name("the one"), letThrough, "EPERM")
		}
		m.done()
		a.neighbour(nil)
	}
	if o := good.judge("", true); !o.held || good.cells() != 1001 {
		t.Errorf("%d cells: %+v", good.cells(), o)
	}
	if o := bad.judge("", true); o.held || !strings.Contains(o.observed, "the one: "+letThrough) {
		t.Errorf("%+v", o)
	}
	var many Answer
	m := many.matrix("table")
	for range 100 {
		m.cell(name("cell"), "ok", "EPERM")
	}
	m.done()
	if n := len(many.Tries); n != mostNamed+1 || many.Tries[n-1].Result != "and 60 cells more" {
		t.Errorf("%d tries, the last %+v", n, many.Tries[n-1])
	}
}

// TestSocketTableLetsThroughWhatProgramsNeed: the table is not all refusals.
func TestSocketTableLetsThroughWhatProgramsNeed(t *testing.T) {
	for _, c := range []struct {
		pair                   bool
		family, kind, protocol uintptr
		want                   string
	}{
		{false, unix.AF_INET, unix.SOCK_STREAM, 0, letThrough},
		{false, unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP, letThrough},
		{false, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, "EPERM"},
		{false, unix.AF_INET, unix.SOCK_STREAM, protocolMPTCP, "EPERM"},
		{false, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, letThrough},
		{false, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM, "EPERM"},
		{false, unix.AF_ALG, unix.SOCK_SEQPACKET, 0, "EPERM"},
		{false, unix.AF_VSOCK, unix.SOCK_STREAM, 0, "EPERM"},
		{true, unix.AF_UNIX, unix.SOCK_SEQPACKET, 0, letThrough},
		{true, unix.AF_INET, unix.SOCK_STREAM, 0, "EPERM"},
	} {
		if got := socketWant(c.pair, c.family, c.kind, c.protocol); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestWithoutAFilterTheMatricesAreSeenToFail is the control of both.
func TestWithoutAFilterTheMatricesAreSeenToFail(t *testing.T) {
	for name, try := range map[string]func([]string) Answer{"sockets": trySockets, "numbers": tryNumbers} {
		a := try([]string{"control"})
		if o := a.judge("", true); o.held || !strings.Contains(o.observed, letThrough) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
