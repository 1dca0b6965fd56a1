package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
)

// firstHostID is where the tenants' ids outside begin when the engine is root:
// above what systems give to people, services and subordinate ranges. Each tenant
// has idsPerTenant of them.
const (
	firstHostID  = 0x70000000
	idsPerTenant = 0x10000
	maxTenants   = 0x0fff
)

// dirs are the engine's directories for one repository of one tenant.
type dirs struct {
	root, tenant, repository     string
	lent, layers, queue, scratch string
}

func openDirs(state string, c Config) (dirs, error) {
	sum := sha256.Sum256([]byte(c.Repository))
	d := dirs{root: state, tenant: filepath.Join(state, "tenants", string(c.Tenant))}
	d.repository = filepath.Join(d.tenant, hex.EncodeToString(sum[:8]))
	d.lent, d.layers = filepath.Join(d.repository, "lent"), filepath.Join(d.repository, "layers")
	d.queue, d.scratch = filepath.Join(d.repository, "queue"), filepath.Join(state, "scratch")
	for _, dir := range []string{d.root, d.lent, d.layers, d.queue, d.scratch} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return d, fmt.Errorf("open state directory: %w", err)
		}
	}
	return d, nil
}

// hostID is the first id outside of a tenant, the same for ever: two tenants
// never share one, and a new tenant never gets a former one's.
func hostID(state string, t boundary.TenantID) (uint32, error) {
	f, err := os.OpenFile(filepath.Join(state, "ids.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, fmt.Errorf("give tenant %q an id: %w", t, err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("give tenant %q an id: %w", t, err)
	}
	path := filepath.Join(state, "ids.json")
	var names []boundary.TenantID
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &names)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("give tenant %q an id: read %s: %w", t, path, err)
	}
	i := slices.Index(names, t)
	if i < 0 {
		if i = len(names); i >= maxTenants {
			return 0, fmt.Errorf("give tenant %q an id: %d tenants have one already", t, i)
		}
		b, _ := json.Marshal(append(names, t))
		if err := os.WriteFile(path+".new", b, 0o600); err != nil {
			return 0, fmt.Errorf("give tenant %q an id: %w", t, err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			return 0, fmt.Errorf("give tenant %q an id: %w", t, err)
		}
	}
	return firstHostID + uint32(i)*idsPerTenant, nil
}
