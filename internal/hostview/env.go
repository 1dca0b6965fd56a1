package hostview

import (
	"fmt"
	"slices"
	"strings"
)

// EnvOptions say what the environment is made of.
type EnvOptions struct {
	UID uint32
	// Path is the PATH inside; empty means DefaultPath.
	Path string
	// Term is the terminal's name; empty means "dumb".
	Term string
	// Lang is the locale; empty means C.UTF-8.
	Lang string
	// Extra are further variables, NAME=VALUE, that win over the others.
	Extra []string
}

// DefaultPath is where a host's own programs are.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Env is the whole environment of a run, sorted by name. Caches need no variable:
// the home is private and writable. Nor does the network: capture reaches every
// program, and a proxy variable would reach only some.
func Env(o EnvOptions) ([]string, error) {
	user := "agent"
	if o.UID == 0 {
		user = "root"
	}
	vars := map[string]string{
		"PATH":    or(o.Path, DefaultPath),
		"HOME":    HomeDir(o.UID),
		"USER":    user,
		"LOGNAME": user,
		"SHELL":   "/bin/sh",
		"TERM":    or(o.Term, "dumb"),
		"LANG":    or(o.Lang, "C.UTF-8"),
	}
	for _, e := range o.Extra {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.ContainsRune(e, 0) {
			return nil, fmt.Errorf("set environment: %.60q is not NAME=VALUE", e)
		}
		vars[name] = value
	}
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, nil
}

func or(text, def string) string {
	if text == "" {
		return def
	}
	return text
}
