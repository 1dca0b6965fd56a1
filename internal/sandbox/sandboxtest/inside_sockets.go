//go:build linux

package sandboxtest

import (
	"fmt"
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/kernel/seccomp"
)

// families are all address families there are and are not: the kernel's own end
// at 45 (AF_MCTP), 46 is AF_MAX.
func families() []uintptr {
	var all []uintptr
	for f := range uintptr(64) {
		all = append(all, f)
	}
	return append(all, 127, 255, 256, 0xffff, math.MaxInt32, 1<<31, any32)
}

// socketKinds are the types of a socket, those that don't exist among them.
var socketKinds = []uintptr{0, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_RDM, unix.SOCK_SEQPACKET, unix.SOCK_DCCP, 7, 8, 9, unix.SOCK_PACKET, 11, 15}

// socketProtocols are all numbers of IP and netlink, those of packet sockets and
// some that are none.
func socketProtocols() []uintptr {
	var all []uintptr
	for p := range uintptr(270) {
		all = append(all, p)
	}
	return append(all, unix.ETH_P_IP, unix.ETH_P_ALL<<8, 0xffff, math.MaxInt32, 1<<31, any32)
}

// socketWant says which cell is let through: this repeats the policy on purpose.
func socketWant(pair bool, family, kind, protocol uintptr) string {
	through := false
	switch {
	case family == unix.AF_UNIX:
		through = kind == unix.SOCK_STREAM || kind == unix.SOCK_DGRAM || kind == unix.SOCK_SEQPACKET
	case pair:
	case family == unix.AF_INET || family == unix.AF_INET6:
		through = kind == unix.SOCK_STREAM && (protocol == 0 || protocol == unix.IPPROTO_TCP) ||
			kind == unix.SOCK_DGRAM && (protocol == 0 || protocol == unix.IPPROTO_UDP)
	case family == unix.AF_NETLINK:
		through = protocol == unix.NETLINK_ROUTE
	}
	if through {
		return letThrough
	}
	return "EPERM"
}

// trySockets asks the filter about every family, type and protocol by socket and
// socketpair, with the flags of the type and with bits that the kernel cuts off.
// The control has fewer protocols, as each of its calls goes through a listener.
func trySockets(args []string) (a Answer) {
	protocols := socketProtocols()
	if len(args) > 0 {
		protocols = protocols[:2]
	}
	err := underMark(func(call func(uint32, ...uintptr) error) {
		for _, name := range []string{"socket", "socketpair"} {
			nr, ok := seccomp.Number(name)
			if !ok {
				a.saw(name, "has no number")
				continue
			}
			m := a.matrix(name)
			for _, family := range families() {
				for _, kind := range socketKinds {
					for i, protocol := range protocols {
						want := socketWant(name == "socketpair", family, kind, protocol)
						args := []uintptr{family, kind, protocol}
						// All forms of each cell would be half a million calls:
						// they take turns, and protocol 0 has them all.
						forms := [][]uintptr{args, {family | highBits, kind, protocol}, {family, kind | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK | highBits, protocol}, {family, kind, protocol | 0xdead<<32}}
						if i > 0 {
							forms = forms[i%len(forms):][:1]
						}
						for _, form := range forms {
							m.cell(func() string { return describe(name, form) }, result(call(nr, form...)), want)
						}
					}
				}
			}
			m.done()
		}
	})
	if err != nil {
		a.try("add a filter", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.Close(fd)
	}
	a.neighbour(err)
	return a
}

// unfiltered are calls that the kernel lets no filter see, so that asking would
// make them for real.
var unfiltered = map[string]string{
	"uretprobe": "the kernel makes it without asking filters (6.14 and later); without a probe that the kernel itself has placed it ends the process by SIGILL",
	"uprobe":    "as uretprobe",
}

// beyondKnown is how many numbers above the highest known one are tried.
const beyondKnown = 64

// tryNumbers asks the filter about every number from 0 to beyond the highest
// known, and some that only look like one.
func tryNumbers(args []string) (a Answer) {
	words := func(s string) map[string]bool {
		m := map[string]bool{}
		for _, w := range strings.Fields(s) {
			m[w] = true
		}
		return m
	}
	refused, absent, ruled := words(refusedCalls), words(absentCalls), map[string]bool{}
	for _, c := range ruledCalls() {
		ruled[c.name] = true
	}
	names, highest := map[uint32]string{}, uint32(0)
	for _, name := range seccomp.Names() {
		nr, _ := seccomp.Number(name)
		names[nr] = name
		highest = max(highest, nr)
	}
	err := underMark(func(call func(uint32, ...uintptr) error) {
		m := a.matrix("numbers")
		if len(args) > 0 { // the control
			m.most = allNamed
		}
		for nr := range highest + beyondKnown + 1 {
			name, known := names[nr]
			want := letThrough
			switch {
			case !known:
				want = "ENOSYS"
			case unfiltered[name] != "" || ruled[name]: // the second are in tryCalls, by their arguments
				continue
			case refused[name]:
				want = "EPERM"
			case absent[name]:
				want = "ENOSYS"
			}
			m.cell(func() string { return fmt.Sprintf("call %d %s", nr, name) }, result(call(nr)), want)
		}
		m.done()
	})
	if err != nil {
		a.try("add a filter", err)
	}
	a.neighbour(ownThread())
	return a
}
