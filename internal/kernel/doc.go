// Package kernel is what confine asks of Linux: namespaces, mounts, Landlock,
// seccomp, cgroups, netlink, and probes of what the host has. It is the only
// package that uses unsafe. It holds no policy: callers say what to do as data.
package kernel
