package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The limits of one git process where the caller's context sets no nearer end.
const (
	readTime     = 2 * time.Minute
	transferTime = 30 * time.Minute
	listOutput   = 64 << 20
	// dataMemory is RLIMIT_DATA: heap and writable private memory. Packs are
	// mapped read-only and do not count. A pack may claim objects of any size.
	dataMemory = 4 << 30
)

// searchPath is all of PATH that git and its children get.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Call is one git process as an observer sees it, credentials replaced.
type Call struct {
	Program string
	Args    []string
	Env     []string
	Dir     string
}

type observerKey struct{}

// Observe returns a context under which each git process is told to f before it
// starts: for audit records and for tests. f must not block.
func Observe(ctx context.Context, f func(Call)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// command is one git process to be.
type command struct {
	op   string
	args []string // after op
	// config is added with -c, after the hardened settings.
	config []string
	// secretConfig travels in the environment of this child only, as argument
	// lists are readable by every user of the machine.
	secretConfig [][2]string
	env          []string
	secrets      []string
	stdin        io.Reader
	stdout       io.Writer
	time         time.Duration // 0: readTime
	maxOut       int64         // 0: listOutput; of stdout
	noRepo       bool
	// exits are the statuses other than 0 that the caller reads as answers.
	exits []int
}

// hardenedConfig is what every git process is told. Later values win over the
// repository's own config, which is why each is said though most are defaults.
var hardenedConfig = []string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null",
	"core.symlinks=false",
	"core.pager=cat",
	"core.editor=false",
	"core.askPass=",
	"core.sshCommand=false",
	"core.gitProxy=",
	"core.alternateRefsCommand=true",
	"core.logAllRefUpdates=false",
	"core.bigFileThreshold=32m",
	"core.fsync=committed,reference",
	"credential.helper=",
	"protocol.allow=never",
	"safe.bareRepository=explicit",
	"transfer.fsckObjects=true",
	"fetch.fsckObjects=true",
	"receive.fsckObjects=true",
	"transfer.bundleURI=false",
	"fetch.recurseSubmodules=false",
	"push.recurseSubmodules=no",
	"submodule.recurse=false",
	"push.followTags=false",
	"push.gpgSign=false",
	"commit.gpgSign=false",
	"i18n.commitEncoding=UTF-8",
	"gc.auto=0",
	"maintenance.auto=false",
	"pack.threads=1",
	"diff.renames=false",
	"http.followRedirects=false",
	"http.sslVerify=true",
	"http.cookieFile=",
	"advice.detachedHead=false",
}

// hardenedEnv is the whole environment of every git process, before what one
// call adds. HOME is a path below which nothing can ever exist.
var hardenedEnv = []string{
	"PATH=" + searchPath,
	"HOME=/dev/null",
	"LC_ALL=C",
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_CONFIG_GLOBAL=/dev/null",
	"GIT_ATTR_NOSYSTEM=1",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_ASKPASS=/bin/false",
	"SSH_ASKPASS=/bin/false",
	"GIT_SSH_COMMAND=/bin/false",
	"GIT_NO_REPLACE_OBJECTS=1",
	"GIT_NO_LAZY_FETCH=1",
	"GIT_OPTIONAL_LOCKS=0",
	"GIT_PROTOCOL_FROM_USER=0",
	"GIT_LITERAL_PATHSPECS=1",
	"GIT_ADVICE=0",
}

// program finds git once, in the fixed search path only.
var program = sync.OnceValues(func() (string, error) {
	for _, dir := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(dir, "git")); err == nil {
			return path, nil
		}
	}
	return "", notFound(os.Getenv("PATH"))
})

// notFound tells a host without git from one that has it elsewhere: only
// directories that the system's administrator fills are looked in, whatever PATH
// says.
func notFound(path string) *MissingError {
	text := "find git: none in " + strings.Join(filepath.SplitList(searchPath), " ")
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if other, err := exec.LookPath(filepath.Join(dir, "git")); err == nil {
			text += fmt.Sprintf("; %.200q is in PATH and not used, as only those directories are looked in", other)
			break
		}
	}
	return &MissingError{Feature: "git", Err: errors.New(text), hint: installHint}
}

// installHint is the change for every lack of git.
var installHint = fmt.Sprintf("install git %s or later in one of %s (apt install git)", Oldest.short(), strings.Join(filepath.SplitList(searchPath), " "))

// run starts one git process and waits for it. It returns the exit status when
// that is 0 or one of c.exits; everything else is an *Error.
func (r *Repo) run(ctx context.Context, c command) (int, error) {
	if !c.noRepo && (r == nil || r.dir == "") {
		return -1, fmt.Errorf("git %s: the repository was not opened", c.op)
	}
	git, err := program()
	if err != nil {
		return -1, err
	}
	timed, stopTimer := context.WithTimeoutCause(ctx, orDefault(c.time, readTime), ErrTimeLimit)
	defer stopTimer()
	ctx, cancel := context.WithCancelCause(timed)
	defer cancel(nil)

	cmd := exec.CommandContext(ctx, git, r.argv(c)...)
	cmd.Env = c.environ()
	cmd.Dir = "/"
	if !c.noRepo {
		cmd.Dir = r.dir
	}
	var feed *feeder
	if c.stdin != nil {
		if feed, err = newFeeder(cmd, c.stdin, cancel); err != nil {
			return -1, err
		}
	}
	out := &cappedWriter{w: c.stdout, left: orDefault(c.maxOut, listOutput), fail: cancel}
	cmd.Stdout = out
	var stderr keptBytes
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second

	if f, ok := ctx.Value(observerKey{}).(func(Call)); ok {
		f(Call{Program: git, Args: strikeOutArgs(cmd.Args[1:], c.secrets), Env: strikeOutArgs(cmd.Env, c.secrets), Dir: cmd.Dir})
	}
	fail := func(exit int, cause error) error {
		return &Error{
			Op: c.op, Args: strikeOutArgs(cmd.Args[1:], c.secrets), Exit: exit, Cause: cause,
			Stderr: stderrText(stderr.buf.Bytes(), stderr.cut, c.secrets),
		}
	}
	if err = start(cmd); err != nil {
		return -1, fail(-1, err)
	}
	feed.start()
	waitGroup(cmd)
	err = cmd.Wait()
	feed.wait()
	if ctx.Err() != nil {
		return -1, fail(-1, context.Cause(ctx))
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && slices.Contains(c.exits, exit.ExitCode()):
		return exit.ExitCode(), nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return -1, fail(exit.ExitCode(), nil)
	}
	return -1, fail(-1, err)
}

// argv is the whole argument list after the program.
func (r *Repo) argv(c command) []string {
	args := make([]string, 0, 2*len(hardenedConfig)+len(c.args)+8)
	if !c.noRepo {
		args = append(args, "--git-dir="+r.dir)
	}
	args = append(args, "--no-pager", "--no-replace-objects", "--literal-pathspecs")
	for _, kv := range hardenedConfig {
		args = append(args, "-c", kv)
	}
	if !c.noRepo {
		// In a bare repository git 2.43 and 2.44 read attributes from HEAD.
		args = append(args, "-c", "attr.tree="+string(r.emptyTree()))
	}
	for _, kv := range c.config {
		args = append(args, "-c", kv)
	}
	return append(append(args, c.op), c.args...)
}

func (c command) environ() []string {
	env := append(slices.Clone(hardenedEnv), c.env...)
	if n := len(c.secretConfig); n > 0 {
		env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
		for i, kv := range c.secretConfig {
			env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
		}
	}
	return env
}

// output runs c and returns its standard output.
func (r *Repo) output(ctx context.Context, c command) ([]byte, int, error) {
	var buf bytes.Buffer
	c.stdout = &buf
	exit, err := r.run(ctx, c)
	return buf.Bytes(), exit, err
}

func orDefault[T ~int64](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// cappedWriter passes at most left bytes on and ends the process at the next one.
type cappedWriter struct {
	w    io.Writer
	left int64
	fail func(error)
}

func (c *cappedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > c.left {
		c.fail(ErrTooLarge)
		return 0, ErrTooLarge
	}
	c.left -= int64(len(p))
	if c.w == nil {
		return len(p), nil
	}
	n, err := c.w.Write(p)
	if err != nil {
		c.fail(err)
	}
	return n, err
}

// feeder copies a stream into a process. exec.Cmd would wait for a reader that
// never returns, even after the process is gone.
type feeder struct {
	from io.Reader
	to   io.WriteCloser
	fail func(error)
	done chan struct{}
}

func newFeeder(cmd *exec.Cmd, from io.Reader, fail func(error)) (*feeder, error) {
	to, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &feeder{from: from, to: to, fail: fail, done: make(chan struct{})}, nil
}

func (f *feeder) start() {
	if f == nil {
		return
	}
	go func() {
		defer close(f.done)
		buf := make([]byte, 64<<10)
		for {
			n, err := f.from.Read(buf)
			if n > 0 {
				if _, werr := f.to.Write(buf[:n]); werr != nil {
					return // the process closed it, which is its own matter
				}
			}
			if err == io.EOF {
				f.to.Close()
				return
			}
			if err != nil {
				// A stream that broke must not look like a short one: the pipe
				// stays open until the process is killed.
				f.fail(err)
				return
			}
		}
	}()
}

// wait gives a reader a moment to return, so that the stream is not read any
// more after the call in all but odd cases.
func (f *feeder) wait() {
	if f == nil {
		return
	}
	select {
	case <-f.done:
	case <-time.After(time.Second):
	}
}

// keptBytes keeps the first maxStderrKept bytes and drops the rest.
type keptBytes struct {
	buf bytes.Buffer
	cut bool
}

func (k *keptBytes) Write(p []byte) (int, error) {
	room := maxStderrKept - k.buf.Len()
	if len(p) > room {
		k.buf.Write(p[:max(room, 0)])
		k.cut = true
		return len(p), nil
	}
	return k.buf.Write(p)
}
