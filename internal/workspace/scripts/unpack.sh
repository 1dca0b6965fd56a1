#!/bin/sh
# Unpacks a tar from stdin into the directory named. What is there already stays:
# the commit's own files win over what setup made.
set -eu
umask 022
cd "$1"
exec tar --extract --file=- --no-same-owner --skip-old-files
