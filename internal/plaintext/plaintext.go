// Package plaintext makes text from outside (a sandbox, an agent, a code host,
// a config) fit to be shown to a person: on a terminal, in a log, on a page, in
// a commit message.
//
// It promises that the result is valid UTF-8, no longer than asked, and holds
// no control character, no terminal sequence, and nothing that is invisible or
// changes the direction of its neighbours; Line's result is one line. Cleaning
// a second time changes nothing.
//
// It does not make text true, does not tell look-alike letters apart, and does
// not escape for a shell, HTML or Markdown: whoever writes those escapes after
// cleaning. Where the exact bytes matter (a path in an error), %q is the right
// tool instead. Every package that shows untrusted text calls it.
package plaintext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ellipsis is the last character of a text that was cut.
const Ellipsis = '…'

// Line returns s as one line of at most limit characters. Line breaks and tabs
// become a space each. A limit of 0 or less returns nothing.
func Line(s string, limit int) string { return clean(s, limit, false) }

// Block returns s as text of at most limit characters that may have several
// lines: it keeps line feeds and tabs and turns other line breaks into line
// feeds. A limit of 0 or less returns nothing.
func Block(s string, limit int) string { return clean(s, limit, true) }

func clean(s string, limit int, lines bool) string {
	if limit <= 0 {
		return ""
	}
	var out strings.Builder
	out.Grow(min(len(s), limit))
	n, last := 0, 0 // characters written, length before the last of them
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\x1b':
			i += sequence(s[i:])
			continue
		case r == '\u009b':
			i += size + csi(s[i+size:])
			continue
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			i++
			continue
		}
		i += size
		r = shown(r, lines)
		if r < 0 {
			continue
		}
		if n == limit {
			return out.String()[:last] + string(Ellipsis)
		}
		last = out.Len()
		out.WriteRune(r)
		n++
	}
	return out.String()
}

// shown returns what stands for r in clean text, or -1 for nothing. Invalid
// bytes arrive as U+FFFD and stay so.
func shown(r rune, lines bool) rune {
	switch {
	case r == '\n' || r == '\t':
		if lines {
			return r
		}
		return ' '
	case r == '\r' || r == '\v' || r == '\f' || r == '\u0085' || r == '\u2028' || r == '\u2029':
		if lines {
			return '\n'
		}
		return ' '
	case r < 0x20 || r == 0x7f:
		return -1
	case r < 0x7f:
		return r
	case invisible(r):
		return -1
	}
	return r
}

// invisible reports characters beyond ASCII that have no look of their own:
// controls, the format characters (direction marks and overrides, zero-width
// characters, the tag letters that carry hidden messages to language models),
// variation selectors (used for the same) and fillers.
func invisible(r rune) bool {
	switch {
	case unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r):
		return true
	case unicode.Is(unicode.Variation_Selector, r):
		return true
	case r >= 0xe0000 && r <= 0xe0fff: // default-ignorable, assigned or not
		return true
	case r >= 0xfff0 && r <= 0xfff8, r == 0x2065: // likewise
		return true
	}
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x3164, 0xffa0:
		return true
	}
	return false
}

// sequence returns the length of the terminal sequence at the start of s, which
// begins with ESC. A sequence that does not end before the next control
// character is none: only its introducer goes, and what follows is shown, as
// dropping it would let an unfinished sequence hide the rest of a text.
func sequence(s string) int {
	if len(s) == 1 {
		return 1
	}
	switch s[1] {
	case '[':
		return 2 + csi(s[2:])
	case ']', 'P', 'X', '^', '_':
		return 2 + controlString(s[2:])
	}
	i := 1
	for i < len(s) && s[i] >= 0x20 && s[i] <= 0x2f {
		i++
	}
	if i < len(s) && s[i] >= 0x30 && s[i] <= 0x7e {
		return i + 1
	}
	return 1
}

// csi returns the length of a control sequence's parameters and final byte, or
// 0 if it has no final byte.
func csi(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x3f:
			return 0
		}
	}
	return 0
}

// controlString returns the length of a control string with its terminator
// (BEL or ESC \), or 0 if it has none.
func controlString(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\a':
			return i + 1
		case c == '\x1b':
			if i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
			return 0
		case c < 0x20:
			return 0
		}
	}
	return 0
}
