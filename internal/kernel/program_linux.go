package kernel

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	sysCloseRange = unix.SYS_CLOSE_RANGE
	sysSignalfd4  = unix.SYS_SIGNALFD4
	sysPpoll      = unix.SYS_PPOLL
)

// argumentRange reads arg_start and env_end, fields 48 and 51 of
// /proc/PID/stat (proc_pid_stat(5)). The second field is the program's name in
// parentheses and may hold anything, so fields are counted from its end.
func argumentRange(stat string) (start, end uintptr, err error) {
	i := strings.LastIndexByte(stat, ')')
	f := strings.Fields(stat[i+1:])
	if i < 0 || len(f) < 49 {
		return 0, 0, errors.New("read /proc/self/stat: too few fields")
	}
	const argStart, envEnd = 48 - 3, 51 - 3
	a, err := strconv.ParseUint(f[argStart], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	e, err := strconv.ParseUint(f[envEnd], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	if a == 0 || e < a || e-a > 64<<20 {
		return 0, 0, errors.New("read /proc/self/stat: no argument memory")
	}
	return uintptr(a), uintptr(e), nil
}

// UnblockSignals lets the process take signals again, for the moment before an
// exec.
func (b *Block) UnblockSignals() {
	b.Call("unblock signals", unix.SYS_RT_SIGPROCMASK, Int(sigSetmask), b.p.Bytes(make([]byte, 8)), Int(0), Int(8))
}

// Exec replaces the process. Use it with Tolerate and Soft for each candidate of
// a search path, and FailSoft at the end.
func (b *Block) Exec(name string, path, argv, env Arg) *Step {
	return b.Call(name, unix.SYS_EXECVE, path, argv, env)
}

// Vector is the address of a NULL-terminated array of C strings.
func (p *Program) Vector(list []string) Arg {
	v := make([]byte, 8*(len(list)+1))
	for i, s := range list {
		binary.NativeEndian.PutUint64(v[8*i:], uint64(p.Str(s).val))
	}
	return p.Bytes(v)
}
