// Package gitcmd is the only place that starts git outside a sandbox.
//
// It promises that every git process starts from one builder (command.go): an
// environment that holds nothing of ours, no configuration but the repository's
// own and the builder's, no hooks of the repository it runs in, no helpers, no
// prompts, no lazy fetches, no replace objects, no transport but the one a call
// names, and limits on time, output and memory. Whatever such a process leaves
// running is killed with its process group. There is no free argument list: a
// caller passes hashes, full ref names and byte streams, which are checked before
// they reach an argument list, and gets parsed values back.
//
// It does not promise that git is safe where an agent can write: a repository
// there could name programs under any key. Open refuses a directory that others
// may write; not handing it a path below an agent's directory is the caller's
// part, and package handover has a test for it. It does not check out files.
//
// The callers are workspace, handover, gate, codehost and mergeauthority.
//
// Text that git prints is data: it is quoted, capped, cleared of credentials and
// kept in Error.Stderr; nothing here decides by it.
package gitcmd
