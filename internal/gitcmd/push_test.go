package gitcmd

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestPushHoldsTheLease(t *testing.T) {
	ctx := t.Context()
	r, remote := newRepo(t, InitOptions{}), newRepo(t, InitOptions{})
	one := addCommit(t, r, map[string]string{"a": "1"})
	two := addCommit(t, r, map[string]string{"a": "2"}, one)
	aside := addCommit(t, r, map[string]string{"a": "3"}, one)
	const ref = Ref("refs/heads/work")
	push := func(p Push) PushResult {
		t.Helper()
		p.To, p.Ref = Remote{Path: remote.Dir()}, ref
		res, err := r.Push(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := push(Push{New: one}); res.Outcome != PushDone {
		t.Errorf("first push = %+v", res)
	}
	if res := push(Push{New: one}); res.Outcome != PushAlready {
		t.Errorf("the same push again, after a lost answer = %+v", res)
	}
	if res := push(Push{New: two}); res.Outcome != PushMoved {
		t.Errorf("push that expects no ref = %+v", res)
	}
	if res := push(Push{New: two, Old: one}); res.Outcome != PushDone {
		t.Errorf("second push = %+v", res)
	}
	if res := push(Push{New: aside, Old: one}); res.Outcome != PushMoved {
		t.Errorf("push with a stale lease = %+v", res)
	}
	var rewrite *RewriteError
	if _, err := r.Push(ctx, Push{To: Remote{Path: remote.Dir()}, Ref: ref, New: aside, Old: two}); !errors.As(err, &rewrite) {
		t.Errorf("push that drops a commit: %v", err)
	}
	if got, err := remote.RevParse(ctx, ref); err != nil || got != two {
		t.Errorf("after the refused pushes the remote has %s, %v", got, err)
	}
	if res := push(Push{New: aside, Old: two, Rewrite: true}); res.Outcome != PushDone {
		t.Errorf("push that may rewrite = %+v", res)
	}
	if refs, err := remote.Refs(ctx, "refs"); err != nil || len(refs) != 1 {
		t.Errorf("the remote has %v, %v: want one ref", refs, err)
	}
	if res := push(Push{Old: two}); res.Outcome != PushMoved {
		t.Errorf("deletion with a stale lease = %+v", res)
	}
	if res := push(Push{Old: aside}); res.Outcome != PushDone {
		t.Errorf("deletion = %+v", res)
	}
}

func TestPushTellsTheHookItsToken(t *testing.T) {
	ctx := t.Context()
	r, remote := newRepo(t, InitOptions{}), newRepo(t, InitOptions{})
	one := addCommit(t, r, map[string]string{"a": "1"})
	hook := "#!/bin/sh\n[ \"$CONFINE_PUSH_TOKEN\" = right ] && exit 0\necho \"protected: $CONFINE_PUSH_TOKEN\" >&2\nexit 1\n"
	if err := os.MkdirAll(filepath.Join(remote.Dir(), "hooks"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(remote.Dir(), "hooks", "pre-receive"), []byte(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	p := Push{To: Remote{Path: remote.Dir()}, Ref: "refs/heads/main", New: one, HookToken: "wrong-CANARYTOK"}
	res, err := r.Push(ctx, p)
	if err != nil || res.Outcome != PushRefused || !strings.Contains(res.Reason, "hook declined") || strings.Contains(res.Reason, "CANARYTOK") {
		t.Errorf("push with a wrong token = %+v, %v", res, err)
	}
	p.HookToken = "right"
	if res, err := r.Push(ctx, p); err != nil || res.Outcome != PushDone {
		t.Errorf("push with the right token = %+v, %v", res, err)
	}
}

func TestFetchExactRefs(t *testing.T) {
	ctx := t.Context()
	remote, r := newRepo(t, InitOptions{}), newRepo(t, InitOptions{})
	one := addCommit(t, remote, map[string]string{"a": "1"})
	two := addCommit(t, remote, map[string]string{"a": "2"})
	for ref, h := range map[Ref]Hash{"refs/heads/main": one, "refs/heads/other": two, "refs/tags/v1": one} {
		if err := remote.UpdateRef(ctx, RefUpdate{Ref: ref, New: h}); err != nil {
			t.Fatal(err)
		}
	}
	from := Remote{Path: remote.Dir()}
	if err := r.Fetch(ctx, from, FetchRef{"refs/heads/main", "refs/confine/base"}); err != nil {
		t.Fatal(err)
	}
	refs, err := r.Refs(ctx, "refs")
	if err != nil || len(refs) != 1 || refs[0] != (RefValue{"refs/confine/base", one}) {
		t.Errorf("refs after the fetch: %v, %v", refs, err)
	}
	if err := r.Fetch(ctx, from, FetchRef{"refs/heads/none", "refs/confine/none"}); err == nil {
		t.Error("fetch of a missing ref succeeded")
	}
	list, err := r.LsRemote(ctx, from, "refs/heads/main")
	if err != nil || len(list) != 1 || list[0].Hash != one {
		t.Errorf("LsRemote = %v, %v", list, err)
	}
	if list, err := r.LsRemote(ctx, from); err != nil || len(list) != 2 {
		t.Errorf("LsRemote of all branches = %v, %v", list, err)
	}
}

func TestCredentialReachesTheServerAndNothingElse(t *testing.T) {
	const token = "CANARYTOK-3f9/x+y"
	basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))
	var mu sync.Mutex
	got := map[string]int{}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got["elsewhere"]++
		w.WriteHeader(http.StatusNotFound)
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		auth := req.Header.Get("Authorization")
		if auth == "Basic "+basic {
			got["authorized"]++
		}
		switch {
		case strings.HasPrefix(req.URL.Path, "/redirect"):
			http.Redirect(w, req, elsewhere.URL+req.URL.Path, http.StatusFound)
		case strings.HasPrefix(req.URL.Path, "/echo"):
			// As text/plain, git prints the body of an error as "remote: …".
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, "%s\n%s\n%s%s\n%s\n", auth, token, strings.Repeat("x", 5000), token, basic[4:])
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	var calls []Call
	ctx := Observe(t.Context(), func(c Call) { calls = append(calls, c) })
	r := newRepo(t, InitOptions{})
	one := addCommit(t, r, map[string]string{"a": "1"})
	for _, path := range []string{"/echo/x.git", "/denied/x.git", "/redirect/x.git"} {
		to := Remote{URL: server.URL + path, Credential: Credential{Username: "x-access-token", Password: token}}
		_, err := r.Push(ctx, Push{To: to, Ref: "refs/heads/main", New: one})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: push = %v, want an Error", path, err)
			continue
		}
		for _, form := range []string{token, basic, basic[len(basic)-12:], "CANARYTOK"} {
			if text := fmt.Sprintf("%v %q %+v %#v %v", e, e.Args, *e, to, to.Credential); strings.Contains(text, form) {
				t.Errorf("%s: %q is in an error: %s", path, form, e.Stderr)
			}
		}
		if path == "/echo/x.git" && !strings.Contains(e.Stderr, "403") {
			t.Errorf("%s: the reason is lost: %s", path, e.Stderr)
		}
	}
	for _, c := range calls {
		if text := fmt.Sprintf("%q", c); strings.Contains(text, "CANARYTOK") || strings.Contains(text, basic) {
			t.Errorf("an observer saw the credential: %s", text)
		}
	}
	if got["authorized"] == 0 {
		t.Error("control: the credential never reached the server")
	}
	if got["elsewhere"] != 0 {
		t.Error("a redirect was followed")
	}
}

func TestRemoteRefusals(t *testing.T) {
	for _, url := range []string{"https://example.com/a/b.git", "https://example.com:8443/a", "http://127.0.0.1:3000/a.git", "http://[::1]:3000/a.git"} {
		if _, err := (Remote{URL: url}).prepare(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"http://example.com/a", "ext::sh -c id", "ext::sh", "ssh://git@example.com/a", "git@example.com:a", "file:///tmp/x", "/tmp/x", "-oProxyCommand=x",
		"https://user:pw@example.com/a", "https://example.com/a?x", "https://example.com/a#b", "https://", "https://-x/a", "https://example.com/a\nb", "https://exämple.com/", "git://example.com/a"} {
		if _, err := (Remote{URL: url}).prepare(); err == nil {
			t.Errorf("%q was accepted", url)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	if _, err := (Remote{}).prepare(); err == nil {
		t.Error("an empty remote was accepted")
	}
	if _, err := (Remote{URL: "https://example.com/a", Path: "/tmp"}).prepare(); err == nil {
		t.Error("a remote with a path and a URL was accepted")
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	var unsafe *UnsafeError
	if _, err := (Remote{Path: open}).prepare(); !errors.As(err, &unsafe) {
		t.Errorf("a path that everyone may write: %v", err)
	}
}

func TestStderrTextNeverCutsASecretInHalf(t *testing.T) {
	const secret = "CANARYTOKEN"
	for pad := range 40 {
		raw := []byte(strings.Repeat("y", pad) + secret + strings.Repeat("z", maxStderrShown-20) + "\x1b[31m\u202e")
		text := stderrText(raw, false, []string{secret})
		if strings.Contains(text, "CANARY") || strings.Contains(text, "TOKEN") || strings.Contains(text, "\x1b") || strings.Contains(text, "\u202e") {
			t.Fatalf("pad %d: %q", pad, text)
		}
		whole := []byte(strings.Repeat("y", pad) + secret)
		for n := range len(secret) {
			if text := stderrText(whole[:pad+n], true, []string{secret}); strings.Contains(text, "CAN") {
				t.Fatalf("cut after %d bytes of the secret: %q", n, text)
			}
		}
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add([]byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nparent 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\ngpgsig x\n y\n\nmessage"))
	f.Add([]byte("tree x\n\n"))
	f.Add([]byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor ><  99999999999999999999\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseCommit(raw)
		if err != nil {
			return
		}
		if _, err := ParseHash(string(c.Tree)); err != nil {
			t.Errorf("accepted the tree %q", c.Tree)
		}
		for _, p := range c.Parents {
			if _, err := ParseHash(string(p)); err != nil {
				t.Errorf("accepted the parent %q", p)
			}
		}
		if !strings.HasSuffix(string(raw), c.Message) {
			t.Errorf("the message is not the end of the commit")
		}
	})
}

// A hook of a remote on this machine that leaves a process behind.
func TestWhatGitLeavesRunningIsKilled(t *testing.T) {
	ctx := t.Context()
	r, remote := newRepo(t, InitOptions{}), newRepo(t, InitOptions{})
	one := addCommit(t, r, map[string]string{"a": "1"})
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	life, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	if err := os.MkdirAll(filepath.Join(remote.Dir(), "hooks"), 0o700); err != nil {
		t.Fatal(err)
	}
	hook := "#!/bin/sh\ntrap '' HUP TERM\nsleep 60 </dev/null 2>/dev/null >" + fifo + " &\n"
	if err := os.WriteFile(filepath.Join(remote.Dir(), "hooks", "pre-receive"), []byte(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	if res, err := r.Push(ctx, Push{To: Remote{Path: remote.Dir()}, Ref: "refs/heads/main", New: one}); err != nil || res.Outcome != PushDone {
		t.Fatalf("push = %+v, %v", res, err)
	}
	// The end of the pipe comes when the last process that holds it is gone.
	if err := life.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := life.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the process still runs: %d, %v", n, err)
	}
}

func TestProxyIsAskedWithItsPassword(t *testing.T) {
	const password = "PROXYCANARY"
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Proxy-Authorization") == "" {
			w.Header().Set("Proxy-Authenticate", "Basic realm=x")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		asked <- req.Header.Get("Proxy-Authorization") + " " + req.URL.String()
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	var calls []Call
	ctx := Observe(t.Context(), func(c Call) { calls = append(calls, c) })
	r := newRepo(t, InitOptions{})
	remote := Remote{URL: "http://127.0.0.1:9/x.git", Proxy: strings.Replace(proxy.URL, "://", "://u:"+password+"@", 1)}
	_, err := r.LsRemote(ctx, remote)
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v %q %#v", err, err, calls, remote), password) {
		t.Errorf("the password is shown, or the call succeeded: %v", err)
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+password)) + " http://127.0.0.1:9/x.git/"
	select {
	case got := <-asked:
		if !strings.HasPrefix(got, want) {
			t.Errorf("the proxy got %q, want %q", got, want)
		}
	default:
		t.Errorf("the proxy was not asked with a password: %v", err)
	}
	for _, bad := range []string{"socks5://127.0.0.1:1", "127.0.0.1:1", "http://", "http://h/path"} {
		if _, err := (Remote{URL: "https://example.com/x", Proxy: bad}).prepare(); err == nil {
			t.Errorf("the proxy %q was accepted", bad)
		}
	}
}
