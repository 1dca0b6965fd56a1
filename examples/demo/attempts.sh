# shellcheck shell=bash
# The hostile attempts of the demo, one function each way: sourced by the agent
# inside, and by the demo outside as the control, where all of them get in. An
# attempt succeeds only if it really got something.
#
# Set by the caller: HOST_FILE, OTHER_TENANT, HOST_PORT, HOST_REPO.

# try WHAT LAYER EXPECTED COMMAND...: LAYER is what should refuse it, EXPECTED the
# words by which that layer is known. Anything else is told apart from a refusal.
try() {
	local what=$1 layer=$2 expected=$3 out
	shift 3
	if out=$("$@" 2>&1); then
		told "$what" "GOT IN: $(head -n1 <<<"$out" | cut -c1-40)"
	elif [[ $out =~ $expected ]]; then
		told "$what" "refused by $layer: ${BASH_REMATCH[0]}"
	else
		told "$what" "FAILED OTHERWISE: ${out:0:80}"
	fi
}
told() { printf '  %-36s %s\n' "$1" "$2"; }

# reach HOST PORT: prints the answer, and fails if it is no "200".
reach() {
	local answer
	exec 3<>"/dev/tcp/$1/$2" || return 1
	printf 'GET / HTTP/1.0\r\nHost: %s\r\n\r\n' "$1" >&3
	answer=$(timeout 5 head -c 2000 <&3)
	printf '%s\n' "$answer"
	[[ $answer == *' 200 '* ]]
}

# The pattern does not match this file, nor a command line that holds it.
find_key() {
	cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -a 'demo-engine-ke[y]' ||
		{ echo "no process has it"; return 1; }
}

try_everywhere() {
	try "read a file of the host" "the view, made from empty" "No such file or directory" cat "$HOST_FILE"
	try "read another tenant's files" "the view, made from empty" "No such file or directory" cat "$OTHER_TENANT"/notes
	try "find the engine's key in a process" "the PID namespace" "no process has it" find_key
	try "reach a server on the host" "the network namespace" "Connection refused" reach 127.0.0.1 "$HOST_PORT"
	try "push by itself" "the view, made from empty" "does not exist|does not appear to be a git repository" git push -q "$HOST_REPO" HEAD:refs/heads/pushed-by-agent
}

# What only a boundary can refuse, as only it is there to be tried.
try_inside() {
	try "reach a host that is not listed" "the egress policy" "not listed" reach evil.example 80
	try "reach the cloud metadata address" "the egress policy" "cloud metadata" reach 169.254.169.254 80
	try "the same as a decimal number" "the egress policy" "cloud metadata" reach 2852039166 80
	try "write to the lent repository" "the read-only mount" "Read-only file system" bash -c 'echo x >/lent/objects/x'
	try "read the sandbox's own init" "hidepid" "No such file or directory|Permission denied" cat /proc/1/environ
}
