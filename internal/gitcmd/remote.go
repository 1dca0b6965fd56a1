package gitcmd

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// Credential authenticates one call to a remote. It reaches the child process
// in its environment only, never an argument, a file, an error or a record.
type Credential struct {
	// Username and Password are sent with HTTP basic authentication. For
	// tokens the host says which user name it wants.
	Username, Password string
}

// String hides the credential from fmt.
func (Credential) String() string { return "credential hidden" }

// GoString hides the credential from %#v.
func (Credential) GoString() string { return "credential hidden" }

func (c Credential) empty() bool { return c.Username == "" && c.Password == "" }

// Remote is another repository: exactly one of Path and URL.
type Remote struct {
	// Path is a bare repository on this machine that passes the checks of Open.
	// Its own hooks run when it is pushed to, as its owner wants.
	Path string
	// URL is https, without a user in it. http is allowed for an address of
	// loopback only.
	URL        string
	Credential Credential
	// CAFile holds the certificate authorities to be trusted for URL, in place
	// of the system's: a file with both where both are needed. Proxy is an HTTP
	// proxy for URL, http://host:port.
	CAFile string
	Proxy  string
}

// String names the remote without secrets.
func (r Remote) String() string {
	if r.Path != "" {
		return r.Path
	}
	return r.URL
}

// GoString names the remote without secrets: a proxy's address may hold one.
func (r Remote) GoString() string { return "remote " + r.String() }

// remoteCall is what a Remote adds to a command.
type remoteCall struct {
	address string
	config  []string
	secret  [][2]string
	secrets []string
}

func (r Remote) prepare() (remoteCall, error) {
	if (r.Path == "") == (r.URL == "") {
		return remoteCall{}, fmt.Errorf("use remote: want exactly one of a path and a URL")
	}
	if r.Path != "" {
		if !r.Credential.empty() || r.CAFile != "" || r.Proxy != "" {
			return remoteCall{}, fmt.Errorf("use remote %q: a path takes no credential, certificates or proxy", r.Path)
		}
		dir, err := checkDir(r.Path)
		if err != nil {
			return remoteCall{}, err
		}
		return remoteCall{address: dir, config: []string{"protocol.file.allow=always"}}, nil
	}
	u, err := parseRemoteURL(r.URL)
	if err != nil {
		return remoteCall{}, err
	}
	c := remoteCall{address: r.URL, config: []string{"protocol." + u.Scheme + ".allow=always"}}
	if r.CAFile != "" {
		if !filepath.IsAbs(r.CAFile) {
			return remoteCall{}, fmt.Errorf("use remote %q: certificate file %q is not an absolute path", r.URL, r.CAFile)
		}
		c.secret = append(c.secret, [2]string{"http.sslCAInfo", r.CAFile})
	}
	if err := c.addProxy(r.Proxy); err != nil {
		return remoteCall{}, err
	}
	if !r.Credential.empty() {
		c.addCredential(u, r.Credential)
	}
	return c, nil
}

func (c *remoteCall) addProxy(proxy string) error {
	if proxy == "" {
		c.config = append(c.config, "http.proxy=")
		return nil
	}
	p, err := url.Parse(proxy)
	if err != nil || p.Host == "" || (p.Scheme != "http" && p.Scheme != "https") || (p.Path != "" && p.Path != "/") {
		return fmt.Errorf("use proxy: want http://host:port")
	}
	c.secret = append(c.secret, [2]string{"http.proxy", proxy})
	if p.User != nil {
		c.secrets = append(c.secrets, p.User.String())
		if password, ok := p.User.Password(); ok {
			c.secrets = append(c.secrets, password)
		}
	}
	return nil
}

// addCredential sends the credential to exactly this scheme, host and port.
func (c *remoteCall) addCredential(u *url.URL, cred Credential) {
	pair := cred.Username + ":" + cred.Password
	token := base64.StdEncoding.EncodeToString([]byte(pair))
	c.secrets = append(c.secrets, pair, token)
	if cred.Password != "" {
		c.secrets = append(c.secrets, cred.Password)
	} else {
		c.secrets = append(c.secrets, cred.Username)
	}
	c.secret = append(c.secret, [2]string{"http." + u.Scheme + "://" + u.Host + "/.extraHeader", "Authorization: Basic " + token})
}

func parseRemoteURL(text string) (*url.URL, error) {
	// The text is not shown in an error: it may hold a password.
	bad := func(why string) (*url.URL, error) { return nil, fmt.Errorf("use remote URL: %s", why) }
	if len(text) > 2048 || strings.ContainsFunc(text, func(c rune) bool { return c <= 0x20 || c >= 0x7f || c == '\\' }) {
		return bad("holds characters that a URL can't, or is too long")
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("can't be parsed")
	}
	switch {
	case u.User != nil:
		return bad("holds a user or password; give them as a credential")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery || u.Opaque != "":
		return bad("holds a query or fragment")
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-"):
		return bad("has no host name")
	case u.Scheme == "https":
		return u, nil
	case u.Scheme == "http":
		if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
			return u, nil
		}
		return bad("http is allowed for a loopback address only; use https")
	}
	return bad("want https://")
}

func (c remoteCall) command(op string, args ...string) command {
	return command{op: op, args: args, config: c.config, secretConfig: c.secret, secrets: c.secrets, time: transferTime}
}

// FetchRef says which ref of a remote becomes which ref of ours.
type FetchRef struct{ From, To Ref }

// Fetch brings refs of a remote, with their history, into this repository, and
// sets ours whatever they were. Nothing else is fetched: no tags, no submodules.
// History that git would refuse in new objects is accepted with the few
// harmless faults that old, well-known repositories have.
func (r *Repo) Fetch(ctx context.Context, from Remote, refs ...FetchRef) error {
	if len(refs) == 0 {
		return fmt.Errorf("fetch: no ref named")
	}
	call, err := from.prepare()
	if err != nil {
		return err
	}
	args := []string{"--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-show-forced-updates", "--no-prune", "--end-of-options", call.address}
	for _, ref := range refs {
		if err := ref.From.check(); err != nil {
			return err
		}
		if err := ref.To.check(); err != nil {
			return err
		}
		args = append(args, "+"+string(ref.From)+":"+string(ref.To))
	}
	c := call.command("fetch", args...)
	for _, id := range []string{"zeroPaddedFilemode", "badTimezone", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "multipleAuthors"} {
		c.config = append(c.config, "fetch.fsck."+id+"=ignore")
	}
	_, err = r.run(ctx, c)
	return err
}

// LsRemote lists the refs of a remote that match exactly one of the names; all
// branches when none is given.
func (r *Repo) LsRemote(ctx context.Context, from Remote, refs ...Ref) ([]RefValue, error) {
	call, err := from.prepare()
	if err != nil {
		return nil, err
	}
	args := []string{"--quiet", "--refs", "--end-of-options", call.address}
	wanted := map[Ref]bool{}
	for _, ref := range refs {
		if err := ref.check(); err != nil {
			return nil, err
		}
		wanted[ref] = true
		args = append(args, string(ref))
	}
	if len(refs) == 0 {
		args = append(args, "refs/heads/*")
	}
	out, _, err := r.output(ctx, call.command("ls-remote", args...))
	if err != nil {
		return nil, err
	}
	var values []RefValue
	for line := range strings.Lines(string(out)) {
		hash, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		h, ref := Hash(hash), Ref(name)
		if !ok || r.checkHash(h) != nil {
			return nil, fmt.Errorf("list remote refs: git wrote %.100q", line)
		}
		// A pattern matches at the end of longer names too, and a server may
		// send names that are none.
		if ref.check() != nil || (len(refs) > 0 && !wanted[ref]) {
			continue
		}
		values = append(values, RefValue{ref, h})
	}
	return values, nil
}
