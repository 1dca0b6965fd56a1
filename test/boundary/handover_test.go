//go:build linux

package boundary

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"confine/internal/gitcmd"
	"confine/internal/handover"
	"confine/internal/sandbox/native"
	"confine/internal/workspace"
)

// The export in a real sandbox: commits and leftovers of a workspace whose .git
// is armed come out, nothing of it runs, and nothing of it changes.
func TestHandOverOnTheRealKernel(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	shell(t, dir, `git init -q -b main work && cd work && mkdir d && echo one >d/f && echo 'out/' >.gitignore && git add . && git commit -qm base
		cd .. && git clone -q --bare work mirror.git && mkdir -m 700 spool rescue && mkdir -m 755 lent
		git clone -q mirror.git ws && cd ws && echo two >>d/f && git commit -qam work && echo left >left && mkdir out && echo x >out/cache
		git init -q sub && echo x >sub/x
		echo '* filter=x' >.git/info/attributes
		git config filter.x.clean 'touch /workspace/owned; cat' && git config core.fsmonitor 'touch /workspace/owned' && git config core.hooksPath /workspace/hooks
		mkdir hooks && for h in reference-transaction post-index-change; do printf '#!/bin/sh\ntouch /workspace/owned\n' >hooks/$h; chmod +x hooks/$h; done`)
	mirror, err := gitcmd.Open(ctx, filepath.Join(dir, "mirror.git"))
	if err != nil {
		t.Fatal(err)
	}
	base, err := mirror.RevParse(ctx, "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	lent, err := workspace.Lend(ctx, workspace.LendOptions{Source: mirror, Base: base, Branch: "refs/heads/main", Dir: filepath.Join(dir, "lent")})
	if err != nil {
		t.Fatal(err)
	}
	// What a process without any right of the host's needs to reach them.
	for at := filepath.Dir(dir); at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := shell(t, dir, "cd ws && find . -type f -exec sha256sum {} + | sort")
	o := handover.ExportOptions{
		Driver: native.New(), Boundary: hostBoundary(t), Workspace: filepath.Join(dir, "ws"), Lent: lent, Base: base,
		Leftovers: true, Spool: filepath.Join(dir, "spool"), Scratch: 256 << 20,
	}
	e, err := handover.Take(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind != handover.Bundle || !e.Leftovers || e.Incomplete || len(e.Broken) != 0 || !slices.Equal(e.Nested, []string{"sub"}) {
		t.Fatalf("export = %+v", e)
	}
	if after := shell(t, dir, "cd ws && find . -type f -exec sha256sum {} + | sort"); after != before {
		t.Error("the export changed the workspace, or ran something of it")
	}
	in, err := os.Open(e.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := handover.Receive(ctx, handover.ReceiveOptions{Bundle: in, Lent: lent, Base: base, Dir: filepath.Join(dir, "q.git")})
	if err != nil {
		t.Fatal(err)
	}
	report, err := handover.Check(ctx, handover.CheckOptions{Received: r})
	if err != nil || !report.Passed() || len(report.Commits) != 2 {
		t.Fatalf("report %+v, %v", report, err)
	}
	var got []string
	for _, c := range report.Changes {
		got = append(got, string(c.Status)+" "+c.Path)
	}
	if want := []string{"M d/f", "A hooks/post-index-change", "A hooks/reference-transaction", "A left"}; !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}

	// The repository removed: the files come out all the same.
	shell(t, dir, "rm -rf ws/.git")
	if e, err = handover.Take(ctx, o); err != nil || e.Kind != handover.Bundle || !slices.Equal(e.Broken, []string{"missing"}) {
		t.Errorf("export without .git = %+v, %v", e, err)
	}
	// Too little room for git: an archive.
	shell(t, dir, "head -c 3000000 /dev/urandom >ws/noise")
	o.Scratch = 1 << 20
	if e, err = handover.Take(ctx, o); err != nil || e.Kind != handover.Archive || e.Size < 3_000_000 {
		t.Errorf("export in too little memory = %+v, %v", e, err)
	}
}
