//go:build unix

package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// readJSON reads a file strictly: unknown fields and anything after the value
// are errors.
func readJSON(path string, into any) error {
	data, _, err := read(path)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return &FileError{path, fmt.Errorf("%.300q", err.Error())}
	}
	if _, err := dec.Token(); err != io.EOF {
		return &FileError{path, errors.New("there is something after the value")}
	}
	return nil
}

func saveJSON(path string, value any, when time.Time) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return save(path, append(data, '\n'), 0o600, when)
}
