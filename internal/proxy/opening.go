package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

// likeness is what the first bytes of a client are.
type likeness int

const (
	unclear likeness = iota // could still become a request; the zero value
	isHTTP
	notHTTP
)

// maxOpening is how long a first line is looked at; servers read none that is
// longer (Go's, the most generous, stops at 1 MiB).
const maxOpening = 2 << 20

// opening recognises, byte by byte, a first line that any server could take for
// a request. It is as lenient as the most lenient of them, where the parser in
// head.go is strict: what it finds goes to that parser, which refuses most of
// it, and what it does not find is never looked at again. It finds
//
//   - a version as any word but the first, in any case and behind any white
//     space: HTTP/ and a digit, and RTSP/ and ICE/, which Node's parser takes as
//     well. The preface of HTTP/2 is such a line;
//   - an http URL as the second word, and GET, HEAD or POST with a path and no
//     version: HTTP/0.9, after which some servers read a Host all the same;
//   - the PROXY protocol's header, behind which a request would follow.
//
// White space and empty lines before it are skipped. Its zero value is ready.
type opening struct {
	seen   int
	words  int  // begun so far
	inWord bool // the last byte is of a word
	size   int  // of the present word
	word   [8]byte
	method [8]byte // the first word's begin
	target byte    // the second word's first
	blanks [4]byte // the first of those before the first word
	// hopeless: the strict parser won't take this line, so that there is no use
	// in holding it back. It is looked at all the same.
	hopeless bool
}

// scan looks at the bytes that follow.
func (o *opening) scan(p []byte) likeness {
	for _, c := range p {
		if kind := o.next(c); kind != unclear {
			return kind
		}
	}
	return unclear
}

func (o *opening) next(c byte) likeness {
	if o.seen++; o.seen > maxOpening {
		return notHTTP
	}
	o.hopeless = o.hopeless || c < ' ' && c != '\r' && c != '\n' || c >= 0x7f
	switch {
	case o.blank(c):
		if o.words == 0 && o.seen <= len(o.blanks) {
			o.blanks[o.seen-1] = c
		}
		o.inWord = false
		if c == '\n' && o.words > 0 {
			return o.ended()
		}
		return unclear
	case !o.inWord:
		o.inWord, o.size, o.word = true, 0, [8]byte{}
		o.words++
	}
	if o.size < len(o.word) {
		o.word[o.size] = lower(c)
	}
	o.size++
	switch o.words {
	case 1:
		// No server knows such a method, and some hand any to a program.
		o.hopeless = o.hopeless || !isToken(string(c))
		o.method = o.word
		if c == 0 && o.seen == 5 && string(o.blanks[:]) == "\r\n\r\n" {
			return isHTTP // PROXY protocol, version 2
		}
		return unclear
	case 2:
		if o.size == 1 {
			o.target = c
		}
	}
	return o.later()
}

// blank reports whether c parts words. In front of the first one these are the
// bytes that Python's str.split takes; behind it, where a version may be missed,
// all that could be meant to part anything.
func (o *opening) blank(c byte) bool {
	switch {
	case c == ' ', c >= '\t' && c <= '\r', c >= 0x1c && c <= 0x1f, c == 0x85, c == 0xa0:
		return true
	}
	return c < ' ' && (o.words > 1 || o.words == 1 && !o.inWord)
}

var versions = [][]byte{[]byte("http/"), []byte("rtsp/"), []byte("ice/")}

// later judges the present word, any but the first.
func (o *opening) later() likeness {
	for _, version := range versions {
		if n := len(version); o.size == n+1 && bytes.HasPrefix(o.word[:], version) && o.word[n] >= '0' && o.word[n] <= '9' {
			return isHTTP
		}
	}
	if o.words == 2 && (o.is("http://") || o.is("https://") || o.methodIs("proxy") && (o.is("tcp") || o.is("unknown"))) {
		return isHTTP
	}
	return unclear
}

// ended judges a line that is over and holds no version.
func (o *opening) ended() likeness {
	if o.words == 2 && o.target == '/' && (o.methodIs("get") || o.methodIs("head") || o.methodIs("post")) {
		return isHTTP
	}
	return notHTTP
}

// is reports whether the present word was begun as text, and no further.
func (o *opening) is(text string) bool {
	return o.size == len(text) && string(o.word[:len(text)]) == text
}

func (o *opening) methodIs(name string) bool {
	return string(bytes.TrimRight(o.method[:], "\x00")) == name
}

// request reports whether what was seen is the begin of a request that the
// strict parser could take, down to its target.
func (o *opening) request() bool {
	return !o.hopeless && (o.target == '/' || o.target == '*')
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// hold reads and judges a client's first line while holding all of it. It waits
// for the rest of a request for as long as limit, and for anything else only a
// moment: the client may be waiting for an answer to what is no line. unclear
// then means that the bytes to come must be looked at, too.
func (o *opening) hold(client *stream, limit time.Duration) likeness {
	start, scanned := time.Now(), 0
	defer client.limit(0)
	for {
		kind := o.scan(client.buf[scanned:])
		scanned = len(client.buf)
		switch {
		case kind != unclear || o.hopeless:
			return kind
		case scanned >= maxHead && o.request():
			return isHTTP // the parser says that it is too long
		case scanned >= maxHead:
			return unclear
		}
		wait := min(speakTime, limit)
		if o.request() {
			wait = limit
		}
		_ = client.SetReadDeadline(start.Add(wait))
		switch err := client.fill(scanned + 1); {
		case errors.Is(err, io.EOF):
			return notHTTP // all there will be, and no line of it
		case errors.Is(err, os.ErrDeadlineExceeded):
			return unclear
		case err != nil:
			return notHTTP // who carries it meets the error
		}
	}
}
