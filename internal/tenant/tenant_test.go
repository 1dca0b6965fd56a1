package tenant

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/merge"
)

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	config, problems := Parse("t.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return config
}

func rules(t *testing.T, texts ...string) []egress.Rule {
	t.Helper()
	var out []egress.Rule
	for _, text := range texts {
		rule, err := egress.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rule)
	}
	return out
}

func TestFullConfig(t *testing.T) {
	got := parse(t, read(t, "full.yaml"))
	allow := rules(t, "api.example.com", "*.example.org:8443", "db.example.com:5432")
	allow[2].Proto, allow[2].Private = egress.ProtoTCP, true
	want := &Config{
		Version: 1, Tenant: "payments", SharedUID: true,
		Repo: Repo{
			URL: RepoURL{HostLocal, "/srv/ledger"}, Base: "main", Until: UntilMerge,
			Trigger: Trigger{Label: "agent", By: merge.People{Names: []string{"ada", "bob"}}},
		},
		Budget: Budget{Unmetered: true},
		View: View{
			Host: true, RO: []string{"/opt/toolchain"}, Path: []string{"/opt/toolchain/bin", "/usr/local/go/bin"},
			AllowMissing: []boundary.Layer{boundary.LayerCgroup},
			Limits: boundary.Limits{
				Memory: 8 << 30, MilliCPU: 1500, Pids: 512, Disk: 20 << 30, Files: 1024, FileSize: 1 << 30, Output: 16 << 20,
			},
		},
		Egress: egress.Policy{Allow: allow, Deny: rules(t, "tracker.example.org"), Quiet: rules(t, "telemetry.example.com")},
		Setup: Setup{
			Run: []string{"go mod download", "set -e\nmake tools\n"}, Key: []string{"go.sum"},
			Egress: rules(t, "proxy.golang.org"), Timeout: 20 * time.Minute,
		},
		Agent: Agent{
			Kind: "command", Command: []string{"/opt/toolchain/bin/agent", "--headless"}, Instructions: "none",
			Env: map[string]string{"AGENT_MODE": "headless", "LEVEL": "3"},
		},
		Stages: Stages{
			Plan: &Stage{Tools: []Tool{{Name: "read"}}, Limits: StageLimits{Turns: 15, Time: 10 * time.Minute}},
			Implement: &Stage{
				Tools:  []Tool{{Name: "read"}, {Name: "edit"}, {Name: "shell"}, {"shell", "go test *"}},
				Limits: StageLimits{Turns: 80, Time: 90 * time.Minute, Output: 1 << 20},
			},
		},
		Gate: []Check{
			{Name: "vet", Run: "go vet ./...", Timeout: 5 * time.Minute, Report: "exit"},
			{Name: "test", Run: "go test -json ./...", Timeout: 20 * time.Minute, Report: "gotest", MinTests: 1, Env: map[string]string{"CGO_ENABLED": "0"}},
		},
		Protect:  Protect{Refuse: []Glob{".github/**"}, Approval: []Glob{"go.mod", "go.sum"}, Note: []Glob{"docs/**"}, Free: []Glob{"Makefile"}},
		Handover: Handover{Leftovers: "refuse", MaxCommits: 20, MaxFiles: 50, MaxBytes: 1 << 20, Allow: []string{"symlinks"}},
		Merge: Merge{Mode: "engine", Rule: merge.Rule{All: []merge.Rule{
			{Gates: "passed"},
			{Not: &merge.Rule{Labels: &merge.Labels{Has: []string{"hold"}}}},
			{Any: []merge.Rule{{ChangedLines: &merge.Bound{Max: 200}}, {Approvals: &merge.Approvals{Min: 1, By: merge.People{Group: merge.Write}}}}},
		}}},
	}
	// The quiet list may hold deny rules, whose port may be open.
	for i, text := range []string{"tracker.example.org", "telemetry.example.com"} {
		rule, err := egress.ParseDenyRule(text)
		if err != nil {
			t.Fatal(err)
		}
		[][]egress.Rule{want.Egress.Deny, want.Egress.Quiet}[i][0] = rule
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	policy := got.SetupPolicy()
	if !reflect.DeepEqual(policy.Allow, got.Setup.Egress) || !reflect.DeepEqual(policy.Deny, got.Egress.Deny) {
		t.Errorf("setup policy: %+v", policy)
	}
}

func TestDefaults(t *testing.T) {
	got := parse(t, read(t, "least.yaml"))
	if got.Repo.Until != UntilPR || got.Merge.Mode != MergePerson || got.SharedUID {
		t.Errorf("defaults are not the safe ones: until %q, mode %q, shared %v", got.Repo.Until, got.Merge.Mode, got.SharedUID)
	}
	if got.Stages.Plan != nil || got.Stages.Review != nil || got.Stages.Fix != nil || got.Stages.Implement == nil {
		t.Errorf("stages: %+v", got.Stages)
	}
	if fmt.Sprint(got.Stages.Implement.Tools) != "[read edit]" || got.Stages.Implement.Limits.Time != 30*time.Minute {
		t.Errorf("implement: %+v", got.Stages.Implement)
	}
	if got.View.Limits.Memory != 4<<30 || got.View.Limits.Pids != 1024 || got.View.Limits.Disk != 10<<30 {
		t.Errorf("limits: %+v", got.View.Limits)
	}
	if got.Repo.Trigger.Label != "" {
		t.Errorf("trigger: %+v", got.Repo.Trigger)
	}
	if got := parse(t, with(t, "repo: {url: local:/srv/x, trigger: {}}")).Repo.Trigger; got.Label != "agent" || got.By.Group != merge.Write {
		t.Errorf("trigger: %+v", got)
	}
	if (got.Egress.Decide(egress.Attempt{Host: "example.com", Port: 443})).Allowed {
		t.Error("the default lets a host be reached")
	}
}

// What DESIGN.md shows is known, every field of it: what is not there yet says
// so, and nothing is called unknown.
func TestConfigOfTheDesign(t *testing.T) {
	_, problems := Parse("design.yaml", []byte(read(t, "design.yaml")))
	var got []string
	for _, problem := range problems {
		if !strings.Contains(problem.Message, "not yet") {
			t.Errorf("not a refusal of later work: %s", problem)
		}
		got = append(got, fmt.Sprintf("%d:%d %s", problem.Line, problem.Column, problem.Field))
	}
	want := []string{
		"4:8 repo.url", "5:3 repo.credential", "8:10 budget.day", "8:22 budget.month", "9:1 model", "10:8 view.image",
		"12:57 setup.egress[0]", "12:70 setup.egress[1]", "13:15 agent.kind", "13:42 agent.model",
		"15:50 stages.plan.limits.spend", "16:95 stages.implement.limits.spend", "17:3 stages.review",
		"17:50 stages.review.limits.spend", "18:3 stages.fix",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// with returns the least config with some top-level fields replaced or added.
func with(t *testing.T, fields string) string {
	t.Helper()
	given := map[string]bool{}
	for line := range strings.SplitSeq(fields, "\n") {
		name, _, _ := strings.Cut(line, ":")
		given[name] = true
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(read(t, "least.yaml")), "\n") {
		if name, _, _ := strings.Cut(line, ":"); !given[name] {
			lines = append(lines, line)
		}
	}
	return strings.Join(append(lines, fields), "\n") + "\n"
}

func TestProblems(t *testing.T) {
	tests := []struct{ name, text, field, message string }{
		{"unknown field", "veiw: {host: true}", "veiw", `unknown field: did you mean "view"?`},
		{"unknown inner field", "handover: {max_commit: 1}", "handover.max_commit", `unknown field: did you mean "max_commits"?`},
		{"net map", "egress: {net_map: {a: b}}", "egress.net_map", "--net-map of confine run"},
		{"twice", "tenant: a\ntenant: b", "tenant", "is given twice, first on line 6"},
		{"twice inside", "handover: {max_files: 1, max_files: 2}", "handover.max_files", "is given twice, first on line 7"},
		{"anchor", "handover: &x {max_files: 1}", "handover", "YAML anchors are not accepted"},
		{"alias", "handover: *x", "handover", "YAML aliases are not accepted"},
		{"merge key", "handover: {<<: {max_files: 1}}", "handover", "YAML merge keys are not accepted"},
		{"tag", "tenant: !!str x", "tenant", "YAML tags are not accepted"},
		{"question mark", "handover:\n  ? max_files\n  : 1", "handover", "keys with a question mark"},
		{"empty", "handover:", "handover", "is empty, wants a mapping"},
		{"empty text", `tenant: ""`, "tenant", "is empty"},
		{"number for text", "tenant: 1", "tenant", "is a number, wants text: put it in quotes"},
		{"text for list", "view: {host: true, ro: /opt/x}", "view.ro", "is text, wants a list"},
		{"list for mapping", "view: [host]", "view", "is a list, wants a mapping"},
		{"hidden characters", "agent: {kind: command, command: [\"a\\u202eb\"]}", "agent.command[0]", "holds characters that are not seen"},
		{"version", "version: 2", "version", "out of range"},
		{"octal", "version: 01", "version", "out of range or no whole number"},
		{"tenant", "tenant: Payments", "tenant", "is no tenant's name"},
		{"relative repository", "repo: {url: local:srv}", "repo.url", "is no absolute path"},
		{"climbing repository", "repo: {url: local:/srv/../etc}", "repo.url", "is no absolute path in its short form"},
		{"file with host", "repo: {url: file://host/srv}", "repo.url", "is no file:///absolute/path"},
		{"later host", "repo: {url: https://user:pa55word@example.com/x}", "repo.url", "not yet"},
		{"plain http", "repo: {url: http://example.com/x}", "repo.url", "is not encrypted"},
		{"branch", "repo: {url: local:/srv/x, base: --upload-pack=x}", "repo.base", "is no name of a branch"},
		{"branch as ref", "repo: {url: local:/srv/x, base: refs/heads/main}", "repo.base", "is no name of a branch"},
		{"until", "repo: {url: local:/srv/x, until: merged}", "repo.until", `"merged" is not accepted: did you mean "merge"?`},
		{"budget in money", "budget: {day: 40.00}", "budget.day", "not yet"},
		{"size without unit", "view: {host: true, limits: {memory: 8}}", "view.limits.memory", `"8" is no size`},
		{"size too small", "view: {host: true, limits: {memory: 1KiB}}", "view.limits.memory", "less than the least"},
		{"size too large", "view: {host: true, limits: {memory: 99999999999TiB}}", "view.limits.memory", "is no size"},
		{"cpu", "view: {host: true, limits: {cpu: 1.0001}}", "view.limits.cpu", "no number of processors"},
		{"no system", "view: {}", "view.host", "names no system"},
		{"no host", "view: {host: false}", "view.host", "names no system"},
		{"the whole host", "view: {host: true, ro: [/]}", "view.ro[0]", "far more than a tool"},
		{"the docker socket", "view: {host: true, ro: [/run/docker.sock]}", "view.ro[0]", "never the host's own"},
		{"climbing directory", "view: {host: true, ro: [/opt/../etc]}", "view.ro[0]", `write "/etc"`},
		{"path that is not there", "view: {host: true, path: [/opt/go/bin]}", "view.path[0]", "is not in the view"},
		{"nothing confined", "view: {host: true, allow_missing: [user_namespaces]}", "view.allow_missing", "nothing is confined without it"},
		{"unknown layer", "view: {host: true, allow_missing: [cgroups]}", "view.allow_missing[0]", `did you mean "cgroup"?`},
		{"all hosts", `egress: {allow: ["*"]}`, "egress.allow[0]", ""},
		{"address", "egress: {allow: [10.0.0.1]}", "egress.allow[0]", ""},
		{"private wildcard", `egress: {allow: [{host: "*.example.com", private: true}]}`, "egress.allow[0]", ""},
		{"host twice", "egress: {allow: [a.example.com, a.example.com:443]}", "egress.allow[1]", "is listed already"},
		{"open network", "egress: {network: public}", "egress.network", "not yet"},
		{"setup without commands", "setup: {key: [go.sum]}", "setup.key", "has no effect"},
		{"setup preset", "setup: {run: [x], egress: [registry:go]}", "setup.egress[0]", "not yet"},
		{"climbing key", "setup: {run: [x], key: [../x]}", "setup.key[0]", "no path in the repository"},
		{"agent kind", "agent: {kind: claude, command: [claude]}", "agent.kind", "not yet supported"},
		{"agent without command", "agent: {kind: command, command: []}", "agent.command", "is empty"},
		{"agent command as text", "agent: {kind: command, command: run it}", "agent.command", "is text, wants a list"},
		{"agent path", "agent: {kind: command, command: [a], env: {PATH: /x}}", "agent.env.PATH", "view.path"},
		{"agent secret", "agent: {kind: command, command: [a], env: {KEY: {env: KEY}}}", "agent.env.KEY", "a secret does not enter the environment of the agent"},
		{"agent number", "agent: {kind: command, command: [a], env: {KEY: 1}}", "agent.env.KEY", "put it in quotes"},
		{"tool", "stages: {implement: {tools: [raed]}}", "stages.implement.tools[0]", `did you mean "read"?`},
		{"any command by pattern", `stages: {implement: {tools: ["shell(*)"]}}`, "stages.implement.tools[0]", "the program must be named"},
		{"shell in a pattern", `stages: {implement: {tools: ["shell(go test; rm *)"]}}`, "stages.implement.tools[0]", "a shell reads"},
		{"open pattern", `stages: {implement: {tools: ["shell(go"]}}`, "stages.implement.tools[0]", "no closing parenthesis"},
		{"spend", "stages: {implement: {limits: {spend: 1.00}}}", "stages.implement.limits.spend", "not yet"},
		{"review", "stages: {review: {}}", "stages.review", "not yet"},
		{"plan without stage", "repo: {url: local:/srv/x, until: plan}", "stages.plan", "is missing"},
		{"no gate", "gate: {}", "gate", "names no check"},
		{"gate without command", "gate: {test: {timeout: 5m}}", "gate.test.run", "is missing"},
		{"gate name", "gate: {Test: {run: x}}", "gate.Test", "is no name of a check"},
		{"hostile gate name", `gate: {"a.b\x1b[c": {run: x}}`, `gate."a.b\x1b[c"`, "is no name of a check"},
		{"gate secret", "gate: {test: {run: x, env: {TOKEN: {file: /etc/token}}}}", "gate.test.env.TOKEN", "a secret does not enter the environment of the gate"},
		{"gate network", "gate: {test: {run: x, egress: [a.example.com]}}", "gate.test.egress", "the gate has no network"},
		{"gate timeout", "gate: {test: {run: x, timeout: 25h}}", "gate.test.timeout", "out of range"},
		{"gate timeout without unit", "gate: {test: {run: x, timeout: 300}}", "gate.test.timeout", "is no duration"},
		{"tests not counted", "gate: {test: {run: x, min_tests: 1}}", "gate.test.min_tests", "counts nothing"},
		{"report not printed", "gate: {test: {run: go test ./..., report: gotest}}", "gate.test.run", "prints no report"},
		{"glob with slash", "protect: {refuse: [/deploy]}", "protect.refuse[0]", `write "deploy"`},
		{"glob listed twice", "protect: {refuse: [a], approval: [a]}", "protect.approval[0]", "is listed already, as protect.refuse[0]"},
		{"merge without rule", "repo: {url: local:/srv/x, until: merge}\nmerge: {mode: engine}", "merge.rule", "is missing"},
		{"merge not reached", "merge: {mode: engine, rule: {gates: passed}}", "merge.mode", "repo.until stops at pr"},
		{"rule without effect", "merge: {rule: {gates: passed}}", "merge.rule", "has no effect"},
		{"rule without gate", "repo: {url: local:/srv/x, until: merge}\nmerge: {mode: engine, rule: {any: [{gates: passed}, {approvals: {}}]}}", "merge.rule", "although the gate did not pass"},
		{"rule with two predicates", "merge: {mode: engine, rule: {gates: passed, host_checks: required}}", "merge.rule", "holds 2 predicates"},
		{"rule with an unknown predicate", "merge: {mode: engine, rule: {all: [{gate: passed}]}}", "merge.rule.all[0].gate", `did you mean "gates"?`},
		{"rule too deep", "merge: {mode: engine, rule: " + strings.Repeat("{not: ", 9) + "{gates: passed}" + strings.Repeat("}", 9) + "}", "merge.rule" + strings.Repeat(".not", 8), "is nested more than 8 deep"},
		{"later mode", "merge: {mode: host_auto}", "merge.mode", "not yet supported"},
		{"shared uid", "shared_uid: yes", "shared_uid", "is text, wants true or false"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config, problems := Parse("t.yaml", []byte(with(t, test.text)))
			if config != nil || len(problems) == 0 {
				t.Fatal("accepted")
			}
			for _, problem := range problems {
				if problem.Field == test.field && strings.Contains(problem.Message, test.message) {
					if problem.Line < 1 || problem.Column < 1 || problem.File != "t.yaml" {
						t.Errorf("no place: %+v", problem)
					}
					return
				}
			}
			t.Errorf("no problem of %s with %q among:\n%s", test.field, test.message, problems)
		})
	}
}

// Neighbours of what is refused above.
func TestAccepted(t *testing.T) {
	for _, text := range []string{
		"egress: {allow: [db.example.com:5432, \"*.example.com\"]}", // a colon inside of braces is no key
		"egress: {allow: [10.example.com]}",
		"repo: {url: file:///srv/a%20b}",
		"repo: {url: local:/srv/x, base: feature/a-b.c}",
		"repo: {url: local:/srv/x, until: commits}\ngate: {}",
		"view: {host: true, ro: [/root/.nvm/versions], path: [/root/.nvm/versions/node/bin]}",
		"view: {host: true, path: [/workspace/node_modules/.bin]}",
		"view: {host: true, allow_missing: [cgroup, nf_tables]}",
		"setup: {}",
		"gate: {test: {run: ./ci.sh, report: gotest, min_tests: 10}}",
		"protect: {refuse: []}",
		"stages: {plan: {}}\nrepo: {url: local:/srv/x, until: plan}\ngate: {}",
	} {
		if _, problems := Parse("t.yaml", []byte(with(t, text))); len(problems) > 0 {
			t.Errorf("%s: %s", text, problems)
		}
	}
	config := parse(t, with(t, "egress: {allow: [db.example.com:5432]}"))
	if got := config.Egress.Allow[0].String(); got != "db.example.com:5432" {
		t.Errorf("got rule %q", got)
	}
}

func TestPlaces(t *testing.T) {
	_, problems := Parse("t.yaml", []byte("version: 1\ntenant: x\nrepo:\n  url: local:/srv/x\n  until: never\nview:\n  host: true\nagent:\n  kind: command\n  comand: [a]\ngate:\n  test: {run: x, timeout: 1x}\n"))
	got := problems.Error()
	want := `t.yaml:5:10: repo.until: "never" is not accepted (accepted: plan, commits, pr or merge)
t.yaml:9:3: agent.command: is missing (accepted: a list: the program, then its arguments)
t.yaml:10:3: agent.comand: unknown field: did you mean "command"? (accepted: kind, command, model, instructions, env)
t.yaml:12:27: gate.test.timeout: "1x" is no duration (accepted: hours, minutes and seconds from 1s to 24h, such as 45m or 1h30m)`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got := problems.Hint(); got != "confine config explain repo.until" {
		t.Errorf("hint: %q", got)
	}
}

func TestWholeFile(t *testing.T) {
	tests := []struct{ name, text, message string }{
		{"empty", "", "the file is empty"},
		{"comment", "# nothing\n", "the file is empty"},
		{"two documents", "version: 1\n---\nversion: 1\n", "more than one YAML document"},
		{"directive", "%YAML 1.1\n---\nversion: 1\n", "more than one YAML document, or a directive"},
		{"a list", "- version\n", "is a list, wants a mapping"},
		{"no YAML", "version: [1\n", "is no valid YAML"},
		{"not UTF-8", "version: \xff\n", "is not UTF-8"},
		{"zero byte", "version: 1\x00\n", "zero byte"},
		{"too large", "#" + strings.Repeat("x", MaxBytes), "larger than"},
		{"too many tokens", strings.Repeat("a: 1\n", 100_000), "YAML tokens"},
		{"deep", strings.Repeat("[", 50_000), "YAML tokens"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config, problems := Parse("t.yaml", []byte(test.text))
			if config != nil || len(problems) == 0 || !strings.Contains(problems.Error(), test.message) {
				t.Errorf("got %v, %s, want %q", config, problems, test.message)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte(read(t, "least.yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	if config, err := Load(good); err != nil || config.Tenant != "payments" {
		t.Fatalf("got %+v, %v", config, err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open.yaml")
	if err := os.WriteFile(open, []byte(read(t, "least.yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		dir:                        "is not a regular file",
		pipe:                       "is not a regular file",
		open:                       "can be written by every user",
	} {
		if config, err := Load(name); config != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want %q", name, config, err, want)
		}
	}
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var problems Problems
	if config, err := Load(bad); config != nil || !errors.As(err, &problems) || problems[0].File != bad {
		t.Errorf("got %v, %v", config, err)
	}
}

// What was written where a secret's place belongs may be the secret.
func TestSecretsAreNeverShown(t *testing.T) {
	const planted = "sk-ant-PLANTED"
	for _, text := range []string{
		"model: {api: anthropic, key: " + planted + "}",
		"model: {api: anthropic, key: {env: \"" + planted + " \"}}",
		"model: {api: anthropic, key: {env: " + planted + "}}",
		"model: {api: anthropic, key: {file: " + planted + "}}",
		"model: {api: anthropic, key: {systemd: \"" + planted + "/\"}}",
		"model: {api: anthropic, key: [" + planted + "]}",
		"repo: {url: \"https://x:" + planted + "@example.com/x\"}",
		"repo: {url: local:/srv/x, credential: {token: " + planted + "}}",
		"model: {api: \"anthropic\n key: " + planted + "}",
	} {
		_, problems := Parse("t.yaml", []byte(with(t, text)))
		if len(problems) == 0 {
			t.Errorf("accepted: %s", text)
		}
		if strings.Contains(problems.Error()+problems.Hint(), "PLANTED") {
			t.Errorf("%s shows it: %s", text, problems)
		}
	}
	s := Secret{source: "command", argv: []string{"/usr/bin/pass", "show", planted}}
	data, err := json.Marshal(struct{ S Secret }{s})
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %s %q %x %s", s, s, s, s, s, s, data)
	if strings.Contains(shown, "PLANTED") || !strings.Contains(shown, `secret from command "pass"`) {
		t.Errorf("shown as %s", shown)
	}
	if got := s.Command(); len(got) != 3 || got[2] != planted {
		t.Errorf("the command is not there for who fetches it: %q", got)
	}
}

func TestSecretForms(t *testing.T) {
	for text, want := range map[string]string{
		"{env: API_KEY}":           `secret from env "API_KEY"`,
		"{file: /etc/key}":         `secret from file "/etc/key"`,
		"{command: [pass, show]}":  `secret from command "pass"`,
		"{systemd: api_key}":       `secret from systemd "api_key"`,
		"{}":                       "names 0 places",
		"{env: A, file: /etc/key}": "names 2 places",
		"{command: []}":            "names 0 places",
		"{vault: x}":               "unknown field",
	} {
		n, err := parseText(text)
		if err != nil {
			t.Fatal(err)
		}
		p := &reader{places: map[string]place{}}
		got, ok := secret().read(p, n, "key")
		shown := p.problems.Error()
		if ok {
			shown = got.String()
		}
		if !strings.Contains(shown, want) {
			t.Errorf("%s: got %q, want %q", text, shown, want)
		}
	}
}

func TestDigest(t *testing.T) {
	digest := func(text string) string {
		d, err := parse(t, text).Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	least := digest(read(t, "least.yaml"))
	if len(least) != 64 {
		t.Errorf("digest %q", least)
	}
	same := "# a comment\nagent:\n  command: [agent]\n  kind: command\nversion: 1\ntenant: payments\nrepo: {url: file:///srv/ledger, until: pr}\nview: {host: true}\ngate: {test: {run: \"go test ./...\"}}\n"
	if got := digest(same); got != least {
		t.Error("comments, order, spelling and defaults change the digest")
	}
	seen := map[string]string{least: "least"}
	for _, text := range []string{
		"tenant: other", "shared_uid: true", "repo: {url: local:/srv/other}", "repo: {url: local:/srv/ledger, until: commits}",
		"view: {host: true, limits: {pids: 100}}", "view: {host: true, ro: [/opt/x]}", "egress: {allow: [a.example.com]}",
		"egress: {allow: [{host: a.example.com, private: true}]}", "egress: {quiet: [a.example.com]}", "setup: {run: [x]}",
		"agent: {kind: command, command: [agent, x]}", "agent: {kind: command, command: [agent], env: {A: b}}",
		"gate: {test: {run: go test ./..., timeout: 1m}}", "protect: {note: [x]}", "handover: {allow: [merges]}",
	} {
		d := digest(with(t, text))
		if before, ok := seen[d]; ok {
			t.Errorf("%q has the digest of %q", text, before)
		}
		seen[d] = text
	}
}

func TestUntil(t *testing.T) {
	order := []Until{UntilPlan, UntilCommits, UntilPR, UntilMerge}
	for i, u := range order {
		for j, step := range order {
			if got := u.Reaches(step); got != (i >= j) {
				t.Errorf("%s reaches %s: %v", u, step, got)
			}
		}
		if parsed, err := ParseUntil(string(u)); err != nil || parsed != u {
			t.Errorf("ParseUntil(%q) = %q, %v", u, parsed, err)
		}
	}
	if Until("").Reaches(UntilPlan) || Until("").Reaches("") || UntilMerge.Reaches("x") {
		t.Error("the zero value goes somewhere")
	}
	if _, err := ParseUntil("x"); err == nil {
		t.Error("ParseUntil accepts x")
	}
}

func TestMoney(t *testing.T) {
	for text, want := range map[string]string{"40.00": "40.00", "0.1": "0.10", "7": "7.00", "0.000001": "0.000001", "0": "0.00", "1.250": "1.25"} {
		got, err := ParseMoney(text)
		if err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".5", "1.", "-1", "1e3", "1,00", "0.0000001", "01", "99999999999999999999", "1_000"} {
		if got, err := ParseMoney(text); err == nil {
			t.Errorf("%q is taken for %s", text, got)
		}
	}
	sum := Money(0)
	for range 10 {
		tenth, _ := ParseMoney("0.10")
		sum += tenth
	}
	if one, _ := ParseMoney("1"); sum != one {
		t.Errorf("ten times 0.10 is %s", sum)
	}
	if got := Money(-1_500_000).String(); got != "-1.50" {
		t.Errorf("got %s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"full.yaml", "least.yaml", "design.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{"a: &x\n", "? [a]\n: b", "{", "- - -", "a: |\n", "<<: *x", "version: {1: 2}", "gate: {\"\": {}}", "merge: {rule: {not: {not: }}}", "\ufeffversion: 1", "gate:\n  - a: b:1\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, problems := Parse("f.yaml", data)
		if (config == nil) == (len(problems) == 0) {
			t.Errorf("config %v with problems %v", config, problems)
		}
		for i, problem := range problems {
			if problem.Line < 1 || problem.Column < 1 || problem.Message == "" || i > 0 && problem.Line < problems[i-1].Line {
				t.Errorf("problem without place or order: %+v", problem)
			}
		}
		if config != nil {
			if _, err := config.Digest(); err != nil {
				t.Error(err)
			}
		}
	})
}
