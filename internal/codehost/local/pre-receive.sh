#!/bin/sh
# confine: branches in this list change by a merge of confine only. A push that
# touches one is refused, unless it is the single update that was granted: the
# grant is the digest of a secret that only the merge has and of that update, and
# serves once. Don't edit: confine compares this file with its own copy, and
# without it there is no protection and no merge.
#
# Nothing but branches and tags is taken: a ref below refs/replace would show the
# pusher's content under the name of another commit. A symbolic ref is another
# name of its target, so none is pushed to, and what a protected one leads to is
# protected.
set -eu
PATH=/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL

refuse() {
	echo "confine: $1" >&2
	exit 1
}

dir=${GIT_DIR:-.}/confine
if ! [ -f "$dir/protected" ] || ! [ -r "$dir/protected" ]; then
	refuse "the list of protected branches can't be read; every push is refused"
fi

# target_of REF: what a symbolic ref leads to in the end; nothing for any other.
target_of() {
	status=0
	git symbolic-ref -q "$1" 2>/dev/null || status=$?
	[ "$status" -le 1 ]
}

targets=
while read -r name || [ -n "$name" ]; do
	target=$(target_of "$name") || refuse "git can't read the protected branch; every push is refused"
	[ -z "$target" ] || targets="$targets $target "
done <"$dir/protected"

count=0
hit=
while read -r old new ref; do
	count=$((count + 1))
	case $ref in
	refs/heads/?* | refs/tags/?*) ;;
	*) refuse "$ref is neither a branch nor a tag: nothing else is taken" ;;
	esac
	target=$(target_of "$ref") || refuse "git can't read $ref"
	[ -z "$target" ] || refuse "$ref is another name of $target: push to that"
	case $targets in
	*" $ref "*) refuse "$ref is what a protected branch leads to: open a pull request" ;;
	esac
	while read -r name || [ -n "$name" ]; do
		if [ "$ref" = "$name" ]; then
			hit=$ref
			update="$old $new $ref"
		fi
	done <"$dir/protected"
done
[ -n "$hit" ] || exit 0

why="$hit is protected: open a pull request; only a merge changes it"
if [ -z "${CONFINE_PUSH_TOKEN:-}" ] || [ "$count" -ne 1 ] || ! [ -f "$dir/grant" ]; then
	refuse "$why"
fi
digest=$(printf '%s %s\n' "$CONFINE_PUSH_TOKEN" "$update" | sha256sum)
digest=${digest%% *}
read -r granted <"$dir/grant" || refuse "$why"
if [ "${#digest}" -ne 64 ] || [ "$digest" != "$granted" ]; then
	refuse "$why"
fi
rm "$dir/grant" || refuse "the grant of this merge can't be taken back"
