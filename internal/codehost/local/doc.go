//go:build unix

// Package local is a code host in a directory of this machine: a bare repository
// plus issues, pull requests, reviews, comments and statuses as files that a
// person can read and write with an editor.
//
//	host.yaml            version of this layout
//	people.yaml          NAME: none | read | write | admin
//	protection.yaml      which branches only a merge may change
//	repo.git/            the bare repository; its pre-receive hook protects
//	issues/N.md          YAML front matter (title, author, state, labels), text
//	comments/issue-N/M.md, comments/pull-N/M.md
//	claims/N.json        which run has an issue
//	pulls/N.md           front matter, text
//	reviews/pull-N/M.yaml
//	statuses/COMMIT.json
//	lock                 held by whoever changes something
//
// It promises: every write is whole or not there (temporary file, fsync,
// rename), writers queue at a kernel lock, numbers are given once, a damaged
// file is one error that names it, a push to a protected branch is refused
// whoever makes it (also a forced one and a delete) unless it is the one update
// that a merge was granted, and Protection says what is really there.
//
// It does not protect from anyone who can write the directory: he can edit the
// repository under the hook, forge an author or a review, or push with a
// core.hooksPath of his own. Open therefore refuses a directory that anyone but
// its owner and root can write, and no sandbox is ever shown it. The mtime of a
// file is the moment since when its text is what it is.
package local
