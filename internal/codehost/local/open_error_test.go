//go:build unix

package local

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"confine/internal/gitcmd"
)

// Each way in which a directory is bad was another kind of error, and one that
// may not be read was to be put back from a backup.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	plain := t.TempDir()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, h *Host) string
		kind  OpenKind
		hint  string
	}{
		"missing directory": {func(t *testing.T, h *Host) string { return plain + "/none" }, NoHost, "confine local init"},
		"below a file":      {func(t *testing.T, h *Host) string { return h.path("host.yaml", "x") }, NoHost, "confine local init"},
		"not a host":        {func(t *testing.T, h *Host) string { return plain }, NoHost, "confine local init"},
		"broken host.yaml": {func(t *testing.T, h *Host) string {
			mustWrite(t, h.path("host.yaml"), "version: 9\n", 0o600)
			return h.Dir()
		}, BadHost, "correct the file"},
		"no repository": {func(t *testing.T, h *Host) string {
			if err := os.RemoveAll(h.path("repo.git")); err != nil {
				t.Fatal(err)
			}
			return h.Dir()
		}, BadHost, "correct the file"},
		"repository without refs": {func(t *testing.T, h *Host) string {
			if err := os.RemoveAll(h.path("repo.git", "refs")); err != nil {
				t.Fatal(err)
			}
			return h.Dir()
		}, BadHost, "correct the file"},
		"written by all": {func(t *testing.T, h *Host) string {
			if err := os.Chmod(h.path("repo.git"), 0o777); err != nil {
				t.Fatal(err)
			}
			return h.Dir()
		}, BadHost, "move it to a directory of your own"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			if _, err := Open(t.Context(), h.Dir(), OpenOptions{}); err != nil {
				t.Fatalf("control: %v", err)
			}
			_, err := Open(t.Context(), c.spoil(t, h), OpenOptions{})
			var open *OpenError
			if !errors.As(err, &open) || open.Kind != c.kind || !strings.Contains(open.Hint(), c.hint) {
				t.Errorf("%v: %+v", err, open)
			}
		})
	}
	// Root may read everything: the cause stands for what others are told.
	err := openError("/srv/x", &FileError{"/srv/x/host.yaml", syscall.EACCES})
	var open *OpenError
	if !errors.As(err, &open) || open.Kind != NotPermitted || !strings.Contains(open.Hint(), "as the user who owns") || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if hint := (&FileError{"/x", syscall.EACCES}).Hint(); strings.Contains(hint, "backup") {
		t.Errorf("hint %q", hint)
	}
	if err := openError("/srv/x", &gitcmd.MissingError{Feature: "git"}); errors.As(err, &open) && open.Dir == "" {
		t.Errorf("a lack of git is blamed on the directory: %v", err)
	}
}
