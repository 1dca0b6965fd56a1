package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRepository is the rule: the tree has no findings.
func TestRepository(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("not the root of the repository: %v", err)
	}
	findings, err := Check(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

// TestRules holds a broken and a kept form of each rule side by side.
func TestRules(t *testing.T) {
	const doc = "// Package x is documented.\n"
	src := func(pkg, body string) string { return doc + "package " + pkg + "\n" + body }
	for _, c := range []struct {
		name, file, source string
		want               string // part of the one finding; "" for none
	}{
		{"import down", "internal/proxy/x.go", src("proxy", `import _ "confine/internal/egress"`), ""},
		{"import up", "internal/egress/x.go", src("egress", `import _ "confine/internal/proxy"`), "imports go down"},
		{"import sideways", "internal/proxy/x.go", src("proxy", `import _ "confine/internal/sandbox"`), "both are of layer 2"},
		{"import own sub-package", "internal/sandbox/x.go", src("sandbox", `import _ "confine/internal/sandbox/native"`), ""},
		{"sub-package imports sideways", "internal/sandbox/native/x.go", src("native", `import _ "confine/internal/proxy"`), "both are of layer 2"},
		{"a test may import sideways", "internal/proxy/x_test.go", src("proxy", `import _ "confine/internal/sandbox"`), ""},
		{"unknown package", "internal/surprise/x.go", src("surprise", ""), "in no layer"},
		{"program imports the lint", "internal/cli/x.go", src("cli", `import _ "confine/internal/lint"`), "no part of the program"},
		{"program imports its tests", "internal/cli/x.go", src("cli", `import _ "confine/test/boundary"`), "no part of the program"},
		{"lint imports the program", "internal/lint/x.go", src("lint", `import _ "confine/internal/egress"`), "must not import"},
		{"cmd wires everything", "cmd/confine/main.go", src("main", `import _ "confine/internal/cli"`), ""},
		{"package at the root", "x.go", src("confine", `import _ "os/exec"`), "no place for Go"},
		{"package in a folder of its own", "tool/deep/x.go", src("deep", `import _ "os/exec"`), "no place for Go"},
		{"vendored package", "vendor/example.org/x/x.go", src("x", ""), "no place for Go"},
		{"test in a folder of its own", "tool/x_test.go", src("tool", ""), "no place for Go"},
		{"file of internal itself", "internal/x.go", src("internal", ""), "in no layer"},
		{"bench", "bench/x.go", src("bench", `import _ "os/exec"`), ""},
		{"examples", "examples/x/x.go", src("x", `import _ "os/exec"`), ""},
		{"program imports what is not read", "internal/cli/x.go", src("cli", `import _ "confine/internal/cli/testdata/x"`), "does not read"},
		{"program imports a hidden package", "internal/cli/x.go", src("cli", `import _ "confine/internal/cli/node_modules/x"`), "does not read"},

		{"exec in a flow", "internal/handover/x.go", src("handover", `import _ "os/exec"`), "one place starts"},
		{"exec in gitcmd", "internal/gitcmd/x.go", src("gitcmd", `import _ "os/exec"`), ""},
		{"exec in a test", "internal/handover/x_test.go", src("handover", `import _ "os/exec"`), ""},
		{"exec by another name", "internal/handover/x.go", src("handover", `import run "os/exec"; var _ = run.Command`), "one place starts"},
		{"fork in a flow", "internal/handover/x.go", src("handover", `import "syscall"; var _ = syscall.ForkExec`), "processes start in"},
		{"fork by another name", "internal/handover/x.go", src("handover", `import s "os"; var _ = s.StartProcess`), "processes start in"},
		{"exec call in a door", "internal/cli/x.go", src("cli", `import "golang.org/x/sys/unix"; var _ = unix.Exec`), "processes start in"},
		{"fork in kernel", "internal/kernel/x.go", src("kernel", `import "syscall"; var _ = syscall.ForkExec`), ""},
		{"exec by its other name", "internal/cli/x.go", src("cli", `import _ "golang.org/x/sys/execabs"`), "one place starts"},
		{"system call by number in a flow", "internal/workspace/x.go", src("workspace", `import "syscall"; func a() { syscall.RawSyscall(57, 0, 0, 0) }`), "by its number"},
		{"system call of six arguments", "internal/engine/x.go", src("engine", `import "golang.org/x/sys/unix"; func a() { unix.Syscall6(56, 0, 0, 0, 0, 0, 0) }`), "by its number"},
		{"system call as a value", "internal/store/x.go", src("store", `import u "golang.org/x/sys/unix"; var call = u.RawSyscallNoError`), "by its number"},
		{"system call in all threads", "internal/cli/x.go", src("cli", `import "syscall"; var _ = syscall.AllThreadsSyscall6`), "by its number"},
		{"system call in a part of the sandbox that needs none", "internal/sandbox/x.go", src("sandbox", `import "syscall"; var _ = syscall.Syscall`), "by its number"},
		{"system call in kernel", "internal/kernel/landlock/x.go", src("landlock", `import "golang.org/x/sys/unix"; var _ = unix.Syscall`), ""},
		{"system call in the driver", "internal/sandbox/native/x.go", src("native", `import "golang.org/x/sys/unix"; var _ = unix.Syscall`), ""},
		{"system call in a probe", "internal/sandbox/sandboxtest/x.go", src("sandboxtest", `import "golang.org/x/sys/unix"; var _ = unix.RawSyscall6`), ""},
		{"system call in a test", "internal/workspace/x_test.go", src("workspace", `import "golang.org/x/sys/unix"; var _ = unix.Syscall`), ""},
		{"system call by name in a flow", "internal/workspace/x.go", src("workspace", `import "golang.org/x/sys/unix"; var _ = unix.Openat2`), ""},
		{"dot import", "internal/cli/x.go", src("cli", `import . "os"`), "dot import"},

		{"unsafe outside of kernel", "internal/sandbox/x_unsafe.go", src("sandbox", `import _ "unsafe"`), "memory errors"},
		{"unsafe in an unmarked file", "internal/kernel/x.go", src("kernel", `import _ "unsafe"`), "memory errors"},
		{"unsafe where it belongs", "internal/kernel/x_linux_unsafe.go", src("kernel", `import _ "unsafe"`), ""},
		{"assembly outside of kernel", "internal/sandbox/x_amd64.s", "TEXT ·a(SB),4,$0-0\n", "assembly"},
		{"assembly in kernel", "internal/kernel/x_amd64.s", "TEXT ·a(SB),4,$0-0\n", ""},
		{"object that would be linked in", "internal/kernel/x.syso", "", "nobody can review"},
		{"linkname outside of kernel", "internal/sandbox/x.go", src("sandbox", "//go:linkname a b\nfunc a()"), "go:linkname"},
		{"cgo", "internal/kernel/x.go", src("kernel", `import "C"`), "without cgo"},
		{"socket in a data package", "internal/egress/x.go", src("egress", `import _ "net"`), "open no sockets"},
		{"address in a data package", "internal/egress/x.go", src("egress", `import _ "net/netip"`), ""},
		{"file in a data package", "internal/merge/x.go", src("merge", `import _ "os"`), "pure values"},
		{"file in the config", "internal/tenant/x.go", src("tenant", `import _ "os"`), ""},
		{"socket by a package below net/http", "internal/egress/x.go", src("egress", `import _ "net/http/httptest"`), "open no sockets"},
		{"socket by a package below net", "internal/egress/x.go", src("egress", `import _ "net/rpc"`), "open no sockets"},
		{"process by a package below os", "internal/tenant/x.go", src("tenant", `import _ "os/signal"`), "pure values"},
		{"file by io/ioutil", "internal/merge/x.go", src("merge", `import _ "io/ioutil"`), "pure values"},
		{"file by path/filepath", "internal/merge/x.go", src("merge", `import _ "path/filepath"`), "pure values"},
		{"socket by another module", "internal/egress/x.go", src("egress", `import _ "golang.org/x/net/proxy"`), "open no sockets"},
		{"system in a data package", "internal/boundary/x.go", src("boundary", `import _ "golang.org/x/sys/unix"`), "pure values"},
		{"values in a data package", "internal/egress/x.go", src("egress", `import _ "golang.org/x/net/idna"; import _ "strings"`), ""},
		{"a data package of a data package", "internal/tenant/x.go", src("tenant", `import _ "confine/internal/egress"`), ""},
		{"a package that a module has below it", "internal/tenant/x.go", src("tenant", `import _ "github.com/goccy/go-yaml/ast"`), ""},
		{"socket in a part", "internal/proxy/x.go", src("proxy", `import _ "net/http/httputil"`), ""},
		{"socket in a test of a data package", "internal/egress/x_test.go", src("egress", `import _ "net/http/httptest"`), ""},

		{"skip", "internal/egress/x_test.go", src("egress", `import "testing"; func TestX(t *testing.T) { t.Skip("no") }`), "green without testing"},
		{"skip in test/", "test/boundary/x.go", src("boundary", `import "testing"; func X(tb testing.TB) { tb.SkipNow() }`), "green without testing"},
		{"skip in a conformance suite", "internal/sandbox/sandboxtest/x.go", src("sandboxtest", `import "testing"; func X(t *testing.T) { t.Skip() }`), "green without testing"},
		{"skip through a field", "internal/egress/x_test.go", src("egress", `import "testing"; type s struct{ t *testing.T }; func (x s) a() { x.t.Skipf("") }`), "green without testing"},
		{"skip through another name", "internal/egress/x_test.go", src("egress", `import "testing"; func TestX(tt *testing.T) { tt.Skip("no") }`), "green without testing"},
		{"skip of a benchmark", "bench/x_test.go", src("bench", `import "testing"; func BenchmarkX(bench *testing.B) { bench.SkipNow() }`), "green without testing"},
		{"skip with a format", "internal/egress/x_test.go", src("egress", `import "testing"; func FuzzX(fuzz *testing.F) { fuzz.Skipf("%d", 1) }`), "green without testing"},
		{"skip through a type that embeds", "internal/egress/x_test.go", src("egress", `import "testing"; type suite struct{ *testing.T }; func (x suite) a() { x.Skip() }`), "green without testing"},
		{"skip as a value", "internal/egress/x_test.go", src("egress", `import "testing"; func a(tt *testing.T) func() { return tt.SkipNow }`), "green without testing"},
		{"skip as a method expression", "internal/egress/x_test.go", src("egress", `import "testing"; var a = (*testing.T).SkipNow`), "green without testing"},
		{"a package's Skip", "internal/egress/x_test.go", src("egress", `import "example.org/parse"; func a() { parse.Skip() }`), ""},
		{"Skip in the program", "internal/proxy/x.go", src("proxy", `func a(r reader) { r.Skip() }`), ""},
		{"short mode", "internal/egress/x_test.go", src("egress", `import "testing"; var _ = testing.Short`), "left out"},
		{"sleep in a test", "internal/egress/x_test.go", src("egress", `import "time"; func a() { time.Sleep(1) }`), "wait for the event"},
		{"sleep in the program", "internal/proxy/x.go", src("proxy", `import "time"; func a() { time.Sleep(1) }`), ""},

		{"name that says nothing", "internal/cli/util/x.go", src("util", ""), "says nothing"},
		{"no package comment", "internal/cli/x.go", "package cli\n", "without a package comment"},
		{"unfinished", "internal/cli/x.go", src("cli", "// TODO: later"), "not committed"},
		{"long", "internal/cli/x.go", src("cli", strings.Repeat("\n", 601)), "split it"},
		{"long with a reason", "internal/cli/x.go", src("cli", "\n//lint:long one table\n"+strings.Repeat("\n", 601)), ""},
		{"long and generated", "internal/cli/x.go", "// Code generated by x. DO NOT EDIT.\n\n" + src("cli", strings.Repeat("\n", 601)), ""},
		{"not read: testdata", "internal/cli/testdata/x.go", "package util\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings, err := Check(fstest.MapFS{c.file: {Data: []byte(c.source)}})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if len(findings) > 0 {
					t.Errorf("findings: %v", findings)
				}
				return
			}
			if len(findings) != 1 || !strings.Contains(findings[0].Text, c.want) {
				t.Errorf("findings %v, want one with %q", findings, c.want)
			}
		})
	}
}

func TestUnreadableFileIsAnError(t *testing.T) {
	if _, err := Check(fstest.MapFS{"internal/cli/x.go": {Data: []byte("not Go")}}); err == nil {
		t.Error("a file that does not parse passed")
	}
}
