#!/bin/sh
# Writes what setup added to the work tree, ignored or not, as a tar to stdout.
# A repository inside is named as one directory, which tar takes whole.
set -eu
cd /workspace
git ls-files -z --others >/tmp/confine-names
exec tar --create --file=- --format=pax --null --files-from=/tmp/confine-names
