//go:build linux

package sandboxtest

import (
	"slices"
	"strings"
	"testing"

	"confine/internal/kernel/seccomp"
)

// TestEveryCallOfThePolicyIsTried: what the policy refuses, rules or leaves out is
// exactly what the probe tries, so neither list changes alone.
func TestEveryCallOfThePolicyIsTried(t *testing.T) {
	p := seccomp.Default()
	var ruled, rules, absent []string
	for _, c := range ruledCalls() {
		ruled = append(ruled, c.name)
		if len(c.refused) == 0 || len(c.neighbour) == 0 {
			t.Errorf("%s: %d refused, neighbour %v", c.name, len(c.refused), c.neighbour)
		}
	}
	for name := range p.Rules {
		rules = append(rules, name)
	}
	for _, name := range seccomp.Names() {
		if _, ok := p.Rules[name]; !ok && !slices.Contains(p.Allowed, name) && !slices.Contains(p.Refused, name) {
			absent = append(absent, name)
		}
	}
	tried := strings.Fields(absentCalls)
	// One architecture has not all of them.
	known := slices.DeleteFunc(slices.Clone(tried), func(name string) bool { return !slices.Contains(seccomp.Names(), name) })
	if len(known) < len(tried)/3 {
		t.Errorf("only %d of %d absent calls are known", len(known), len(tried))
	}
	for what, lists := range map[string][2][]string{
		"refused": {strings.Fields(refusedCalls), p.Refused}, "ruled": {ruled, rules}, "absent": {known, absent},
	} {
		slices.Sort(lists[0])
		slices.Sort(lists[1])
		if !slices.Equal(lists[0], lists[1]) {
			t.Errorf("%s: tried\n%v\nin the policy\n%v", what, lists[0], lists[1])
		}
	}
	for _, name := range strings.Fields(allowedCalls) {
		if !slices.Contains(p.Allowed, name) && p.Rules[name].Else != seccomp.Allow {
			t.Errorf("%s is not allowed", name)
		}
	}
}

// TestWithoutAFilterEveryCallReachesTheKernel: the probe's control.
func TestWithoutAFilterEveryCallReachesTheKernel(t *testing.T) {
	a := tryCalls(nil)
	if len(a.Tries) < 250 || a.Neighbour != "ok" {
		t.Errorf("%d tries, neighbour %q", len(a.Tries), a.Neighbour)
	}
	for _, try := range a.Tries {
		if try.Result != letThrough || try.Want != "EPERM" && try.Want != "ENOSYS" {
			t.Errorf("%+v", try)
		}
	}
	if o := a.judge("none", true); o.held || !o.controlled {
		t.Errorf("without a filter: %+v", o)
	}
}

func TestMountFlagsAreReadFromTheRightFields(t *testing.T) {
	points, flags, super := mountFlags(`22 1 0:20 / / ro,nosuid,nodev,relatime - tmpfs tmpfs rw,size=16384k
23 22 0:21 / /a\040b rw,nosuid shared:1 master:2 - ext4 /dev/vda ro,nosuid
24 22 0:22 / /proc rw,nosuid,nodev,noexec - proc proc rw,hidepid=ptraceable
not a mount
`)
	if len(points) != 3 || flags["/"] != "ro,nosuid,nodev" || flags["/a b"] != "nosuid" || super["/proc"] != "rw,hidepid=ptraceable" {
		t.Errorf("%q %q %q", points, flags, super)
	}
}

func TestJudgeHoldsEachTryToItsOwnResult(t *testing.T) {
	for name, c := range map[string]struct {
		tries []Try
		held  bool
	}{
		"as wanted":             {[]Try{{What: "a", Result: "EPERM", Want: "EPERM"}, {What: "b", Result: "EROFS"}}, true},
		"allowed to others":     {[]Try{{What: "a", Result: "EROFS", Want: "EPERM"}}, false},
		"not among the allowed": {[]Try{{What: "a", Result: "EPERM"}}, false},
		"ok":                    {[]Try{{What: "a", Result: "ok", Want: "EPERM"}}, false},
		"nothing":               {nil, false},
	} {
		if o := (Answer{Tries: c.tries, Neighbour: "ok"}).judge("", true, "EROFS"); o.held != c.held {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
