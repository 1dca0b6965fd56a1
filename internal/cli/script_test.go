package cli

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"confine": func() {
			os.Exit(Main(context.Background(), Process{
				Args: os.Args[1:], Env: os.Environ(), Version: "test",
				Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			}))
		},
	})
}

// TestScripts runs every script below testdata/script, found by walking, so that
// none is left out by a list.
func TestScripts(t *testing.T) {
	var scripts []string
	err := filepath.WalkDir(filepath.Join("testdata", "script"), func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if !strings.HasSuffix(name, ".txtar") {
				t.Errorf("%s is no script", name)
			}
			scripts = append(scripts, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) == 0 {
		t.Fatal("no script was found")
	}
	testscript.Run(t, testscript.Params{
		Files: scripts, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// status runs `status N confine ARGS…` and fails unless the exit status is N: a
// mere `! exec` would be content with any failure. Output is then compared with
// stdout and stderr as usual.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command args…")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%s ended with status %s, want %s", strings.Join(args[1:], " "), got, args[0])
	}
}
