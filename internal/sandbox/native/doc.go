// Package native makes sandboxes from the kernel's own parts: namespaces,
// mounts by descriptor, Landlock, seccomp, cgroups. No helper program, no setuid
// bit, no second language runtime inside.
//
// Three processes make one sandbox, each running its block of one
// kernel.Program (see plan.go for the order):
//
//	outer    new user, mount, PID, network, IPC, UTS namespaces; builds the
//	         view and the network, then only waits
//	init     a second user, PID and mount namespace inside those: every mount
//	         of outer is locked for it, and what runs below can't see or trace
//	         outer; PID 1, reaps, forwards signals
//	command  no capability, no_new_privs, Landlock, seccomp, then exec
//
// It promises that the command starts inside every layer of the boundary or not
// at all. It does not protect against a fault in the kernel's own interfaces
// that remain open to the command.
package native
