//go:build linux

package toolchains

import "slices"

// rows are all kinds of work, in the order of the page.
var rows = slices.Concat(compilers, scripting, versionControl, shells, services, nested)

const gitWho = "git config --global user.name Ada; git config --global user.email ada@example.com\n"

var compilers = []row{
	{
		name: "Go", what: "build, vet, test with the race detector off, a module with a dependency of its own",
		files: map[string]string{
			"go.mod":       "module example.com/app\n\ngo 1.21\n\nrequire example.com/dep v0.0.0\n\nreplace example.com/dep => ./dep\n",
			"main.go":      "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/dep\"\n)\n\nfunc main() { fmt.Println(dep.Hello()) }\n",
			"main_test.go": "package main\n\nimport (\n\t\"testing\"\n\n\t\"example.com/dep\"\n)\n\nfunc TestHello(t *testing.T) {\n\tif dep.Hello() != \"hello\" {\n\t\tt.Fatal()\n\t}\n}\n",
			"dep/go.mod":   "module example.com/dep\n\ngo 1.21\n",
			"dep/hello.go": "package dep\n\n// Hello greets.\nfunc Hello() string { return \"hello\" }\n",
		},
		script: "go mod tidy; go mod verify; go build -o app .; ./app; go vet ./...; go test ./... ; go env GOCACHE",
		wants:  []string{"hello", "ok  \texample.com/app", "/home/agent/"},
		leaves: []string{"app"},
	},
	{
		name: "C and make", what: "gcc through make -j4, ar, a shared library, the result run",
		files: map[string]string{
			"Makefile": "OBJS = a.o b.o c.o\n\nall: app\n\nlib.so: $(OBJS)\n\tgcc -shared -o $@ $^\n\n%.o: %.c\n\tgcc -O1 -fPIC -c $< -o $@\n\nlibs.a: $(OBJS)\n\tar rcs $@ $^\n\napp: main.c lib.so libs.a\n\tgcc main.c ./lib.so -o $@\n",
			"a.c":      "int a(void) { return 1; }\n", "b.c": "int b(void) { return 2; }\n", "c.c": "int c(void) { return 3; }\n",
			"main.c": "#include <stdio.h>\nint a(void), b(void), c(void);\nint main(void) { printf(\"sum %d\\n\", a() + b() + c()); return 0; }\n",
		},
		script: "make -j4; ./app; make -q && echo up to date",
		wants:  []string{"sum 6", "up to date"},
	},
	{
		name: "CMake", what: "configure, build in parallel, ctest",
		files: map[string]string{
			"CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\nproject(app CXX)\nenable_testing()\nadd_executable(app main.cpp)\nadd_test(NAME runs COMMAND app)\n",
			"main.cpp":       "#include <iostream>\nint main() { std::cout << \"from c++\\n\"; }\n",
		},
		script: "cmake -S . -B build >/dev/null; cmake --build build -j4; (cd build && ctest); build/app",
		wants:  []string{"100% tests passed", "from c++"},
		leaves: []string{"build"},
	},
	{
		name: "Rust", what: "cargo build and test, a workspace of two crates",
		files: map[string]string{
			"Cargo.toml":      "[workspace]\nmembers = [\"app\", \"dep\"]\n",
			"app/Cargo.toml":  "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\ndep = { path = \"../dep\" }\n",
			"app/src/main.rs": "fn main() { println!(\"{}\", dep::hello()); }\n",
			"dep/Cargo.toml":  "[package]\nname = \"dep\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
			"dep/src/lib.rs":  "pub fn hello() -> &'static str { \"hello from rust\" }\n\n#[test]\nfn says() { assert!(hello().len() > 3); }\n",
		},
		script: "cargo build --offline -q; target/debug/app; cargo test --offline 2>&1; cargo build --offline 2>&1",
		wants:  []string{"hello from rust", "1 passed", "Finished"},
		leaves: []string{"Cargo.lock", "target"},
	},
	{
		name: "Maven and Gradle", what: "each builds a jar offline, with the distribution's own repository",
		files: map[string]string{
			"pom.xml":              "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>app</artifactId><version>1</version>\n<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target><project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>\n</project>\n",
			"build.gradle":         "apply plugin: 'java'\n",
			"src/main/java/A.java": "public class A { public static void main(String[] a) { System.out.println(\"from A\"); } }\n",
		},
		script: "mvn -o -B -q -s /etc/maven/settings-debian.xml package; java -cp target/app-1.jar A; gradle --offline --no-daemon -q build; java -cp build/libs/*.jar A; echo both",
		wants:  []string{"from A", "both"},
	},
	{
		name: "Java", what: "javac, jar, a run with threads and with a small heap",
		files: map[string]string{
			"src/main/java/app/Main.java": "package app;\n\npublic class Main {\n  public static void main(String[] a) throws Exception {\n    Thread[] t = new Thread[8];\n    for (int i = 0; i < t.length; i++) { t[i] = new Thread(() -> {}); t[i].start(); }\n    for (Thread x : t) x.join();\n    System.out.println(\"from java \" + Runtime.getRuntime().availableProcessors());\n  }\n}\n",
		},
		script: "mkdir out; javac -d out $(find src -name '*.java'); jar cfe app.jar app.Main -C out .; java -jar app.jar; java -Xmx64m -cp out app.Main",
		wants:  []string{"from java"},
		leaves: []string{"app.jar", "out"},
	},
}

var scripting = []row{
	{
		name: "npm", what: "install from a packed tarball with an install script that builds a native addon (node-gyp), then load it",
		files: map[string]string{
			"addon/package.json": `{"name":"addon","version":"1.0.0","main":"index.js","gypfile":true,"scripts":{"install":"node-gyp rebuild"}}`,
			"addon/binding.gyp":  `{"targets":[{"target_name":"addon","sources":["addon.c"]}]}`,
			"addon/index.js":     "module.exports = require('./build/Release/addon.node')\n",
			"addon/addon.c":      "#include <node_api.h>\nstatic napi_value Init(napi_env e, napi_value x) { napi_value v; napi_create_string_utf8(e, \"native\", NAPI_AUTO_LENGTH, &v); napi_set_named_property(e, x, \"kind\", v); return x; }\nNAPI_MODULE(addon, Init)\n",
			"app/package.json":   `{"name":"app","version":"1.0.0","private":true,"scripts":{"test":"node -e \"console.log(require('addon').kind)\""}}`,
		},
		script: "tar czf addon.tgz --transform s,^addon,package, addon; cd app; export npm_config_nodedir=/usr; npm install --offline --no-audit --no-fund ../addon.tgz; npm test; npm ls; node -e 'console.log(os.userInfo().username)'",
		wants:  []string{"native", "addon@1.0.0", "agent"},
	},
	{
		name: "pnpm", what: "install of a workspace with a dependency between its packages, and a script",
		files: map[string]string{
			"pnpm-workspace.yaml": "packages: [app, dep]\n",
			"package.json":        `{"name":"top","private":true}`,
			"app/package.json":    `{"name":"app","version":"1.0.0","dependencies":{"dep":"workspace:*"},"scripts":{"start":"node -e \"console.log(require('dep'))\""}}`,
			"dep/package.json":    `{"name":"dep","version":"1.0.0","main":"i.js"}`,
			"dep/i.js":            "module.exports = 'from the workspace'\n",
		},
		flags:  []string{"--ro", "$NPM/pnpm"},
		script: "pnpm() { node \"$NPM/pnpm/bin/pnpm.cjs\" \"$@\"; }; pnpm install --offline; pnpm -C app start; pnpm store path",
		wants:  []string{"from the workspace", "/home/agent/"},
	},
	{
		name: "Node", what: "worker threads, child processes, the test runner, a watcher, a temporary directory",
		files: map[string]string{
			"w.js":      "const { Worker, isMainThread, parentPort } = require('worker_threads');\nif (isMainThread) { let n = 0; for (let i = 0; i < 4; i++) new Worker(__filename).on('message', () => { if (++n == 4) console.log('4 workers'); }); } else parentPort.postMessage(1);\n",
			"f.js":      "const c = require('child_process').fork(__dirname + '/g.js'); c.on('message', m => { console.log('child says ' + m); c.kill(); });\n",
			"g.js":      "process.send('hi'); setInterval(() => {}, 1000);\n",
			"t.test.js": "const test = require('node:test'); const fs = require('fs'); test('temp', () => { fs.rmSync(fs.mkdtempSync(require('os').tmpdir() + '/x'), { recursive: true }); });\n",
			"v.js":      "const fs = require('fs'); const w = fs.watch('.', (e, f) => { if (f == 'seen') { console.log('watched'); w.close(); } }); setTimeout(() => fs.writeFileSync('seen', ''), 100);\n",
		},
		script: "node w.js; node f.js; node --test t.test.js; node v.js",
		wants:  []string{"4 workers", "child says hi", "# pass 1", "watched"},
	},
	{
		name: "Python", what: "venv, pip from a local directory of packages, a wheel built, multiprocessing",
		files: map[string]string{
			"dep/setup.py":    "from setuptools import setup\nsetup(name='localdep', version='1.0', py_modules=['localdep'])\n",
			"dep/localdep.py": "def hello(): return 'hello from python'\n",
			"m.py":            "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.Pool(4) as p: print('pool', sum(p.map(f, range(10))))\n",
		},
		script: "python3 -m venv v; . v/bin/activate; python -c 'import sys; assert sys.prefix != sys.base_prefix'; (cd dep && python setup.py -q sdist -d ../index); pip install -q --no-index --find-links index --no-build-isolation localdep; python -c 'import localdep; print(localdep.hello())'; python m.py; pip cache dir || true",
		wants:  []string{"hello from python", "pool 285"},
	},
	{
		name: "SQLite", what: "a database in WAL mode, written by four processes at once",
		files:  map[string]string{"s.sql": "create table t(x);\npragma journal_mode=wal;\n"},
		script: "sqlite3 db <s.sql; for i in 1 2 3 4; do (for j in 1 2 3 4 5; do sqlite3 -cmd '.timeout 10000' db \"insert into t values($i$j)\"; done) & done; wait; sqlite3 db 'select count(*) from t; pragma integrity_check'",
		wants:  []string{"20", "ok"},
	},
}

var versionControl = []row{
	{
		name: "git", what: "commit, branch, rebase, stash, worktree, gc, bisect, clones",
		before:      gitWho + "git init -q -b main .; for i in 1 2 3 4; do echo $i >f$i; git add .; git commit -qm c$i; done",
		script:      gitWho + "git checkout -qb side HEAD~2; echo s >s; git add s; git commit -qm side; git rebase -q main; git log --oneline | wc -l; git worktree add -q .wt main; git -C .wt log -1 --format=in-worktree-%s; git worktree remove .wt; echo d >>f1; git stash -q; git stash pop -q; git commit -qam d; git gc -q; git fsck; git init -q -b main /tmp/sub; (cd /tmp/sub; echo x >x; git add x; git commit -qm x); git -c protocol.file.allow=always clone -q /tmp/sub dep; git -C dep log -1 --format=in-%s; git bisect start HEAD HEAD~3 >/dev/null; git bisect run sh -c 'test ! -e s' | grep -c 'is the first bad'; git bisect reset >/dev/null 2>&1; git clone -q . /tmp/clone; git -C /tmp/clone status -sb | head -1",
		wants:       []string{"5\n", "in-worktree-c4", "## side"},
		stagedShows: "a new repository in the directory is held back",
	},
	{
		name: "ssh and gpg", what: "the clients' own configuration, a key made and used; gpg signs and verifies",
		script: "ssh -V; ssh -G example.com | grep -c ^port; ssh-keygen -q -t ed25519 -N '' -f k; ssh-keygen -l -f k; echo m >m; ssh-keygen -q -Y sign -f k -n file m; export GNUPGHOME=$(mktemp -d); gpg --batch -q --passphrase '' --quick-generate-key ada@example.com default default never; gpg --batch -q --yes --armor --detach-sign m; gpg --verify m.asc m; gpgconf --kill all",
		wants:  []string{"OpenSSH", "ED25519", "Good signature"},
	},
}
