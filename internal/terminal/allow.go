package terminal

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// passedControl reports whether a C0 control passes: bell, backspace, tab, line
// feed, vertical tab, form feed, carriage return, shift out and in. ENQ asks
// for a report, DC1-DC4 drive flow and devices; the others have no use.
func passedControl(b byte) bool { return b >= 0x07 && b <= 0x0f }

// passedEscape reports whether ESC b passes: save and restore cursor, line
// movements, tab stop, keypad modes, full reset. Not Z (asks for a report), not
// the shifts that reach other character sets.
func passedEscape(b byte) bool { return strings.IndexByte("78DEHMc=>", b) >= 0 }

// passedCharset reports whether ESC i b passes: line drawing and ASCII in G0
// to G3, line sizes. Not ESC % (leaves UTF-8), not ESC SP F/G (the form of the
// terminal's answers).
func passedCharset(i, b byte) bool {
	switch i {
	case '(', ')', '*', '+':
		return b == '0' || b == 'A' || b == 'B'
	case '#':
		return b >= '3' && b <= '6' || b == '8'
	}
	return false
}

// sequence is one parsed CSI sequence.
type sequence struct {
	private byte // < = > ? or 0
	params  []int
	inter   string
	final   byte
}

// maxParam is the largest number that passes: some terminals spend time or
// memory in proportion.
const maxParam = 65535

// parseCSI parses the bytes between ESC [ and the final byte.
func parseCSI(body []byte, final byte) (sequence, bool) {
	s := sequence{final: final}
	if len(body) > 0 && body[0] >= '<' && body[0] <= '?' {
		s.private = body[0]
		body = body[1:]
	}
	end := bytes.IndexFunc(body, func(r rune) bool { return r < 0x30 })
	if end < 0 {
		end = len(body)
	}
	s.inter = string(body[end:])
	if strings.ContainsFunc(s.inter, func(r rune) bool { return r >= 0x30 }) {
		return s, false
	}
	if end == 0 {
		return s, true
	}
	// Colons part sub-parameters of colours; only SGR has them.
	if bytes.IndexByte(body[:end], ':') >= 0 && final != 'm' {
		return s, false
	}
	for _, field := range strings.FieldsFunc(keepEmpty(string(body[:end])), isSeparator) {
		n, err := strconv.Atoi(field)
		if err != nil || n > maxParam {
			return s, false
		}
		s.params = append(s.params, n)
	}
	return s, true
}

func isSeparator(r rune) bool { return r == ';' || r == ':' }

// keepEmpty writes the default, 0, where a parameter is left empty.
func keepEmpty(params string) string {
	var b strings.Builder
	empty := true
	for _, r := range params {
		if isSeparator(r) {
			if empty {
				b.WriteByte('0')
			}
			empty = true
		} else {
			empty = false
		}
		b.WriteRune(r)
	}
	if empty {
		b.WriteByte('0')
	}
	return b.String()
}

// passedCSI is the allow-list of CSI sequences. Left out on purpose: c and n and
// x and t and $p and *y and >q and ?u (reports), i (prints), t (moves windows,
// reports titles), ?s ?r (saved modes), "p (answers in 8-bit form), T with five
// parameters and mode 1001 (wait for an answer of the program).
func passedCSI(s sequence) bool {
	switch {
	case s.private == 0 && s.inter == "":
		switch s.final {
		case 'h', 'l':
			return s.only(4) // insert mode; 2 would lock the keyboard
		case 'T':
			return len(s.params) <= 1
		case 's':
			return len(s.params) == 0 || len(s.params) == 2
		case 'u':
			return len(s.params) == 0
		}
		return strings.IndexByte("@ABCDEFGHIJKLMPSXZ`abdefgmr", s.final) >= 0
	case s.private == '?' && s.inter == "":
		switch s.final {
		case 'h', 'l':
			return len(s.params) > 0 && !slices.ContainsFunc(s.params, func(n int) bool { return !passedMode(n) })
		case 'J', 'K':
			return true
		}
	case s.private == '>' && s.inter == "":
		switch s.final {
		case 'm': // how modified keys are sent
			return len(s.params) > 0 && s.params[0] == 4 && len(s.params) <= 2
		case 'u': // the same, of the kitty protocol
			return len(s.params) <= 1
		}
	case (s.private == '<' || s.private == '=') && s.inter == "":
		return s.final == 'u' && len(s.params) <= 2
	case s.private == 0 && s.inter == " ":
		return s.final == 'q' && len(s.params) <= 1 // cursor style
	case s.private == 0 && s.inter == "!":
		return s.final == 'p' && len(s.params) == 0 // soft reset
	}
	return false
}

// only reports whether every parameter is n, and there is one.
func (s sequence) only(n int) bool {
	return len(s.params) > 0 && !slices.ContainsFunc(s.params, func(p int) bool { return p != n })
}

// decModes are the private modes that may be switched, with the value they
// have in a terminal nobody touched.
var decModes = map[int]bool{
	1:    false, // cursor keys
	5:    false, // reverse video
	6:    false, // origin
	7:    true,  // wrap
	9:    false, // mouse, X10
	25:   true,  // cursor shown
	47:   false, // alternate screen, and its later forms
	1047: false,
	1049: false,
	66:   false, // keypad
	69:   false, // left and right margins
	1000: false, // mouse: buttons, drag, motion
	1002: false,
	1003: false,
	1004: false, // focus
	1005: false, // encodings of mouse reports
	1006: false,
	1015: false,
	1016: false,
	2004: false, // bracketed paste
	2026: false, // synchronised output
}

// passedMode reports whether a DEC private mode may be set and reset. 12 (blink)
// and 1048 (save cursor) leave nothing to undo. Not 3 (resizes the window), not
// 1001 (see passedCSI), not 2031 and 2048 (reports without being asked).
func passedMode(n int) bool {
	_, ok := decModes[n]
	return ok || n == 12 || n == 1048
}

// passedLink returns the hyperlink (OSC 8) to pass on and whether it opens one.
// Only http and https: other schemes start programs on the person's machine.
func passedLink(command string) (link string, open, ok bool) {
	rest, found := strings.CutPrefix(command, "8;")
	if !found {
		return "", false, false
	}
	params, target, found := strings.Cut(rest, ";")
	if !found {
		return "", false, false
	}
	if target == "" {
		return "\x1b]8;;\x1b\\", false, true
	}
	if strings.ContainsFunc(target, func(r rune) bool { return r <= 0x20 || r >= 0x7f }) {
		return "", false, false
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", false, false
	}
	return "\x1b]8;" + linkID(params) + ";" + target + "\x1b\\", true, true
}

// linkID returns the id parameter of a hyperlink where it is a plain word: it
// joins the parts of one link that is wrapped over lines.
func linkID(params string) string {
	for _, p := range strings.Split(params, ":") {
		id, ok := strings.CutPrefix(p, "id=")
		if ok && len(id) <= 64 && !strings.ContainsFunc(id, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
		}) {
			return "id=" + id
		}
	}
	return ""
}
