#!/bin/sh
# Takes the commits and the leftovers of a workspace out, as one bundle of one
# ref, or as an archive of the changed files where git can't. It runs inside a
# sandbox without a network; package handover (export.go) starts it and reads
# its output: a short report, an empty line, the bytes.
#
# Everything in the workspace is hostile. Its .git is never used as a repository:
# objects come in as an alternate of a repository made here, the name of the
# head is read as text, the index is built anew. Text from the workspace is only
# ever a quoted variable or a stream.
set -u
umask 077

W=$CONFINE_WORKSPACE
S=$CONFINE_SCRATCH
L=$CONFINE_LENT
B=$CONFINE_BASE
G=$S/repo.git
REPORT=$S/report
export GIT_DIR="$G" GIT_WORK_TREE="$W"

exec 2>"$S/errors"
printf 'confine-export 1\n' >"$REPORT"

note() { printf 'note %s\n' "$1" >>"$REPORT"; }

# make_repo ALTERNATE...: a new repository of ours.
make_repo() {
	rm -rf "$G"
	mkdir -p "$G/objects/info" "$G/objects/pack" "$G/refs/heads" || return 1
	printf 'ref: refs/heads/confine-export\n' >"$G/HEAD"
	format=0
	[ "${#B}" -eq 64 ] && format=1
	{
		printf '[core]\n\trepositoryformatversion = %s\n\tbare = false\n' "$format"
		[ "$format" -eq 0 ] || printf '[extensions]\n\tobjectformat = sha256\n'
		cat <<'CONFIG'
[core]
	filemode = true
	symlinks = true
	hooksPath = /dev/null
	fsmonitor = false
	untrackedCache = false
	attributesFile = /dev/null
	excludesFile = /dev/null
	commitGraph = false
	multiPackIndex = false
	bigFileThreshold = 32m
[gc]
	auto = 0
[maintenance]
	auto = false
[protocol]
	allow = never
[submodule]
	recurse = false
[pack]
	threads = 1
	useBitmaps = false
[credential]
	helper =
[commit]
	gpgSign = false
[advice]
	addEmbeddedRepo = false
CONFIG
	} >"$G/config" || return 1
	printf '%s\n' "$@" >"$G/objects/info/alternates"
}

valid_hash() {
	case $1 in '' | *[!0-9a-f]*) return 1 ;; esac
	[ "${#1}" -eq "${#B}" ]
}

# first_line FILE: of a regular file, 4096 bytes at most.
first_line() {
	[ -f "$1" ] && [ ! -L "$1" ] || return 1
	head -c 4096 <"$1" | tr -d '\000' | head -n 1
}

# resolve_head prints the commit that the workspace's HEAD names.
resolve_head() {
	line=$(first_line "$W/.git/HEAD") || return 1
	case $line in
	'ref: refs/heads/'*) ref=${line#'ref: '} ;;
	*)
		valid_hash "$line" || return 1
		printf '%s\n' "$line"
		return 0
		;;
	esac
	case $ref in
	*[!A-Za-z0-9._/+@,=%#-]* | */.* | *..* | *//* | */ | *.lock) return 1 ;;
	esac
	if [ -e "$W/.git/$ref" ] || [ -L "$W/.git/$ref" ]; then
		hash=$(first_line "$W/.git/$ref") && valid_hash "$hash" || return 1
		printf '%s\n' "$hash"
		return 0
	fi
	[ -f "$W/.git/packed-refs" ] && [ ! -L "$W/.git/packed-refs" ] || return 1
	head -c 33554432 <"$W/.git/packed-refs" | grep -a -F -e " $ref" | {
		while IFS=' ' read -r hash name; do
			if [ "$name" = "$ref" ] && valid_hash "$hash"; then
				printf '%s\n' "$hash"
				exit 0
			fi
		done
		exit 1
	}
}

# note_tampering names what sends git elsewhere or shows it other history. None
# of it is followed; the run is marked.
note_tampering() {
	for name in commondir gitdir config.worktree shallow info/grafts refs/replace; do
		if [ -e "$W/.git/$name" ] || [ -L "$W/.git/$name" ]; then
			note "tampered $name"
		fi
	done
}

usable_git_dir() {
	if [ -L "$W/.git" ]; then note "broken link"; return 1; fi
	if [ -f "$W/.git" ]; then note "broken file"; return 1; fi
	if [ ! -d "$W/.git" ]; then note "broken missing"; return 1; fi
	note_tampering
	if [ -L "$W/.git/objects" ] || [ ! -d "$W/.git/objects" ]; then note "broken objects"; return 1; fi
}

# list_paths writes the pathspecs of what is to be committed: everything but
# nested repositories and the paths that the caller left out.
list_paths() {
	: >"$S/nested"
	(cd "$W" && find . -mindepth 2 -iname .git -prune -exec sh -c '
		for p; do p=${p#./}; printf "%s\0" "${p%/*}"; done' sh {} +) >"$S/nested"
	tr '\n' '?' <"$S/nested" | tr '\000' '\n' | head -n 100 | cut -b 1-300 | tr -c '[:print:]\n' '?' | sed 's/^/nested /' >>"$REPORT"
	{
		printf '.\0'
		sed -z 's/^/:(top,exclude,literal)/' <"$S/nested"
		[ -z "$CONFINE_EXCLUDE" ] || cat "$CONFINE_EXCLUDE"
	} >"$S/paths"
}

# only_unreadable says whether git left out nothing but files that this user may
# not read, or names that no tree may have. Anything else, such as no space, is
# a failure: work would be lost in silence.
only_unreadable() {
	head -c 65536 /dev/zero >"$S/room" || return 1
	rm -f "$S/room"
	! grep -a -E '^(error|fatal): ' <"$S/add" |
		grep -a -v -q -E -e 'Permission denied$' -e '^error: (invalid path|unable to index file|unable to add)' -e '^(error|fatal): adding files failed$'
}

# deliver COMMIT LEFTOVERS: makes the pack of what COMMIT, with the leftovers on
# top where that is "yes", has more than the base. Prints nothing.
deliver() {
	head=$1
	if [ "$2" = yes ]; then
		rm -f "$G/index"
		git read-tree "$head" || return 1
		if ! (cd "$W" && git add -A --ignore-errors --pathspec-from-file="$S/paths" --pathspec-file-nul 2>"$S/add"); then
			only_unreadable || return 1
			note incomplete
		fi
		tree=$(git write-tree) || return 1
		before=$(git rev-parse --verify --quiet "$head^{tree}") || return 1
		if [ "$tree" != "$before" ]; then
			head=$(printf 'Leftover changes\n' | git commit-tree -p "$head" "$tree") || return 1
			note leftovers
		fi
	fi
	valid_hash "$head" || return 1
	[ "$head" = "$B" ] && return 0
	printf '%s\n^%s\n' "$head" "$B" >"$S/revs"
	git pack-objects --revs --thin --stdout --delta-base-offset -q <"$S/revs" >"$S/pack" || return 1
}

# send prints what deliver made.
send() {
	printf 'head %s\n' "$head" >>"$REPORT"
	if [ "$head" = "$B" ]; then
		cat "$REPORT" || return 1
		printf 'payload nothing 0\n\n'
		return
	fi
	{
		if [ "${#B}" -eq 64 ]; then
			printf '# v3 git bundle\n@object-format=sha256\n'
		else
			printf '# v2 git bundle\n'
		fi
		printf -- '-%s \n%s refs/heads/confine-export\n\n' "$B" "$head"
	} >"$S/header"
	size=$(($(wc -c <"$S/header") + $(wc -c <"$S/pack")))
	cat "$REPORT" || return 1
	printf 'payload bundle %s\n\n' "$size"
	cat "$S/header" "$S/pack"
}

# archive prints the changed files, or all files where git does not even work on
# the base.
archive() {
	cat "$REPORT" || return 1
	printf 'payload archive -1\n\n'
	rm -f "$S/pack"
	cd "$W" || return 1
	if make_repo "$L/objects" && git read-tree "$B" && git ls-files -z -m -o --exclude-standard >"$S/list"; then
		# A deleted file is listed as modified, and is not there.
		tar --null --no-recursion --ignore-failed-read --files-from="$S/list" -cf - && return 0
		return 0
	fi
	tar --exclude=.git -cf - .
}

if ! { make_repo "$L/objects" && git cat-file -e "$B^{commit}"; }; then
	cat "$REPORT"
	printf 'payload fault 0\n\n'
	exit 0
fi
list_paths
if usable_git_dir; then
	if head=$(resolve_head); then
		make_repo "$L/objects" "$W/.git/objects"
		if git cat-file -e "$head^{commit}" && deliver "$head" "$CONFINE_LEFTOVERS"; then
			send
			exit
		fi
		note "broken history"
	else
		note "broken head"
	fi
fi
# The commits can't be read, the files can: they become one commit on the base.
if make_repo "$L/objects" && deliver "$B" yes; then
	send
	exit
fi
note "broken git"
archive
