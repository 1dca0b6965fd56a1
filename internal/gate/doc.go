// Package gate runs a repository's own checks on exactly what a merge would put
// into the base, and binds the verdict to that.
//
// It promises: the candidate is head merged onto the given base as objects, by
// git's own merge without attributes or drivers of the repository; each check
// runs in a sandbox of its own with no network, over a workspace that no other
// check of the run could write to; a check passes only if its command ended by
// itself with status 0 and its report holds; a verdict passes only if every
// planned check did, and says for which tree, base, head, config and view. The
// zero Verdict has not passed.
//
// It does not make the verdict worth more than the tests are: they are the
// repository's, and the agent may have changed them. A check that wants to lie
// about its own tests can. It reads no configuration and chooses no commands;
// the engine passes those of the tenant config. What a check wrote is untrusted
// and kept as it is: clean it (package plaintext) before showing it.
//
// The callers are engine and, for verdicts, mergeauthority.
package gate
