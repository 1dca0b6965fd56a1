package terminal

import (
	"fmt"
	"slices"
	"strings"
)

// modes is what passed so far and has to be undone at the end. Only what was
// touched is undone: leaving an alternate screen that was never entered, or
// setting margins, moves the cursor.
type modes struct {
	any        bool
	dec        map[int]bool
	link       bool
	insert     bool
	shifted    bool // SO, or another character set
	keypad     bool
	margins    bool
	cursor     bool // style
	otherKeys  bool
	kittyKeys  bool
	everReport bool // the terminal was told to send events
}

func (m *modes) control(b byte) {
	if b == 0x0e {
		m.any, m.shifted = true, true
	}
}

func (m *modes) escape(b byte) {
	m.any = true
	switch b {
	case 'c':
		reported := m.everReport
		*m = modes{any: true, everReport: reported}
	case '=':
		m.keypad = true
	case '>':
		m.keypad = false
	}
}

func (m *modes) charset(i, b byte) {
	m.any = true
	if i != '#' && b != 'B' {
		m.shifted = true
	}
}

func (m *modes) csi(s sequence) {
	m.any = true
	switch {
	case s.private == '?' && (s.final == 'h' || s.final == 'l'):
		for _, n := range s.params {
			if _, ok := decModes[n]; !ok {
				continue
			}
			if m.dec == nil {
				m.dec = map[int]bool{}
			}
			m.dec[n] = s.final == 'h'
			m.everReport = m.everReport || s.final == 'h' && reports(n)
		}
	case s.private == '>' && s.final == 'm':
		m.otherKeys = true
	case s.final == 'u' && s.private != 0:
		m.kittyKeys = true
	case s.private == 0 && s.inter == " ":
		m.cursor = true
	case s.private != 0 || s.inter != "":
	case s.final == 'h', s.final == 'l':
		m.insert = s.final == 'h'
	case s.final == 'r', s.final == 's' && len(s.params) > 0:
		m.margins = true
	}
}

// reports says whether a mode makes the terminal send what nobody typed.
func reports(mode int) bool { return mode == 9 || mode >= 1000 && mode <= 1004 }

// undo returns the sequences that bring the terminal back.
func (m *modes) undo() string {
	if !m.any {
		return ""
	}
	var b strings.Builder
	if m.link {
		b.WriteString("\x1b]8;;\x1b\\")
	}
	// The screens last, as each has margins of its own on some terminals and
	// leaving one puts the cursor where it was.
	var screens []int
	for _, n := range m.changedModes() {
		if n == 47 || n == 1047 || n == 1049 {
			screens = append(screens, n)
			continue
		}
		if n == 6 || n == 69 {
			m.margins = true
			continue
		}
		fmt.Fprintf(&b, "\x1b[?%d%c", n, map[bool]byte{true: 'h', false: 'l'}[decModes[n]])
	}
	if m.margins {
		// Each of these moves the cursor home: it is kept around them. The
		// soft reset clears the origin mode that a restored cursor brings.
		b.WriteString("\x1b7\x1b[?6l\x1b[?69l\x1b[r\x1b8\x1b[!p")
	}
	for _, n := range screens {
		fmt.Fprintf(&b, "\x1b[?%dl", n)
	}
	for _, step := range []struct {
		touched bool
		undo    string
	}{
		{m.insert, "\x1b[4l"},
		{m.shifted, "\x0f\x1b(B\x1b)B\x1b*B\x1b+B"},
		{m.keypad, "\x1b>"},
		{m.cursor, "\x1b[0 q"},
		{m.otherKeys, "\x1b[>4;0m"},
		{m.kittyKeys, "\x1b[<99u\x1b[=0u"},
	} {
		if step.touched {
			b.WriteString(step.undo)
		}
	}
	b.WriteString("\x1b[0m")
	return b.String()
}

// changedModes lists the modes that are not as in a terminal nobody touched.
func (m *modes) changedModes() []int {
	var changed []int
	for n, on := range m.dec {
		if on != decModes[n] {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed)
	return changed
}
