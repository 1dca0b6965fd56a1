package lint

import "strings"

// layers says how far down each package of internal/ lies. A package imports
// only from layers below its own; sub-packages count with their parent. A
// package that is not named here is a finding: where it belongs is a decision.
var layers = map[string]int{
	// Data: pure values that parse, validate, decide, explain.
	"boundary": 0, "egress": 0, "leak": 0, "merge": 0, "plaintext": 0, "risk": 0,
	// A config is made of the data above, parsed once into its types.
	"tenant": 1,
	// System: what is asked of Linux, git and the record.
	"audit": 1, "gitcmd": 1, "kernel": 1,
	// Parts.
	"agent": 2, "codehost": 2, "gateway": 2, "hostview": 2, "proxy": 2, "sandbox": 2, "store": 2, "terminal": 2,
	// Flows.
	"gate": 3, "handover": 3, "toolserver": 3, "workspace": 3,
	// What merges, and nothing else.
	"mergeauthority": 4,
	// From issue to merged: it asks the merge authority, never the other way.
	"engine": 5,
	// Doors: no rules of their own.
	"api": 6, "cli": 6, "mcp": 6, "web": 6,
}

// outside are packages of internal/ that are no part of the program. The
// program must not import them, and they import nothing of it.
var outside = map[string]bool{"lint": true, "tools": true}

// importBans are imports that only some packages may have. Tests, test/, bench/
// and the packages outside of the program are free of them.
var importBans = []ban{
	{
		what: "os/exec", only: []string{"internal/gitcmd", "internal/sandbox"},
		why: "one place starts untrusted programs and one starts git: any other would run what an agent wrote, or with what it wrote, outside of the boundary",
	},
	{
		what: "golang.org/x/sys/execabs",
		why:  "one place starts untrusted programs and one starts git, with os/exec",
	},
	{
		what: "unsafe", only: []string{"internal/kernel"}, file: "_unsafe",
		why: "memory errors in the trusted part are escapes; what can cause them stays small and in files named *_unsafe*.go",
	},
	{
		what: "C", only: nil,
		why: "the binary is static and without cgo: a C library would come into the trusted part and into every start",
	},
	{
		what: "plugin", only: nil,
		why: "code that is loaded at run time is code nobody reviewed",
	},
}

// dataPackages are layer 0, and the config that is made of it.
var dataPackages = func() []string {
	var names []string
	for name, layer := range layers {
		if layer == 0 || name == "tenant" {
			names = append(names, name)
		}
	}
	return names
}()

// dataImports are what data packages may import beside packages of the program.
// It is a list of what is allowed: so many packages reach files and sockets, of
// which net, os and syscall are only the first (net/http/httptest, io/ioutil,
// path/filepath, debug/elf), that a list of the others would never be complete.
var dataImports = map[string]bool{
	"bytes": true, "cmp": true, "errors": true, "fmt": true, "io": true, "iter": true, "maps": true, "math": true, "path": true,
	"regexp": true, "slices": true, "sort": true, "strconv": true, "strings": true, "sync": true, "time": true,
	"unicode": true, "unicode/utf8": true,
	"crypto/sha256": true, "encoding/base64": true, "encoding/hex": true, "encoding/json": true,
	"net/netip": true, "net/url": true,
	"golang.org/x/net/idna": true, "golang.org/x/net/publicsuffix": true,
	"github.com/goccy/go-yaml": true, "github.com/goccy/go-yaml/ast": true, "github.com/goccy/go-yaml/lexer": true,
	"github.com/goccy/go-yaml/parser": true, "github.com/goccy/go-yaml/token": true,
}

const dataWhy = "data packages are pure values: they open no sockets, resolve no names, read no files and do not touch the system. What does none of it either may be added to dataImports"

// dataMay reports whether a data package may import something.
func dataMay(component, imported string) bool {
	if strings.HasPrefix(imported, module) || dataImports[imported] {
		return true // of the program's own packages, the layers decide
	}
	return component == "tenant" && imported == "os" // the config is read from a file
}

// callBans are functions that only some packages may call.
var callBans = []ban{
	{what: "syscall.ForkExec", only: starters, why: startersWhy},
	{what: "syscall.StartProcess", only: starters, why: startersWhy},
	{what: "syscall.Exec", only: starters, why: startersWhy},
	{what: "golang.org/x/sys/unix.Exec", only: starters, why: startersWhy},
	{what: "os.StartProcess", only: starters, why: startersWhy},
	{what: "syscall.Syscall*", only: callers, why: callersWhy},
	{what: "syscall.RawSyscall*", only: callers, why: callersWhy},
	{what: "syscall.AllThreadsSyscall*", only: callers, why: callersWhy},
	{what: "golang.org/x/sys/unix.Syscall*", only: callers, why: callersWhy},
	{what: "golang.org/x/sys/unix.RawSyscall*", only: callers, why: callersWhy},
}

var starters = []string{"internal/gitcmd", "internal/kernel", "internal/sandbox"}

const startersWhy = "processes start in gitcmd, kernel and sandbox alone, so that no program runs outside of the boundary by oversight"

// callers are the packages that make system calls for which there is no function
// with types: kernel, the driver, and the probes that attack both.
var callers = []string{"internal/kernel", "internal/sandbox/native", "internal/sandbox/sandboxtest"}

const callersWhy = "a system call by its number can be any, fork and exec among them, and its arguments are checked by nobody: use its function, or make it in kernel"

// testBans are functions that tests must not call.
var testBans = []ban{
	{what: "time.Sleep", why: "a sleep is too short on a busy machine and too long on a quiet one: wait for the event, or inject the clock"},
	{what: "testing.Short", why: "a test that is left out proves nothing"},
}

// skips are methods that leave a test out.
var skips = map[string]bool{"Skip": true, "Skipf": true, "SkipNow": true}

const skipWhy = "a skipped test is green without testing: make the test set up what it needs, or fail and say what is missing (where this is the method of something else, take another name for it)"

// places are the folders of the repository that hold Go files.
var places = map[string]bool{"bench": true, "cmd": true, "examples": true, "internal": true, "test": true}

// emptyNames are package names that say nothing about what is in them.
var emptyNames = map[string]bool{
	"base": true, "common": true, "helper": true, "helpers": true, "misc": true,
	"shared": true, "types": true, "util": true, "utils": true,
}

// maxLines is the length of a file beyond which it must say why it is so long,
// in a comment `//lint:long REASON`, or be generated.
const maxLines = 600
