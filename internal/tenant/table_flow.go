package tenant

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"

	"confine/internal/egress"
	"confine/internal/merge"
)

func repoURL() shape[RepoURL] {
	accepts := "local:/absolute/path or file:///absolute/path"
	return refine(line("URL", accepts, anything), "URL", accepts, nil, func(s string) (RepoURL, error) {
		at, local := strings.CutPrefix(s, "local:")
		switch {
		case local:
		case strings.HasPrefix(s, "file:"):
			u, err := url.Parse(s)
			if err != nil || u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(s, "file:///") {
				return RepoURL{}, errors.New("is no file:///absolute/path")
			}
			at = u.Path
		case strings.HasPrefix(s, "http://"), strings.HasPrefix(s, "git://"):
			return RepoURL{}, errors.New("is not encrypted: whoever is on the way could change what is merged")
		case strings.HasPrefix(s, "https://"), strings.HasPrefix(s, "ssh://"), strings.Contains(s, "@"):
			// The URL is not shown: people put tokens into them.
			return RepoURL{}, errors.New("not yet: " + laterHosts)
		default:
			return RepoURL{}, errors.New("is no URL of a repository")
		}
		if !path.IsAbs(at) || path.Clean(at) != at || at == "/" || strings.ContainsFunc(at, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return RepoURL{}, fmt.Errorf("%.200q is no absolute path in its short form", at)
		}
		return RepoURL{Host: HostLocal, Path: at}, nil
	})
}

// branch is the name of a branch by git's rules (git-check-ref-format), with
// less: what git allows and nobody uses is refused.
func branch() shape[string] {
	accepts := "the name of a branch, such as main"
	return line("branch", accepts, func(s string) error {
		bad := len(s) > 200 || s == "@" || strings.ContainsAny(s, " ~^:?*[\\@{") || strings.Contains(s, "..")
		for _, component := range strings.Split(s, "/") {
			bad = bad || component == "" || component[0] == '.' || component[0] == '-' ||
				strings.HasSuffix(component, ".lock") || strings.HasSuffix(component, ".")
		}
		if bad || strings.HasPrefix(s, "refs/") || s == "HEAD" {
			return fmt.Errorf("%.200q is no name of a branch", s)
		}
		return nil
	})
}

// environment is a set of variables. where says whom a secret would reach.
func environment(where string) shape[map[string]string] {
	value := text()
	refused := refine(secret(), "text", "text", nil, func(Secret) (string, error) {
		return "", errors.New("a secret does not enter the environment of " + where)
	})
	plain := choose(value, refused, shape[string]{})
	// A secret is understood in order to be refused by its name; it is not
	// among what is accepted.
	f := *value.form
	plain.form = &f
	variables := mapOf("variables", "names of variables", wrongEnvName, plain, 128)
	return refine(variables, "variables", "a mapping from names to text", nil, func(list []named[string]) (map[string]string, error) {
		out := make(map[string]string, len(list))
		for _, variable := range list {
			out[variable.name] = variable.value
		}
		return out, nil
	})
}

func wrongEnvName(name string) string {
	switch {
	case !validEnvName(name):
		return "is no name of a variable"
	case name == "PATH":
		return "is made by confine: add directories with view.path"
	case name == "HOME", name == "USER", name == "LOGNAME", name == "SHELL", name == "PWD", name == "TMPDIR":
		return "is set by confine"
	case strings.HasPrefix(name, "CONFINE_"):
		return "is kept for confine"
	}
	return ""
}

// policy is the agent's egress.
func policy() shape[egress.Policy] {
	return object("egress", map[string]string{
		"net_map": "a name is mapped to an address only by the option --net-map of confine run, for tests",
		"net-map": "a name is mapped to an address only by the option --net-map of confine run, for tests",
	},
		bind(entry{name: "allow", doc: "Hosts that may be reached: host or *.host, with a port or 443.", example: "[api.example.com, \"*.example.org:8443\"]"},
			list(allowRule(), 256), func(p *egress.Policy) *[]egress.Rule { return &p.Allow }),
		bind(entry{name: "deny", doc: "Hosts that may not, whatever allow says.", example: "[tracker.example.com]"},
			list(denyRule(), 256), func(p *egress.Policy) *[]egress.Rule { return &p.Deny }),
		bind(entry{name: "quiet", doc: "Hosts whose refusal is recorded and never stops a run.", example: "[telemetry.example.com]"},
			list(denyRule(), 256), func(p *egress.Policy) *[]egress.Rule { return &p.Quiet }),
		bind(entry{name: "network", doc: "Opens every public address.", example: "public", later: "hosts are listed one by one"},
			oneOf[string](now("public")...), func(*egress.Policy) *string { return new(string) }),
	)
}

const hostAccepts = "host or *.host, with :port or 443"

func ruleText(parse func(string) (egress.Rule, error)) shape[egress.Rule] {
	return refine(line("host", hostAccepts, anything), "host", hostAccepts, nil, parse)
}

func denyRule() shape[egress.Rule] { return ruleText(egress.ParseDenyRule) }

// allowRule is a host, or a mapping with the host and how it may be used.
func allowRule() shape[egress.Rule] {
	type fields struct {
		rule    egress.Rule
		proto   egress.Proto
		private bool
	}
	whole := object("rule", nil,
		bind(entry{name: "host", doc: "Host or *.host, with a port or 443.", example: "db.example.com:5432", required: true},
			ruleText(egress.ParseRule), func(f *fields) *egress.Rule { return &f.rule }),
		bind(entry{name: "proto", doc: "What has to travel: TLS or HTTP for that host, anything (tcp), or what the port and the first bytes say (auto).", example: "tcp", standard: "auto"},
			refine(oneOf[string](now("auto", "tls", "http", "tcp")...), "one of auto, tls, http or tcp", "auto, tls, http or tcp", nil, egress.ParseProto), func(f *fields) *egress.Proto { return &f.proto }),
		bind(entry{name: "private", doc: "Lets this one exact name lead to a private address (RFC 1918, ULA, CGNAT).", example: "true", standard: "false"},
			boolean(), func(f *fields) *bool { return &f.private }),
	)
	mapping := refine(whole, "rule", whole.accepts, nil, func(f fields) (egress.Rule, error) {
		f.rule.Proto, f.rule.Private = f.proto, f.private
		return f.rule, f.rule.Validate()
	})
	return choose(ruleText(egress.ParseRule), mapping, shape[egress.Rule]{})
}

// setupRule knows the presets that are to come.
func setupRule() shape[egress.Rule] {
	presets := ruleText(func(s string) (egress.Rule, error) {
		for _, preset := range []string{"registry:", "git-read:"} {
			if strings.HasPrefix(s, preset) {
				return egress.Rule{}, fmt.Errorf("not yet: presets such as %s are later work, list the hosts", preset)
			}
		}
		return egress.ParseRule(s)
	})
	both := allowRule()
	return choose(presets, shape[egress.Rule]{form: both.either[1], read: both.read}, shape[egress.Rule]{})
}

func stages() shape[Stages] {
	return object("stages", nil,
		bind(entry{name: "plan", doc: "Reads the issue and writes a plan.", example: "{tools: [read]}", absent: "no plan is asked for"},
			pointer(stage("[read]")), func(s *Stages) **Stage { return &s.Plan }),
		bind(entry{name: "implement", doc: "Changes the code.", example: "{tools: [read, edit]}", standard: "{}"},
			pointer(stage("[read, edit]")), func(s *Stages) **Stage { return &s.Implement }),
		bind(entry{name: "review", doc: "Reads the change and asks for corrections.", example: "{tools: [read]}", later: laterLoop, absent: "no review is asked for"},
			pointer(stage("[read]")), func(s *Stages) **Stage { return &s.Review }),
		bind(entry{name: "fix", doc: "Corrects a change when something asks for it.", example: "{like: implement}", later: laterLoop, absent: "nothing is corrected"},
			pointer(fix()), func(s *Stages) **Fix { return &s.Fix }),
	)
}

// pointer tells a stage that is there from one that is not.
func pointer[V any](s shape[V]) shape[*V] {
	return refine(s, s.kind, s.accepts, nil, func(v V) (*V, error) { return &v, nil })
}

func stage(tools string) shape[Stage] {
	return object("stage", nil,
		bind(entry{name: "tools", doc: "Tools that the agent may ask for. This is the second layer, told to the agent; the boundary holds whatever it does.", example: `[read, edit, "shell(go test *)"]`, standard: tools},
			list(tool(), 128), func(s *Stage) *[]Tool { return &s.Tools }),
		bind(entry{name: "limits", doc: "Limits of one call.", example: "{time: 45m}", standard: "{}"},
			stageLimits(), func(s *Stage) *StageLimits { return &s.Limits }),
	)
}

func stageLimits() shape[StageLimits] {
	return object("stage limits", nil,
		bind(entry{name: "turns", doc: "Turns of the agent with its model. It is told to the agent.", example: "80", absent: "the agent's own limit"},
			integer(1, 10_000), func(l *StageLimits) *int { return &l.Turns }),
		bind(entry{name: "spend", doc: "Money for one call.", example: "4.00", later: laterGateway},
			money(), func(l *StageLimits) *Money { return &l.Spend }),
		bind(entry{name: "tokens", doc: "Model tokens for one call.", example: "500k", later: laterGateway},
			tokenCount(), func(l *StageLimits) *int64 { return &l.Tokens }),
		bind(entry{name: "time", doc: "Time after which the agent is ended. Its work is kept.", example: "45m", standard: "30m"},
			duration(), func(l *StageLimits) *time.Duration { return &l.Time }),
		bind(entry{name: "output", doc: "Bytes of the agent's output that are kept.", example: "16MiB", absent: "view.limits.output"},
			size(1<<10), func(l *StageLimits) *int64 { return &l.Output }),
	)
}

func fix() shape[Fix] {
	return object("fix stage", nil,
		bind(entry{name: "like", doc: "Stage whose tools and limits it has.", example: "implement", standard: "implement"},
			oneOf[string](now("implement")...), func(f *Fix) *string { return &f.Like }),
		bind(entry{name: "on", doc: "What asks for it.", example: "[gate, conflict]", standard: "[gate]"},
			list(oneOf[string](now("review", "gate", "conflict", "host_checks", "change_request")...), 5), func(f *Fix) *[]string { return &f.On }),
		bind(entry{name: "rounds", doc: "How often for one pull request.", example: "2", standard: "3"},
			integer(1, 20), func(f *Fix) *int { return &f.Rounds }),
	)
}

// tool is a name, and for shell which commands.
func tool() shape[Tool] {
	names := []string{"read", "edit", "shell"}
	accepts := `read, edit, shell (any command), or "shell(PROGRAM WORDS…)" with * for any further words`
	return refine(line("tool", accepts, anything), "tool", accepts, nil, func(s string) (Tool, error) {
		name, rest, patterned := strings.Cut(s, "(")
		pattern, closed := strings.CutSuffix(rest, ")")
		switch {
		case name == "read", name == "edit", name == "shell":
		default:
			return Tool{}, fmt.Errorf("unknown tool %.60q%s", name, didYouMean(name, names))
		}
		if !patterned {
			return Tool{Name: name}, nil
		}
		fields := strings.Fields(pattern)
		switch {
		case name != "shell":
			return Tool{}, fmt.Errorf("%s takes no pattern", name)
		case !closed:
			return Tool{}, fmt.Errorf("%.100q has no closing parenthesis at its end", s)
		case strings.Join(fields, " ") != pattern || pattern == "":
			return Tool{}, fmt.Errorf("%.100q does not hold words with one space between", s)
		case strings.Contains(fields[0], "*"):
			return Tool{}, errors.New("the program must be named: a pattern with * in its first word allows any command, which is shell alone")
		case strings.ContainsAny(pattern, ";&|<>`$(){}\\\"'"):
			return Tool{}, fmt.Errorf("%.100q holds a character that a shell reads: name one program and its words", s)
		}
		return Tool{Name: name, Pattern: pattern}, nil
	})
}

func gate() shape[[]Check] {
	check := object("check", map[string]string{
		"egress":  "the gate has no network: what it needs is brought by setup",
		"secrets": "the gate gets no secret: it runs what the agent wrote",
	},
		bind(entry{name: "run", doc: "Command for a shell, in the workspace.", example: "go vet ./...", required: true},
			text(), func(c *Check) *string { return &c.Run }),
		bind(entry{name: "timeout", doc: "Time after which it is ended and has not passed.", example: "5m", standard: "10m"},
			duration(), func(c *Check) *time.Duration { return &c.Timeout }),
		bind(entry{name: "report", doc: "What says whether it passed: its exit status, or that and the output of go test -json.", example: "gotest", standard: "exit"},
			oneOf[string](now(ReportExit, ReportGoTest)...), func(c *Check) *string { return &c.Report }),
		bind(entry{name: "min_tests", doc: "How many tests must have run and passed, with report: gotest.", example: "1", absent: "1 with report: gotest"},
			integer(1, 1_000_000), func(c *Check) *int { return &c.MinTests }),
		bind(entry{name: "env", doc: "Variables added to its environment. A secret here is an error, told by the variable's name (a word such as TOKEN, PASSWORD, API_KEY) or by its value.", example: `{CGO_ENABLED: "0"}`},
			environment("the gate: it runs what the agent wrote"), func(c *Check) *map[string]string { return &c.Env }),
	)
	wrong := func(name string) string {
		if len(name) > 40 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || name == "" {
			return "is no name of a check"
		}
		return ""
	}
	checks := mapOf("checks", "names of 1-40 of a-z, 0-9, '-' and '_'", wrong, check, 32)
	return refine(checks, "checks", checks.accepts, nil, func(list []named[Check]) ([]Check, error) {
		out := make([]Check, len(list))
		for i, check := range list {
			out[i] = check.value
			out[i].Name = check.name
		}
		return out, nil
	})
}

func protect() shape[Protect] {
	globs := func() shape[[]Glob] {
		return list(refine(line("pattern", "a pattern with *, ? and **, such as deploy/**", anything), "pattern", "a pattern with *, ? and **, such as deploy/**", nil, ParseGlob), 256)
	}
	return object("protected paths", nil,
		bind(entry{name: "refuse", doc: "A change of these is refused, as is one of what code hosts run by themselves.", example: "[deploy/**]", absent: "only what is built in"},
			globs(), func(p *Protect) *[]Glob { return &p.Refuse }),
		bind(entry{name: "approval", doc: "A change of these waits for a person's approval, as does one of what starts by itself on a person's machine.", example: "[go.mod, go.sum, CODEOWNERS]", absent: "only what is built in"},
			globs(), func(p *Protect) *[]Glob { return &p.Approval }),
		bind(entry{name: "note", doc: "A change of these is pointed out in the pull request, as is one of what decides what is installed and built.", example: "[docs/**]", absent: "only what is built in"},
			globs(), func(p *Protect) *[]Glob { return &p.Note }),
		bind(entry{name: "free", doc: "Takes paths out of what is built in. One that is listed above stays as it is there, so that a path here and in approval is lowered from refuse to approval.", example: "[Makefile]", absent: "nothing"},
			globs(), func(p *Protect) *[]Glob { return &p.Free }),
	)
}

func handover() shape[Handover] {
	return object("hand-over", nil,
		bind(entry{name: "leftovers", doc: "What becomes of changes that the agent did not commit.", example: "refuse", standard: "commit"},
			oneOf[string](now(LeftoversCommit, LeftoversRefuse)...), func(h *Handover) *string { return &h.Leftovers }),
		bind(entry{name: "max_commits", doc: "Most commits of one change.", example: "20", standard: "100"},
			integer(1, 10_000), func(h *Handover) *int { return &h.MaxCommits }),
		bind(entry{name: "max_files", doc: "Most files that one change touches.", example: "50", standard: "500"},
			integer(1, 100_000), func(h *Handover) *int { return &h.MaxFiles }),
		bind(entry{name: "max_bytes", doc: "Most bytes that one change adds.", example: "1MiB", standard: "10MiB"},
			size(1<<10), func(h *Handover) *int64 { return &h.MaxBytes }),
		bind(entry{name: "allow", doc: "What a change may hold that is refused otherwise.", example: "[symlinks]"},
			list(oneOf[string](now(AllowMerges, AllowSymlinks, AllowSubmodules, AllowAttributes)...), 4), func(h *Handover) *[]string { return &h.Allow }),
	)
}

func mergeShape() shape[Merge] {
	return object("merge", nil,
		bind(entry{name: "mode", doc: "Who merges: the engine when the rule holds, or a person.", example: "engine", standard: "person"},
			oneOf[string](word{name: MergeEngine}, word{name: MergePerson}, word{"host_auto", laterHost}, word{"host_queue", laterHost}, word{"detect", laterHost}),
			func(m *Merge) *string { return &m.Mode }),
		bind(entry{name: "rule", doc: "When the engine may merge. A predicate whose facts are not known does not hold, and neither does its opposite.", example: "{all: [{gates: passed}, {approvals: {min: 1, by: writers}}]}", absent: "the engine does not merge"},
			rule(), func(m *Merge) *merge.Rule { return &m.Rule }),
	)
}
