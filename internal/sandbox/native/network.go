//go:build linux

package native

import (
	"golang.org/x/sys/unix"

	"confine/internal/kernel"
)

// buildNetwork brings up the sandbox's own loopback device.
func (pl *plan) buildNetwork() error {
	o := pl.outer
	o.Call("network: open socket", unix.SYS_SOCKET, kernel.Int(unix.AF_INET), kernel.Int(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), kernel.Int(0)).Into(pl.scratchA)
	req := make([]byte, 40)
	copy(req, "lo")
	req[16] = unix.IFF_UP
	o.Call("network: loopback up", unix.SYS_IOCTL, pl.scratchA.Arg(), kernel.Int(unix.SIOCSIFFLAGS), pl.p.Bytes(req))
	o.Call("network: close socket", unix.SYS_CLOSE, pl.scratchA.Arg())
	return nil
}

func (r *run) serveNetwork(fds []int) (func(), error) { return nil, nil }
