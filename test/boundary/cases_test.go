//go:build linux

package boundary

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Faults that others had, each with the action that must work or must not. The
// script's exit status and the last line of its output are what counts.
func TestHonestProgramsWork(t *testing.T) {
	for name, c := range map[string]struct {
		needs  string // a program of the host without which the case says nothing
		script string
		last   string
	}{
		"go builds and vets without a cache setting": {"go", `mkdir m; cd m; printf "module x\ngo 1.21\n" >go.mod; printf "package main\nfunc main(){}\n" >main.go; go build ./... && go vet ./... && echo built`, "built"},
		"git commits and restores":                   {"git", `git init -q; git config user.name a; git config user.email a@example.com; echo a >f; git add f; git commit -qm i; echo b >f; git checkout -q -- f; cat f`, "a"},
		"socket pairs pass credentials":              {"python3", `python3 -c 'import socket as s;a,b=s.socketpair();a.setsockopt(s.SOL_SOCKET,s.SO_PASSCRED,1);print("ok")'`, "ok"},
		"shared memory":                              {"", `echo x >/dev/shm/t && df -k /dev/shm >/dev/null && cat /dev/shm/t`, "x"},
		"unix sockets between own processes":         {"python3", `python3 -c 'import socket;l=socket.socket(1,1);l.bind("s");l.listen();c=socket.socket(1,1);c.connect("s");print("ok")'`, "ok"},
		"abstract sockets between own processes":     {"python3", `python3 -c 'import socket;l=socket.socket(1,1);l.bind("\0s");l.listen();c=socket.socket(1,1);c.connect("\0s");print("ok")'`, "ok"},
		"ssh accepts the owner of its settings":      {"ssh", `ssh -G localhost >/dev/null && echo ok`, "ok"},
		"the user has a name":                        {"python3", `test "$(whoami)" = agent && HOME= python3 -c 'import getpass,pwd,os;print(getpass.getuser(),pwd.getpwuid(os.getuid()).pw_dir)'`, "agent /home/agent"},
		"node knows its user":                        {"node", `node -e 'console.log(require("os").userInfo().username)'`, "agent"},
		"a server on loopback":                       {"python3", `python3 -m http.server -b 127.0.0.1 8123 >/dev/null 2>&1 & for i in $(seq 50); do python3 -c 'import urllib.request as u;print(u.urlopen("http://localhost:8123/").status)' 2>/dev/null && exit 0; sleep 0.1; done; exit 1`, "200"},
		"atomic save":                                {"", `echo a >f; printf x >f.tmp && mv f.tmp f && sed -i s/x/y/ f && cat f`, "y"},
		"names that are no text":                     {"python3", "python3 -c 'import os;open(b\"a\\xff\\nb\",\"w\").write(\"x\");print(len(os.listdir(b\".\")))'", "1"},
		"a path of four thousand bytes": {"python3", `python3 -c 'import os
n="d"*200
for i in range(19): os.mkdir(n); os.chdir(n)
open("f","w").write("x"); print(len(os.getcwd())>3800)'`, "True"},
		"locks and inotify": {"python3", `python3 -c 'import fcntl,ctypes;f=open("l","w");fcntl.flock(f,fcntl.LOCK_EX);fcntl.lockf(f,fcntl.LOCK_EX);print(ctypes.CDLL(None).inotify_init()>=0)'`, "True"},
		"threads":           {"python3", `python3 -c 'import threading;ts=[threading.Thread(target=lambda:None) for _ in range(50)];[t.start() for t in ts];[t.join() for t in ts];print("ok")'`, "ok"},
		"gcc and make -j":   {"gcc", `printf 'int main(){return 0;}' >a.c; printf 'all: x y\nx y: a.c\n\tgcc -o $@ $<\n' >Makefile; make -s -j4 && ./x && ./y && echo ok`, "ok"},
		"strace of a child": {"strace", `strace -o /tmp/trace true && grep -c exit_group /tmp/trace`, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.needs != "" {
				if _, err := exec.LookPath(c.needs); err != nil {
					t.Fatalf("%s is not on this host: scripts/setup test installs it", c.needs)
				}
			}
			t.Parallel()
			out, errs, status := confined(t, t.TempDir(), nil, "--", "bash", "-c", c.script)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if status != 0 || lines[len(lines)-1] != c.last {
				t.Errorf("status %d, %q, want the last line %q: %s", status, out, c.last, errs)
			}
		})
	}
}

// TestArgumentsAreNoLimit: neither a long command nor thousands of masked files
// go through something that has a limit of its own.
func TestArgumentsAreNoLimit(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)+".key"), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, status := confined(t, dir, nil, "--mask", "**/*.key", "--", "sh", "-c", "cat *.key | wc -c; ls | wc -l")
	if f := strings.Fields(out); status != 0 || len(f) != 2 || f[0] != "0" || f[1] != "3000" {
		t.Errorf("status %d, %q, %.300s", status, out, errs)
	}
	// One argument may have 128 KiB (MAX_ARG_STRLEN); all together 2 MiB.
	long := make([]string, 1000)
	for i := range long {
		long[i] = strings.Repeat("a", 1000)
	}
	out, errs, status = confined(t, t.TempDir(), nil, append([]string{"--", "sh", "-c", "echo $#", "sh"}, long...)...)
	if status != 0 || strings.TrimSpace(out) != "1000" {
		t.Errorf("status %d, %q, %.300s", status, out, errs)
	}
}

// TestHostSocketsAreOutOfReach: those in the workspace stop the start, others
// are not there.
func TestHostSocketsAreOutOfReach(t *testing.T) {
	abstract, err := net.Listen("unix", "@confine-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	path := filepath.Join(t.TempDir(), "s")
	named, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	try := `import socket,sys
for a in sys.argv[1:]:
    s=socket.socket(1,1)
    try:
        s.connect("\0"+a[1:] if a[0]=="@" else a); print("reached")
    except OSError as e: print(e.errno)`
	args := []string{"python3", "-c", try, abstract.Addr().String(), path}
	if out, err := exec.Command(args[0], args[1:]...).Output(); err != nil || string(out) != "reached\nreached\n" {
		t.Fatalf("control: %v %q", err, out)
	}
	out, errs, _ := confined(t, t.TempDir(), nil, append([]string{"--"}, args...)...)
	// ECONNREFUSED: no such name in this network namespace. ENOENT: no such file.
	if out != "111\n2\n" {
		t.Errorf("inside: %q %s", out, errs)
	}
	// Lent, it would be: a read-only view does not keep from connecting.
	if out, errs, status := confined(t, t.TempDir(), nil, append([]string{"--ro", filepath.Dir(path), "--"}, args...)...); status != 125 || !strings.Contains(errs, "socket or FIFO") {
		t.Errorf("lent: status %d: %q %s", status, out, errs)
	}
	// What PATH brings in by itself is covered.
	home := t.TempDir()
	bin := filepath.Join(home, ".local/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	byPath, err := net.Listen("unix", filepath.Join(bin, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer byPath.Close()
	env := []string{"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH")}
	if out, errs, status := confined(t, t.TempDir(), env, "--", "python3", "-c", try, filepath.Join(bin, "s")); status != 0 || out != "13\n" { // EACCES: the cover, not the socket
		t.Errorf("on PATH: status %d: %q %s", status, out, errs)
	}
	out, _, status := confined(t, t.TempDir(), nil, "--", "sh", "-c", "find / -xdev -type s 2>/dev/null; echo end")
	if status != 0 || out != "end\n" {
		t.Errorf("sockets inside: %q", out)
	}
}

// TestGrantsAreNotTakenFromTheWorkspace: what a run wrote names no path that the
// next run would be given.
func TestGrantsAreNotTakenFromTheWorkspace(t *testing.T) {
	outside, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	shell(t, dir, "git init -q .")
	script := `mkdir -p .git/objects/info t; echo ` + outside + ` >.git/objects/info/alternates; echo "gitdir: ` + outside + `" >t/.git; ln -s ` + outside + ` vendor; ls -d vendor t/.git`
	if out, errs, _ := confined(t, dir, nil, "--live", "--", "sh", "-c", script); !strings.Contains(out, "vendor") {
		t.Fatalf("control: %q %s", out, errs)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "vendor", "canary")); err != nil || string(data) != "canary" {
		t.Fatalf("control: %q %v", data, err)
	}
	out, _, status := confined(t, dir, nil, "--", "cat", "vendor/canary")
	if status == 0 || strings.Contains(out, "canary") {
		t.Errorf("status %d: %q", status, out)
	}
}

// TestLinksDoNotLeadAroundAMask: neither a hard link nor a rename of a parent
// shows what is covered (it moves along), and ordinary links work.
func TestLinksDoNotLeadAroundAMask(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{".env": "hidden", "a/x.key": "hidden", "a/plain": "seen"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := `cat .env a/x.key; ln .env e; cat e; ln a/x.key k; cat k; mv a b; cat b/x.key; ln b/plain p; cat p; rm -f .env; cat .env`
	if out, err := exec.Command("cat", filepath.Join(dir, ".env")).Output(); err != nil || string(out) != "hidden" {
		t.Fatalf("control: %v", err)
	}
	// Staged, a directory is moved by copying it: what is masked stays.
	for _, c := range [][2]string{{"--stage", "a/x.key"}, {"--live", "b/x.key"}} {
		linksAroundAMask(t, dir, c[0], script, c[1])
		shell(t, dir, "rm -rf b e k p; mkdir -p a; printf seen >a/plain")
	}
}

func linksAroundAMask(t *testing.T, dir, mode, script, key string) {
	t.Helper()
	out, errs, _ := confined(t, dir, nil, mode, "--mask", "*.key", "--", "sh", "-c", script)
	if strings.Contains(out, "hidden") || !strings.Contains(out, "seen") {
		t.Errorf("%s: %q %s", mode, out, errs)
	}
	for _, name := range []string{".env", key} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != "hidden" {
			t.Errorf("%s afterwards: %q %v", name, data, err)
		}
	}
}

// TestBackgroundProcessesEndWithTheCommand and do not hold it up.
func TestBackgroundProcessesEndWithTheCommand(t *testing.T) {
	mark := uniqueSeconds(t)
	begin := time.Now()
	out, errs, status := confined(t, t.TempDir(), nil, "--", "sh", "-c", "setsid nohup sleep "+mark+" >/dev/null 2>&1 & (trap '' TERM HUP; sleep "+mark+") & sleep "+mark+" & echo done")
	if status != 0 || out != "done\n" || time.Since(begin) > 10*time.Second {
		t.Errorf("after %s: status %d, %q %s", time.Since(begin), status, out, errs)
	}
	noneLeft(t, mark)
	mark = uniqueSeconds(t)
	if _, errs, status := confined(t, t.TempDir(), nil, "--timeout", "1s", "--", "sh", "-c", "trap '' TERM; setsid sleep "+mark+" & while :; do sleep "+mark+"; done"); status != 124 || !strings.Contains(errs, "time limit") {
		t.Errorf("time limit: status %d: %s", status, errs)
	}
	noneLeft(t, mark)
}

// TestInitCannotBeSignalled: a test suite that reaps "orphans" ends neither its
// init nor anything outside.
func TestInitCannotBeSignalled(t *testing.T) {
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	out, errs, status := confined(t, t.TempDir(), nil, "--", "sh", "-c", "kill -TERM 1; kill -KILL 1; kill -KILL "+strconv.Itoa(bystander.Process.Pid)+"; trap '' TERM; kill -TERM -1; sleep 0.2; echo alive")
	if status != 0 || !strings.HasSuffix(out, "alive\n") {
		t.Errorf("status %d: %q %s", status, out, errs)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("bystander: %v", err)
	}
}

// TestManyAtOnce: starts don't get into each other's way, nor do runs that share
// a workspace.
func TestManyAtOnce(t *testing.T) {
	confine, shared := program(t), t.TempDir()
	mounts, entries := ownMounts(t), tempEntries(t)
	var group sync.WaitGroup
	for i := range 200 {
		dir := shared
		if i%10 != 0 {
			dir = t.TempDir()
		}
		group.Go(func() {
			cmd := exec.Command(confine, "run", "--", "sh", "-c", "echo $$ >>log")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	group.Wait()
	if data, err := os.ReadFile(filepath.Join(shared, "log")); err != nil || strings.Count(string(data), "\n") != 20 {
		t.Errorf("log %q %v", data, err)
	}
	if m, e := ownMounts(t), tempEntries(t); m != mounts || e != entries {
		t.Errorf("left: mounts %q, files %q; were %q and %q", m, e, mounts, entries)
	}
}

// TestNothingProtectedCanBeMovedAway: a directory above a nested repository or a
// masked path can't be renamed, or a copy in its place would be writable, and
// what a mask names would lead elsewhere at the next start.
func TestNothingProtectedCanBeMovedAway(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "git init -q .; git init -q sub/repo; mkdir -p a/priv free/x; echo secret >a/priv/k; touch free/x/f")
	masks := []string{"--mask", "a/priv"}
	for script, moves := range map[string]bool{
		"mv sub old": false, "mv sub/repo sub/old": false, "mv sub/repo/.git sub/repo/g": false, "mv a b": false, "mv a/priv a/p": false,
		"mv free libre && mv libre free": true, "touch sub/repo/f && mv sub/repo/f sub/repo/g && rm sub/repo/g": true,
		"mv free/x/f sub/f && mv sub/f free/x/f": true,
	} {
		_, errs, status := confined(t, dir, nil, append(masks, "--", "sh", "-c", script)...)
		if (status == 0) != moves || !moves && !strings.Contains(errs, "Device or resource busy") {
			t.Errorf("%s: status %d: %s", script, status, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "sub/repo/.git/config")); err != nil {
		t.Error(err)
	}
	out, _, _ := confined(t, dir, nil, append(masks, "--", "sh", "-c", "cat */k */*/k")...)
	if strings.Contains(out, "secret") {
		t.Errorf("the mask leads elsewhere: %q", out)
	}
}

// TestLinkedWorktree: git works in one, and the repository it shares keeps its
// control files and its other worktrees.
func TestLinkedWorktree(t *testing.T) {
	base := t.TempDir()
	shell(t, base, `git init -q -b main main; cd main; echo a >a; git add a; git commit -qm one; git worktree add -q ../w1; git worktree add -q ../w2
		git config user.name a; git config user.email a@example.com`)
	dir := filepath.Join(base, "w1")
	for script, works := range map[string]bool{
		"git status --short && echo b >>a && git commit -qam two && git branch other": true,
		"git worktree prune && git log -1 && test $(git worktree list | wc -l) = 3":   true,
		"git config core.fsmonitor x":                           false,
		"echo x >$(git rev-parse --git-common-dir)/hooks/x":     false,
		"rm -rf $(git rev-parse --git-common-dir)/worktrees/w2": false,
		"ls " + filepath.Join(base, "main/a"):                   false,
		"ls " + filepath.Join(base, "w2"):                       false,
	} {
		if out, errs, status := confined(t, dir, nil, "--", "sh", "-c", script); (status == 0) != works {
			t.Errorf("%s: status %d: %s %s", script, status, out, errs)
		}
	}
	if got := shell(t, base, "git -C w1 log --format=%s -1; git -C w2 status --short; git -C main config --get core.fsmonitor || true; git -C main fsck 2>/dev/null"); got != "two\n" {
		t.Errorf("afterwards %q", got)
	}
}
