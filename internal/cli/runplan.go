package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"confine/internal/boundary"
	"confine/internal/egress"
	"confine/internal/hostview"
	"confine/internal/proxy"
	"confine/internal/sandbox"
	"confine/internal/workspace"
)

const (
	agentID = 1000
	// firstRunHostID is the first of the ids that runs have outside when confine
	// runs as root: above those of people, services, containers, subordinate and
	// directory ranges, and the engine's tenants, and below what programs with
	// signed ids take for negative.
	firstRunHostID = 0x7fff0000
	runHostIDs     = 0xfff0
	// maxCaptured caps what --json keeps of the command's output.
	maxCaptured = 8 << 20
)

// maxPids is PID_MAX_LIMIT of a 64-bit kernel (linux/threads.h).
const maxPids = 4 << 20

// maxLentEntries is how many entries of what --ro shows are looked at.
const maxLentEntries = 200_000

// runHostID is the id outside of this process's run. What the kernel counts for a
// user, such as pages of pipes, is then not shared by two runs; two whose process
// ids are 65520 apart, or in containers, may share it and nothing else.
func runHostID() uint32 { return firstRunHostID + uint32(os.Getpid())%runHostIDs }

// runPlan is what the flags of one run mean.
type runPlan struct {
	args     []string
	boundary boundary.Boundary
	policy   egress.Policy
	netMap   map[egress.HostPort]netip.AddrPort
	live     *workspace.LiveWorkspace
	staged   *workspace.Stage
	commit   *workspace.Committed
	lent     []lentReport
	skipped  []hostview.Skipped
	notes    []string
	earlier  []earlierReport
}

func (o *runOptions) plan(ctx context.Context, f *frame, args []string) (*runPlan, error) {
	p := &runPlan{args: args}
	uid := uint32(agentID)
	switch o.user {
	case "agent":
	case "root":
		uid = 0
	default:
		return nil, usagef("confine run", "--user %q: is agent or root", o.user)
	}
	b := &p.boundary
	b.Version, b.Tenant = boundary.Version, "run"
	b.Identity = boundary.Identity{UID: uid, GID: uid, HostUID: runHostID(), HostGID: runHostID()}
	b.AllowMissing = []boundary.Layer{boundary.LayerCgroup}
	for _, name := range o.missing {
		b.AllowMissing = append(b.AllowMissing, boundary.Layer(name))
	}
	b.Profile = boundary.Profile(o.profile)
	if b.Profile != boundary.ProfileNone && !slices.Contains(boundary.Profiles, b.Profile) {
		return nil, usagef("confine run", "--profile %q: is browser or nesting", o.profile)
	}
	b.Limits = boundary.Limits{Pids: o.pids, Time: o.timeout}
	if o.pids < 0 || o.timeout < 0 {
		return nil, usagef("confine run", "--pids and --timeout can't be negative")
	}
	if o.pids > maxPids {
		return nil, usagef("confine run", "--pids %d: is more than %d, the most that Linux has", o.pids, maxPids)
	}
	if o.memory != "" {
		n, err := parseSize(o.memory)
		if err != nil {
			return nil, usagef("confine run", "--memory %q: %v", o.memory, err)
		}
		b.Limits.Memory = n
	}
	if err := o.planNetwork(p); err != nil {
		return nil, err
	}
	if err := o.planView(ctx, f, p); err != nil {
		return nil, errors.Join(err, p.discard())
	}
	return p, nil
}

func (o *runOptions) planNetwork(p *runPlan) error {
	if o.net == "" {
		if len(o.netMap) > 0 {
			return usagef("confine run", "--net-map needs --net")
		}
		return nil
	}
	rules, err := egress.ParseRules(o.net)
	if err != nil {
		return &UsageError{Command: "confine run", Err: fmt.Errorf("--net: %w", err)}
	}
	p.policy.Allow = rules
	p.boundary.Network = boundary.NetworkCaptured
	p.netMap = map[egress.HostPort]netip.AddrPort{}
	for _, m := range o.netMap {
		from, to, ok := strings.Cut(m, "=")
		host, port, err := splitHostPort(from)
		addr, addrErr := netip.ParseAddrPort(to)
		if !ok || err != nil || addrErr != nil {
			return usagef("confine run", "--net-map %q: is not name:port=address:port", m)
		}
		p.netMap[egress.HostPort{Host: host, Port: port}] = addr
	}
	return nil
}

func splitHostPort(s string) (egress.Host, uint16, error) {
	name, port, ok := strings.Cut(s, ":")
	if !ok {
		port = "443"
	}
	host, err := egress.ParseHost(name)
	if err != nil {
		return "", 0, err
	}
	n, err := egress.ParsePort(port)
	return host, n, err
}

// planView puts the view together: the system, the toolchains, what --ro names,
// and the workspace over all of them.
func (o *runOptions) planView(ctx context.Context, f *frame, p *runPlan) error {
	b := &p.boundary
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find working directory: %w", err)
	}
	if p.live, err = workspace.Live(workspace.Options{
		Dir: dir, Home: f.getenv("HOME"), Masks: o.mask, StateDir: stateDir(f),
		Exclusive: o.stage, Waiting: f.waiting(dir), Cancel: ctx.Done(),
	}); err != nil {
		return err
	}
	if o.stage {
		p.staged, err = p.live.Stage(workspace.StageOptions{
			StateDir: stateDir(f), HostUID: b.Identity.HostUID, HostGID: b.Identity.HostGID, Release: o.release, Command: p.args,
		})
		if err != nil {
			return err
		}
	}
	p.notes = p.live.Notes
	system, report, err := hostview.System(hostview.Options{
		UID: b.Identity.UID, GID: b.Identity.GID, Network: b.Network, SafeDirectories: p.live.SafeDirectories, GitMasked: p.live.GitMasked,
	})
	if err != nil {
		return err
	}
	p.skipped = report.Skipped
	system.AddTo(&b.View)
	tools := hostview.FindToolchains(hostview.ToolchainOptions{
		Path: f.getenv("PATH"), Home: f.getenv("HOME"), Workspace: p.live.Dir, Inside: workspace.Inside, RunHome: hostview.HomeDir(b.Identity.UID),
		GoModCache: f.getenv("GOMODCACHE"), GoPath: f.getenv("GOPATH"), Network: b.Network == boundary.NetworkCaptured,
	})
	tools.AddTo(&b.View)
	p.skipped = append(p.skipped, tools.Skipped...)
	for _, l := range tools.Lent {
		p.lent = append(p.lent, lentReport{Path: l.Path, Why: l.Why})
	}
	if err := o.addReadOnly(p); err != nil {
		return err
	}
	b.View.Mounts = append(b.View.Mounts, p.live.Mounts...)
	b.View.Workdir, b.View.Hostname = workspace.Inside, hostview.Hostname
	extra := append([]string{}, tools.Env...)
	for _, e := range o.env {
		if !strings.Contains(e, "=") {
			value, ok := f.lookupEnv(e)
			if !ok {
				// As with the container tools: what is not set here is not set
				// there either, which a program can tell from empty.
				p.notes = append(p.notes, fmt.Sprintf("--env %s: is not set here, and so not inside", e))
				continue
			}
			e += "=" + value
		}
		extra = append(extra, e)
	}
	b.Env, err = hostview.Env(hostview.EnvOptions{UID: b.Identity.UID, Path: tools.Path, Term: f.getenv("TERM"), Lang: f.getenv("LANG"), Extra: extra})
	return err
}

// inTheWay names what of the view lies at or below a place.
func (p *runPlan) inTheWay(at string) string {
	v := p.boundary.View
	below := func(target string) bool {
		return target == at || strings.HasPrefix(target, strings.TrimSuffix(at, "/")+"/")
	}
	own := []string{"/proc", "/dev", workspace.Inside, hostview.HomeDir(p.boundary.Identity.UID)}
	for _, m := range v.Mounts {
		if m.Kind != boundary.Bind || m.Source != m.Target {
			own = append(own, m.Target)
		}
	}
	for _, f := range v.Files {
		own = append(own, f.Path)
	}
	for _, l := range v.Links {
		own = append(own, l.Path)
	}
	if i := slices.IndexFunc(own, below); i >= 0 {
		return strconv.Quote(own[i])
	}
	return ""
}

func (o *runOptions) addReadOnly(p *runPlan) error {
	for _, path := range o.ro {
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		source, err := filepath.EvalSymlinks(abs)
		if err != nil {
			return usagef("confine run", "--ro %q: %v", path, err)
		}
		// It would show the workspace a second time, without masks.
		if p.live.Overlaps(source) {
			return usagef("confine run", "--ro %q: is or holds the workspace, or lies in it, where all is shown already but what is masked", path)
		}
		if within := p.inTheWay(abs); within != "" {
			return usagef("confine run", "--ro %q: would cover %s, which the view has of its own; lend the directories in it that you need", path, within)
		}
		channels, complete := hostview.Channels(source, maxLentEntries)
		if len(channels) > 0 {
			return usagef("confine run", "--ro %q: holds a socket or FIFO of the host, a way to a process outside: %.200q; lend a directory without it", path, channels[0])
		}
		if !complete {
			p.notes = append(p.notes, fmt.Sprintf("--ro %q: more than %d files were not looked at: a socket among them would be within reach", path, maxLentEntries))
		}
		p.boundary.View.Mounts = append(p.boundary.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: source, Target: abs, Owned: true})
		p.lent = append(p.lent, lentReport{Path: abs, Why: "--ro"})
	}
	return nil
}

// egressServer lets the proxy serve a sandbox: neither package knows the other.
type egressServer struct{ server *proxy.Server }

func newEgress(policy egress.Policy, netMap map[egress.HostPort]netip.AddrPort, onRefusal func(egress.Refusal)) (sandbox.EgressServer, error) {
	server, err := proxy.New(proxy.Options{Policy: policy, NetMap: netMap, OnRefusal: onRefusal})
	if err != nil {
		return nil, err
	}
	return egressServer{server}, nil
}

// Serve implements sandbox.EgressServer.
func (e egressServer) Serve(s sandbox.EgressSockets) (func(), error) {
	return e.server.Serve(s.DNS, s.DNSTCP, s.Capture, s.Connect, s.Who)
}
