//go:build linux

package boundary

import (
	"strings"
	"testing"
)

// tryCalls is a program that makes raw system calls in a child each, in namespaces
// of the child's own if it says so, and prints the results.
const tryCalls = `
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
USER, NS, PID, NET, IPC, UTS, CG = 0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000
arm = os.uname().machine == 'aarch64'
def nr(x, a): return a if arm else x
UNSHARE, MOUNT, UMOUNT, PIVOT, SETNS, CHROOT = nr(272,97), nr(165,40), nr(166,39), nr(155,41), nr(308,268), nr(161,51)
OPEN_TREE, MOVE_MOUNT, FSOPEN, SETATTR, HOSTNAME, SOCKET, MKNODAT, FCHMODAT = 428, 429, 430, 442, nr(170,161), nr(41,198), nr(259,33), nr(268,53)
def call(n, *args):
    r = libc.syscall(n, *[a.encode() if isinstance(a, str) else a for a in args])
    return 'ok' if r >= 0 else errno.errorcode[ctypes.get_errno()]
def become_root():
    u, g = os.getuid(), os.getgid()
    r = call(UNSHARE, USER)
    if r != 'ok': return r
    for f, t in (('setgroups', 'deny'), ('uid_map', '0 %d 1' % u), ('gid_map', '0 %d 1' % g)):
        open('/proc/self/' + f, 'w').write(t)
    return 'ok'
def child(what, do):
    r, w = os.pipe()
    if os.fork() == 0:
        try: out = do()
        except OSError as e: out = errno.errorcode[e.errno]
        os.write(w, str(out).encode()); os._exit(0)
    os.close(w); print(what, os.read(r, 100).decode()); os.close(r); os.wait()
def inside(do): # with all capabilities in a user namespace of its own
    def f():
        r = become_root()
        return do() if r == 'ok' else 'no namespace: ' + r
    return f
def write(p): open(p, 'w').write('1'); return 'ok'
def count(flag):
    n, kids = 0, []
    for i in range(300):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(w, call(UNSHARE, flag).encode()); os.close(w)
            libc.pause()
        os.close(w); got = os.read(r, 20).decode(); os.close(r); kids.append(pid)
        if got != 'ok': break
        n += 1
    for k in kids: os.kill(k, 9); os.waitpid(k, 0)
    return '%d then %s' % (n, got)
`

// answers runs a script after tryCalls in a profile and returns what it printed,
// by the word before.
func answers(t *testing.T, dir, profile, script string) map[string]string {
	t.Helper()
	flags := []string{"--live"}
	if profile != "" {
		flags = append(flags, "--profile", profile)
	}
	out, errs, status := confined(t, dir, nil, append(flags, "--", "python3", "-c", tryCalls+script)...)
	if status != 0 {
		t.Fatalf("profile %q: status %d: %s%s", profile, status, out, errs)
	}
	if said := strings.Contains(errs, "confine: profile "+profile+": a process inside can have capabilities"); said != (profile != "") {
		t.Errorf("profile %q: the weaker points: %s", profile, errs)
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		if name, result, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			got[name] = result
		}
	}
	return got
}

func expectAnswers(t *testing.T, profile string, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w {
			t.Errorf("profile %q: %s: %q, want %q", profile, name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("profile %q: %d answers, want %d: %v", profile, len(got), len(want), got)
	}
}

// profileDir is a project with what a profile must not open.
func profileDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	shell(t, dir, "git init -q . && echo SECRET >.env && chmod 644 .env && mkdir sub && echo SECRET >sub/.env && echo seen >sub/plain")
	return dir
}

// TestNoProfile is the control of both: without one nothing of it is there.
func TestNoProfile(t *testing.T) {
	got := answers(t, profileDir(t), "", `
child('user', lambda: call(UNSHARE, USER))
child('clone', lambda: call(nr(56,220), USER | 17, 0, 0, 0, 0))
child('chroot', lambda: call(CHROOT, '/'))
child('mount', lambda: call(MOUNT, 'x', '/tmp', 'tmpfs', 0, 0))
`)
	expectAnswers(t, "", got, map[string]string{"user": "EPERM", "clone": "EPERM", "chroot": "EPERM", "mount": "EPERM"})
}

// TestBrowserProfile: the namespaces of Chromium's sandbox, so many and no more;
// capabilities in them open nothing else.
func TestBrowserProfile(t *testing.T) {
	got := answers(t, profileDir(t), "browser", `
child('user', lambda: call(UNSHARE, USER))
child('root', become_root)
child('chroot', inside(lambda: call(CHROOT, '/proc/self/fdinfo')))
for name, flag in dict(mnt=NS, ipc=IPC, uts=UTS, cgroup=CG, more=USER | NS, net=NET).items():
    child('unshare-' + name, inside(lambda: call(UNSHARE, flag)))
for name, flag in dict(mnt=NS, ipc=IPC, uts=UTS, cgroup=CG).items():
    child('clone-' + name, lambda: call(nr(56,220), USER | flag | 17, 0, 0, 0, 0))
def cloned():
    pid = libc.syscall(nr(56,220), USER | PID | NET | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    return 'ok' if pid > 0 else errno.errorcode[ctypes.get_errno()]
child('clone-all', cloned)
child('high-bits', inside(lambda: call(UNSHARE, ctypes.c_ulong(NS | 1 << 32))))
child('mount', inside(lambda: call(MOUNT, 'x', '/tmp', 'tmpfs', 0, 0)))
child('remount', inside(lambda: call(MOUNT, 'none', '/usr', 0, 32 | 4096, 0)))
child('umount', inside(lambda: call(UMOUNT, '/workspace/.env', 2)))
child('pivot', inside(lambda: call(PIVOT, '/', '/')))
child('tree', inside(lambda: call(OPEN_TREE, -100, '/', 1)))
child('move', inside(lambda: call(MOVE_MOUNT, -100, '/tmp', -100, '/run', 0)))
child('fsopen', inside(lambda: call(FSOPEN, 'tmpfs', 0)))
child('setattr', inside(lambda: call(SETATTR, -100, '/usr', 0, 0, 0)))
child('setns', inside(lambda: call(SETNS, os.open('/proc/self/ns/user', 0), 0)))
child('hostname', inside(lambda: call(HOSTNAME, 'x', 1)))
child('raw', inside(lambda: call(SOCKET, 2, 3, 1)))
child('netfilter', inside(lambda: call(SOCKET, 16, 3, 12)))
child('device', inside(lambda: call(MKNODAT, -100, '/tmp/null', 0o20666, 259)))
child('set-id', inside(lambda: call(FCHMODAT, -100, '/workspace/sub/plain', 0o4755)))
child('mask', inside(lambda: len(open('/workspace/.env').read())))
child('system', inside(lambda: write('/usr/x')))
child('control', inside(lambda: write('/workspace/.git/config')))
child('sysctl', inside(lambda: write('/proc/sys/kernel/core_pattern')))
child('init', inside(lambda: os.kill(1, 9)))
child('init-memory', inside(lambda: open('/proc/1/environ').read()))
child('plain', inside(lambda: write('/workspace/made')))
child('many', lambda: count(USER))
`)
	expectAnswers(t, "browser", got, map[string]string{
		"user": "ok", "root": "ok", "chroot": "ok", "clone-all": "ok", "plain": "ok",
		"unshare-mnt": "EPERM", "unshare-ipc": "EPERM", "unshare-uts": "EPERM", "unshare-cgroup": "EPERM", "unshare-more": "EPERM", "unshare-net": "EPERM", "high-bits": "EPERM",
		"clone-mnt": "EPERM", "clone-ipc": "EPERM", "clone-uts": "EPERM", "clone-cgroup": "EPERM",
		"mount": "EPERM", "remount": "EPERM", "umount": "EPERM", "pivot": "EPERM", "tree": "EPERM", "move": "EPERM", "fsopen": "EPERM", "setattr": "EPERM", "setns": "EPERM", "hostname": "EPERM",
		"raw": "EPERM", "netfilter": "EPERM", "device": "EPERM", "set-id": "EPERM",
		"mask": "0", "system": "EROFS", "control": "EROFS", "sysctl": "EACCES", "init": "EPERM", "init-memory": "ENOENT",
		"many": "32 then ENOSPC",
	})
}

// TestNestingProfile: mounts can be made in a mount namespace of one's own, and
// none of the boundary's be undone there: what is masked or read-only stays so.
func TestNestingProfile(t *testing.T) {
	got := answers(t, profileDir(t), "nesting", `
def nested(do):
    def f():
        r = call(UNSHARE, NS)
        return do() if r == 'ok' else 'no mount namespace: ' + r
    return inside(f)
REC, BIND, REMOUNT, RDONLY, MOVE = 0x4000, 4096, 32, 1, 8192
def bind(a, b, flags): os.makedirs(b, exist_ok=True); return call(MOUNT, a, b, 0, flags, 0)
child('tmpfs', nested(lambda: call(MOUNT, 'x', '/tmp', 'tmpfs', 0, 0)))
child('bind', nested(lambda: bind('/usr', '/tmp/b', BIND | REC)))
child('device-bind', nested(lambda: call(MOUNT, '/dev/null', '/dev/full', 0, BIND, 0)))
child('remount-rw', nested(lambda: call(MOUNT, 'none', '/usr', 0, REMOUNT | BIND, 0)))
def bound_rw():
    bind('/usr', '/tmp/b', BIND | REC)
    return call(MOUNT, 'none', '/tmp/b', 0, REMOUNT | BIND, 0)
child('bound-rw', nested(bound_rw))
child('exec-suid', nested(lambda: call(MOUNT, 'none', '/workspace', 0, REMOUNT | BIND, 0)))
child('umount-mask', nested(lambda: call(UMOUNT, '/workspace/.env', 2)))
child('umount-control', nested(lambda: call(UMOUNT, '/workspace/.git/config', 2)))
child('umount-workspace', nested(lambda: call(UMOUNT, '/workspace', 2)))
child('move-mask', nested(lambda: call(MOUNT, '/workspace/.env', '/tmp/e', 0, MOVE, 0) if not open('/tmp/e', 'w').close() else ''))
child('bind-without', nested(lambda: bind('/workspace', '/tmp/seen', BIND)))
child('bind-sub', nested(lambda: bind('/workspace/sub', '/tmp/seen', BIND)))
def rbound():
    bind('/workspace', '/tmp/seen', BIND | REC)
    return call(UMOUNT, '/tmp/seen/.env', 2) + ' %d' % len(open('/tmp/seen/.env').read())
child('rbind-umount', nested(rbound))
def overlaid():
    for d in ('/tmp/u', '/tmp/wd', '/tmp/m'): os.makedirs(d, exist_ok=True)
    call(MOUNT, 'x', '/tmp/u', 'tmpfs', 0, 0)
    os.makedirs('/tmp/u/up'); os.makedirs('/tmp/u/w')
    r = call(MOUNT, 'o', '/tmp/m', 'overlay', 0, 'lowerdir=/workspace/sub,upperdir=/tmp/u/up,workdir=/tmp/u/w,userxattr')
    return r + ' %d' % len(open('/tmp/m/.env').read()) if r == 'ok' else r
child('overlay', nested(overlaid))
child('rename-mask', nested(lambda: os.rename('/workspace/.env', '/workspace/e')))
child('unlink-mask', nested(lambda: os.unlink('/workspace/sub/.env')))
child('disk', nested(lambda: call(MOUNT, '/dev/vda', '/tmp', 'ext4', 0, 0)))
child('sysctl', nested(lambda: write('/proc/sys/kernel/core_pattern')))
child('device', nested(lambda: call(MKNODAT, -100, '/tmp/null', 0o20666, 259)))
child('set-id', nested(lambda: call(FCHMODAT, -100, '/workspace/sub/plain', 0o4755)))
child('setns', nested(lambda: call(SETNS, os.open('/proc/self/ns/user', 0), 0)))
child('netfilter', nested(lambda: call(SOCKET, 16, 3, 12)))
child('mask', nested(lambda: len(open('/workspace/.env').read())))
child('control', nested(lambda: write('/workspace/.git/config')))
child('system', nested(lambda: write('/usr/x')))
child('init', nested(lambda: os.kill(1, 9)))
child('plain', nested(lambda: write('/workspace/made')))
child('many', lambda: count(USER))
`)
	expectAnswers(t, "nesting", got, map[string]string{
		"tmpfs": "ok", "bind": "ok", "device-bind": "ok", "plain": "ok",
		"remount-rw": "EPERM", "bound-rw": "EPERM", "exec-suid": "EPERM",
		"umount-mask": "EINVAL", "umount-control": "EINVAL", "umount-workspace": "EINVAL", "move-mask": "EINVAL",
		"bind-without": "EINVAL", "bind-sub": "EINVAL", "rbind-umount": "EINVAL 0", "overlay": "EINVAL",
		"rename-mask": "EBUSY", "unlink-mask": "EBUSY", "disk": "EPERM", "sysctl": "EACCES",
		"device": "EPERM", "set-id": "EPERM", "setns": "EPERM", "netfilter": "EPERM",
		"mask": "0", "control": "EROFS", "system": "EROFS", "init": "EPERM",
		"many": "64 then ENOSPC",
	})
}
