package handover

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"confine/internal/boundary"
	"confine/internal/gitcmd"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
)

//go:embed export.sh
var exportScript []byte

// The places of the export's view.
const (
	workspaceTarget = "/workspace"
	lentTarget      = "/lent"
	scratchTarget   = "/scratch"
	scriptPath      = "/confine/export.sh"
	excludePath     = "/confine/exclude"
)

// Defaults and caps of an export.
const (
	defaultExportBytes = 1 << 30
	defaultExportTime  = 10 * time.Minute
	defaultScratch     = 4 << 30
	maxReport          = 256 << 10
)

// ExportOptions say what to take out of which workspace.
type ExportOptions struct {
	Driver sandbox.Driver
	// Boundary is the base: a view with sh, git and tar, an identity, limits. It
	// must not use /workspace, /lent, /scratch or /confine; its network and
	// environment are replaced.
	Boundary boundary.Boundary
	// Workspace is the host directory that the agent wrote. No process of the
	// agent may be left. It is bound read-only and never opened from outside.
	Workspace string
	// Lent is the engine's repository with the closure of Base.
	Lent *gitcmd.Repo
	Base gitcmd.Hash
	// Leftovers commits what the agent changed and did not commit.
	Leftovers bool
	// Exclude are paths below the workspace that are no part of the work, such
	// as those of the setup layer.
	Exclude []string
	// Spool is a directory of the engine; the bytes are kept there.
	Spool string
	// MaxBytes caps the bytes taken out (0: 1 GiB), Scratch the memory for
	// git's files inside (0: 4 GiB).
	MaxBytes, Scratch int64
}

// Kind is what an export brought.
type Kind string

// The kinds of export. The zero value is none of them.
const (
	// Nothing: neither commits nor changes.
	Nothing Kind = "nothing"
	// Bundle: commits, to be received.
	Bundle Kind = "bundle"
	// Archive: git could not read the workspace; the changed files are kept for
	// a person and are never delivered.
	Archive Kind = "archive"
)

// Export is what came out of a workspace. All of it was said by the inside.
type Export struct {
	Kind Kind
	// Path is the file in the spool with the bytes; "" for Nothing.
	Path string
	Size int64
	// Head is the commit that the bundle says it brings.
	Head gitcmd.Hash
	// Leftovers: uncommitted changes became a commit. Incomplete: some of them
	// could not be read.
	Leftovers, Incomplete bool
	// Broken says why the workspace's own history was not used: link, file,
	// missing, objects, head, history, git; or index: the bundle brings the head,
	// and what was not committed could not be put on top of it. Tampered names files of .git that
	// send git elsewhere.
	Broken, Tampered []string
	// Nested are directories with a repository of their own, not included.
	Nested []string
	// Others are refs that hold commits which the bundle does not: kept for a
	// person, never delivered. OthersPath is a bundle of them in the spool, ""
	// where there is none.
	Others     []OtherRef
	OthersPath string
	// OthersLost says why some are not in that bundle, or not listed: unreadable,
	// large, more.
	OthersLost []string
	// Missing are the layers that the sandbox lacked and was allowed to.
	Missing []boundary.Layer
	// others is the size of the bundle of others, behind the payload.
	others int64
}

// OtherRef is a name in the agent's repository for commits that are not in its
// head. The name is the agent's: cleaned, and no name of a ref of ours.
type OtherRef struct {
	Name   string      `json:"name"`
	Commit gitcmd.Hash `json:"commit"`
	// Commits is how many it has beyond the head and the base.
	Commits int `json:"commits"`
}

func (o OtherRef) String() string {
	commits := "commits"
	if o.Commits == 1 {
		commits = "commit"
	}
	return fmt.Sprintf("%d %s on %s (%s)", o.Commits, commits, ShowPath(o.Name), o.Commit.Short())
}

// Take runs the export. On an error no file is left in the spool.
func Take(ctx context.Context, o ExportOptions) (Export, error) {
	spec, err := o.spec()
	if err != nil {
		return Export{}, fmt.Errorf("take commits out: %w", err)
	}
	file, err := os.CreateTemp(o.Spool, "export-*")
	if err != nil {
		return Export{}, fmt.Errorf("take commits out: %w", err)
	}
	e, err := o.take(ctx, spec, file)
	if closeErr := file.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	if err != nil || e.Kind == Nothing {
		_ = os.Remove(file.Name())
		e.Path = ""
	}
	if err != nil && e.OthersPath != "" {
		_ = os.Remove(e.OthersPath)
	}
	if err != nil {
		return Export{}, fmt.Errorf("take commits out: %w", err)
	}
	return e, nil
}

func (o ExportOptions) take(ctx context.Context, spec sandbox.Spec, file *os.File) (Export, error) {
	out := &receiver{file: file, left: orDefault(o.MaxBytes, defaultExportBytes)}
	spec.Stdout = out
	run, err := o.Driver.Start(ctx, spec)
	if err != nil {
		return Export{}, err
	}
	out.stop(run.Kill)
	exit := run.Wait()
	if out.err != nil {
		return Export{}, out.err
	}
	if !exit.Success() {
		return Export{}, &ExportError{Reason: exit.Reason, Status: exit.Status, Err: exit.Err}
	}
	e, err := out.finish(o.Base)
	e.Missing = exit.Missing
	return e, err
}

// ExportError is an export whose sandbox did not end well.
type ExportError struct {
	Reason sandbox.Reason
	Status int
	Err    error
}

func (e *ExportError) Error() string {
	s := fmt.Sprintf("the export ended with %q, status %d", string(e.Reason), e.Status)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *ExportError) Unwrap() error { return e.Err }

// Hint says what to look at.
func (e *ExportError) Hint() string {
	return "the workspace is kept; the export's view needs sh, git, tar, find, grep and sed"
}

// spec makes the boundary of the export out of the base.
func (o ExportOptions) spec() (sandbox.Spec, error) {
	if o.Driver == nil || o.Lent == nil || o.Spool == "" {
		return sandbox.Spec{}, errors.New("driver, lent repository and spool are needed")
	}
	if _, err := gitcmd.ParseHash(string(o.Base)); err != nil {
		return sandbox.Spec{}, err
	}
	if !boundary.CleanAbs(o.Workspace) {
		return sandbox.Spec{}, fmt.Errorf("workspace %q: want an absolute, clean path", o.Workspace)
	}
	for _, dir := range []string{o.Lent.Dir(), o.Spool} {
		if within(o.Workspace, dir) {
			return sandbox.Spec{}, fmt.Errorf("%q lies in the workspace, where the agent writes", dir)
		}
	}
	b := o.Boundary
	if err := checkFree(b.View); err != nil {
		return sandbox.Spec{}, err
	}
	exclude, err := excludeSpecs(o.Exclude)
	if err != nil {
		return sandbox.Spec{}, err
	}
	b.View.Mounts = append(slices.Clone(b.View.Mounts),
		boundary.Mount{Kind: boundary.Bind, Target: workspaceTarget, Source: o.Workspace, Owned: true, NoExec: true},
		boundary.Mount{Kind: boundary.Bind, Target: lentTarget, Source: o.Lent.Dir(), Owned: true, NoExec: true},
		boundary.Mount{Kind: boundary.Tmpfs, Target: scratchTarget, Size: orDefault(o.Scratch, defaultScratch), Mode: 0o1777, NoExec: true})
	b.View.Files = append(slices.Clone(b.View.Files),
		boundary.File{Path: scriptPath, Mode: 0o444, Data: exportScript},
		boundary.File{Path: excludePath, Mode: 0o444, Data: exclude})
	b.View.Workdir = scratchTarget
	b.Network = boundary.NetworkOff
	b.Env = exportEnv(o)
	b.Limits.Time = orDefault(b.Limits.Time, defaultExportTime)
	b.Limits.Output = orDefault(o.MaxBytes, defaultExportBytes) + maxReport + 1
	return sandbox.Spec{Boundary: b, Args: []string{"/bin/sh", scriptPath}}, nil
}

// exportEnv is the whole environment inside.
func exportEnv(o ExportOptions) []string {
	leftovers := "no"
	if o.Leftovers {
		leftovers = "yes"
	}
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/dev/null", "LC_ALL=C", "TMPDIR=" + scratchTarget,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_PROTOCOL_FROM_USER=0",
		// The commit of the leftovers is written anew later; only its tree stays.
		"GIT_AUTHOR_NAME=leftovers", "GIT_AUTHOR_EMAIL=leftovers@confine.invalid", "GIT_AUTHOR_DATE=@0 +0000",
		"GIT_COMMITTER_NAME=leftovers", "GIT_COMMITTER_EMAIL=leftovers@confine.invalid", "GIT_COMMITTER_DATE=@0 +0000",
		"CONFINE_WORKSPACE=" + workspaceTarget, "CONFINE_SCRATCH=" + scratchTarget, "CONFINE_LENT=" + lentTarget,
		"CONFINE_BASE=" + string(o.Base), "CONFINE_LEFTOVERS=" + leftovers, "CONFINE_EXCLUDE=" + excludePath,
		"CONFINE_MAX_BYTES=" + strconv.FormatInt(orDefault(o.MaxBytes, defaultExportBytes), 10),
	}
}

func checkFree(v boundary.View) error {
	targets := []string{}
	for _, m := range v.Mounts {
		targets = append(targets, m.Target)
	}
	for _, f := range v.Files {
		targets = append(targets, f.Path)
	}
	for _, t := range targets {
		for _, own := range []string{workspaceTarget, lentTarget, scratchTarget, path.Dir(scriptPath)} {
			if within(own, t) {
				return fmt.Errorf("the base view uses %q, which belongs to the export", t)
			}
		}
	}
	return nil
}

// within reports whether p is dir or lies below it.
func within(dir, p string) bool {
	p = filepath.Clean(p)
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// excludeSpecs writes pathspecs, ended by NUL each.
func excludeSpecs(paths []string) ([]byte, error) {
	var b bytes.Buffer
	for _, p := range paths {
		if p == "" || path.Clean(p) != p || path.IsAbs(p) || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
			return nil, fmt.Errorf("exclude %q: want a clean path below the workspace", p)
		}
		b.WriteString(":(top,exclude,literal)" + p + "\x00")
	}
	return b.Bytes(), nil
}

// receiver takes the output of the export: the report into memory, the payload
// into the file. It stops the sandbox at the first byte too many.
type receiver struct {
	file   *os.File
	report bytes.Buffer
	ended  bool // the report has ended
	left   int64
	size   int64

	mu   sync.Mutex
	err  error
	kill func()
}

// stop says what ends the sandbox, which may be writing already.
func (r *receiver) stop(kill func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill = kill
	if r.err != nil {
		kill()
	}
}

func (r *receiver) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	if r.err != nil {
		return n, nil
	}
	if !r.ended {
		// Only what is new can hold the end: the writer may write byte by byte.
		from := max(0, r.report.Len()-1)
		r.report.Write(p)
		end := bytes.Index(r.report.Bytes()[from:], []byte("\n\n"))
		if end >= 0 {
			end += from
		}
		switch {
		case end >= 0:
			p = bytes.Clone(r.report.Bytes()[end+2:])
			r.report.Truncate(end + 1)
			r.ended = true
		case r.report.Len() > maxReport:
			return n, r.fail(errors.New("the report of the export has no end"))
		default:
			return n, nil
		}
	}
	if int64(len(p)) > r.left {
		return n, r.fail(&Refusal{Rule: RuleBytes, Field: "handover.max_bytes", Detail: "the bundle or archive is larger than allowed"})
	}
	r.left -= int64(len(p))
	r.size += int64(len(p))
	if _, err := r.file.Write(p); err != nil {
		return n, r.fail(err)
	}
	return n, nil
}

func (r *receiver) fail(err error) error {
	r.err = err
	if r.kill != nil {
		r.kill()
	}
	return err
}

// finish reads the report.
func (r *receiver) finish(base gitcmd.Hash) (Export, error) {
	if !r.ended {
		return Export{}, errors.New("the export wrote no report")
	}
	e, size, err := parseReport(&r.report, base)
	if err != nil {
		return Export{}, err
	}
	if e.Kind == Archive {
		size = r.size
	}
	if size+e.others != r.size {
		return Export{}, fmt.Errorf("the export announced %d bytes and wrote %d", size+e.others, r.size)
	}
	if e.others > 0 {
		if e.OthersPath, err = r.cut(size); err != nil {
			return Export{}, err
		}
	}
	e.Path, e.Size = r.file.Name(), size
	return e, r.file.Sync()
}

// cut moves what lies behind the payload to a file of its own.
func (r *receiver) cut(size int64) (path string, err error) {
	to, err := os.CreateTemp(filepath.Dir(r.file.Name()), "others-*")
	if err != nil {
		return "", err
	}
	if _, err = r.file.Seek(size, io.SeekStart); err == nil {
		err = copyAndSync(to, r.file)
	} else {
		err = errors.Join(err, to.Close())
	}
	if err == nil {
		err = r.file.Truncate(size)
	}
	if err != nil {
		_ = os.Remove(to.Name())
		return "", err
	}
	return to.Name(), nil
}

// maxOthers caps the refs that are listed.
const maxOthers = 200

// parseOther reads "HASH COUNT NAME".
func parseOther(value string, base gitcmd.Hash) (OtherRef, bool) {
	hash, rest, _ := strings.Cut(value, " ")
	count, name, _ := strings.Cut(rest, " ")
	h, err := gitcmd.ParseHash(hash)
	n, countErr := strconv.Atoi(count)
	if err != nil || countErr != nil || len(h) != len(base) || n < 1 || count != strconv.Itoa(n) || name == "" {
		return OtherRef{}, false
	}
	return OtherRef{Name: plaintext.Line(name, 300), Commit: h, Commits: n}, true
}

// parseReport reads the lines before the payload. They come from the inside:
// what is not understood is an error.
func parseReport(text io.Reader, base gitcmd.Hash) (e Export, size int64, err error) {
	lines := bufio.NewScanner(text)
	bad := func(line string) (Export, int64, error) {
		return Export{}, 0, fmt.Errorf("the report of the export holds %.200q", line)
	}
	if !lines.Scan() || lines.Text() != "confine-export 1" {
		return bad(lines.Text())
	}
	size = -2
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch {
		case size != -2:
			return bad(lines.Text()) // the payload line is the last
		case key == "note":
			if !e.note(value) {
				return bad(lines.Text())
			}
		case key == "nested" && len(e.Nested) < 200:
			e.Nested = append(e.Nested, plaintext.Line(value, 300))
		case key == "other" && len(e.Others) < maxOthers:
			other, ok := parseOther(value, base)
			if !ok {
				return bad(lines.Text())
			}
			e.Others = append(e.Others, other)
		case key == "others" && e.others == 0:
			if e.others, err = strconv.ParseInt(value, 10, 64); err != nil || e.others < 1 || value != strconv.FormatInt(e.others, 10) || len(e.Others) == 0 {
				return bad(lines.Text())
			}
		case key == "head":
			if e.Head, err = gitcmd.ParseHash(value); err != nil || len(value) != len(base) {
				return bad(lines.Text())
			}
		case key == "payload":
			kind, bytes, _ := strings.Cut(value, " ")
			e.Kind = Kind(kind)
			if size, err = strconv.ParseInt(bytes, 10, 64); err != nil || size < -1 || bytes != strconv.FormatInt(size, 10) {
				return bad(lines.Text())
			}
		default:
			return bad(lines.Text())
		}
	}
	switch {
	case lines.Err() != nil:
		return Export{}, 0, fmt.Errorf("read the report of the export: %w", lines.Err())
	case e.Kind == "fault":
		return Export{}, 0, fmt.Errorf("the export's git can't read the base commit %s in the lent repository", base.Short())
	case e.Kind == Archive && size == -1 && e.others == 0, e.Kind == Bundle && size > 0 && e.Head != "", e.Kind == Nothing && size == 0 && e.Head == base:
		return e, size, nil
	}
	return Export{}, 0, fmt.Errorf("the report of the export ends with %.40q, %d bytes", string(e.Kind), size)
}

func (e *Export) note(value string) bool {
	word, what, _ := strings.Cut(value, " ")
	switch {
	case value == "leftovers":
		e.Leftovers = true
	case value == "incomplete":
		e.Incomplete = true
	case word == "others-unreadable", word == "others-large", word == "others-more":
		if what = strings.TrimPrefix(word, "others-"); !slices.Contains(e.OthersLost, what) {
			e.OthersLost = append(e.OthersLost, what)
		}
	case word == "broken" && slices.Contains([]string{"link", "file", "missing", "objects", "head", "history", "git", "index"}, what):
		e.Broken = append(e.Broken, what)
	case word == "tampered" && slices.Contains([]string{"commondir", "gitdir", "config.worktree", "shallow", "info/grafts", "refs/replace"}, what):
		e.Tampered = append(e.Tampered, what)
	default:
		return false
	}
	return true
}

func orDefault[T ~int64 | ~int](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}
