package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTimings(t *testing.T) {
	for _, c := range []struct {
		of                     Timings
		median, ninetieth, low time.Duration
	}{
		{nil, 0, 0, 0},
		{Timings{5}, 5, 5, 5},
		{Timings{9, 1, 5}, 5, 9, 1},
		{Timings{4, 2, 8, 6}, 5, 8, 2},
		{Timings{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 5, 10, 1},
	} {
		if m, n, l := c.of.median(), c.of.quantile(0.9), c.of.quantile(0); m != c.median || n != c.ninetieth || l != c.low {
			t.Errorf("%v: median %v, 90 %% %v, least %v", c.of, m, n, l)
		}
	}
}

func TestAimsAreJudgedByRatioOfMedians(t *testing.T) {
	r := Report{
		Start:   map[string]Timings{"confine": {3, 3, 90}, "bwrap": {3, 3, 3}, "runc": {10, 10, 10}},
		Through: map[string]Timings{"captured down": {4}, "direct down": {4}},
	}
	r.judge()
	want := []struct {
		ratio float64
		met   bool
	}{{1, true}, {0.3, false}, {1, true}}
	if len(r.Aims) != len(want) {
		t.Fatalf("aims %+v", r.Aims)
	}
	for i, w := range want {
		if r.Aims[i].Ratio != w.ratio || r.Aims[i].Met != w.met {
			t.Errorf("aim %+v, want %+v", r.Aims[i], w)
		}
	}
}

// TestAContenderThatDoesNotConfineIsRefused: one that runs the command plainly
// would win every round.
func TestAContenderThatDoesNotConfineIsRefused(t *testing.T) {
	all, err := contenders(options{confine: "/nowhere", only: "exec"}, t.TempDir())
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	impostor := contender{name: "impostor", prepare: all[0].prepare}
	if err := impostor.tryOut(t.TempDir()); err == nil || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("error %v", err)
	}
	if _, err := contenders(options{confine: "/nowhere", only: "confine"}, t.TempDir()); err == nil {
		t.Error("a program that is not there was accepted")
	}
	if _, err := contenders(options{only: "docker"}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "unknown contender") {
		t.Errorf("error %v", err)
	}
}

func TestBundleShowsTheSystemReadOnly(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "bundle")
	if err := writeBundle(bundle, "/some/where", []string{"/bin/true"}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Root   struct{ Readonly bool }
		Mounts []struct {
			Destination string
			Options     []string
		}
	}
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	options := map[string]string{}
	for _, m := range config.Mounts {
		options[m.Destination] = strings.Join(m.Options, ",")
	}
	if !config.Root.Readonly || options["/usr"] != "rbind,ro" || options["/workspace"] != "rbind,rw" {
		t.Errorf("config %s", data)
	}
}

// TestServerAnswersBothDirections stands for the other side of netpipe.
func TestServerAnswersBothDirections(t *testing.T) {
	for _, c := range []struct {
		request, send string
		want          int
	}{
		{"down 5000\n", "", 5000},
		{"up 5000\n", strings.Repeat("x", 5000), 1},
	} {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			_ = answer(server)
		}()
		if _, err := client.Write([]byte(c.request + c.send)); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := got.ReadFrom(client); err != nil {
			t.Fatal(err)
		}
		if got.Len() != c.want {
			t.Errorf("%q: %d bytes, want %d", c.request, got.Len(), c.want)
		}
	}
}
