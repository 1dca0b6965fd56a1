package cli

import (
	"reflect"
	"strings"
	"testing"

	"confine/internal/engine"
	"confine/internal/handover"
	"confine/internal/tenant"
)

const leastConfig = `version: 1
tenant: payments
repo: {url: local:/srv/ledger}
view: {host: true}
agent: {kind: command, command: [agent]}
gate: {test: {run: go test ./...}}
`

// engineOf reads the least config with some top-level fields replaced. The
// digest, which every field changes, is left out.
func engineOf(t *testing.T, fields string) engine.Config {
	t.Helper()
	text := fields + "\n"
	for line := range strings.Lines(leastConfig) {
		if name, _, _ := strings.Cut(line, ":"); !strings.HasPrefix("\n"+fields, "\n"+name+":") && !strings.Contains(fields, "\n"+name+":") {
			text += line
		}
	}
	c, problems := tenant.Parse("t.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatalf("%s\n%s", text, problems)
	}
	out, err := engineConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	out.Digest = ""
	return out
}

// TestEveryFieldReachesTheEngine: a field that is accepted changes what the
// engine does. One that is dropped on the way would be an option that does
// nothing, or a limit that does not hold.
func TestEveryFieldReachesTheEngine(t *testing.T) {
	ruled := "repo: {url: local:/srv/ledger, until: merge}\nmerge: {mode: engine, rule: {all: [{gates: passed}, %]}}"
	tests := map[string][2]string{
		"tenant":                         {"tenant: a", "tenant: b"},
		"repo.url":                       {"repo: {url: local:/srv/a}", "repo: {url: local:/srv/b}"},
		"repo.base":                      {"repo: {url: local:/srv/a, base: a}", "repo: {url: local:/srv/a, base: b}"},
		"repo.trigger":                   {"", "repo: {url: local:/srv/ledger, trigger: {}}"},
		"repo.trigger.label":             {"repo: {url: local:/srv/a, trigger: {label: a}}", "repo: {url: local:/srv/a, trigger: {label: b}}"},
		"repo.trigger.by":                {"repo: {url: local:/srv/a, trigger: {by: admins}}", "repo: {url: local:/srv/a, trigger: {by: [ada]}}"},
		"view.limits.memory":             {"", "view: {host: true, limits: {memory: 1GiB}}"},
		"view.limits.cpu":                {"", "view: {host: true, limits: {cpu: 1}}"},
		"view.limits.pids":               {"", "view: {host: true, limits: {pids: 100}}"},
		"view.limits.disk":               {"", "view: {host: true, limits: {disk: 1GiB}}"},
		"view.limits.files":              {"", "view: {host: true, limits: {files: 100}}"},
		"view.limits.file_size":          {"", "view: {host: true, limits: {file_size: 1GiB}}"},
		"view.limits.output":             {"", "view: {host: true, limits: {output: 1MiB}}"},
		"view.ro":                        {"", "view: {host: true, ro: [/opt/x]}"},
		"view.path":                      {"", "view: {host: true, path: [/usr/x]}"},
		"view.allow_missing":             {"", "view: {host: true, allow_missing: [cgroup]}"},
		"view.profile":                   {"", "view: {host: true, profile: browser}"},
		"egress.allow":                   {"", "egress: {allow: [a.example.com]}"},
		"egress.allow[].host":            {"", "egress: {allow: [{host: a.example.com}]}"},
		"egress.allow[].proto":           {"egress: {allow: [a.example.com]}", "egress: {allow: [{host: a.example.com, proto: tcp}]}"},
		"egress.allow[].private":         {"egress: {allow: [a.example.com]}", "egress: {allow: [{host: a.example.com, private: true}]}"},
		"egress.deny":                    {"", "egress: {deny: [a.example.com]}"},
		"egress.quiet":                   {"", "egress: {quiet: [a.example.com]}"},
		"setup.run":                      {"", "setup: {run: [x]}"},
		"setup.key":                      {"setup: {run: [x]}", "setup: {run: [x], key: [go.sum]}"},
		"setup.egress":                   {"setup: {run: [x]}", "setup: {run: [x], egress: [a.example.com]}"},
		"setup.egress[].host":            {"setup: {run: [x]}", "setup: {run: [x], egress: [{host: a.example.com}]}"},
		"setup.egress[].proto":           {"setup: {run: [x], egress: [a.example.com]}", "setup: {run: [x], egress: [{host: a.example.com, proto: tcp}]}"},
		"setup.egress[].private":         {"setup: {run: [x], egress: [a.example.com]}", "setup: {run: [x], egress: [{host: a.example.com, private: true}]}"},
		"setup.timeout":                  {"setup: {run: [x]}", "setup: {run: [x], timeout: 1m}"},
		"agent.command":                  {"", "agent: {kind: command, command: [agent, x]}"},
		"agent.instructions":             {"", "agent: {kind: command, command: [agent], instructions: none}"},
		"agent.env":                      {"", "agent: {kind: command, command: [agent], env: {A: b}}"},
		"stages.plan":                    {"", "stages: {plan: {}}"},
		"stages.plan.tools":              {"stages: {plan: {}}", "stages: {plan: {tools: [read, edit]}}"},
		"stages.plan.limits.turns":       {"stages: {plan: {}}", "stages: {plan: {limits: {turns: 1}}}"},
		"stages.plan.limits.time":        {"stages: {plan: {}}", "stages: {plan: {limits: {time: 1m}}}"},
		"stages.plan.limits.output":      {"stages: {plan: {}}", "stages: {plan: {limits: {output: 1MiB}}}"},
		"stages.implement.tools":         {"", "stages: {implement: {tools: [read]}}"},
		"stages.implement.limits.turns":  {"", "stages: {implement: {limits: {turns: 1}}}"},
		"stages.implement.limits.time":   {"", "stages: {implement: {limits: {time: 1m}}}"},
		"stages.implement.limits.output": {"", "stages: {implement: {limits: {output: 1MiB}}}"},
		"gate.NAME.run":                  {"", "gate: {test: {run: x}}"},
		"gate.NAME.timeout":              {"", "gate: {test: {run: go test ./..., timeout: 1m}}"},
		"gate.NAME.report":               {"gate: {test: {run: x}}", "gate: {test: {run: x, report: gotest}}"},
		"gate.NAME.min_tests":            {"gate: {test: {run: x, report: gotest}}", "gate: {test: {run: x, report: gotest, min_tests: 2}}"},
		"gate.NAME.env":                  {"", "gate: {test: {run: go test ./..., env: {A: b}}}"},
		"protect.refuse":                 {"", "protect: {refuse: [x]}"},
		"protect.approval":               {"", "protect: {approval: [x]}"},
		"protect.note":                   {"", "protect: {note: [x]}"},
		"protect.free":                   {"", "protect: {free: [Makefile]}"},
		"handover.leftovers":             {"", "handover: {leftovers: refuse}"},
		"handover.max_commits":           {"", "handover: {max_commits: 1}"},
		"handover.max_files":             {"", "handover: {max_files: 1}"},
		"handover.max_bytes":             {"", "handover: {max_bytes: 1MiB}"},
		"handover.allow":                 {"handover: {allow: [symlinks]}", "handover: {allow: [merges, attributes, submodules]}"},
		"merge.mode":                     {"repo: {url: local:/srv/ledger, until: merge}", "repo: {url: local:/srv/ledger, until: merge}\nmerge: {mode: engine, rule: {gates: passed}}"},
		"merge.rule":                     {strings.ReplaceAll(ruled, "%", "{changed_lines: {max: 1}}"), strings.ReplaceAll(ruled, "%", "{changed_lines: {max: 2}}")},
	}
	// elsewhere are the fields that act in another place, and where.
	elsewhere := map[string]string{
		"version":    "it has one value",
		"shared_uid": "oneTenant",
		"repo.until": "the until argument of engine.Work",
		"budget":     "unmetered is the only value, and says what is so",
		"view.host":  "true is the only value",
		"agent.kind": "command is the only value",
	}
	for _, field := range tenant.Fields() {
		if field.NotYet != "" || strings.HasPrefix(field.Path, "merge.rule.") {
			continue // the merge rule is one value, tested where it is evaluated
		}
		test, ok := tests[field.Path]
		_, acts := elsewhere[field.Path]
		switch {
		case ok:
			if reflect.DeepEqual(engineOf(t, test[0]), engineOf(t, test[1])) {
				t.Errorf("%s has no effect on the engine", field.Path)
			}
		case !acts && len(field.Fields) == 0:
			t.Errorf("%s: nothing says what it does", field.Path)
		}
	}
}

// TestPatternsMeanWhatTheConfigSays holds the matching of package handover to
// what package tenant's documentation promises of patterns.
func TestPatternsMeanWhatTheConfigSays(t *testing.T) {
	for pattern, paths := range map[string]struct{ yes, no []string }{
		"x.mod":     {[]string{"x.mod", "tools/x.mod", "X.MOD", "x.mod/y"}, []string{"x.mod2", "ax.mod"}},
		"deploy":    {[]string{"deploy", "deploy/a/b", "x/Deploy/a"}, []string{"deployed"}},
		"d/*.xyz":   {[]string{"d/a.xyz", "d/a.xyz/b"}, []string{"d/a/b.xyz", "x/d/a.xyz"}},
		"a/**/b":    {[]string{"a/b", "a/x/b", "a/x/y/b", "a/b/c"}, []string{"a", "a/x", "b"}},
		"?x":        {[]string{"ax", "éx"}, []string{"x", "aax"}},
		"deploy/**": {[]string{"deploy/a", "deploy"}, []string{"x/deploy/a"}},
	} {
		p := engineOf(t, "protect: {refuse: [\""+pattern+"\"]}").Rules.Protection
		for _, path := range paths.yes {
			if got := p.Decide(path); got.Tier != handover.TierRefuse || got.Field != "protect.refuse" {
				t.Errorf("%q does not cover %q: %+v", pattern, path, got)
			}
		}
		for _, path := range paths.no {
			if got := p.Decide(path); got.Field == "protect.refuse" {
				t.Errorf("%q covers %q: %+v", pattern, path, got)
			}
		}
	}
}
