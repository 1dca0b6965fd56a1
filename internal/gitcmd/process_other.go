//go:build !linux

package gitcmd

import "os/exec"

// Outside Linux the package only has to compile: nothing there runs git.
func start(cmd *exec.Cmd) error { return cmd.Start() }

func waitGroup(*exec.Cmd) {}
