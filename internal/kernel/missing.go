package kernel

import "confine/internal/boundary"

// MissingError says that this host lacks an ability the boundary needs.
type MissingError struct {
	Layer boundary.Layer
	// What is the fact that was seen, e.g. "unshare user namespace: operation not permitted".
	What string
	// Fix is the one change that mends it.
	Fix string
}

func (e *MissingError) Error() string { return "missing ability " + string(e.Layer) + ": " + e.What }

// Hint is the change that mends it, for the line after the error.
func (e *MissingError) Hint() string { return e.Fix }
