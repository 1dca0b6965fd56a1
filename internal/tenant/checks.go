package tenant

import (
	"slices"
	"strconv"
	"strings"

	"confine/internal/boundary"
)

// check is one thing that only several fields together can get wrong.
type check struct {
	name string
	run  func(*Config, *reader)
}

// checks in order. Each looks only at fields that were read without a problem:
// what follows from a mistake is not reported as another.
func checks() []check {
	return []check{
		{"view names a system", checkSystem},
		{"path is in the view", checkPath},
		{"allow_missing names a layer once", checkMissing},
		{"setup without commands", checkSetup},
		{"a stage to do", checkStages},
		{"a gate before a pull request", checkGate},
		{"reports of checks", checkReports},
		{"rule for merging", checkRule},
		{"lists name things once", checkTwice},
		{"no secret where untrusted programs run", checkSecrets},
	}
}

func checkSystem(c *Config, p *reader) {
	if !p.sound("view.host", "view.image") {
		return
	}
	if _, stands := p.places["view"]; stands && !c.View.Host && c.View.Image == "" {
		p.blame("view.host", "host: true", "the view names no system to run in")
	}
}

// checkPath finds a directory of PATH that can't be there: a toolchain that is
// named and not shown is the commonest first mistake.
func checkPath(c *Config, p *reader) {
	if !p.sound("view.ro", "view.path") {
		return
	}
	shown := append([]string{"/usr", "/bin", "/sbin", "/workspace", "/home/agent"}, c.View.RO...)
	for i, dir := range c.View.Path {
		below := func(top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }
		if !slices.ContainsFunc(shown, below) {
			p.blame("view.path["+strconv.Itoa(i)+"]", "", "%.200q is not in the view: add it, or the directory that holds the toolchain, to view.ro", dir)
		}
	}
}

func checkMissing(c *Config, p *reader) {
	if p.sound("view.allow_missing") && slices.Contains(c.View.AllowMissing, boundary.LayerUserNS) {
		p.blame("view.allow_missing", "", "%q can't be missing: nothing is confined without it", boundary.LayerUserNS)
	}
}

func checkSetup(c *Config, p *reader) {
	if !p.sound("setup") || len(c.Setup.Run) > 0 {
		return
	}
	for _, field := range []string{"key", "egress", "timeout"} {
		if _, stands := p.places["setup."+field]; stands {
			p.blame("setup."+field, "", "has no effect without commands in setup.run")
		}
	}
}

func checkStages(c *Config, p *reader) {
	if p.sound("stages", "repo.until") && c.Repo.Until == UntilPlan && c.Stages.Plan == nil {
		p.blame("stages.plan", "", "is missing: repo.until is plan, and no stage writes one")
	}
}

func checkGate(c *Config, p *reader) {
	if p.sound("gate", "repo.until") && len(c.Gate) == 0 && c.Repo.Until.Reaches(UntilPR) {
		p.blame("gate", "", "names no check, and nothing is pushed that was not checked: add one, or set repo.until to commits")
	}
}

func checkReports(c *Config, p *reader) {
	for i := range c.Gate {
		check := &c.Gate[i]
		at := "gate." + check.Name
		if !p.sound(at) {
			continue
		}
		switch {
		case check.Report == ReportExit && check.MinTests > 0:
			p.blame(at+".min_tests", "report: gotest", "counts nothing: with report: exit only the exit status is known")
		case check.Report == ReportGoTest && strings.Contains(check.Run, "go test") && !strings.Contains(check.Run, "-json"):
			p.blame(at+".run", "", "prints no report to read: report: gotest reads the output of go test -json")
		case check.Report == ReportGoTest && check.MinTests == 0:
			check.MinTests = 1
		}
	}
}

func checkRule(c *Config, p *reader) {
	if !p.sound("merge", "repo.until") {
		return
	}
	_, ruled := p.places["merge.rule"]
	switch {
	case c.Merge.Mode == MergeEngine && !ruled:
		p.blame("merge.rule", "", "is missing: merge.mode is engine, and nothing says when it may merge")
	case c.Merge.Mode == MergePerson && ruled:
		p.blame("merge.rule", "", "has no effect: merge.mode is person")
	case ruled && !c.Merge.Rule.NeedsGates():
		p.blame("merge.rule", "", "can hold although the gate did not pass: put {gates: passed} where it must always hold, as in {all: [{gates: passed}, …]}")
	case c.Merge.Mode == MergeEngine && !c.Repo.Until.Reaches(UntilMerge):
		p.blame("merge.mode", "", "engine merges, but repo.until stops at %s: set repo.until to merge", c.Repo.Until)
	}
}

// checkTwice finds what is listed two times: one of them was meant to be
// something else.
func checkTwice(c *Config, p *reader) {
	twice(p, "view.ro", c.View.RO)
	twice(p, "view.path", c.View.Path)
	twice(p, "view.allow_missing", c.View.AllowMissing)
	twice(p, "setup.key", c.Setup.Key)
	twice(p, "handover.allow", c.Handover.Allow)
	twice(p, "egress.allow", c.Egress.Allow)
	twice(p, "egress.deny", c.Egress.Deny)
	twice(p, "egress.quiet", c.Egress.Quiet)
	twice(p, "setup.egress", c.Setup.Egress)
	twice(p, "protect.free", c.Protect.Free)
	seen := map[Glob]string{}
	for _, tier := range []struct {
		at    string
		globs []Glob
	}{{"protect.refuse", c.Protect.Refuse}, {"protect.approval", c.Protect.Approval}, {"protect.note", c.Protect.Note}} {
		if !p.sound(tier.at) {
			continue
		}
		for i, glob := range tier.globs {
			at := tier.at + "[" + strconv.Itoa(i) + "]"
			if before, ok := seen[glob]; ok {
				p.blame(at, "", "%.200q is listed already, as %s", string(glob), before)
				continue
			}
			seen[glob] = at
		}
	}
}

func twice[V comparable](p *reader, at string, list []V) {
	if !p.sound(at) {
		return
	}
	for i, value := range list {
		if first := slices.Index(list, value); first < i {
			p.blame(at+"["+strconv.Itoa(i)+"]", "", "is listed already, as element %d", first)
		}
	}
}
