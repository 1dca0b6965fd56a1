//go:build linux

package boundary

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestPosture: what the command is, down to its descriptors, is the same for
// every user and on every host. A line that differs is a layer that was lost.
func TestPosture(t *testing.T) {
	script := `
grep -E '^(NoNewPrivs|Seccomp|Cap(Inh|Prm|Eff|Bnd|Amb)|Groups|Uid|Gid|Umask|SigIgn|SigBlk):' /proc/self/status
echo "id $(id -u) $(id -un) $(id -gn)"
echo "host $(uname -n)"
echo "fds $(ls /proc/self/fd | tr '\n' ' ')"
echo "pids $(ls -d /proc/[0-9]* | wc -l)"
echo "links $(ls /sys/class/net 2>/dev/null | wc -l)"
echo "core $(ulimit -c)"
echo "cwd $(pwd) $HOME"
`
	plain, err := exec.Command("/bin/sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(plain), "Seccomp:\t2") && strings.Contains(string(plain), "CapBnd:\t0000000000000000") {
		t.Fatalf("control: this is the posture without confine:\n%s", plain)
	}
	// A caller's odd state is no part of it.
	cmd := exec.Command("/bin/sh", "-c", `umask 077; ulimit -c unlimited 2>/dev/null; trap '' HUP USR1; exec 7</dev/null "$0" run -- sh -c "$1"`, program(t), script)
	cmd.Dir = t.TempDir()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`pids \d\b`).ReplaceAllString(string(out), "pids few")
	const want = `Umask:	0022
Uid:	1000	1000	1000	1000
Gid:	1000	1000	1000	1000
Groups:	
SigBlk:	0000000000000000
SigIgn:	0000000000000000
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
id 1000 agent agent
host sandbox
fds 0 1 2 3 
pids few
links 0
core 0
cwd /workspace /home/agent
`
	if normal(got) != normal(want) {
		t.Errorf("posture:\n%s\nwant:\n%s", got, want)
	}
}

// normal drops spaces at line ends: old kernels write one after no groups.
func normal(s string) string {
	return regexp.MustCompile(`[ \t]+\n`).ReplaceAllString(s, "\n")
}
