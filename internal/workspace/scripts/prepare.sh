#!/bin/sh
# Makes a work tree of one commit in an empty directory. It runs inside a sandbox
# without a network; package workspace (prepare.go) starts it. The objects stay
# in the lent repository, so the cost is that of the files alone. No template, no
# hook: nothing but the commit's own files gets here.
set -eu
umask 022
cd /workspace
git init -q --template= --object-format="$CONFINE_FORMAT" -b "$CONFINE_BRANCH" .
mkdir -p .git/objects/info
printf '/lent/objects\n' >.git/objects/info/alternates
git config remote.origin.url /lent
git config remote.origin.fetch "+refs/heads/$CONFINE_BASE_BRANCH:refs/remotes/origin/$CONFINE_BASE_BRANCH"
git update-ref "refs/remotes/origin/$CONFINE_BASE_BRANCH" "$CONFINE_BASE"
git update-ref "refs/heads/$CONFINE_BRANCH" "$CONFINE_BASE"
git reset -q --hard
[ "$(git rev-parse HEAD)" = "$CONFINE_BASE" ]
