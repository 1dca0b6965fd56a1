//go:build !linux

package native

import (
	"context"
	"runtime"

	"confine/internal/boundary"
	"confine/internal/kernel"
	"confine/internal/sandbox"
)

// Driver is the native driver, which is Linux alone.
type Driver struct{}

// New returns the driver.
func New() Driver { return Driver{} }

// Name is the driver's name.
func (Driver) Name() string { return "native" }

// Start implements sandbox.Driver: there is nothing to start with.
func (Driver) Start(context.Context, sandbox.Spec) (sandbox.Running, error) {
	return nil, &kernel.MissingError{
		Layer: boundary.LayerUserNS,
		What:  runtime.GOOS + " has no namespaces",
		Fix:   "run confine on Linux, for example in a virtual machine",
	}
}
