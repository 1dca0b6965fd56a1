package tenant

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/goccy/go-yaml/ast"
)

// Secret says where a secret is kept. The secret itself is never in a config,
// and never in a Secret: the engine fetches it at the moment of use. What a
// Secret prints leaves out all that might be one by mistake.
type Secret struct {
	// source is env, file, command or systemd.
	source string
	// name is the variable, path or credential name; argv the command.
	name string
	argv []string
}

// Source is "env", "file", "command", "systemd", or "" for no secret.
func (s Secret) Source() string { return s.source }

// Name is the variable, the file or the systemd credential.
func (s Secret) Name() string { return s.name }

// Command is the program with its arguments whose output is the secret.
func (s Secret) Command() []string { return append([]string(nil), s.argv...) }

// IsZero reports whether there is none.
func (s Secret) IsZero() bool { return s.source == "" }

// String names the place. A command is shown as its program alone: arguments
// are where people put what belongs elsewhere.
func (s Secret) String() string {
	switch s.source {
	case "":
		return "no secret"
	case "command":
		return fmt.Sprintf("secret from command %q", path.Base(s.argv[0]))
	}
	return fmt.Sprintf("secret from %s %q", s.source, s.name)
}

// GoString is String: %#v would print the fields.
func (s Secret) GoString() string { return s.String() }

// Format keeps every verb from printing the fields.
func (s Secret) Format(out fmt.State, _ rune) { fmt.Fprint(out, s.String()) }

// MarshalJSON writes what String says.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// secret is a reference to a secret. Its messages never show what was written:
// it may be the secret.
func secret() shape[Secret] {
	type fields struct {
		env, file, systemd string
		command            []string
	}
	name := func(kind, accepts string, good func(string) bool) shape[string] {
		return line(kind, accepts, func(s string) error {
			if !good(s) {
				return fmt.Errorf("is not %s (what was written is not shown)", accepts)
			}
			return nil
		})
	}
	inner := object("secret", nil,
		bind(entry{name: "env", doc: "Name of an environment variable of the engine.", example: "ANTHROPIC_API_KEY"},
			name("variable name", "the name of a variable, such as API_KEY", validEnvName), func(f *fields) *string { return &f.env }),
		bind(entry{name: "file", doc: "Absolute path of a file that holds the secret alone.", example: "/etc/confine/token"},
			name("absolute path", "an absolute path", func(s string) bool { return path.IsAbs(s) && path.Clean(s) == s }), func(f *fields) *string { return &f.file }),
		bind(entry{name: "command", doc: "Program with its arguments whose first line of output is the secret.", example: "[pass, show, api]"},
			list(text(), 64), func(f *fields) *[]string { return &f.command }),
		bind(entry{name: "systemd", doc: "Name of a systemd credential of the engine's unit.", example: "api_key"},
			name("credential name", "a name of letters, digits, '_', '-' and '.'", validName), func(f *fields) *string { return &f.systemd }),
	)
	one := "exactly one of env, file, command, systemd, such as {env: API_KEY}"
	whole := refine(inner, "secret", one, nil, func(f fields) (Secret, error) {
		var found []Secret
		for source, name := range map[string]string{"env": f.env, "file": f.file, "systemd": f.systemd} {
			if name != "" {
				found = append(found, Secret{source: source, name: name})
			}
		}
		if len(f.command) > 0 {
			found = append(found, Secret{source: "command", argv: f.command})
		}
		if len(found) != 1 {
			return Secret{}, fmt.Errorf("names %d places, wants one", len(found))
		}
		return found[0], nil
	})
	f := *whole.form
	return shape[Secret]{form: &f, read: func(p *reader, n ast.Node, at string) (Secret, bool) {
		n, ok := p.plain(n, at)
		if !ok {
			return Secret{}, false
		}
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			return whole.read(p, n, at)
		}
		p.complain(n, at, one, "a secret is not written into a config, only where it is kept (what was written is not shown)")
		return Secret{}, false
	}}
}

// validEnvName reports a portable name of an environment variable.
func validEnvName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func validName(s string) bool {
	for i, c := range []byte(s) {
		word := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !word && (i == 0 || c != '-' && c != '.') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}
