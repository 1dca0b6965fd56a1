// Package proxy is the egress data path: it answers the names, accepts the
// connections and carries the bytes of a sandbox whose network is captured, by
// an egress.Policy. It runs outside of the sandbox; the sockets it is handed
// live inside, and every byte that comes from them is hostile.
//
// It promises: nothing is resolved or dialled for a name that is not listed;
// the name that was decided is the one that is resolved, checked and dialled;
// nothing of the client's goes upstream before the decision on it; every
// address is checked again at the moment of dialling; each refusal is reported
// once, and told to the program in its own protocol where that has a way; and
// one sandbox holds a bounded number of connections, goroutines, names and
// bytes of memory, whatever it sends.
//
// It does not: terminate TLS, so one server's other names can be reached by
// HTTP inside TLS, and encrypted ClientHellos are judged by their outer name;
// look into a connection whose rule says tcp; carry UDP other than its own name
// service. On a port other than 80 and 443 a rule without a protocol inspects
// what begins as TLS or, to the most lenient server, as HTTP, and passes what
// does not: a request behind another protocol's first line, or in a protocol of
// its own (FastCGI, AJP), is not seen. Who wants more there writes the protocol
// into the rule.
//
// The caller makes one Server for a run and calls Serve for each sandbox.
package proxy
