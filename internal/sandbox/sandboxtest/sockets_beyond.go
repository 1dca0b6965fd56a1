//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// capable makes an attempt as a process with every capability in namespaces of
// its own: the control of what the kernel allows to nobody less.
func (h *Host) capable(ctx context.Context, name string, args ...string) (Answer, error) {
	return h.outside(ctx, nil, "capable", append([]string{name}, args...)...)
}

// unlike is whether no try of the control had the result that holds, and which
// had it.
func unlike(control Answer, want func(Try) string) (string, bool) {
	for _, t := range control.Tries {
		if w := want(t); w != "" && t.Result == w {
			return t.What + " is refused there too", false
		}
	}
	return "", len(control.Tries) > 0
}

func probeOptions(ctx context.Context, h *Host) (outcome, error) {
	control, err := h.capable(ctx, "socket-options")
	if err != nil {
		return outcome{}, err
	}
	missing, controlled := unlike(control, func(t Try) string {
		if t.Want == "lo" || slices.Contains(strings.Fields(initialOnly), t.What) {
			return ""
		}
		return t.Want
	})
	text := "with all capabilities in a network namespace of its own, none of them is refused so, but what the initial namespace alone may: " + initialOnly
	if !controlled {
		text = missing
	}
	_, b, err := h.workspace("socket-options", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "socket-options")
	return a.judge(text, controlled), err
}

func probeTighten(ctx context.Context, h *Host) (outcome, error) {
	const system = "/usr/bin/env"
	control, err := h.outside(ctx, nil, "tighten", h.Dir, system)
	if err != nil {
		return outcome{}, err
	}
	reach := 0
	for _, t := range control.Tries {
		if t.Result == letThrough {
			reach++
		}
	}
	_, b, err := h.workspace("tighten", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "tighten", "/workspace", system)
	return a.judge(fmt.Sprintf("outside, %d calls under the same filters reach the kernel", reach), reach > 0), err
}

// probeUnixVerbs reaches sockets of the host, in a directory that is not in the
// view or abstract, by every type and verb.
func probeUnixVerbs(abstract bool) func(context.Context, *Host) (outcome, error) {
	return func(ctx context.Context, h *Host) (outcome, error) {
		names, want := []string{filepath.Join(h.Dir, "host")}, "ENOENT"
		if abstract {
			names, want = []string{"@confine-" + filepath.Base(h.Dir)}, "ECONNREFUSED"
		}
		stop, err := listenAll(names[0])
		if err != nil {
			return outcome{}, err
		}
		defer stop()
		control, err := h.outside(ctx, nil, "unix-verbs", append([]string{"ok"}, names...)...)
		if err != nil {
			return outcome{}, err
		}
		seen := control.judge("", true)
		if !abstract {
			names = append(names, "/proc/self/root"+names[0], "/proc/self/cwd/.."+names[0])
		}
		_, b, err := h.workspace("unix-verbs", nil)
		if err != nil {
			return outcome{}, err
		}
		a, err := h.inside(ctx, b, nil, "unix-verbs", append([]string{want}, names...)...)
		return a.judge("outside, each of them reaches the sockets: "+seen.observed, seen.held), err
	}
}

// probeCredentials has its control as root: the kernel lets nobody else make such
// a claim, so that an ordinary user can only be seen to make a true one.
func probeCredentials(ctx context.Context, h *Host) (outcome, error) {
	control, err := h.outside(ctx, nil, "credentials")
	if err != nil {
		return outcome{}, err
	}
	text, controlled := "outside, as an ordinary user, true credentials are sent", control.Neighbour == "ok"
	if os.Geteuid() == 0 {
		text = "outside, root sends each of them"
		for _, t := range control.Tries {
			controlled = controlled && t.Result == "ok"
		}
	}
	_, b, err := h.workspace("credentials", nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := h.inside(ctx, b, nil, "credentials")
	return a.judge(text, controlled, "EPERM", "EINVAL"), err
}
