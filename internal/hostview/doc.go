// Package hostview makes parts of a boundary.View out of this host: its system
// (System), the toolchains that a person's PATH names (Toolchains), and the
// environment that fits both (Env).
//
// It promises that a part names only what the tables in this package allow
// (system.go, etcfiles.go, layouts.go): nothing of the host is hidden from the
// run, it was never put in. Every source it returns has its symbolic links
// resolved. Files of /etc that programs check for their owner are copied, not
// bound. It starts no process and writes nothing.
//
// It does not promise that what it shows is free of secrets that somebody put
// where programs live, such as a password in a script below /usr/local: only the
// places that are known to hold credentials are left out. It does not read what
// is in a toolchain. It trusts the host's own files: who can change /etc or /usr
// needs no sandbox to get at this user.
//
// The callers are the command line (run, check, verify), workspace and engine.
package hostview
