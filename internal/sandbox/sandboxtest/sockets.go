//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"strings"
)

func socketProbes() []Probe {
	return []Probe{
		{Name: "socket-matrix", Group: "kernel", Expected: "every family × type × protocol, by socket and socketpair and with high bits, gets the table's answer", run: probeFilterMatrix("sockets", 100_000)},
		{Name: "foreign-sockets", Group: "kernel", Expected: "a socket of any family by int 0x80, a 32-bit program or x32, socketcall too, ends the process", run: probeForeignSockets},
		{Name: "socket-options", Group: "kernel", Expected: "no option, request or netlink message reaches beyond a socket", run: probeOptions},
		{Name: "unix-path-verbs", Group: "network", Expected: "a Unix socket of the host in a path is not there, by any type and verb", run: probeUnixVerbs(false)},
		{Name: "unix-abstract-verbs", Group: "network", Expected: "an abstract Unix socket of the host is not reached, by any type and verb", run: probeUnixVerbs(true)},
		{Name: "credentials", Group: "network", Expected: "no message can be sent in the name of another user, group or process", run: probeCredentials},
		{Name: "tighten", Group: "kernel", Expected: "rule sets and filters may be set inside, and take no refusal back", run: probeTighten},
		{Name: "call-numbers", Group: "kernel", Expected: "every number up to 64 beyond the highest known call gets the policy's answer", run: probeFilterMatrix("numbers", 300)},
	}
}

// probeFilterMatrix runs an attempt that asks the sandbox's filter about at least
// least cells. Outside no filter of ours answers, so cells are wrong there.
func probeFilterMatrix(attempt string, least int) func(context.Context, *Host) (outcome, error) {
	return func(ctx context.Context, h *Host) (outcome, error) {
		control, err := h.outside(ctx, nil, attempt, "control")
		if err != nil {
			return outcome{}, err
		}
		reach := 0
		// A container's own filter may refuse more, and answers first then.
		refused := map[string]string{}
		for _, t := range control.Tries {
			switch {
			case t.Result != letThrough:
				refused[t.What] = t.Result
			case t.Want != letThrough:
				reach++
			}
		}
		_, b, err := h.workspace(attempt, nil)
		if err != nil {
			return outcome{}, err
		}
		a, err := h.inside(ctx, b, nil, attempt)
		already := 0
		for i, t := range a.Tries {
			if t.Want == letThrough && t.Result != letThrough && refused[t.What] == t.Result {
				a.Tries[i].Want = t.Result
				already++
			}
		}
		text, enough := "outside, what is refused here reaches the kernel", mostNamed/2
		if already > 0 {
			text, enough = fmt.Sprintf("outside, %d of what is refused here reach the kernel; %d that are allowed are refused there already", reach, already), 1
		}
		o := a.judge(text, reach >= enough)
		if n := a.cells(); n < least {
			o.held, o.observed = false, fmt.Sprintf("%s; only %d cells", o.observed, n)
		}
		return o, err
	}
}

// probeForeignSockets holds an entry that the kernel does not have to the same
// failure as outside: 32-bit calls can be switched off at boot.
func probeForeignSockets(ctx context.Context, h *Host) (outcome, error) {
	control, err := h.outside(ctx, nil, "foreign-sockets")
	if err != nil {
		return outcome{}, err
	}
	var want, seen []string
	controlled := len(control.Tries) > 0
	for _, t := range control.Tries {
		seen = append(seen, t.What+" "+t.Result)
		switch t.Result {
		case "goes on":
			want = append(want, "killed")
		case "killed":
			controlled = false
		default:
			want = append(want, t.Result)
		}
	}
	_, b, err := h.workspace("foreign-sockets", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "foreign-sockets", want...)
	return a.judge("outside: "+strings.Join(seen, ", "), controlled, "none exists"), err
}
