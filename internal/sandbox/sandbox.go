// Package sandbox enforces a boundary around one command.
//
// It is the only package that starts an untrusted process. A Driver makes
// sandboxes; every driver takes the same boundary.Boundary and passes the same
// proofs (package sandboxtest). What a driver can't hold is a field of its
// Capabilities, never a silent difference.
package sandbox

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	"confine/internal/boundary"
)

// Driver makes sandboxes.
type Driver interface {
	// Name is the driver's name in configs and reports.
	Name() string
	// Start builds a sandbox for one command and starts it. When Start returns
	// an error nothing was started and nothing is left behind. The error is a
	// *StartError, a *boundary.InvalidError or a *kernel.MissingError.
	Start(ctx context.Context, spec Spec) (Running, error)
}

// Spec is one command and the boundary around it.
type Spec struct {
	Boundary boundary.Boundary
	// Args is the command. Args[0] is looked up in the PATH of the boundary's
	// environment, inside the view, unless it holds a slash.
	Args []string
	// Stdin is copied into the command's standard input; nil means empty.
	Stdin io.Reader
	// Stdout and Stderr receive the command's output; nil discards it.
	Stdout, Stderr io.Writer
	// Terminal, where set, gives the command a PTY instead of pipes; Stdout
	// receives its output. With Stderr set too, errors go there through a pipe.
	Terminal *Terminal
	// Egress serves the captured network. Required when the boundary's network
	// is captured, unused otherwise.
	Egress EgressServer
	// Weakened is told each allowed missing layer before the command starts.
	Weakened func(boundary.Layer, string)
}

// Terminal asks for a PTY.
type Terminal struct {
	Rows, Cols uint16
	// Resized delivers later sizes; may be nil.
	Resized <-chan WindowSize
	// Stopped is called when the command's job was stopped (Ctrl-Z). It returns
	// when the command should go on. Nil continues at once.
	Stopped func()
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Rows, Cols uint16 }

// EgressServer decides and carries the connections of one sandbox. Package
// proxy implements it. The sockets live in the sandbox's network namespace and
// are accepted outside of it.
type EgressServer interface {
	// Serve answers until stop is called. It takes ownership of the sockets.
	Serve(sockets EgressSockets) (stop func(), err error)
}

// EgressSockets are the engine's ends of a captured network.
type EgressSockets struct {
	// DNS is bound to port 53 of the sandbox's loopback (UDP and TCP).
	DNS    net.PacketConn
	DNSTCP net.Listener
	// Capture receives every TCP connection to a non-loopback address; the
	// original destination is got with SO_ORIGINAL_DST.
	Capture net.Listener
	// Connect is the HTTP CONNECT endpoint on 127.0.0.1:3128.
	Connect net.Listener
	// Who names the program that owns the connection with this remote address:
	// best effort, untrusted, "" if unknown.
	Who func(client net.Addr) string
}

// Running is a started sandbox.
type Running interface {
	// Signal sends a signal to the command's process group inside.
	Signal(sig os.Signal) error
	// Kill ends every process of the sandbox.
	Kill()
	// Wait returns when every process is gone and everything the sandbox held
	// is released. It may be called more than once.
	Wait() Exit
}

// Reason says why a sandbox ended.
type Reason string

// The reasons.
const (
	// Exited: the command ended by itself (Status holds its status).
	Exited Reason = "exited"
	// Signalled: the command was ended by a signal (Signal).
	Signalled Reason = "signalled"
	// TimedOut: Limits.Time was reached.
	TimedOut Reason = "time limit"
	// OutOfMemory: the memory limit was reached.
	OutOfMemory Reason = "memory limit"
	// DiskFull: Limits.Disk was reached.
	DiskFull Reason = "disk limit"
	// Cancelled: the context ended or Kill was called.
	Cancelled Reason = "cancelled"
	// Fault: the sandbox itself broke (Err).
	Fault Reason = "fault"
)

// Exit is how a sandbox ended. The zero value is not a success: Reason is empty.
type Exit struct {
	Reason Reason
	// Status is the command's exit status, or 128+signal.
	Status int
	Signal int
	// OOMKills counts processes that were killed at the memory limit, where the
	// host reports them. One need not be the command: that may go on, or end by
	// itself, with a status that does not say so.
	OOMKills int64
	// PidsHit counts refused forks where the host reports them.
	PidsHit int64
	// OutputBytes is what the command wrote; OutputDropped what was not kept.
	OutputBytes, OutputDropped int64
	// OutputErr is why the command's output could not be passed on to Stdout or
	// Stderr: a full disk, a reader that is gone.
	OutputErr error
	// Missing lists the layers that were missing and allowed to be.
	Missing  []boundary.Layer
	Duration time.Duration
	Err      error
}

// Success reports whether the command ended by itself with status 0.
func (e Exit) Success() bool { return e.Reason == Exited && e.Status == 0 }

// StartError is a sandbox that could not be built: which step failed, and what
// would mend it.
type StartError struct {
	Step string
	Hint string
	Err  error
	// NotFound: the command does not exist in the view.
	NotFound bool
	// NotExecutable: it exists and can't be executed.
	NotExecutable bool
}

func (e *StartError) Error() string { return "start sandbox: " + e.Step + ": " + e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }
