// Package terminal stands between the output of a hostile program and a
// person's terminal, and lends that terminal to the program while it runs.
//
// Filter promises that nothing reaches the terminal but printable text and the
// control sequences of an allow-list (allow.go): colours, cursor movement,
// erasing, scrolling, the alternate screen, mouse, focus and paste modes, and
// links to http and https. Dropped is all else, above all what would make the
// terminal act or answer: clipboard access, titles, notifications, device
// control strings, printing, window operations, and every request for a report,
// as the answer would arrive as typed input. Session promises that the terminal
// is as before when it is closed and that no input is left that the program may
// have caused.
//
// It does not promise that what is shown is true: a program may draw a false
// prompt while it runs. It does not change text (bidirectional or invisible
// characters): package plaintext does that for text that is quoted. The
// terminal is taken to be in UTF-8, as nothing can switch it away from that.
//
// Package cli uses it for commands that run on a terminal.
package terminal

import (
	"io"
	"unicode/utf8"
)

// Limits of one control sequence. What is longer is dropped whole.
const (
	maxCSI  = 256
	maxLink = 2200
)

// Filter passes text and harmless control sequences on to a terminal. It keeps
// state between writes: a sequence may be split anywhere. It is for one
// goroutine. Its memory is bounded whatever is written.
type Filter struct {
	w     io.Writer
	state state
	// held are the bytes of an unfinished character or control sequence,
	// without its introducer.
	held []byte
	out  []byte
	// touched is what must be undone at the end.
	touched modes
}

// state is where in a control sequence the filter is.
type state int

const (
	ground       state = iota
	escape             // after ESC
	intermediate       // after ESC and bytes 0x20-0x2f
	csi                // after ESC [
	csiTooLong         // the same, being dropped
	osc                // after ESC ]
	oscEscape          // after an ESC in there
	str                // in a string that is dropped: DCS, SOS, PM, APC, a title, a long OSC
)

const (
	esc    = 0x1b
	cancel = 0x18
	sub    = 0x1a
	bell   = 0x07
)

// NewFilter returns a filter that writes to w.
func NewFilter(w io.Writer) *Filter { return &Filter{w: w} }

// Write filters p. It returns len(p) and the error of the underlying writer.
func (f *Filter) Write(p []byte) (int, error) {
	f.out = f.out[:0]
	for _, b := range p {
		f.step(b)
	}
	if len(f.out) == 0 {
		return len(p), nil
	}
	if _, err := f.w.Write(f.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Reset drops an unfinished sequence and writes what brings the terminal back
// from all that passed so far. The filter can be used again.
func (f *Filter) Reset() error {
	f.begin(ground)
	undo := f.touched.undo()
	f.touched = modes{}
	if undo == "" {
		return nil
	}
	_, err := io.WriteString(f.w, undo)
	return err
}

// begin enters a state with nothing held.
func (f *Filter) begin(s state) {
	f.state = s
	f.held = f.held[:0]
}

func (f *Filter) step(b byte) {
	// In every state these end what was there: no terminal disagrees.
	switch b {
	case esc:
		f.finishCharacter()
		// A link may end in ESC \ : its text is needed until the next byte.
		if f.state == osc {
			f.state = oscEscape
			return
		}
		f.begin(escape)
		return
	case cancel, sub:
		f.finishCharacter()
		f.begin(ground)
		return
	}
	switch f.state {
	case ground:
		f.text(b)
	case escape:
		f.escaped(b)
	case intermediate:
		f.intermediate(b)
	case csi:
		f.csi(b)
	case csiTooLong:
		if b < 0x20 || b >= 0x40 {
			f.begin(ground)
			if b < 0x20 || b >= 0x80 {
				f.text(b)
			}
		}
	case osc:
		f.osc(b)
	case oscEscape:
		if b == '\\' {
			f.link()
			return
		}
		// ESC and anything else ends the string and begins a new sequence.
		f.begin(escape)
		f.escaped(b)
	case str:
		if b == bell {
			f.begin(ground)
		}
	}
}

// text takes one byte outside of any sequence.
func (f *Filter) text(b byte) {
	if len(f.held) == 0 && b < utf8.RuneSelf {
		f.ascii(b)
		return
	}
	f.held = append(f.held, b)
	for len(f.held) > 0 && utf8.FullRune(f.held) {
		r, n := utf8.DecodeRune(f.held)
		switch {
		case r < utf8.RuneSelf:
			f.ascii(f.held[0])
		case r < 0xa0, r == utf8.RuneError && n == 1:
			// A C1 control as one byte or as a character (terminals obey the
			// second form too), or a byte that is no text. A terminal in
			// UTF-8 shows the latter in the same way.
			f.out = utf8.AppendRune(f.out, utf8.RuneError)
		default:
			f.out = append(f.out, f.held[:n]...)
		}
		f.held = append(f.held[:0], f.held[n:]...)
	}
}

// finishCharacter shows the bytes of a character that won't be completed.
func (f *Filter) finishCharacter() {
	if f.state != ground {
		return
	}
	for range f.held {
		f.out = utf8.AppendRune(f.out, utf8.RuneError)
	}
	f.held = f.held[:0]
}

func (f *Filter) ascii(b byte) {
	if b >= 0x20 && b != 0x7f || passedControl(b) {
		f.out = append(f.out, b)
		f.touched.control(b)
	}
}

// escaped takes the byte after ESC.
func (f *Filter) escaped(b byte) {
	switch {
	case b == '[':
		f.begin(csi)
	case b == ']':
		f.begin(osc)
	case b == 'P' || b == 'X' || b == '^' || b == '_' || b == 'k':
		// DCS, SOS, PM, APC, and the title of screen and tmux.
		f.begin(str)
	case b >= 0x20 && b < 0x30:
		f.begin(intermediate)
		f.held = append(f.held, b)
	default:
		f.begin(ground)
		if b < 0x20 || b >= 0x80 {
			f.text(b)
			return
		}
		if passedEscape(b) {
			f.out = append(f.out, esc, b)
			f.touched.escape(b)
		}
	}
}

func (f *Filter) intermediate(b byte) {
	switch {
	case b >= 0x20 && b < 0x30:
		// Two intermediates are no sequence that passes: one is remembered,
		// so that the final byte is dropped with them.
		f.held = append(f.held[:0], 0)
	case b < 0x20 || b >= 0x80:
		f.begin(ground)
		f.text(b)
	default:
		first := f.held[0]
		f.begin(ground)
		if passedCharset(first, b) {
			f.out = append(f.out, esc, first, b)
			f.touched.charset(first, b)
		}
	}
}

// csi takes a byte after ESC [.
func (f *Filter) csi(b byte) {
	switch {
	case b < 0x20 || b >= 0x80:
		// Terminals differ on a control within a sequence: drop the sequence.
		f.begin(ground)
		f.text(b)
	case b < 0x40:
		f.held = append(f.held, b)
		if len(f.held) > maxCSI {
			f.begin(csiTooLong)
		}
	case b == 0x7f:
		f.begin(ground)
	default:
		if s, ok := parseCSI(f.held, b); ok && passedCSI(s) {
			f.out = append(f.out, esc, '[')
			f.out = append(f.out, f.held...)
			f.out = append(f.out, b)
			f.touched.csi(s)
		}
		f.begin(ground)
	}
}

// osc takes a byte after ESC ].
func (f *Filter) osc(b byte) {
	if b == bell {
		f.link()
		return
	}
	f.held = append(f.held, b)
	if len(f.held) > maxLink {
		f.begin(str)
	}
}

// link ends an operating system command; a hyperlink is the one that may pass.
func (f *Filter) link() {
	command := string(f.held)
	f.begin(ground)
	link, open, ok := passedLink(command)
	if !ok {
		return
	}
	f.out = append(f.out, link...)
	f.touched.any = true
	f.touched.link = open
}
