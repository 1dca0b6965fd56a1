package lint

// layers says how far down each package of internal/ lies. A package imports
// only from layers below its own; sub-packages count with their parent. A
// package that is not named here is a finding: where it belongs is a decision.
var layers = map[string]int{
	// Data: pure values that parse, validate, decide, explain.
	"boundary": 0, "egress": 0, "merge": 0, "plaintext": 0, "risk": 0,
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
	{
		what: "os", in: dataPackages, only: []string{"internal/tenant"},
		why: "data packages are pure values; only the tenant config is read from a file",
	},
	{what: "net", in: dataPackages, why: "data packages open no sockets and resolve no names (net/netip has the addresses)"},
	{what: "net/http", in: dataPackages, why: "data packages open no sockets"},
	{what: "syscall", in: dataPackages, why: "data packages do not touch the system"},
	{what: "golang.org/x/sys/unix", in: dataPackages, why: "data packages do not touch the system"},
}

// dataPackages are layer 0, and the config that is made of it.
var dataPackages = func() []string {
	var names []string
	for name, layer := range layers {
		if layer == 0 || name == "tenant" {
			names = append(names, "internal/"+name)
		}
	}
	return names
}()

// callBans are functions that only some packages may call.
var callBans = []ban{
	{what: "syscall.ForkExec", only: starters, why: startersWhy},
	{what: "syscall.StartProcess", only: starters, why: startersWhy},
	{what: "syscall.Exec", only: starters, why: startersWhy},
	{what: "golang.org/x/sys/unix.Exec", only: starters, why: startersWhy},
	{what: "os.StartProcess", only: starters, why: startersWhy},
}

var starters = []string{"internal/gitcmd", "internal/kernel", "internal/sandbox"}

const startersWhy = "processes start in gitcmd, kernel and sandbox alone, so that no program runs outside of the boundary by oversight"

// testBans are functions that tests must not call.
var testBans = []ban{
	{what: "time.Sleep", why: "a sleep is too short on a busy machine and too long on a quiet one: wait for the event, or inject the clock"},
	{what: "testing.Short", why: "a test that is left out proves nothing"},
}

// skips are methods that leave a test out.
var skips = map[string]bool{"Skip": true, "Skipf": true, "SkipNow": true}

const skipWhy = "a skipped test is green without testing: make the test set up what it needs, or fail and say what is missing"

// emptyNames are package names that say nothing about what is in them.
var emptyNames = map[string]bool{
	"base": true, "common": true, "helper": true, "helpers": true, "misc": true,
	"shared": true, "types": true, "util": true, "utils": true,
}

// maxLines is the length of a file beyond which it must say why it is so long,
// in a comment `//lint:long REASON`, or be generated.
const maxLines = 600
