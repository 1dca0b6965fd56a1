package tenant

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/merge"
)

// What is known and not yet there. A field of later work is read as it will be,
// then refused with one of these; the work that brings it deletes the refusal.
const (
	laterGateway = "spending is metered by the model gateway, which does not exist yet; until then the agent reaches its model through egress.allow and agent.env, unmetered"
	laterHosts   = "only local repositories are supported: local:/absolute/path"
	laterImages  = "only the host's own system is supported: view: {host: true}"
	laterLoop    = "the loop after opening does not exist yet"
	laterAgents  = "agents are started as a plain command: kind: command"
	laterHost    = "the code host's own merging is not supported yet: mode: engine or person"
)

// table is every field there is. It is built when it is needed: starting a
// program that never reads a config costs nothing.
func table() shape[Config] {
	return object("config", map[string]string{
		"net_map": "a name is mapped to an address only by the option --net-map of confine run, for tests: a config that could do it could send a listed name anywhere",
		"net-map": "a name is mapped to an address only by the option --net-map of confine run, for tests: a config that could do it could send a listed name anywhere",
		"secrets": "secrets stay with the engine: write where one is kept at the field that uses it, such as model.key",
	},
		bind(entry{name: "version", doc: "Version of this form.", example: "1", required: true},
			integer(Version, Version), func(c *Config) *int { return &c.Version }),
		bind(entry{name: "tenant", doc: "Whose work this is. Several files may name one tenant. Two tenants never see each other.", example: "payments", required: true},
			tenantID(), func(c *Config) *boundary.TenantID { return &c.Tenant }),
		bind(entry{name: "shared_uid", doc: "Lets several tenants share one user id, apart by their views alone. Needed where the engine serves several tenants as an ordinary user.", example: "true", standard: "false"},
			boolean(), func(c *Config) *bool { return &c.SharedUID }),
		bind(entry{name: "repo", doc: "The repository, and how far a run goes.", required: true, example: "{url: local:/srv/ledger}"},
			repo(), func(c *Config) *Repo { return &c.Repo }),
		bind(entry{name: "budget", doc: "What the tenant may spend on models.", example: "unmetered", absent: "nothing is metered"},
			budget(), func(c *Config) *Budget { return &c.Budget }),
		bind(entry{name: "model", doc: "The model API behind the gateway.", example: "{api: anthropic}", later: laterGateway, absent: "no gateway"},
			model(), func(c *Config) *Model { return &c.Model }),
		bind(entry{name: "view", doc: "What setup, agent and gate see beside the workspace, and their limits.", required: true, example: "{host: true}"},
			view(), func(c *Config) *View { return &c.View }),
		bind(entry{name: "egress", doc: "What the agent may reach. Empty means nothing. The gate reaches nothing.", example: "{allow: [api.example.com]}", standard: "{}"},
			policy(), func(c *Config) *egress.Policy { return &c.Egress }),
		bind(entry{name: "setup", doc: "Installs dependencies on the base commit, with its own network, before agent and gate run.", example: "{run: [go mod download]}", standard: "{}"},
			setup(), func(c *Config) *Setup { return &c.Setup }),
		bind(entry{name: "agent", doc: "The program that writes the code.", required: true, example: "{kind: command, command: [agent]}"},
			agent(), func(c *Config) *Agent { return &c.Agent }),
		bind(entry{name: "stages", doc: "The agent calls, each with its own tools and limits.", example: "{implement: {}}", standard: "{}"},
			stages(), func(c *Config) *Stages { return &c.Stages }),
		bind(entry{name: "gate", doc: "The repository's own checks, by name. Each runs in a fresh sandbox without network or secret on the tree that would be merged, in the order of the file.", example: "{test: {run: go test ./...}}", absent: "no check, and no pull request"},
			gate(), func(c *Config) *[]Check { return &c.Gate }),
		bind(entry{name: "protect", doc: "Paths that a change may not touch, or not without a person.", example: "{refuse: [deploy/**]}", standard: "{}"},
			protect(), func(c *Config) *Protect { return &c.Protect }),
		bind(entry{name: "handover", doc: "Bounds on what is taken out of a workspace.", example: "{max_commits: 20}", standard: "{}"},
			handover(), func(c *Config) *Handover { return &c.Handover }),
		bind(entry{name: "merge", doc: "Who merges, and when.", example: "{mode: person}", standard: "{}"},
			mergeShape(), func(c *Config) *Merge { return &c.Merge }),
	)
}

func tenantID() shape[boundary.TenantID] {
	accepts := "1-63 of a-z, 0-9 and '-', beginning with a letter"
	schema := map[string]any{"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$"}
	return refine(text(), "name", accepts, schema, func(s string) (boundary.TenantID, error) {
		id := boundary.TenantID(s)
		if !id.Valid() {
			return "", fmt.Errorf("%.80q is no tenant's name", s)
		}
		return id, nil
	})
}

func repo() shape[Repo] {
	return object("repository", nil,
		bind(entry{name: "url", doc: "Where the repository is.", example: "local:/srv/ledger", required: true},
			repoURL(), func(r *Repo) *RepoURL { return &r.URL }),
		bind(entry{name: "credential", doc: "How the engine proves who it is to the code host. It never enters a sandbox.", example: "{token: {env: CODE_HOST_TOKEN}}",
			later: "a local repository needs none, and other code hosts are not supported yet", absent: "none"},
			credential(), func(r *Repo) *Credential { return &r.Credential }),
		bind(entry{name: "base", doc: "Branch that changes are merged into.", example: "main", absent: "the host's default branch"},
			branch(), func(r *Repo) *string { return &r.Base }),
		bind(entry{name: "trigger", doc: "Which issues may be worked on. The label also vouches for the issue's text as it was then, whoever wrote it.", example: "{label: agent, by: writers}", absent: "any issue that somebody with write access wrote"},
			trigger(), func(r *Repo) *Trigger { return &r.Trigger }),
		bind(entry{name: "until", doc: "How far a run goes: write a plan, make commits, open a pull request, merge it.", example: "merge", standard: "pr"},
			oneOf[Until](now("plan", "commits", "pr", "merge")...), func(r *Repo) *Until { return &r.Until }),
	)
}

func credential() shape[Credential] {
	return object("credential", nil,
		bind(entry{name: "github_app", doc: "Id of a GitHub App.", example: "12345"},
			integer(1, 1<<31-1), func(c *Credential) *int { return &c.GitHubApp }),
		bind(entry{name: "key", doc: "Private key of the app.", example: "{file: /etc/confine/app.pem}"},
			secret(), func(c *Credential) *Secret { return &c.Key }),
		bind(entry{name: "token", doc: "Access token.", example: "{env: CODE_HOST_TOKEN}"},
			secret(), func(c *Credential) *Secret { return &c.Token }),
	)
}

func trigger() shape[Trigger] {
	return object("trigger", nil,
		bind(entry{name: "label", doc: "Label that the issue must have.", example: "agent", standard: "agent"},
			line("label", "the name of a label", func(s string) error {
				if len(s) > 100 {
					return errors.New("is longer than 100 bytes")
				}
				return nil
			}), func(t *Trigger) *string { return &t.Label }),
		bind(entry{name: "by", doc: "Who may set it, of those with write access. The label of anyone else counts for nothing.", example: "admins", standard: "writers"},
			people(), func(t *Trigger) *merge.People { return &t.By }),
	)
}

func budget() shape[Budget] {
	unmetered := refine(oneOf[string](now("unmetered")...), "unmetered", "unmetered", nil,
		func(string) (Budget, error) { return Budget{Unmetered: true}, nil })
	amounts := object("budget", nil,
		bind(entry{name: "day", doc: "Money for one day, all runs together.", example: "40.00", later: laterGateway},
			money(), func(b *Budget) *Money { return &b.Day }),
		bind(entry{name: "month", doc: "Money for one month.", example: "500.00", later: laterGateway},
			money(), func(b *Budget) *Money { return &b.Month }),
	)
	return choose(unmetered, amounts, shape[Budget]{})
}

func model() shape[Model] {
	return object("model", nil,
		bind(entry{name: "api", doc: "Form of the API.", example: "anthropic"},
			oneOf[string](now("anthropic", "openai")...), func(m *Model) *string { return &m.API }),
		bind(entry{name: "upstream", doc: "Address of the API.", example: "https://api.anthropic.com"},
			line("URL", "a URL with https", func(s string) error {
				if !strings.HasPrefix(s, "https://") {
					return errors.New("is no URL with https")
				}
				return nil
			}), func(m *Model) *string { return &m.Upstream }),
		bind(entry{name: "key", doc: "Key of the API. It stays with the gateway.", example: "{env: ANTHROPIC_API_KEY}"},
			secret(), func(m *Model) *Secret { return &m.Key }),
	)
}

func view() shape[View] {
	return object("view", nil,
		bind(entry{name: "host", doc: "Shows the system directories of this machine (/usr, /bin, /lib, chosen files of /etc), read-only. Homes, secrets and sockets are not in it.", example: "true"},
			boolean(), func(v *View) *bool { return &v.Host }),
		bind(entry{name: "image", doc: "An OCI image as the system instead.", example: `"golang:1.26-bookworm"`, later: laterImages},
			line("image", "a reference to an image", anything), func(v *View) *string { return &v.Image }),
		bind(entry{name: "limits", doc: "Limits of each run.", example: "{memory: 8GiB}", standard: "{}"},
			limits(), func(v *View) *boundary.Limits { return &v.Limits }),
		bind(entry{name: "ro", doc: "Directories and files of this machine that are shown too, read-only, at the same place: a toolchain outside of /usr, say.", example: "[/opt/toolchain]"},
			list(absolutePath(mayShow), 64), func(v *View) *[]string { return &v.RO }),
		bind(entry{name: "path", doc: "Directories put before the usual ones in PATH.", example: "[/usr/local/go/bin]"},
			list(absolutePath(anything), 64), func(v *View) *[]string { return &v.Path }),
		bind(entry{name: "allow_missing", doc: "Layers of the boundary that this machine may lack. A layer that is missing and not named here stops every run.", example: "[cgroup]"},
			list(layer(), 16), func(v *View) *[]boundary.Layer { return &v.AllowMissing }),
		bind(entry{name: "profile", doc: "Opens the boundary of every run for programs that bring a sandbox of their own: browser for Chromium, nesting for bubblewrap and agents that use it. It is weaker then in points that are printed and recorded.", example: "browser"},
			oneOf[boundary.Profile](now(string(boundary.ProfileBrowser), string(boundary.ProfileNesting))...), func(v *View) *boundary.Profile { return &v.Profile }),
	)
}

// mayShow refuses what would bring the host's secrets or its control into the
// view with one word.
func mayShow(s string) error {
	for _, whole := range []string{"/", "/etc", "/home", "/root", "/var", "/var/lib", "/boot", "/tmp", "/var/tmp", "/mnt", "/media", "/srv"} {
		if s == whole {
			return fmt.Errorf("%q would show far more than a tool: name the directory that is needed", s)
		}
	}
	for _, tree := range []string{"/proc", "/sys", "/dev", "/run", "/var/run"} {
		if s == tree || strings.HasPrefix(s, tree+"/") {
			return fmt.Errorf("%.200q lies in %s, which is never the host's own: it holds devices, processes and sockets", s, tree)
		}
	}
	for _, taken := range []string{"/workspace", "/usr", "/bin", "/sbin", "/lib", "/lib64"} {
		if s == taken || taken == "/workspace" && strings.HasPrefix(s, taken+"/") {
			return fmt.Errorf("%.200q has its place in every view already", s)
		}
	}
	return nil
}

func layer() shape[boundary.Layer] {
	return oneOf[boundary.Layer](now(
		string(boundary.LayerCgroup), string(boundary.LayerIDMap), string(boundary.LayerLandlock), string(boundary.LayerNFTables),
		string(boundary.LayerProc), string(boundary.LayerSeccomp), string(boundary.LayerUserNS),
	)...)
}

func limits() shape[boundary.Limits] {
	count := func(least, most int) shape[int64] {
		n := integer(least, most)
		return refine(n, n.kind, n.accepts, nil, func(v int) (int64, error) { return int64(v), nil })
	}
	return object("limits", nil,
		bind(entry{name: "memory", doc: "Memory of all processes together, without swap.", example: "8GiB", standard: "4GiB"},
			size(16<<20), func(l *boundary.Limits) *int64 { return &l.Memory }),
		bind(entry{name: "cpu", doc: "Processors.", example: "1.5", standard: "2"},
			processors(), func(l *boundary.Limits) *int64 { return &l.MilliCPU }),
		bind(entry{name: "pids", doc: "Processes and threads.", example: "512", standard: "1024"},
			count(8, 4<<20), func(l *boundary.Limits) *int64 { return &l.Pids }),
		bind(entry{name: "disk", doc: "Bytes that the workspace may grow to.", example: "20GiB", standard: "10GiB"},
			size(1<<20), func(l *boundary.Limits) *int64 { return &l.Disk }),
		bind(entry{name: "files", doc: "Descriptors that one process may hold.", example: "1024", standard: "4096"},
			count(32, 1<<20), func(l *boundary.Limits) *int64 { return &l.Files }),
		bind(entry{name: "file_size", doc: "Bytes of the largest file.", example: "1GiB", standard: "4GiB"},
			size(1<<20), func(l *boundary.Limits) *int64 { return &l.FileSize }),
		bind(entry{name: "output", doc: "Bytes of output that are kept of one run; more is counted and dropped.", example: "16MiB", standard: "64MiB"},
			size(1<<10), func(l *boundary.Limits) *int64 { return &l.Output }),
	)
}

func setup() shape[Setup] {
	return object("setup", map[string]string{"env": "the setup has no environment of its own: its commands see PATH, HOME, TERM and LANG"},
		bind(entry{name: "run", doc: "Commands for a shell, in order. The first that fails ends the run.", example: "[go mod download]", absent: "no setup"},
			list(text(), 64), func(s *Setup) *[]string { return &s.Run }),
		bind(entry{name: "key", doc: "Files of the repository that the result depends on: as long as they, the commands and the view are the same, the result is used again.", example: "[go.sum]"},
			list(repositoryPath(), 64), func(s *Setup) *[]string { return &s.Key }),
		bind(entry{name: "egress", doc: "What the setup may reach, beside nothing.", example: "[proxy.golang.org, sum.golang.org]"},
			list(setupRule(), 256), func(s *Setup) *[]egress.Rule { return &s.Egress }),
		bind(entry{name: "system", doc: "Keeps what the setup wrote to /usr, /etc and /opt.", example: "true", later: "only what it writes to the workspace and to the home directory is kept"},
			boolean(), func(*Setup) *bool { return new(bool) }),
		bind(entry{name: "timeout", doc: "Time after which a command is ended, and the run with it.", example: "10m", standard: "15m"},
			duration(), func(s *Setup) *time.Duration { return &s.Timeout }),
	)
}

func agent() shape[Agent] {
	return object("agent", nil,
		bind(entry{name: "kind", doc: "How the agent is started and read.", example: "command", required: true},
			oneOf[string](word{name: AgentCommand}, word{"claude", laterAgents}, word{"codex", laterAgents}), func(a *Agent) *string { return &a.Kind }),
		bind(entry{name: "command", doc: "Program and arguments. No shell reads them.", example: "[my-agent, --headless]", required: true},
			refine(list(text(), 256), "program and arguments", "a list: the program, then its arguments", nil, func(argv []string) ([]string, error) {
				if len(argv) == 0 {
					return nil, errors.New("is empty")
				}
				return argv, nil
			}), func(a *Agent) *[]string { return &a.Command }),
		bind(entry{name: "model", doc: "Model that the agent asks for.", example: "claude-sonnet-4-6", later: laterGateway},
			line("model", "the name of a model", anything), func(a *Agent) *string { return &a.Model }),
		bind(entry{name: "instructions", doc: "Whose instruction files the agent gets: those of the base commit, or none.", example: "none", standard: "base"},
			oneOf[string](now(InstructionsBase, InstructionsNone)...), func(a *Agent) *string { return &a.Instructions }),
		bind(entry{name: "env", doc: "Variables added to the agent's environment. A secret here is an error, told by the variable's name or by its value; the key of the agent's model may stand under its usual name, such as ANTHROPIC_API_KEY.", example: "{AGENT_MODE: headless}"},
			environment("the agent: it could send it anywhere it may reach"), func(a *Agent) *map[string]string { return &a.Env }),
	)
}
