package kernel

import "golang.org/x/sys/unix"

const (
	sysCloseRange  = unix.SYS_CLOSE_RANGE
	sysSignalfd4   = unix.SYS_SIGNALFD4
	sysPpoll       = unix.SYS_PPOLL
	sysClone       = unix.SYS_CLONE
	sysExecve      = unix.SYS_EXECVE
	sysSigaction   = unix.SYS_RT_SIGACTION
	sysSigprocmask = unix.SYS_RT_SIGPROCMASK
	sigSetmask     = 2
)
