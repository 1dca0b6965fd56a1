//go:build !linux

package workspace

import "os"

// Remove deletes a directory that a run wrote.
func Remove(dir string) error { return os.RemoveAll(dir) }
