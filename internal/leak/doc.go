// Package leak finds what looks like a credential in a text: forms that issuers
// publish for scanners, assignments to telling names, known credentials in common
// encodings, and names of variables that hold secrets.
//
// It promises bounded memory, and that a Hit shows no more of a secret than its
// first characters through Masked. It does not promise to recognise every
// secret: one can be encoded in ways without end.
//
// handover scans what leaves a workspace; tenant what a config would bring to
// where untrusted programs run.
package leak
