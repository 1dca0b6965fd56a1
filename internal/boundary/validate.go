package boundary

import (
	"fmt"
	"path"
	"strings"
)

// InvalidError is a boundary that means nothing: which field, and why.
type InvalidError struct {
	Field string
	Why   string
}

func (e *InvalidError) Error() string { return "boundary: " + e.Field + ": " + e.Why }

// Validate holds b against an ordered list of checks and returns the first that
// fails, an *InvalidError. It looks at the value alone, never at the host.
func (b Boundary) Validate() error {
	for _, check := range checks {
		if err := check(b); err != nil {
			return err
		}
	}
	return nil
}

var checks = []func(Boundary) error{
	checkVersion, checkTenant, checkIdentity, checkMounts, checkFiles, checkWorkdir, checkEnv, checkNetwork, checkLimits, checkAllowMissing, checkProfile,
}

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Why: fmt.Sprintf(format, args...)}
}

func checkVersion(b Boundary) error {
	if b.Version != Version {
		return invalid("version", "is %d, this program knows %d", b.Version, Version)
	}
	return nil
}

// Valid reports whether the id has the form of a tenant's name. It becomes part
// of directory and cgroup names.
func (t TenantID) Valid() bool {
	if len(t) == 0 || len(t) > 63 || t[0] < 'a' || t[0] > 'z' {
		return false
	}
	for _, c := range []byte(t) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func checkTenant(b Boundary) error {
	if !b.Tenant.Valid() {
		return invalid("tenant", "%q is not 1-63 of a-z, 0-9, '-' beginning with a letter", string(b.Tenant))
	}
	return nil
}

// noID is the kernel's "no id"; mapping it means nothing.
const noID = 1<<32 - 1

func checkIdentity(b Boundary) error {
	if b.Identity.UID == noID || b.Identity.GID == noID || b.Identity.HostUID == noID || b.Identity.HostGID == noID {
		return invalid("identity", "4294967295 is no id")
	}
	return nil
}

// CleanAbs reports whether p is an absolute path in its normal form without NUL.
func CleanAbs(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p && !strings.Contains(p, "\x00") && len(p) < 4096
}

// reserved are the places that the driver makes itself.
var reserved = []string{"/proc", "/dev"}

func checkTarget(field, p string) error {
	if !CleanAbs(p) || p == "/" {
		return invalid(field, "%q is not an absolute clean path below /", p)
	}
	for _, r := range reserved {
		if p == r || strings.HasPrefix(p, r+"/") {
			return invalid(field, "%q belongs to the driver", p)
		}
	}
	return nil
}

func checkMounts(b Boundary) error {
	for i, m := range b.View.Mounts {
		field := fmt.Sprintf("view.mounts[%d]", i)
		if err := checkTarget(field+".target", m.Target); err != nil {
			return err
		}
		switch m.Kind {
		case Bind:
			if !CleanAbs(m.Source) {
				return invalid(field+".source", "%q is not an absolute clean path", m.Source)
			}
			if m.Size != 0 || m.Mode != 0 {
				return invalid(field, "a bind has no size or mode")
			}
		case Overlay:
			for _, dir := range []struct{ name, path string }{{"source", m.Source}, {"stage", m.Stage}} {
				if !CleanAbs(dir.path) {
					return invalid(field+"."+dir.name, "%q is not an absolute clean path", dir.path)
				}
			}
			if m.Writable || m.Owned || m.NoExec || m.Size != 0 || m.Mode != 0 {
				return invalid(field, "an overlay has a source and a stage only")
			}
		case Pin:
			if m.Source != "" || m.Owned || m.NoExec || m.Size != 0 || m.Mode != 0 {
				return invalid(field, "a pin is writable or not, and nothing else")
			}
		case Tmpfs, Mask:
			if m.Source != "" {
				return invalid(field+".source", "a %s has no source", m.Kind)
			}
			if m.Writable || m.Owned {
				return invalid(field, "writable and owned belong to a bind")
			}
			if m.Size < 0 || m.Mode > 0o7777 {
				return invalid(field, "size or mode out of range")
			}
		default:
			return invalid(field+".kind", "%q is not bind, tmpfs, mask, overlay or pin", string(m.Kind))
		}
		if m.Kind != Overlay && m.Stage != "" {
			return invalid(field+".stage", "belongs to an overlay")
		}
	}
	return nil
}

func checkFiles(b Boundary) error {
	for i, f := range b.View.Files {
		field := fmt.Sprintf("view.files[%d]", i)
		if err := checkTarget(field+".path", f.Path); err != nil {
			return err
		}
		if f.Mode&^0o777 != 0 {
			return invalid(field+".mode", "%#o has more than permission bits", f.Mode)
		}
		if len(f.Data) > 1<<20 {
			return invalid(field+".data", "is larger than 1 MiB")
		}
	}
	for i, l := range b.View.Links {
		field := fmt.Sprintf("view.links[%d]", i)
		if err := checkTarget(field+".path", l.Path); err != nil {
			return err
		}
		if l.Target == "" || strings.Contains(l.Target, "\x00") {
			return invalid(field+".target", "is empty or holds NUL")
		}
	}
	return nil
}

func checkWorkdir(b Boundary) error {
	if !CleanAbs(b.View.Workdir) {
		return invalid("view.workdir", "%q is not an absolute clean path", b.View.Workdir)
	}
	if len(b.View.Hostname) > 64 || strings.ContainsAny(b.View.Hostname, "\x00\n /") {
		return invalid("view.hostname", "%q is no host name", b.View.Hostname)
	}
	return nil
}

func checkEnv(b Boundary) error {
	for _, e := range b.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.Contains(e, "\x00") {
			return invalid("env", "%.60q is not NAME=VALUE", e)
		}
	}
	return nil
}

func checkNetwork(b Boundary) error {
	if b.Network != NetworkOff && b.Network != NetworkCaptured {
		return invalid("network", "%q is not known", string(b.Network))
	}
	return nil
}

func checkLimits(b Boundary) error {
	l := b.Limits
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"memory", l.Memory}, {"pids", l.Pids}, {"milli_cpu", l.MilliCPU}, {"files", l.Files},
		{"file_size", l.FileSize}, {"disk", l.Disk}, {"output", l.Output}, {"time", int64(l.Time)},
	} {
		if f.v < 0 {
			return invalid("limits."+f.name, "is negative")
		}
	}
	if l.Memory != 0 && l.Memory < 4<<20 {
		return invalid("limits.memory", "%d bytes is too little to start anything (at least 4 MiB)", l.Memory)
	}
	return nil
}

var knownLayers = []Layer{LayerUserNS, LayerSeccomp, LayerLandlock, LayerCgroup, LayerProc, LayerNFTables, LayerIDMap, LayerOverlay}

// optionalLayers can be named in allow_missing: without the others there is no
// sandbox at all.
var optionalLayers = []Layer{LayerLandlock, LayerCgroup, LayerProc}

func checkAllowMissing(b Boundary) error {
	for _, l := range b.AllowMissing {
		if !contains(knownLayers, l) {
			return invalid("allow_missing", "%q is not a layer; known: %v", string(l), optionalLayers)
		}
		if !contains(optionalLayers, l) {
			return invalid("allow_missing", "%q can't be missing; these can: %v", string(l), optionalLayers)
		}
	}
	return nil
}

// MayLack reports whether the boundary names l as allowed to be missing.
func (b Boundary) MayLack(l Layer) bool { return contains(b.AllowMissing, l) }

func contains(list []Layer, l Layer) bool {
	for _, x := range list {
		if x == l {
			return true
		}
	}
	return false
}
