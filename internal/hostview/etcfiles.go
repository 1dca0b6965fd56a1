package hostview

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"

	"confine/internal/boundary"
)

// copiedFiles are the files of /etc that go in as they are. They hold no secret
// on any distribution, and each is left out where not everyone may read it.
// Those of ssh must be copies: bound, they would belong to nobody inside, and
// ssh refuses to start.
var copiedFiles = []string{
	"/etc/debian_version", "/etc/redhat-release", "/etc/alpine-release", "/etc/arch-release", "/etc/os-release", "/etc/lsb-release",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld-musl-*.path",
	"/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/locale.conf",
	"/etc/protocols", "/etc/services", "/etc/networks", "/etc/host.conf", "/etc/gai.conf", "/etc/netconfig", "/etc/rpc",
	"/etc/mime.types", "/etc/magic", "/etc/magic.mime",
	"/etc/inputrc", "/etc/shells", "/etc/login.defs", "/etc/man_db.conf", "/etc/manpath.config",
	"/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/pki/tls/openssl.cnf", "/etc/pki/tls/cert.pem", "/etc/ca-certificates.conf",
	"/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d/*.conf", "/etc/ssh/ssh_known_hosts",
}

// boundDirs are the directories of /etc that go in whole. /etc/ssl, /etc/pki and
// /etc/ssh never do: private keys lie beside the certificates.
var boundDirs = []string{
	"/etc/alternatives", "/etc/ld.so.conf.d",
	"/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/pki/java", "/etc/crypto-policies",
	"/etc/fonts", "/etc/terminfo", "/etc/perl", "/etc/python3*", "/etc/R", "/etc/ImageMagick-*",
	"/etc/java", "/etc/java-*", "/etc/.java", "/etc/maven",
	"/etc/chromium.d", "/etc/chromium/policies",
}

// secretMarks are what makes a bound directory stay outside: a file of it that
// may be a plain setting or hold a password, and the marks of the latter.
var secretMarks = map[string]struct {
	file  string
	marks []string
}{
	"/etc/maven": {"/etc/maven/settings.xml", []string{"<password>", "<passphrase>", "<privateKey>"}},
}

// comments of XML: the settings that Maven comes with show passwords in them.
// Compiled when it is needed: every start of the program would pay for it.
var comments = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)<!--.*?-->`) })

const (
	// copyBytes is the largest file that is copied; larger ones are bound,
	// which costs the same at any size.
	copyBytes = 64 << 10
	// settingsBytes caps a file searched for secretMarks.
	settingsBytes = 1 << 20
)

func (b *builder) addEtc() error {
	for _, pattern := range copiedFiles {
		for _, p := range b.host.match(pattern) {
			b.addFile(p)
		}
	}
	for _, pattern := range boundDirs {
		for _, p := range b.host.match(pattern) {
			b.addDir(p)
		}
	}
	return nil
}

// addFile puts one file of /etc in: as a link when it is one into /usr, which is
// there anyway and keeps its name (a time zone is known by it), else as a copy.
func (b *builder) addFile(p string) {
	source, err := b.host.resolve(p)
	if err != nil {
		return // a link to nowhere on the host is nothing inside either
	}
	info, err := b.host.lstat(source)
	switch {
	case err != nil:
		b.skip(p, "can't be read")
	case source != p && within(source, "/usr"):
		b.part.Links = append(b.part.Links, boundary.Link{Path: p, Target: source})
	case !info.Mode().IsRegular():
		b.skip(p, "is not a file")
	case info.Mode().Perm()&0o004 == 0:
		b.skip(p, "not everyone on the host may read it")
	case info.Size() > copyBytes:
		b.part.Mounts = append(b.part.Mounts, boundary.Mount{Kind: boundary.Bind, Target: p, Source: b.host.real(source), NoExec: true})
	default:
		data, err := b.host.readFile(source, copyBytes)
		if err != nil {
			b.skip(p, "can't be read")
			return
		}
		b.part.Files = append(b.part.Files, boundary.File{Path: p, Mode: 0o444, Data: data})
	}
}

func (b *builder) addDir(p string) {
	source, err := b.host.resolve(p)
	if err != nil {
		return
	}
	info, err := b.host.lstat(source)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o005 != 0o005 {
		b.skip(p, "is not a directory that everyone on the host may read")
		return
	}
	if mark, ok := secretMarks[p]; ok && b.holdsSecret(mark.file, mark.marks) {
		b.skip(p, fmt.Sprintf("%s holds a password", mark.file))
		return
	}
	b.part.Mounts = append(b.part.Mounts, boundary.Mount{Kind: boundary.Bind, Target: p, Source: b.host.real(source), NoExec: true})
}

// holdsSecret reports whether a file has a mark, or can't be searched for one.
func (b *builder) holdsSecret(p string, marks []string) bool {
	data, err := b.host.readFile(p, settingsBytes)
	if os.IsNotExist(err) {
		return false
	}
	if err != nil {
		return true
	}
	data = comments().ReplaceAll(data, nil)
	for _, m := range marks {
		if bytes.Contains(data, []byte(m)) {
			return true
		}
	}
	return false
}

type madeUp struct{ path, text string }

// addMadeUp writes the files of /etc that say who and where the run is.
func (b *builder) addMadeUp() error {
	passwd, group := b.accounts()
	files := []madeUp{
		{"/etc/passwd", passwd},
		{"/etc/group", group},
		{"/etc/hostname", Hostname + "\n"},
		{"/etc/hosts", hosts},
		{"/etc/resolv.conf", resolvConf(b.o.Network)},
		{"/etc/nsswitch.conf", nsswitch},
		{"/etc/gitconfig", gitConfig(b.o)},
		{"/etc/profile", profile},
		{"/etc/bash.bashrc", bashrc},
	}
	if len(b.o.GitMasked) > 0 {
		excludes, attributes := gitMasked(b.o.GitMasked)
		files = append(files, madeUp{gitExcludes, excludes}, madeUp{gitAttributes, attributes})
	}
	for _, f := range files {
		b.part.Files = append(b.part.Files, boundary.File{Path: f.path, Mode: 0o444, Data: []byte(f.text)})
	}
	return nil
}

const nobody = 65534

// accounts are passwd and group with root, the run's own id and nobody, each id
// once.
func (b *builder) accounts() (passwd, group string) {
	shell := b.shell()
	passwd = fmt.Sprintf("root:x:0:0:root:/root:%s\n", shell)
	group = "root:x:0:\n"
	if b.o.UID != 0 {
		passwd += fmt.Sprintf("agent:x:%d:%d:agent:%s:%s\n", b.o.UID, b.o.GID, HomeDir(b.o.UID), shell)
	}
	if b.o.GID != 0 {
		group += fmt.Sprintf("agent:x:%d:\n", b.o.GID)
	}
	if b.o.UID != nobody {
		passwd += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	}
	if b.o.GID != nobody {
		group += "nogroup:x:65534:\n"
	}
	return passwd, group
}

// hosts gives the host name a domain: without one git refuses to make up an
// address for a commit, and a run without a lent identity could not commit.
const hosts = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
127.0.1.1	sandbox.localdomain sandbox
`

// resolvConf without a network names no server: the C library then asks
// loopback, where nobody listens, and fails at once.
func resolvConf(n boundary.Network) string {
	if n == boundary.NetworkCaptured {
		return "nameserver 127.0.0.1\noptions timeout:5 attempts:1\n"
	}
	return "# this run has no network\n"
}

const nsswitch = `passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
`

// profile leaves PATH alone: that of several distributions replaces it, and the
// toolchains would be gone in every login shell.
const profile = `# PATH comes from the boundary.
if [ -n "${BASH_VERSION-}" ] && [ -n "${PS1-}" ]; then . /etc/bash.bashrc; fi
`

const bashrc = `case $- in *i*) PS1='[sandbox] \w\$ ' ;; esac
`

// gitConfig is the system-wide configuration of git. The host's own is not
// used: it may name credential helpers and hold addresses with passwords.
func gitConfig(o Options) string {
	var t strings.Builder
	if len(o.SafeDirectories) > 0 {
		t.WriteString("[safe]\n")
		for _, dir := range o.SafeDirectories {
			fmt.Fprintf(&t, "\tdirectory = %s\n", gitQuote(dir))
		}
	}
	if o.Git.Name != "" || o.Git.Email != "" {
		t.WriteString("[user]\n")
		if o.Git.Name != "" {
			fmt.Fprintf(&t, "\tname = %s\n", gitQuote(o.Git.Name))
		}
		if o.Git.Email != "" {
			fmt.Fprintf(&t, "\temail = %s\n", gitQuote(o.Git.Email))
		}
	}
	if len(o.GitMasked) > 0 {
		fmt.Fprintf(&t, "[core]\n\texcludesFile = %s\n\tattributesFile = %s\n", gitExcludes, gitAttributes)
		fmt.Fprintf(&t, "[filter %q]\n\tclean = %s\n\tsmudge = cat\n\trequired = true\n", maskedFilter, gitQuote(maskedClean))
	}
	return t.String()
}

// Masked files are empty inside. Untracked ones are excluded; of tracked ones a
// filter gives git what its index has already, so that adding them changes
// nothing (before that, git status calls an empty file modified whatever a filter
// says). Both files have the lowest
// precedence: a repository's own .gitignore or .gitattributes may say otherwise.
// What is not ignored then is refused by the filter, as the index has nothing.
const (
	gitExcludes   = "/etc/gitignore-masked"
	gitAttributes = "/etc/gitattributes-masked"
	maskedFilter  = "confine-masked"
	// maskedClean runs at the top of the work tree; git puts the path, quoted for
	// the shell, in the place of %f. A file with content under the same path in
	// another repository is none of those that are masked.
	maskedClean = `if [ -s ./%f ]; then cat; else git cat-file blob :0:%f 2>/dev/null || { echo confine: %f is masked, git can not add it >&2; exit 1; }; fi`
)

// gitMasked writes the paths as patterns that match exactly them, from the top
// of the work tree.
func gitMasked(paths []string) (excludes, attributes string) {
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, ` `, `\ `)
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var x, a strings.Builder
	for _, p := range paths {
		pattern := "/" + literal.Replace(p)
		x.WriteString(pattern + "\n")
		fmt.Fprintf(&a, "\"%s\" filter=%s\n", quoted.Replace(pattern), maskedFilter)
	}
	return x.String(), a.String()
}

// gitQuote is a value of a git configuration file. Its callers have refused
// control characters.
func gitQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
