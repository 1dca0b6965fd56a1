package hostview

import (
	"path"
	"strings"
)

// goModules shows the modules that the caller's go command has fetched already:
// most repositories build with nothing else, and there may be no network to
// fetch them again. Their content is checked against go.sum, wherever it is from.
//
// Without a network the cache is used as it is; what it lacks could not be
// fetched anyway. With one, it is what is asked first, and the run's own cache
// takes what is missing.
func (f *finder) goModules(dirs []string) {
	cache := f.o.GoModCache
	if cache == "" {
		gopath, _, _ := strings.Cut(f.o.GoPath, ":")
		if gopath == "" && f.o.Home != "" {
			gopath = path.Join(f.o.Home, "go")
		}
		cache = path.Join(gopath, "pkg/mod")
	}
	// Not for a tenant: it has no home, and what the host's user fetched may be
	// another's.
	if f.o.Home == "" || !path.IsAbs(cache) || !f.hasProgram(dirs, "go") {
		return
	}
	cache = path.Clean(cache)
	source, err := f.host.resolve(cache)
	// Where it is may be the caller's word, so it must look like one.
	if err != nil || !f.host.isDir(path.Join(source, "cache/download")) {
		return
	}
	if f.o.Network {
		if f.add(path.Join(cache, "cache/download"), "Go's module cache") {
			f.env["GOPROXY"] = "file://" + path.Join(cache, "cache/download") + ",https://proxy.golang.org,direct"
		}
		return
	}
	if f.add(cache, "Go's module cache") {
		f.env["GOMODCACHE"] = cache
	}
}

// hasProgram reports whether one of the directories of PATH has the program.
func (f *finder) hasProgram(dirs []string, name string) bool {
	for _, dir := range dirs {
		if real, err := f.host.resolve(path.Join(dir, name)); err == nil && f.host.exists(real) {
			return true
		}
	}
	return false
}
