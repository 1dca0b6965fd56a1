//go:build linux

package sandboxtest

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func kernelProbes() []Probe {
	return []Probe{
		{Name: "system-calls", Group: "kernel", Expected: "every call that reaches beyond a sandbox gets the filter's answer, whatever the kernel's own would be", run: probeCalls},
		{Name: "foreign-calls", Group: "kernel", Expected: "a call by the number of another ABI ends the process", run: probeForeign},
		{Name: "namespaces", Group: "kernel", Expected: "no namespace can be made or entered", run: attempt("namespaces", made("namespaces"), "EPERM")},
		{Name: "mounts", Group: "kernel", Expected: "no mount can be made, moved, changed or undone", run: attempt("mounts", made("mounts"), "EPERM")},
		{Name: "socket-families", Group: "kernel", Expected: "only INET, INET6, UNIX and route netlink, only TCP and UDP", run: attempt("families", controlFamilies, "EPERM")},
		{Name: "terminal-input", Group: "kernel", Expected: "no input can be put into the command's own terminal", run: probeTerminal},
	}
}

var errControl = errors.New("the control could not be made")

// probeCalls asks the sandbox's filter about each call. Outside, what another
// filter refuses already, such as a container's, is not our proof: it is counted.
func probeCalls(ctx context.Context, h *Host) (outcome, error) {
	control, err := h.outside(ctx, nil, "calls")
	if err != nil {
		return outcome{}, err
	}
	reach := 0
	for _, t := range control.Tries {
		if t.Result == letThrough {
			reach++
		}
	}
	text := "outside, each of them reaches the kernel"
	if n := len(control.Tries); reach < n {
		text = fmt.Sprintf("outside, %d of %d reach the kernel and the rest is refused already", reach, n)
	}
	_, b, err := h.workspace("calls", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "calls")
	if a.Neighbour != "ok" && a.Neighbour == control.Neighbour {
		text, a.Neighbour = text+"; refused there and allowed by the sandbox: "+a.Neighbour, "ok"
	}
	return a.judge(text, reach > 0), err
}

func probeForeign(ctx context.Context, h *Host) (outcome, error) {
	control, err := h.outside(ctx, nil, "foreign")
	if err != nil {
		return outcome{}, err
	}
	_, b, err := h.workspace("foreign", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "foreign")
	seen := result(errControl)
	if len(control.Tries) == 1 {
		seen = control.Tries[0].Result
	}
	return a.judge("outside, such a process goes on ("+seen+")", seen != "killed", "killed", "none exists"), err
}

// made is the control of what a driver itself does to make a sandbox: that the
// probe runs at all shows it.
func made(what string) func() (string, bool) {
	return func() (string, bool) { return "outside, the driver made its own " + what + " to run this", true }
}

func controlFamilies() (string, bool) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err == nil {
		unix.Close(fd)
	}
	return "outside, a netfilter netlink socket can be made", err == nil
}
