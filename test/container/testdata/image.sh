#!/usr/bin/env bash
# image.sh PROGRAM: writes the files of a small container to standard output, as tar.
# It holds the given program, a shell, git and the basic tools of this host, and an
# ordinary user, as an application's own image would.
set -euo pipefail
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{etc,tmp,root,proc,sys,dev,home/app/project}
chmod 1777 "$root/tmp"
chown -R 1000:1000 "$root/home/app"
for d in bin sbin lib lib64; do ln -s "usr/$d" "$root/$d"; done
printf 'root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/bash\n' >"$root/etc/passwd"
printf 'root:x:0:\napp:x:1000:\n' >"$root/etc/group"
cp "$1" "$root/usr/bin/confine"
for name in bash sh git grep sed find ps getent cat ls cp mv rm rmdir mkdir mkfifo ln chmod chown \
	touch head tail sort tr wc id env sleep stat test true false printf echo dd df du cut uname whoami seq tee realpath readlink mktemp date sync expr od timeout chroot nproc; do
	file="$(PATH=/usr/bin:/usr/sbin type -P "$name")"
	cp -L "$file" "$root/usr/bin/"
	# What it is linked with; a static one has nothing.
	while read -r lib; do
		to="$root/usr/${lib#/usr}"
		mkdir -p "$(dirname "${to//\/usr\/usr/\/usr}")"
		[ -e "$to" ] || cp -L "$lib" "$to"
	done < <({ ldd "$file" 2>/dev/null || true; } | grep -o '/[^ )]*' || true)
done
tar -C "$root" -c .
