//go:build linux

package sandboxtest

func kernelProbes() []Probe {
	return []Probe{
		{Name: "namespaces", Group: "kernel", Expected: "no namespace can be made or entered", run: attempt("namespaces", "clone without namespace flags works", "EPERM", "ENOSYS", "ENOSPC")},
		{Name: "mounts", Group: "kernel", Expected: "no mount can be made, moved, changed or undone", run: attempt("mounts", "the mounts can be listed", "EPERM", "ENOSYS")},
		{Name: "kernel-interfaces", Group: "kernel", Expected: "io_uring, bpf, perf, userfaultfd, keyrings, modules, kexec, clocks and their like are refused", run: attempt("interfaces", "ordinary calls work", "EPERM", "ENOSYS")},
		{Name: "socket-families", Group: "kernel", Expected: "only INET, INET6, UNIX and route netlink, only TCP and UDP", run: attempt("families", "TCP, UDP and Unix sockets can be made", "EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")},
		{Name: "terminal-input", Group: "kernel", Expected: "no input can be put into a terminal", run: attempt("terminal", "other questions to the terminal are answered", "EPERM")},
	}
}
