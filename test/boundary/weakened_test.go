//go:build linux

package boundary

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"confine/internal/kernel/landlock"
	"confine/internal/kernel/seccomp"
)

// This file proves the proofs. A program is built in which each layer of the
// boundary can be left out by an environment variable, and `confine verify` must
// see each one missing. What is built is a copy: the go command is given other
// text for a few files (build -overlay), so the shipped program has no such switch.

// weakening is a change to the sources that leaves one layer out when it is named.
type weakening struct {
	name string
	// probes are those that must not hold.
	probes []string
	edits  []edit
}

// edit replaces a text that must be in the file exactly once. A change of the
// source that this does not know is an error: the proof has to follow.
type edit struct{ file, old, new string }

const (
	nativeDir  = "internal/sandbox/native/"
	seccompDir = "internal/kernel/seccomp/"
)

var weakenings = []weakening{
	{"landlock", []string{"read-only-fifo"}, []edit{{nativeDir + "harden.go", "if !pl.landlock {", `if !pl.landlock || weakened("landlock") {`}}},
	{"scopes", []string{"signal-init"}, []edit{{"internal/kernel/landlock/landlock.go", "if a < 6 {\n\t\treturn 0", "if a < 6 || weakened(\"scopes\") {\n\t\treturn 0"}}},
	{"hidepid", []string{"parent-proc", "pid1-cmdline"}, []edit{
		{nativeDir + "view.go", `pl.p.Str("hidepid=ptraceable")`, `pl.p.Str(map[bool]string{true: "hidepid=off", false: "hidepid=ptraceable"}[weakened("hidepid")])`}}},
	{"dumpable", []string{"init-hidden"}, []edit{
		{nativeDir + "inner.go", `in.Call("hide init", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_DUMPABLE), kernel.Int(0))`,
			`in.Call("hide init", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_DUMPABLE), kernel.Int(1-unless("dumpable", 1)))`},
		{nativeDir + "plan.go", `b.Call("hide process", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_DUMPABLE), kernel.Int(0))`,
			`b.Call("hide process", unix.SYS_PRCTL, kernel.Int(unix.PR_SET_DUMPABLE), kernel.Int(1-unless("dumpable", 1)))`}}},
	{"capabilities", []string{"init-hidden"}, []edit{
		{nativeDir + "plan.go", "func (pl *plan) clearCapabilities(b *kernel.Block) {", "func (pl *plan) clearCapabilities(b *kernel.Block) {\n\tif weakened(\"capabilities\") { return }"}}},
	{"bounding", []string{"posture"}, []edit{
		{nativeDir + "plan.go", `b.Repeat("drop bounding capability", 1, capabilities(),`, `b.Repeat("drop bounding capability", 1, capabilities()*int(unless("bounding", 1)),`}}},
	{"nosuid", []string{"mount-flags"}, []edit{{nativeDir + "view.go", "const (\n\tattrBase  = unix.MOUNT_ATTR_NOSUID\n\tattrNoDev = unix.MOUNT_ATTR_NODEV\n)",
		"var attrBase, attrNoDev = unless(\"nosuid\", unix.MOUNT_ATTR_NOSUID), unless(\"nodev\", unix.MOUNT_ATTR_NODEV)"}}},
	{"nodev", []string{"mount-flags"}, nil},
	{"noexec", []string{"mount-flags"}, []edit{{nativeDir + "view.go", "if m.NoExec {\n\t\tattr |= unix.MOUNT_ATTR_NOEXEC\n\t}\n\treturn attr",
		"if m.NoExec && !weakened(\"noexec\") {\n\t\tattr |= unix.MOUNT_ATTR_NOEXEC\n\t}\n\treturn attr"}}},
	{"read-only", []string{"mount-flags", "read-only", "read-only-file"}, []edit{{nativeDir + "view.go", "if !m.Writable {", `if !m.Writable && !weakened("read-only") {`}}},
	{"read-only-root", []string{"mount-flags"}, []edit{{nativeDir + "view.go", "pl.mountAttr(unix.MOUNT_ATTR_RDONLY|attrBase|attrNoDev)", `pl.mountAttr(unless("read-only-root", unix.MOUNT_ATTR_RDONLY)|attrBase|attrNoDev)`}}},
	{"read-only-dev", []string{"mount-flags"}, []edit{{nativeDir + "dev.go", "pl.mountAttr(unix.MOUNT_ATTR_RDONLY)", `pl.mountAttr(unless("read-only-dev", unix.MOUNT_ATTR_RDONLY))`}}},
	{"read-only-mask", []string{"mount-flags"}, []edit{{nativeDir + "view.go", "pl.mountAttr(attrBase|attrNoDev|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY)",
		`pl.mountAttr(attrBase|attrNoDev|unix.MOUNT_ATTR_NOEXEC|unless("read-only-mask", unix.MOUNT_ATTR_RDONLY))`}}},
	{"masks", []string{"dotenv-masked", "masked-file", "masked-file-staged", "masked-directory", "masked-directory-staged"}, []edit{{nativeDir + "view.go", "case boundary.Mask:\n", "case boundary.Mask:\n\t\tif weakened(\"masks\") { break }\n"}}},
	{"seccomp", []string{"system-calls", "foreign-calls", "namespaces", "socket-families", "terminal-input", "socket-matrix", "foreign-sockets", "call-numbers", "tighten"}, []edit{
		{nativeDir + "harden.go", "func (pl *plan) filterCalls(c *kernel.Block) {", "func (pl *plan) filterCalls(c *kernel.Block) {\n\tif weakened(\"seccomp\") { return }"}}},
	{"foreign", []string{"foreign-calls", "foreign-sockets"}, []edit{{seccompDir + "compile.go", "if a.foreign != 0 {", `if a.foreign != 0 && !weakened("foreign") {`}}},
	{"terminal", []string{"terminal-input", "system-calls"}, []edit{
		{seccompDir + "policy.go", "{When: []Test{is(1, 0, unix.TIOCSTI)}, Then: Refuse}", `{When: []Test{is(1, 0, unix.TIOCSTI)}, Then: refuseUnless("terminal")}`}}},
	{"clone", []string{"namespaces", "system-calls"}, []edit{
		{seccompDir + "policy.go", "{When: []Test{any(0, newNamespaces)}, Then: Refuse}", `{When: []Test{any(0, newNamespaces)}, Then: refuseUnless("clone")}`}}},
	{"init", []string{"init-limits"}, []edit{
		{seccompDir + "policy.go", "{When: []Test{is(pid, 0, initPID)}, Then: Refuse}", `{When: []Test{is(pid, 0, initPID)}, Then: refuseUnless("init")}`}}},
	{"set-id", []string{"set-id", "set-id-forms", "set-id-forms-staged"}, []edit{
		{seccompDir + "policy.go", "{When: []Test{any(arg, setID)}, Then: Refuse}}, Else: Allow}\n\t}\n\t// The mode", "{When: []Test{any(arg, setID)}, Then: refuseUnless(\"set-id\")}}, Else: Allow}\n\t}\n\t// The mode"}}},
	// One call let through, of each kind of answer.
	{"call:vhangup", []string{"system-calls", "call-numbers"}, nil},
	{"call:openat2", []string{"system-calls", "call-numbers"}, nil},
	{"call:mount", []string{"system-calls", "call-numbers"}, nil},
	{"call:socket", []string{"system-calls", "socket-matrix"}, nil},
	{"call:socketpair", []string{"system-calls", "socket-matrix"}, nil},
	{"call:openat", []string{"set-id-forms", "set-id-forms-staged"}, nil},
	{"call:mknodat", []string{"set-id-forms"}, nil},
	{"call:personality", []string{"system-calls"}, nil},
	{"call:setsockopt", []string{"system-calls"}, nil},
	// All of them, each with its own words in the answer.
	{"calls", []string{"system-calls"}, []edit{{seccompDir + "policy.go",
		"return Policy{Allowed: strings.Fields(allowed), Refused: strings.Fields(refused), Rules: rules()}",
		"return weaken(Policy{Allowed: strings.Fields(allowed), Refused: strings.Fields(refused), Rules: rules()})"}}},
}

// weakSwitch is added to each package that is edited.
const weakSwitch = `package %s

import "os"

func weakened(name string) bool { return os.Getenv("CONFINE_TEST_WEAKENED") == name }

// unless is v, or 0 if name is left out.
func unless(name string, v uint64) uint64 {
	if weakened(name) {
		return 0
	}
	return v
}
`

const weakPolicy = `
func refuseUnless(name string) Action {
	if weakened(name) {
		return Allow
	}
	return Refuse
}

func weaken(p Policy) Policy {
	if name, one := strings.CutPrefix(os.Getenv("CONFINE_TEST_WEAKENED"), "call:"); one {
		delete(p.Rules, name)
		p.Refused = without(p.Refused, name)
		p.Allowed = append(without(p.Allowed, name), name)
	}
	if !weakened("calls") {
		return p
	}
	for _, name := range Names() {
		if _, ok := p.Rules[name]; !ok && !contains(p.Allowed, name) {
			p.Allowed = append(p.Allowed, name)
		}
	}
	for name := range p.Rules {
		p.Rules[name] = Rule{Else: Allow}
	}
	p.Refused = nil
	return p
}

func without(list []string, name string) (out []string) {
	for _, x := range list {
		if x != name {
			out = append(out, x)
		}
	}
	return out
}

func contains(list []string, name string) bool {
	for _, x := range list {
		if x == name {
			return true
		}
	}
	return false
}
`

// weakenedProgram builds the program with all edits. A path in the environment
// keeps it there, for a user who has neither the sources nor a compiler's cache.
func weakenedProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := os.Getenv("CONFINE_TEST_WEAKENED_BINARY")
	if program == "" {
		program = filepath.Join(dir, "weakened")
	} else if _, err := os.Stat(program); err == nil && os.Geteuid() != 0 {
		return program
	}
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(here)))
	texts := map[string]string{}
	for _, w := range weakenings {
		for _, e := range w.edits {
			text, ok := texts[e.file]
			if !ok {
				b, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					t.Fatal(err)
				}
				text = string(b)
			}
			if n := strings.Count(text, e.old); n != 1 {
				t.Fatalf("%s: %d times in %s: %s", w.name, n, e.file, e.old)
			}
			texts[e.file] = strings.Replace(text, e.old, e.new, 1)
			pkg := filepath.Base(filepath.Dir(e.file))
			added := fmt.Sprintf(weakSwitch, pkg)
			if pkg == "seccomp" {
				added = strings.Replace(added, "import \"os\"", "import (\n\t\"os\"\n\t\"strings\"\n)", 1) + weakPolicy
			}
			texts[filepath.Join(filepath.Dir(e.file), "weakened_linux.go")] = added
		}
	}
	replace := map[string]string{}
	for file, text := range texts {
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = copied
	}
	overlay := filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", program, "confine/cmd/confine")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

func TestVerifySeesEachLayerThatIsLeftOut(t *testing.T) {
	t.Parallel() // mostly waiting
	program := weakenedProgram(t)
	run := func(t *testing.T, name string, only []string) map[string]probeResult {
		t.Helper()
		args := []string{"verify", "--json"}
		for _, p := range only {
			args = append(args, "--probe", p)
		}
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "CONFINE_TEST_WEAKENED="+name)
		out, err := cmd.Output()
		if held := err == nil; held != (name == "nothing") {
			t.Errorf("verify: %v", err)
		}
		return readProbes(t, out)
	}
	all := map[string]bool{}
	for _, w := range weakenings {
		for _, p := range w.probes {
			all[p] = true
		}
	}
	for _, p := range run(t, "nothing", slices.Sorted(maps.Keys(all))) {
		if !p.Held {
			t.Errorf("control: %+v", p)
		}
	}
	for _, w := range weakenings {
		if w.name == "foreign" && runtime.GOARCH != "amd64" || w.name == "scopes" && landlock.Probe().Scopes() == 0 {
			continue // nothing to leave out here
		}
		t.Run(w.name, func(t *testing.T) {
			probes := run(t, w.name, w.probes)
			for _, name := range w.probes {
				p, ok := probes[name]
				if !ok || p.Held || strings.Contains(p.Observed, "could not run") || strings.Contains(p.Observed, "proves nothing") {
					t.Errorf("%s is not seen by %s: %+v", w.name, name, p)
				}
			}
			if w.name == "calls" {
				eachCallIsSeen(t, probes["system-calls"].Observed)
			}
		})
	}
}

// eachCallIsSeen: an allowed call among all others is named, so that one alone
// would be.
func eachCallIsSeen(t *testing.T, observed string) {
	policy := seccomp.Default()
	n := 0
	for _, name := range seccomp.Names() {
		if slices.Contains(policy.Allowed, name) {
			continue
		}
		n++
		if !strings.Contains(", "+observed, ", "+name+": reaches the kernel") && !strings.Contains(", "+observed, ", "+name+"(") {
			t.Errorf("%s is not seen", name)
		}
	}
	if n < 90 {
		t.Errorf("only %d calls", n)
	}
}

// TestShippedProgramHasNoSwitch: the name by which a layer is left out is in the
// weakened program and not in the other.
func TestShippedProgramHasNoSwitch(t *testing.T) {
	for name, want := range map[string]bool{weakenedProgram(t): true, program(t): false} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(data, []byte("CONFINE_TEST_WEAKENED")); has != want {
			t.Errorf("%s: the switch is in it: %v, want %v", name, has, want)
		}
	}
}
