// Command confine runs coding agents, and the checks of the repositories they
// change, behind a boundary. Everything it does is in package cli.
package main

import (
	"context"
	"os"

	"confine/internal/cli"
)

// version is set by the build.
var version = "unknown"

func main() {
	os.Exit(cli.Main(context.Background(), cli.Process{
		Args: os.Args[1:], Env: os.Environ(), Version: version,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
