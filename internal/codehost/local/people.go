//go:build unix

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"

	"confine/internal/codehost"
)

// people is people.yaml. Who is not in it may do nothing.
type people map[string]codehost.Permission

func (p people) of(name string) codehost.Permission {
	if perm, ok := p[name]; ok {
		return perm
	}
	return codehost.PermissionNone
}

func (p people) account(name string) codehost.Account {
	return codehost.Account{Name: name, Permission: p.of(name)}
}

func (h *Host) people() (people, error) {
	path := h.path("people.yaml")
	data, _, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &FileError{path, errors.New("there is none, so nobody may do anything")}
	}
	if err != nil {
		return nil, err
	}
	p := people{}
	if err := decodeYAML(data, &p); err != nil {
		return nil, &FileError{path, err}
	}
	for name, perm := range p {
		if err := checkName("account", name); err != nil {
			return nil, &FileError{path, err}
		}
		if err := checkPermission(perm); err != nil {
			return nil, &FileError{path, fmt.Errorf("%.100q: %w", name, err)}
		}
	}
	return p, nil
}

func (p people) encode() []byte {
	var b bytes.Buffer
	b.WriteString("# Who may do what here: none, read, write or admin.\n")
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s: %s\n", scalar(name), p[name])
	}
	return b.Bytes()
}

// SetPermission changes what an account may do.
func (h *Host) SetPermission(ctx context.Context, a codehost.Account) error {
	release, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	p, err := h.people()
	if err != nil {
		return err
	}
	if err := checkName("account", a.Name); err != nil {
		return err
	}
	if err := checkPermission(a.Permission); err != nil {
		return err
	}
	p[a.Name] = a.Permission
	return save(h.path("people.yaml"), p.encode(), 0o600, h.now())
}

func checkPermission(p codehost.Permission) error {
	switch p {
	case codehost.PermissionNone, codehost.PermissionRead, codehost.PermissionWrite, codehost.PermissionAdmin:
		return nil
	}
	return &codehost.InvalidError{Field: "permission", Why: fmt.Sprintf("%.40q is none of none, read, write, admin", string(p))}
}

// checkName refuses a name that is not one line of at most 100 bytes that shows
// as what it is.
func checkName(field, name string) error {
	if name == "" || len(name) > 100 || !utf8.ValidString(name) {
		return &codehost.InvalidError{Field: field, Why: "want 1-100 bytes of UTF-8"}
	}
	for _, r := range name {
		if !unicode.IsGraphic(r) {
			return &codehost.InvalidError{Field: field, Why: fmt.Sprintf("%.100q holds the invisible character %q", name, r)}
		}
	}
	return nil
}
