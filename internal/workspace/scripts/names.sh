#!/bin/sh
# Prints what setup added to the work tree and git does not ignore, NUL after
# each, directories as one.
set -eu
cd /workspace
exec git ls-files -z --others --exclude-standard --directory --no-empty-directory
