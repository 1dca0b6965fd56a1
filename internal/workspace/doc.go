// Package workspace makes the directory that a run works in, and looks at what
// the run left there.
//
// Two kinds. A person's own directory, live (Live): the run writes to it, but
// not to what git on the host would run (control files of every repository in
// it), nor does it see what is masked (.env and the like); at the end Review
// lists what is new or changed and would be run by some tool of the host by
// itself, and takes out of the way what could not be protected because it did
// not exist. And the engine's (Lend, Prepare, Setup): a clone made inside a
// sandbox from a lent repository that holds the base and nothing else.
//
// It promises that nothing below a workspace is opened through a symbolic link
// or above its root, that a mask or a read-only rule is either enforced or an
// error, and that the mounts of a start come from what is in the tree, never
// from what a file in it names.
//
// It does not promise that Review knows every tool: what it knows is the
// catalogue (catalogue.go), and a program that a person starts by hand in a
// directory an agent wrote runs what the agent wrote. A file that appears while a
// run goes on is not masked: it is the run's own.
//
// The callers are the command line (run) and engine.
package workspace
