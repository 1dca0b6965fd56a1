//go:build linux

package toolchains

const chromium = "chromium --headless --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync --user-data-dir=/tmp/profile "

// nested are programs that bring a sandbox of their own.
var nested = []row{
	{
		name: "Chromium", what: "headless, with its own sandbox: a page with a script, a screenshot; its renderers are in namespaces of their own",
		flags: []string{"--profile", "browser"},
		files: map[string]string{
			"page.html": "<html><body><h1>hi</h1><script>document.title = 't' + 6 * 7</script></body></html>\n",
		},
		script: chromium + "--dump-dom file:///workspace/page.html 2>/dev/null; " + chromium + "--screenshot=shot.png --window-size=300,200 file:///workspace/page.html 2>/dev/null; head -c 4 shot.png | tail -c 3; echo; rm shot.png; " +
			chromium + "--remote-debugging-port=9222 file:///workspace/page.html >/dev/null 2>&1 & for i in $(seq 100); do for p in /proc/[0-9]*; do if tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q -- --type=renderer && [ \"$(readlink $p/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ] && [ \"$(readlink $p/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; then echo renderer apart; kill %1; wait; exit 0; fi; done; sleep 0.1; done",
		wants: []string{"<title>t42</title>", "PNG", "renderer apart"},
	},
	{
		name: "Playwright", what: "drives that Chromium: a click and what it did, a screenshot",
		flags: []string{"--profile", "browser", "--ro", "$NPM/playwright-core"},
		files: map[string]string{
			"p.js": "const { chromium } = require(process.env.NPM + '/playwright-core');\n(async () => {\n  const b = await chromium.launch({ executablePath: '/usr/bin/chromium', chromiumSandbox: true });\n  const p = await b.newPage();\n  await p.setContent('<button onclick=\"this.textContent=6*7\">go</button>');\n  await p.click('button');\n  console.log('it says ' + await p.textContent('button'));\n  console.log((await p.screenshot()).subarray(1, 4).toString());\n  await b.close();\n})();\n",
		},
		script: "node p.js",
		wants:  []string{"it says 42", "PNG"},
	},
	{
		name: "bubblewrap", what: "all namespaces of its own, a fresh /proc and /dev, the project read-only in it",
		flags:  []string{"--profile", "nesting"},
		files:  map[string]string{"f": "seen\n"},
		script: "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp sh -c 'cat f; echo x >f || echo read-only; echo y >/tmp/y && ls /tmp; ls -d /proc/[0-9]* | wc -l'; bwrap --unshare-user --bind / / --uid 0 --gid 0 id -u",
		wants:  []string{"seen", "read-only", "y\n", "0\n"},
	},
	{
		name: "Codex's sandbox", what: "its own command for running one: what it forbids fails, reading works",
		flags:  []string{"--profile", "nesting", "--ro", "$NPM/@openai"},
		script: "codex=$(ls $NPM/@openai/codex-linux-*/vendor/*/bin/codex); $codex sandbox -- sh -c 'head -1 /etc/passwd; touch /home/agent/outside || echo refused' 2>&1",
		wants:  []string{"root:x:0:0", "refused"},
	},
}
