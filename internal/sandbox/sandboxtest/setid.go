//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func setIDProbes() []Probe {
	const expected = "no call that sets a mode sets a set-id bit, in any writable place"
	return []Probe{
		{Name: "set-id-forms", Group: "files", Expected: expected, run: probeSetIDForms(false)},
		{Name: "set-id-forms-staged", Group: "files", Expected: expected, run: probeSetIDForms(true)},
	}
}

func probeSetIDForms(staged bool) func(context.Context, *Host) (outcome, error) {
	return func(ctx context.Context, h *Host) (outcome, error) {
		name := "set-id-forms"
		if staged {
			name += "-staged"
		}
		control, err := h.outside(ctx, nil, "set-id-forms", h.Dir)
		if err != nil {
			return outcome{}, err
		}
		set := 0
		for _, t := range control.Tries {
			if t.Result == "bit set" {
				set++
			}
		}
		dir, b, err := h.workspace(name, nil)
		if err != nil {
			return outcome{}, err
		}
		if staged {
			if err := h.stage(name, &b); err != nil {
				return outcome{}, err
			}
			defer h.unstage(name)
		}
		a, err := h.inside(ctx, b, nil, "set-id-forms", "/workspace", "/tmp", "/dev/shm", "/run")
		o := a.judge(fmt.Sprintf("outside, %d of %d tries set one", set, len(control.Tries)), set >= len(control.Tries)*2/3)
		for _, place := range []string{dir, filepath.Join(h.Dir, "stage-"+name)} {
			_ = filepath.WalkDir(place, func(p string, d fs.DirEntry, err error) error {
				if info, err := os.Lstat(p); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
					o.held, o.observed = false, o.observed+"; the host has "+filepath.Base(p)+" with a set-id bit"
				}
				return nil
			})
		}
		return o, err
	}
}
