//go:build linux

package toolchains

var shells = []row{
	{
		name: "tmux", what: "a server, a window, keys sent and the screen read",
		script: "tmux -f /dev/null new-session -d -x 80 -y 24 'sh'; tmux send-keys 'echo in-$((40+2))-tmux' Enter; for i in $(seq 100); do tmux capture-pane -p | grep -q in-42-tmux && break; sleep 0.1; done; tmux capture-pane -p | grep in-42; tmux kill-server",
		wants:  []string{"in-42-tmux"},
	},
	{
		name: "job control", what: "a shell on a terminal: background, stop, continue, interrupt",
		files:  map[string]string{"j.sh": "set -m\nsleep 100 &\nkill -STOP %1; sleep 0.2; jobs | grep -c Stopped\nbg %1 >/dev/null; jobs | grep -c Running\nkill -INT %1; wait %1; echo \"status $?\"\n"},
		script: "script -qec 'bash j.sh' /dev/null; script -qec 'bash -ic \"tty; stty size; trap true INT; echo interactive\"' /dev/null",
		wants:  []string{"1", "status 130", "/dev/pts/", "interactive"},
	},
	{
		name: "debuggers", what: "strace and gdb on children of their own",
		files:  map[string]string{"m.c": "int f(int x) { return x + 1; }\nint main(void) { return f(41) - 42; }\n"},
		script: "gcc -g m.c -o m; strace -f -e trace=execve,exit_group -o t ./m; grep exit_group t; gdb -batch -ex 'break f' -ex run -ex 'print x' -ex continue ./m",
		wants:  []string{"exit_group(0)", "$1 = 41", "exited normally"},
	},
	{
		name: "locales and time zones", what: "the C.UTF-8 locale, sorting, TZ from the zone files",
		script: "locale charmap; printf 'b\\na\\n' | LC_ALL=C.UTF-8 sort | head -1; TZ=Asia/Tokyo date -d @0 +%H:%M; TZ=America/New_York date -d @0 +%H:%M; python3 -c 'import zoneinfo, datetime; print(datetime.datetime.fromtimestamp(0, zoneinfo.ZoneInfo(\"Europe/Paris\")))'",
		wants:  []string{"UTF-8", "a\n", "09:00", "19:00", "01:00:00"},
	},
	{
		name: "odd names", what: "names with newlines, bytes that are no UTF-8, leading dashes, and of 255 bytes; paths of 4,000 bytes",
		script: `printf x >$'new\nline'; printf x >$'\xff\xfe'; printf x >-dash; printf x >"$(printf 'n%.0s' $(seq 255))"; ls | wc -l; python3 - <<'P'
import os
n = 'd' * 200
top = os.getcwd()
for i in range(19):
    os.mkdir(n); os.chdir(n)
open('deep', 'w').write('x')
print('deep', len(os.getcwd()) > 3800)
os.chdir(top)
assert b'\xff\xfe' in os.listdir(b'.')
P
find . -name deep | wc -c; find . -name $'new\nline' -print0 | xargs -0 ls -d -b`,
		wants: []string{"deep True", `new\nline`},
	},
	{
		name: "output", what: "1 GB to standard output",
		files:  map[string]string{"out.sh": "head -c 1000000000 /dev/zero\n"},
		script: "sh out.sh | wc -c; sh out.sh >/dev/null; head -c 200000000 /dev/zero | tr '\\0' '\\n' | wc -l",
		wants:  []string{"1000000000", "200000000"},
	},
	{
		name: "toolchains in the home", what: "programs in directories of PATH below the home, in the shapes of nvm, rustup and pyenv",
		home: map[string]string{
			".nvm/versions/node/v99.0.0/bin/node99": "#!/bin/sh\necho node99 runs\n",
			".cargo/bin/rustc99":                    "#!/bin/sh\nexec \"$(dirname \"$0\")/../../.rustup/toolchains/stable/bin/rustc99\"\n",
			".rustup/toolchains/stable/bin/rustc99": "#!/bin/sh\necho rustc99 runs\n",
			".pyenv/shims/python99":                 "#!/bin/sh\nexec \"$(dirname \"$0\")/../versions/9.9/bin/python99\"\n",
			".pyenv/versions/9.9/bin/python99":      "#!/bin/sh\necho python99 runs\n",
			".local/bin/tool99":                     "#!/bin/sh\necho tool99 runs\n",
			".cargo/credentials.toml":               "[registry]\ntoken = \"TOKEN\"\n",
			".ssh/id_ed25519":                       "TOKEN\n",
		},
		path:   []string{".nvm/versions/node/v99.0.0/bin", ".cargo/bin", ".pyenv/shims", ".local/bin"},
		script: "node99; rustc99; python99; tool99; for d in $(echo $PATH | tr : ' '); do cat $d/../credentials.toml 2>/dev/null && exit 1; touch $d/x 2>/dev/null && exit 1; done; true",
		wants:  []string{"node99 runs", "rustc99 runs", "python99 runs", "tool99 runs"},
	},
}

var services = []row{
	{
		name: "PostgreSQL", what: "a server made, started and asked by a test, over a Unix socket and loopback",
		script: "PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH; initdb -D data -U app --auth=trust >/dev/null; pg_ctl -D data -w -o '-k /tmp -c listen_addresses=127.0.0.1 -p 5499' -l log start >/dev/null || { cat log; exit 1; }; psql -h /tmp -p 5499 -U app -d postgres -qAtc 'create table t as select generate_series(1,1000) x; select sum(x) from t'; psql -h 127.0.0.1 -p 5499 -U app -d postgres -qAtc 'select 6*7'; pg_ctl -D data -m fast stop >/dev/null; rm -r data",
		wants:  []string{"500500", "42"},
		leaves: []string{"log"},
	},
	{
		name: "100 local servers", what: "HTTP servers on loopback ports, each asked",
		files:  map[string]string{"s.py": "import http.server, threading, urllib.request\nservers = [http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler) for _ in range(100)]\nfor s in servers: threading.Thread(target=s.serve_forever, daemon=True).start()\nn = sum(urllib.request.urlopen('http://localhost:%d/s.py' % s.server_port).status == 200 for s in servers)\nprint('answered', n)\n"},
		script: "python3 s.py 2>/dev/null",
		wants:  []string{"answered 100"},
		leaves: []string{},
	},
	{
		name: "inotify, locks, sockets, shared memory", what: "a watch, flock and fcntl locks, a Unix socket in the project with a descriptor passed, /dev/shm, semaphores, a POSIX message queue",
		files: map[string]string{"i.py": `import os, fcntl, socket, array, multiprocessing, tempfile
from multiprocessing import shared_memory
a = open('l', 'w'); fcntl.flock(a, fcntl.LOCK_EX)
try: fcntl.flock(open('l'), fcntl.LOCK_EX | fcntl.LOCK_NB); print('both')
except BlockingIOError: print('flock holds')
fcntl.lockf(a, fcntl.LOCK_EX); print('lockf')
l = socket.socket(socket.AF_UNIX); l.bind('s'); l.listen()
c = socket.socket(socket.AF_UNIX); c.connect('s'); d, _ = l.accept()
r, w = os.pipe()
socket.send_fds(d, [b'x'], [w]); _, fds, _, _ = socket.recv_fds(c, 1, 1); os.write(fds[0], b'passed'); print(os.read(r, 9).decode())
p, q = socket.socketpair(); p.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1); print('passcred')
m = shared_memory.SharedMemory(create=True, size=1 << 20); m.buf[0] = 7; print('shm', m.buf[0]); m.unlink()
s = multiprocessing.Semaphore(2); s.acquire(); print('semaphore')
import ctypes
c = ctypes.CDLL(None); q = c.mq_open(b'/q', os.O_CREAT | os.O_RDWR, 0o600, None); print('queue', c.mq_send(q, b'x', 1, 0)); c.mq_unlink(b'/q')
os.unlink('s'); os.unlink('l')
`},
		script: "python3 i.py; (inotifywait -q -t 20 -e create . & p=$!; for i in $(seq 50); do : >seen$i; sleep 0.1; kill -0 $p 2>/dev/null || break; done; wait $p); rm -f seen*; df /dev/shm | tail -1; echo x >/dev/shm/t",
		wants:  []string{"flock holds", "lockf", "passed", "passcred", "shm 7", "semaphore", "queue 0", "CREATE seen", "/dev/shm"},
		leaves: []string{},
	},
}
