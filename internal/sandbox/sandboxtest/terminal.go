//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// probeTerminal types into the terminal that a person would be using. A process
// may do that to its own controlling terminal only, so both attempts have one.
func probeTerminal(ctx context.Context, h *Host) (outcome, error) {
	control, err := h.terminalOutside(ctx)
	if err != nil {
		return outcome{}, err
	}
	typed := result(errControl)
	if len(control.Tries) == 3 && control.Neighbour == "ok" {
		typed = control.Tries[0].Result
	}
	text := "outside, the same call types into a terminal"
	switch typed {
	case "ok":
	case "EIO":
		// Without the filter the answer inside would be the same, and not EPERM.
		text = "outside, this kernel answers EIO (sysctl dev.tty.legacy_tiocsti is 0), as no filter does"
	default:
		text = "outside: " + typed
	}
	_, b, err := h.workspace("terminal", nil)
	if err != nil {
		return outcome{}, err
	}
	var out bytes.Buffer
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: h.Program, Target: programInside})
	r, err := h.Driver.Start(ctx, sandbox.Spec{
		Boundary: b, Args: []string{programInside, ProgramArgument, "terminal"},
		Stdout: &out, Terminal: &sandbox.Terminal{Rows: 24, Cols: 80},
	})
	if err != nil {
		return outcome{}, err
	}
	if e := r.Wait(); !e.Success() {
		return outcome{}, fmt.Errorf("probe ended: %s, status %d: %.300q", e.Reason, e.Status, out.String())
	}
	a, err := parseAnswer(strings.TrimSpace(out.String()))
	return a.judge(text, typed == "ok" || typed == "EIO", "EPERM", "0 bytes typed"), err
}

// terminalOutside makes the attempt on a terminal of our own.
func (h *Host) terminalOutside(ctx context.Context) (Answer, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return Answer{}, err
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return Answer{}, err
	}
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return Answer{}, errno
	}
	tty := os.NewFile(slave, "terminal")
	defer tty.Close()
	return h.outside(ctx, tty, "terminal")
}
