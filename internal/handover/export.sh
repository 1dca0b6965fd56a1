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
# top where that is "yes", has more than the base. Prints nothing. unindexed
# tells that the tree of COMMIT is at fault.
deliver() {
	head=$1
	unindexed=no
	if [ "$2" = yes ]; then
		rm -f "$G/index"
		git read-tree "$head" || { unindexed=yes; return 1; }
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

# deliver_raw COMMIT: a pack of every object that the lent repository does not
# have, for trees that git can't walk. It is refused later, with their names.
deliver_raw() {
	head=$1
	git cat-file --batch-all-objects --batch-check='%(objectname)' >"$S/all" || return 1
	make_repo "$L/objects" || return 1
	git cat-file --batch-all-objects --batch-check='%(objectname)' >"$S/lent-objects" || return 1
	make_repo "$L/objects" "$W/.git/objects" || return 1
	comm -23 "$S/all" "$S/lent-objects" | git pack-objects --stdout -q >"$S/pack"
}

# each_ref prints "HASH NAME" for all that names a commit in the workspace: refs,
# the stash with its older entries, the heads of other work trees.
each_ref() {
	hash_line="^[0-9a-f]{${#B}}\$"
	cd "$W/.git" || return
	find refs worktrees -type f -size -3 \( -path 'refs/*' -o -name HEAD \) -exec grep -a -H -m 1 -E -e "$hash_line" {} + |
		sed -n 's/^\(.*\):\([0-9a-f]*\)$/\2 \1/p'
	if [ -f packed-refs ] && [ ! -L packed-refs ]; then
		head -c 33554432 <packed-refs | grep -a -E -e "^[0-9a-f]{${#B}} refs/"
	fi
	each_log logs/refs/stash 'an entry of the stash'
}

# each_log FILE NAME prints the new values of a log of a ref, the last first.
each_log() {
	[ -f "$W/.git/$1" ] && [ ! -L "$W/.git/$1" ] || return 0
	tail -c 4194304 <"$W/.git/$1" | sed -n "s/^[0-9a-f]* \([0-9a-f]*\) .*/\1 $2/p" | tail -n 200 | tac
}

# find_others HEAD: writes the refs with commits that neither HEAD nor the base
# has to $S/others, as "HASH NAME", each commit once, and notes them.
find_others() {
	tr -c '[:print:]\n' '?' | cut -b 1-300 | head -n 5000 >"$S/refs"
	sed 's/ .*/^{commit}/' <"$S/refs" | git cat-file --batch-check='%(objectname)' >"$S/peeled" || return
	paste -d ' ' "$S/peeled" "$S/refs" | sed -n "s/^\([0-9a-f]\{${#B}\}\) [0-9a-f]\{${#B}\} /\1 /p" >"$S/tips"
	cut -d ' ' -f 1 <"$S/tips" >"$S/revs"
	printf '^%s\n^%s\n' "$B" "${1:-$B}" >>"$S/revs"
	if git rev-list --stdin <"$S/revs" >"$S/new"; then
		cut -d ' ' -f 1 <"$S/tips" | grep -x -F -f - "$S/new" >"$S/new-tips"
		grep -F -f "$S/new-tips" "$S/tips" >"$S/candidates"
	else
		note others-unreadable
		cat "$S/tips" >"$S/candidates"
	fi
	listed=' '
	while read -r hash name; do
		case $listed in *" $hash "*) continue ;; esac
		count=$(git rev-list --count "$hash" "^$B" "^${1:-$B}") || continue
		[ "$count" -gt 0 ] || continue
		if [ "${#listed}" -gt 5000 ]; then
			note others-more
			break
		fi
		listed="$listed$hash "
		printf 'other %s %s %s\n' "$hash" "$count" "${name:-?}" >>"$REPORT"
		printf '%s\n' "$hash" >>"$S/others"
	done <"$S/candidates"
}

# pack_tips FILE: a pack of the commits that it lists.
pack_tips() {
	{ cat "$1" && printf '^%s\n' "$B"; } |
		git pack-objects --revs --thin --stdout --delta-base-offset -q >"$S/others-pack"
}

# pack_others makes a bundle of them, for a person: nothing of it is delivered.
pack_others() {
	[ -s "$S/others" ] || return 0
	if ! pack_tips "$S/others"; then
		# One that git can't read must not take the others with it.
		note others-unreadable
		: >"$S/kept"
		while read -r hash; do
			printf '%s\n' "$hash" >"$S/one"
			! pack_tips "$S/one" || cat "$S/one" >>"$S/kept"
		done <"$S/others"
		mv "$S/kept" "$S/others"
		[ -s "$S/others" ] && pack_tips "$S/others" || return 0
	fi
	{
		bundle_begin
		n=0
		while read -r hash; do
			n=$((n + 1))
			printf '%s refs/heads/other-%s\n' "$hash" "$n"
		done <"$S/others"
		printf '\n'
	} >"$S/others-header"
	cat "$S/others-header" "$S/others-pack" >"$S/others-bundle" || rm -f "$S/others-bundle"
}

# keep_others HEAD: everything that HEAD does not hold, and is not delivered.
keep_others() {
	: >"$S/others"
	each_ref | find_others "$1"
	if [ ! -s "$S/others" ] && [ "${1:-$B}" = "$B" ]; then
		# Nothing anywhere: the agent may have left a commit without a name.
		each_log logs/HEAD 'the log of HEAD' | find_others "$1"
	fi
	if [ -n "${aside:-}" ]; then
		printf 'other %s 1 uncommitted changes\n' "$aside" >>"$REPORT"
		printf '%s\n' "$aside" >>"$S/others"
	fi
	pack_others
}

# set_aside keeps the changed files of a workspace whose head can't be their
# parent: as a commit on the base.
set_aside() {
	[ "$CONFINE_LEFTOVERS" = yes ] || return 0
	rm -f "$G/index"
	git read-tree "$B" || return 0
	(cd "$W" && git add -A --ignore-errors --pathspec-from-file="$S/paths" --pathspec-file-nul 2>"$S/add") || note incomplete
	tree=$(git write-tree) || return 0
	[ "$tree" = "$(git rev-parse --verify --quiet "$B^{tree}")" ] && return 0
	aside=$(printf 'Leftover changes\n' | git commit-tree -p "$B" "$tree")
}

bundle_begin() {
	if [ "${#B}" -eq 64 ]; then
		printf '# v3 git bundle\n@object-format=sha256\n'
	else
		printf '# v2 git bundle\n'
	fi
	printf -- '-%s \n' "$B"
}

# send prints what deliver made, and behind it what keep_others made.
send() {
	printf 'head %s\n' "$head" >>"$REPORT"
	kind=nothing
	size=0
	: >"$S/header"
	if [ "$head" = "$B" ]; then
		: >"$S/pack"
	else
		kind=bundle
		{ bundle_begin && printf '%s refs/heads/confine-export\n\n' "$head"; } >"$S/header"
		size=$(($(wc -c <"$S/header") + $(wc -c <"$S/pack")))
	fi
	if [ -f "$S/others-bundle" ]; then
		others=$(wc -c <"$S/others-bundle")
		if [ $((size + others)) -le "$CONFINE_MAX_BYTES" ]; then
			printf 'others %s\n' "$((others))" >>"$REPORT"
		else
			note others-large
			rm -f "$S/others-bundle"
		fi
	fi
	cat "$REPORT" || return 1
	printf 'payload %s %s\n\n' "$kind" "$size"
	cat "$S/header" "$S/pack" || return 1
	[ ! -f "$S/others-bundle" ] || cat "$S/others-bundle"
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
repository=no
if usable_git_dir; then
	if head=$(resolve_head); then
		make_repo "$L/objects" "$W/.git/objects" && repository=yes
		commit=$head
		if git cat-file -e "$commit^{commit}"; then
			if deliver "$commit" "$CONFINE_LEFTOVERS"; then
				keep_others "$commit"
				send
				exit
			fi
			# The head is handed over even so: what is wrong with it is found,
			# and named, by those who receive it.
			if [ "$commit" != "$B" ] && [ "$unindexed$CONFINE_LEFTOVERS" != noyes ] &&
				{ deliver "$commit" no || deliver_raw "$commit"; }; then
				note "broken index"
				set_aside
				keep_others "$commit"
				head=$commit
				send
				exit
			fi
		fi
		note "broken history"
	else
		note "broken head"
		make_repo "$L/objects" "$W/.git/objects" && repository=yes
	fi
fi
# The commits can't be read, the files can: they become one commit on the base.
if [ "$repository" = yes ]; then
	keep_others ""
fi
if make_repo "$L/objects" && deliver "$B" yes; then
	send
	exit
fi
note "broken git"
[ ! -f "$S/others-bundle" ] || note others-unreadable
archive
