package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/kernel/probe"
)

func doctor(items []probe.Item, gitErr error, asJSON bool) (string, error) {
	var out bytes.Buffer
	f := &frame{Process: Process{Stdout: &out}, json: asJSON}
	o := &doctorOptions{
		host: func() probe.Report { return probe.Report{Items: items} },
		git: func(context.Context) (gitcmd.Version, error) {
			return gitcmd.Version{Major: 2, Minor: 50, Patch: 1}, gitErr
		},
	}
	err := o.run(context.Background(), f)
	return out.String(), err
}

func TestDoctorNamesEachLackAndItsFix(t *testing.T) {
	has := probe.Item{Name: "seccomp", Layer: boundary.LayerSeccomp, Present: true, Needed: true, Detail: "loaded"}
	lacks := probe.Item{Name: "user namespaces", Needed: true, Detail: "clone: \x1b[31mno\u202e", Fix: "allow them"}
	optional := probe.Item{Name: "overlay", Detail: "unknown", Without: "no staging", Fix: "load it"}

	out, err := doctor([]probe.Item{has, optional}, nil, false)
	if err != nil {
		t.Errorf("nothing needed lacks: %v", err)
	}
	want := "ok        seccomp: loaded\noptional  overlay: unknown\n          without it: no staging\n          fix: load it\nok        git: 2.50.1\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}

	out, err = doctor([]probe.Item{lacks, has}, nil, false)
	if fail := failureOf(err); fail.Status != ExitMissing || !strings.Contains(fail.Error, "user namespaces") {
		t.Errorf("got %+v", fail)
	}
	want = "missing   user namespaces: clone: no\n          fix: allow them\nok        seccomp: loaded\nok        git: 2.50.1\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}

	out, err = doctor([]probe.Item{has}, &gitcmd.MissingError{Err: errors.New("find git: none")}, false)
	if failureOf(err).Status != ExitMissing || !strings.Contains(out, "missing   git: find git: none\n") || !strings.Contains(out, "fix: mend") {
		t.Errorf("without git: %v\n%s", err, out)
	}

	follows := probe.Item{Name: "namespaces", Needed: true, Detail: "not looked at", Without: "nothing", Fix: "mend the other", After: "user namespaces"}
	out, err = doctor([]probe.Item{lacks, follows}, nil, false)
	want = "missing   user namespaces: clone: no\n          fix: allow them\nmissing   namespaces: not looked at\nok        git: 2.50.1\n"
	if fail := failureOf(err); out != want || fail.Error != "this host lacks user namespaces" {
		t.Errorf("a lack that follows from another: %+v\n%s", fail, out)
	}
}

func TestDoctorJSON(t *testing.T) {
	out, err := doctor([]probe.Item{{Name: "Landlock", Layer: boundary.LayerLandlock, Needed: true, Detail: "off", Fix: "switch it on"}}, nil, true)
	if failureOf(err).Status != ExitMissing {
		t.Errorf("got %v", err)
	}
	var got struct {
		Abilities []map[string]any `json:"abilities"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(got.Abilities) != 2 || got.Abilities[0]["layer"] != "landlock" || got.Abilities[0]["present"] != false || got.Abilities[0]["fix"] != "switch it on" || got.Abilities[1]["name"] != "git" {
		t.Errorf("got %v", got.Abilities)
	}
}
