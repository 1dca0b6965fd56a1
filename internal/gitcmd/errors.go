package gitcmd

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Error is a git process that did not do what was asked: a fault.
type Error struct {
	// Op is the git command, such as "push".
	Op string
	// Args is its argument list, credentials replaced.
	Args []string
	// Exit is the exit status; -1 when the process was killed or never started.
	Exit int
	// Stderr is what git said: untrusted, quoted, capped, without credentials.
	Stderr string
	// Cause is the reason when it was not git that ended it: the context's
	// error, ErrTooLarge, an error of the input stream.
	Cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "git %s: ", e.Op)
	if e.Cause != nil {
		b.WriteString(e.Cause.Error())
	} else {
		fmt.Fprintf(&b, "exit status %d", e.Exit)
	}
	if e.Stderr != "" {
		b.WriteString(": git said " + e.Stderr)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Cause }

// ErrTooLarge is the cause when output or input passed its cap.
var ErrTooLarge = errors.New("more bytes than allowed")

// ErrNotAPack is the cause when a stream does not begin as a pack does.
var ErrNotAPack = errors.New("not a pack of version 2")

// ErrTimeLimit is the cause when a git process reached its time limit.
var ErrTimeLimit = errors.New("time limit reached")

// NotFoundError is a ref, object or path that is not there.
type NotFoundError struct {
	Kind string // "ref", "object", "path"
	Name string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("find %s %.200q: not there", e.Kind, e.Name)
}

// MovedError is a ref that did not have the value that the caller expected.
type MovedError struct {
	Ref      Ref
	Expected Hash // "" means that it should not have existed
}

func (e *MovedError) Error() string {
	if e.Expected == "" {
		return fmt.Sprintf("update %s: it exists already", e.Ref)
	}
	return fmt.Sprintf("update %s: it is no longer %s", e.Ref, e.Expected.Short())
}

// MissingError is an ability that the installed git lacks.
type MissingError struct {
	Feature string
	Err     error // says it all, where set
	hint    string
}

func (e *MissingError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return "use git: " + e.Feature + " is missing"
}

// Unwrap gives the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// Hint says what would mend it.
func (e *MissingError) Hint() string { return e.hint }

// UnsafeError is a repository directory that others could have written.
type UnsafeError struct {
	Path string
	Why  string
}

func (e *UnsafeError) Error() string { return fmt.Sprintf("open repository %q: %s", e.Path, e.Why) }

// Hint says what would mend it.
func (e *UnsafeError) Hint() string {
	return "the engine starts git only in repositories that no one else can write: move it to a directory of your own, or remove write permission for others"
}

const (
	// maxStderrKept bounds memory; a server's messages come this way.
	maxStderrKept = 1 << 20
	// maxStderrShown bounds what an Error carries.
	maxStderrShown = 2 << 10
)

// stderrText makes the text of an Error out of what git wrote. Secrets are
// struck out in the whole text before anything is cut, so that no part of one
// survives at a cut.
func stderrText(raw []byte, cut bool, secrets []string) string {
	raw = strikeOut(raw, secrets)
	if cut {
		// The text was cut here: a secret may have begun before the cut.
		longest := 0
		for _, s := range secretForms(secrets) {
			longest = max(longest, len(s))
		}
		raw = raw[:max(0, len(raw)-longest)]
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	// The end holds git's own reason; what a server said comes before it.
	if len(raw) > maxStderrShown {
		return "…" + strconv.QuoteToASCII(string(raw[len(raw)-maxStderrShown:]))
	}
	return strconv.QuoteToASCII(string(raw))
}

// strikeOut overwrites every form of every secret with stars of equal length, so
// that offsets do not move. It changes raw.
func strikeOut(raw []byte, secrets []string) []byte {
	for _, form := range secretForms(secrets) {
		for at := 0; ; {
			i := bytes.Index(raw[at:], []byte(form))
			if i < 0 {
				break
			}
			for k := range form {
				raw[at+i+k] = '*'
			}
			at += i + len(form)
		}
	}
	return raw
}

// secretForms lists the spellings in which a secret may come back: as it is,
// escaped for a URL, and in base64 at each of the three alignments (without the
// characters that its neighbours influence).
func secretForms(secrets []string) []string {
	var forms []string
	add := func(s string) {
		// Shorter forms would strike out ordinary text.
		if len(s) >= 4 {
			forms = append(forms, s)
		}
	}
	for _, s := range secrets {
		add(s)
		if e := url.QueryEscape(s); e != s {
			add(e)
		}
		if e := url.PathEscape(s); e != s {
			add(e)
		}
		for shift := range 3 {
			padded := strings.Repeat("\x00", shift) + s
			for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				text := enc.EncodeToString([]byte(padded))
				from := (shift*8 + 5) / 6
				to := len(padded) * 8 / 6
				if from < to && to <= len(text) {
					add(text[from:to])
				}
			}
		}
	}
	return forms
}

func strikeOutArgs(args, secrets []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = string(strikeOut([]byte(a), secrets))
	}
	return out
}
