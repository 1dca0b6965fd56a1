package gitcmd

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts cmd and limits its memory. The limit is set from outside right
// after the start: git reads hostile bytes from a pipe that we fill, or from
// objects that passed the import, so the first moments are its own.
func start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	for resource, value := range map[int]uint64{unix.RLIMIT_DATA: dataMemory, unix.RLIMIT_CORE: 0} {
		limit := unix.Rlimit{Cur: value, Max: value}
		err := unix.Prlimit(cmd.Process.Pid, resource, &limit, nil)
		if err != nil && err != unix.ESRCH {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
			return err
		}
	}
	return nil
}

// waitGroup waits for the process to end without reaping it, and then kills what
// is left of its group. Before the reaping the id can't have been given to
// another group.
func waitGroup(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
