package kernel

import (
	"fmt"
	"os"
	"slices"
	"syscall"
)

// ExecSelf replaces this process by the same program with more arguments and
// environment. It returns only with an error.
func ExecSelf(args, env []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	return syscall.Exec(program, slices.Concat(os.Args, args), slices.Concat(os.Environ(), env))
}
