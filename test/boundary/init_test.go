//go:build linux

package boundary

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// onProcess is what the system's own programs change of another process of the
// same user, the last of it being its end.
const onProcess = `
on() {
	prlimit --pid $1 --nofile >/dev/null; echo read-$?
	renice -n $(nice) -p $1 >/dev/null; echo nice-$?
	taskset -p $(taskset -p $$ | sed 's/.*: //') $1 >/dev/null; echo processors-$?
	ionice -c 2 -n 4 -p $1; echo io-$?
	chrt --other -p 0 $1; echo scheduler-$?
	prlimit --pid $1 --cpu=$2; echo cpu-$?
}
`

var changes = []string{"read", "nice", "processors", "io", "scheduler", "cpu"}

// TestCommandCannotEndInit: a CPU limit of nothing was the end of PID 1, and so of
// the run, for which there was then no status.
func TestCommandCannotEndInit(t *testing.T) {
	all := func(status string) (out []string) {
		for _, c := range changes {
			out = append(out, c+"-"+status)
		}
		return out
	}
	holds := func(t *testing.T, text string, lines []string) {
		t.Helper()
		for _, l := range lines {
			if !strings.Contains(text, l+"\n") {
				t.Errorf("no %s in %s", l, text)
			}
		}
	}
	t.Run("control", func(t *testing.T) {
		// What init would be: another process, busy, of the same user.
		cmd := exec.Command("sh", "-c", onProcess+`sh -c 'while :; do :; done' & busy=$!; on $busy 0; wait $busy; echo ended-$?`)
		timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "ended-137\n") {
			t.Errorf("%v: %s", err, out)
		}
		holds(t, string(out), all("0"))
	})
	run := func(t *testing.T, script string) (string, int) {
		t.Helper()
		cmd := exec.Command(program(t), "run", "--", "sh", "-c", onProcess+script)
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	t.Run("init", func(t *testing.T) {
		// Orphans are init's to reap, which is what uses its time.
		text, status := run(t, `on 1 0; i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; sleep 0.2; exit 7`)
		if status != 7 || strings.Count(text, "Operation not permitted") < len(changes) {
			t.Errorf("status %d: %s", status, text)
		}
		holds(t, text, all("1"))
	})
	t.Run("neighbour", func(t *testing.T) {
		text, status := run(t, `sleep 50 & on $! 5; on $$ 5; kill $!; exit 7`)
		if status != 7 {
			t.Errorf("status %d: %s", status, text)
		}
		holds(t, text, all("0"))
	})
}
