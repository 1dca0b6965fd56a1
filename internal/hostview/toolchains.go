package hostview

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"confine/internal/boundary"
)

// ToolchainOptions say whose programs are looked for.
type ToolchainOptions struct {
	// Path is the caller's PATH.
	Path string
	// Home is the caller's home. Nothing below any home is shown when it is
	// empty, as it must be for a tenant.
	Home string
	// Workspace is the host directory that the run sees as Inside. Directories
	// of PATH below it keep their place in it.
	Workspace, Inside string
	// RunHome is the home inside, where a small file that names versions goes.
	RunHome string
	// GoModCache and GoPath are the caller's GOMODCACHE and GOPATH.
	GoModCache, GoPath string
	// Network says that what is missing can be fetched.
	Network bool

	root string // another host, for tests
}

// Toolchains are the programs that a PATH names, beyond the host's system.
type Toolchains struct {
	Part
	// Path is the PATH inside: what the run can see of the caller's.
	Path string
	// Env are variables that tell toolchains where they are, NAME=VALUE.
	Env []string
	// Lent are the host directories shown, for the report.
	Lent []Lent
	// Skipped are directories of PATH, and programs in them, that stay outside.
	Skipped []Skipped
}

// Lent is a host directory that a run may read.
type Lent struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	// Masked are files in it that are covered.
	Masked []string `json:"masked,omitempty"`
}

// FindToolchains looks at every directory of PATH. The whole of a toolchain
// comes in read-only at its own path, not only its programs; what is not known
// as one stays outside with a reason. It does not fail: a PATH is full of what
// is not there.
func FindToolchains(o ToolchainOptions) Toolchains {
	f := &finder{host: newHost(o.root), o: o, env: map[string]string{}}
	if o.Home != "" {
		f.homes = append(f.homes, path.Clean(o.Home))
		if real, err := f.host.resolve(o.Home); err == nil && real != f.homes[0] {
			f.homes = append(f.homes, real)
		}
	}
	var inside []string
	for _, entry := range strings.Split(o.Path, ":") {
		if dir := f.entry(entry); dir != "" && !slices.Contains(inside, dir) {
			inside = append(inside, dir)
		}
	}
	f.goModules(inside)
	f.out.Path = strings.Join(inside, ":")
	f.finish()
	return f.out
}

type finder struct {
	host  host
	o     ToolchainOptions
	homes []string
	roots []root
	env   map[string]string
	files []string
	masks []string // places in the roots that are covered
	out   Toolchains
}

// root is one directory to be shown.
type root struct{ target, source, why string }

func (f *finder) skip(p, format string, args ...any) {
	f.out.Skipped = append(f.out.Skipped, Skipped{Path: p, Why: fmt.Sprintf(format, args...)})
}

// systemDirs are shown by System already.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/nix/store", "/run/current-system"}

// entry handles one directory of PATH and returns what it is inside, "" if it
// is not there.
func (f *finder) entry(entry string) string {
	if entry == "" {
		return ""
	}
	if !path.IsAbs(entry) {
		f.skip(entry, "is relative: it would mean another directory in every place")
		return ""
	}
	dir := path.Clean(entry)
	for _, s := range systemDirs {
		if within(dir, s) {
			return dir
		}
	}
	real, err := f.host.resolve(dir)
	if err != nil || !f.host.isDir(real) {
		return ""
	}
	if f.o.Workspace != "" && within(dir, f.o.Workspace) {
		return path.Join(f.o.Inside, strings.TrimPrefix(dir, f.o.Workspace))
	}
	for _, s := range systemDirs {
		if within(real, s) {
			return real
		}
	}
	if !f.include(dir) {
		return ""
	}
	f.followLinks(dir)
	return dir
}

// include shows the toolchain that dir, or a file, belongs to.
func (f *finder) include(dir string) bool {
	if rel, home, ok := f.below(dir); ok {
		return f.includeHome(dir, home, rel)
	}
	parts := strings.Split(strings.TrimPrefix(dir, "/"), "/")
	switch {
	case parts[0] == "opt" && len(parts) > 1:
		return f.add("/"+path.Join(parts[:2]...), "named by PATH")
	case within(dir, "/home/linuxbrew/.linuxbrew"):
		return f.add("/home/linuxbrew/.linuxbrew", "named by PATH")
	}
	f.skip(dir, "is no place where toolchains are known to be")
	return false
}

// below is the place of p below the caller's home.
func (f *finder) below(p string) (rel, home string, ok bool) {
	for _, home := range f.homes {
		if p == home {
			return "", home, true
		}
		if home != "/" && within(p, home) {
			return strings.TrimPrefix(p, home+"/"), home, true
		}
	}
	return "", "", false
}

func (f *finder) includeHome(dir, home, rel string) bool {
	if rel == "" {
		f.skip(dir, "is the home itself")
		return false
	}
	for _, l := range layouts {
		matched, ok := matchPrefix(l.pattern, rel)
		if !ok {
			continue
		}
		if l.root != "" {
			matched = l.root
		}
		if !f.add(path.Join(home, matched), "toolchain of PATH") {
			return false
		}
		f.companions(home, l)
		return true
	}
	if name, at := f.bySignature(dir, home); name != "" {
		return f.add(at, name)
	}
	if slices.Contains(programDirs, path.Base(dir)) {
		return f.add(dir, "programs of PATH")
	}
	f.skip(dir, "is not known as a toolchain; --ro would show it")
	return false
}

// companions adds what else the programs of a layout need.
func (f *finder) companions(home string, l layout) {
	for _, also := range l.also {
		if p := path.Join(home, also); f.host.exists(p) {
			f.add(p, "needed by "+l.pattern)
		}
	}
	for _, e := range l.env {
		if p := path.Join(home, e[1]); f.host.exists(p) {
			f.env[e[0]] = p
		}
	}
	if l.pattern == ".local/bin" && len(f.host.match(path.Join(home, ".local/lib/python3*"))) > 0 {
		// Programs installed for the user import modules from beside them.
		f.env["PYTHONUSERBASE"] = path.Join(home, ".local")
	}
	for _, m := range l.masks {
		if p := path.Join(home, m); f.host.isDir(p) && !slices.Contains(f.masks, p) {
			f.masks = append(f.masks, p)
		}
	}
	for _, name := range l.files {
		if p := path.Join(home, name); !slices.Contains(f.files, p) {
			f.files = append(f.files, p)
		}
	}
}

// bySignature looks at dir and the two directories above it.
func (f *finder) bySignature(dir, home string) (name, at string) {
	for range 3 {
		if dir == home || !within(dir, home) {
			return "", ""
		}
		for _, s := range signatures {
			if !slices.ContainsFunc(s.has, func(p string) bool { return !f.host.exists(path.Join(dir, p)) }) {
				return s.name, dir
			}
		}
		dir = path.Dir(dir)
	}
	return "", ""
}

// matchPrefix matches a pattern against the first components of rel and returns
// those.
func matchPrefix(pattern, rel string) (string, bool) {
	want, have := strings.Split(pattern, "/"), strings.Split(rel, "/")
	if len(have) < len(want) {
		return "", false
	}
	for i := range want {
		if ok, err := path.Match(want[i], have[i]); err != nil || !ok {
			return "", false
		}
	}
	return strings.Join(have[:len(want)], "/"), true
}

// add shows one directory, unless credentials or a person's data would come
// with it.
func (f *finder) add(target, why string) bool {
	for _, r := range f.roots {
		if within(target, r.target) {
			return true
		}
	}
	source, err := f.host.resolve(target)
	if err != nil {
		return false // not there
	}
	if reason := f.forbidden(target, source); reason != "" {
		f.skip(target, "%s", reason)
		return false
	}
	f.roots = append(f.roots, root{target, source, why})
	return true
}

// hostDirs hold the host's state, devices and secrets: no toolchain is them.
var hostDirs = []string{"/etc", "/proc", "/sys", "/dev", "/run", "/var", "/boot", "/usr", "/tmp", "/root", "/home", "/opt"}

// forbidden says why a directory must stay outside, by both its names: what
// PATH calls it and where it really is.
func (f *finder) forbidden(target, source string) string {
	for _, p := range []string{target, source} {
		if p == "/" || slices.Contains(hostDirs, p) {
			return "is no toolchain but the host itself"
		}
		if w := f.o.Workspace; w != "" && (within(w, p) || within(p, w)) {
			return "would show the workspace a second time, without its masks"
		}
		for _, d := range []string{"/etc", "/proc", "/sys", "/dev", "/run", "/boot"} {
			if within(p, d) {
				return "belongs to the host"
			}
		}
		for _, home := range f.homes {
			if within(home, p) {
				return "holds the home"
			}
			for _, n := range slices.Concat(never, personal) {
				secret := path.Join(home, n)
				if within(p, secret) || (within(secret, p) && f.host.exists(secret)) {
					return "credentials or a person's own data may be in it"
				}
			}
		}
	}
	return ""
}

// maxEntries is how many entries of one directory of programs are looked at.
const maxEntries = 20000

// followLinks brings in what links in a directory of programs lead to: a program
// is often only a link to its own tree.
func (f *finder) followLinks(dir string) {
	real, err := f.host.resolve(dir)
	if err != nil {
		return
	}
	entries, err := os.ReadDir(f.host.real(real))
	if err != nil || len(entries) > maxEntries {
		f.skip(dir, "its links were not followed: it can't be read or holds too much")
		return
	}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		f.followLink(path.Join(dir, e.Name()))
	}
}

func (f *finder) followLink(p string) {
	final, err := f.host.resolve(p)
	if err != nil {
		return // leads nowhere on the host
	}
	// Every name on the way must exist inside: what the link says, then, where
	// that is a link as well, where it ends.
	next, err := f.host.readLink(p)
	if err != nil {
		return
	}
	if !path.IsAbs(next) {
		next = path.Join(path.Dir(p), next)
	}
	for _, hop := range []string{path.Clean(next), final} {
		if f.shown(hop) {
			continue
		}
		if reason := f.includeTarget(hop); reason != "" {
			f.skip(p, "leads to %s, which %s", hop, reason)
			return
		}
	}
}

// shown reports whether p is seen inside already.
func (f *finder) shown(p string) bool {
	for _, s := range systemDirs {
		if within(p, s) {
			return true
		}
	}
	for _, r := range f.roots {
		if within(p, r.target) || within(p, r.source) && r.target == r.source {
			return true
		}
	}
	return false
}

// includeTarget shows the toolchain that the end of a link lies in. A directory
// that merely looks like one for programs is not enough here: nobody named it.
func (f *finder) includeTarget(p string) string {
	rel, home, ok := f.below(p)
	if !ok {
		if within(p, "/opt") && strings.Count(p, "/") > 2 && f.include(p) {
			return ""
		}
		return "is no place where toolchains are known to be"
	}
	known := slices.ContainsFunc(layouts, func(l layout) bool { _, ok := matchPrefix(l.pattern, rel); return ok })
	if !known {
		if name, at := f.bySignature(path.Dir(p), home); name != "" && f.add(at, name) {
			return ""
		}
		return "is not known as a toolchain"
	}
	if !f.includeHome(p, home, rel) {
		return "stays outside"
	}
	return ""
}

// finish turns what was found into mounts, parents before what lies in them.
func (f *finder) finish() {
	slices.SortFunc(f.roots, func(a, b root) int { return strings.Compare(a.target, b.target) })
	var kept []root
	for _, r := range f.roots {
		if !slices.ContainsFunc(kept, func(k root) bool { return within(r.target, k.target) }) {
			kept = append(kept, r)
		}
	}
	for _, r := range kept {
		f.out.Mounts = append(f.out.Mounts, boundary.Mount{Kind: boundary.Bind, Target: r.target, Source: f.host.real(r.source)})
		masked := f.credentials(r)
		for _, p := range masked {
			f.out.Mounts = append(f.out.Mounts, boundary.Mount{Kind: boundary.Mask, Target: p})
		}
		f.out.Lent = append(f.out.Lent, Lent{Path: r.target, Why: r.why, Masked: masked})
	}
	for name, value := range f.env {
		f.out.Env = append(f.out.Env, name+"="+value)
	}
	slices.Sort(f.out.Env)
	for _, p := range f.files {
		f.copyFile(p)
	}
}

// credentials are the files of a root to be covered; sockets and FIFOs too, as a
// program of the host may listen.
func (f *finder) credentials(r root) []string {
	var found []string
	for _, m := range f.masks {
		if within(m, r.target) {
			found = append(found, m)
		}
	}
	for _, sub := range []string{"", "etc", "bin"} {
		entries, err := os.ReadDir(f.host.real(path.Join(r.source, sub)))
		if err != nil {
			continue
		}
		for _, e := range entries {
			// A link can't be covered; what it leads to is seen only if that is
			// in the view by itself.
			if e.Type()&(os.ModeSocket|os.ModeNamedPipe) != 0 || e.Type()&os.ModeSymlink == 0 && matchesAny(credentialFiles, e.Name()) {
				found = append(found, path.Join(r.target, sub, e.Name()))
			}
		}
	}
	return found
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// copyFile puts a small file of the home into the home inside.
func (f *finder) copyFile(p string) {
	if f.o.RunHome == "" {
		return
	}
	info, err := f.host.lstat(p)
	if err != nil || !info.Mode().IsRegular() || info.Size() > copyBytes {
		return
	}
	data, err := f.host.readFile(p, copyBytes)
	if err != nil {
		return
	}
	f.out.Files = append(f.out.Files, boundary.File{Path: path.Join(f.o.RunHome, path.Base(p)), Mode: 0o644, Data: data})
}

// MayHoldCredentials reports whether dir, below a person's home, is or lies in a
// place where credentials are kept. Both paths are clean and without links.
func MayHoldCredentials(home, dir string) bool {
	for _, n := range never {
		if within(dir, path.Join(home, n)) {
			return true
		}
	}
	return false
}
