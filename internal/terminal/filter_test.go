package terminal

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
)

// filter runs writes through a new filter and returns what reached the terminal.
func filter(t testing.TB, writes ...string) string {
	t.Helper()
	var out bytes.Buffer
	f := NewFilter(&out)
	for _, w := range writes {
		if n, err := f.Write([]byte(w)); n != len(w) || err != nil {
			t.Fatalf("write %q: %d, %v", w, n, err)
		}
	}
	return out.String()
}

// TestPassed holds what everyday programs send and must see unchanged.
func TestPassed(t *testing.T) {
	for name, s := range map[string]string{
		"text":             "plain text\r\n\tnaïve 日本語 🎉 e\u0301\n",
		"replacement rune": "\ufffd",
		"bell":             "\a",
		"colours":          "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mrgb\x1b[m \x1b[38:2::1:2:3mrgb\x1b[4:3munder\x1b[0;;1m",
		"movement":         "\x1b[2J\x1b[H\x1b[3;4H\x1b[A\x1b[2K\x1b[10G\x1b[?25l\x1b[?25h",
		"alternate screen": "\x1b[?1049h\x1b[1;24r\x1b[?1049l",
		"mouse and paste":  "\x1b[?1000h\x1b[?1002;1006h\x1b[?2004h\x1b[?1004h\x1b[?2026h",
		"save and restore": "\x1b7\x1b8\x1b[s\x1b[u\x1bD\x1bM\x1bE\x1bH",
		"line drawing":     "\x1b(0lqk\x1b(B\x0eq\x0f\x1b)0",
		"keypad":           "\x1b=\x1b>\x1b[?1h",
		"cursor style":     "\x1b[5 q",
		"soft reset":       "\x1b[!p",
		"full reset":       "\x1bc",
		"link":             "\x1b]8;;https://example.com/a?b=c#d\x1b\\text\x1b]8;;\x1b\\",
		"link with id":     "\x1b]8;id=a-1;http://example.com\x1b\\text\x1b]8;;\x1b\\",
		"modified keys":    "\x1b[>4;2m\x1b[>1u\x1b[<u\x1b[=5;1u",
		"scroll":           "\x1b[2S\x1b[2T\x1b[3L\x1b[3M\x1b[2@\x1b[2P\x1b[4X",
	} {
		t.Run(name, func(t *testing.T) {
			if got := filter(t, s); got != s {
				t.Errorf("got  %q\nwant %q", got, s)
			}
		})
	}
}

// TestDropped holds what must not reach the terminal, between two letters that
// must: a filter that swallows everything would pass otherwise.
func TestDropped(t *testing.T) {
	for name, s := range map[string]string{
		"clipboard, BEL":               "\x1b]52;c;ZXZpbA==\a",
		"clipboard, ST":                "\x1b]52;c;ZXZpbA==\x1b\\",
		"clipboard, asked for":         "\x1b]52;c;?\a",
		"clipboard, within tmux":       "\x1bPtmux;\x1b\x1b]52;c;ZXZpbA==\a\x1b\\",
		"clipboard, within screen":     "\x1bP\x1b]52;c;ZXZpbA==\a\x1b\\",
		"clipboard, kitty":             "\x1b]5522;type=write\x1b\\",
		"title 0":                      "\x1b]0;title\a",
		"title 2":                      "\x1b]2;title\x1b\\",
		"title of screen":              "\x1bktitle\x1b\\",
		"title of Linux, palette":      "\x1b]P0000000\a",
		"title report":                 "\x1b[21t",
		"window moved":                 "\x1b[3;0;0t",
		"device attributes":            "\x1b[c\x1b[0c\x1b[>c\x1b[=c\x1bZ",
		"status and cursor report":     "\x1b[5n\x1b[6n\x1b[?6n\x1b[?15n",
		"version":                      "\x1b[>q\x1b[>0q",
		"terminal parameters":          "\x1b[x\x1b[1x",
		"mode request":                 "\x1b[?2026$p\x1b[4$p",
		"checksum request":             "\x1b[1;1;1;1;2;2*y",
		"settings request":             "\x1bP$qm\x1b\\",
		"terminfo request":             "\x1bP+q544e\x1b\\",
		"macro":                        "\x1bP0;0;0!z1b5b36 6e\x1b\\\x1b[0*z",
		"sixel":                        "\x1bPq#0;2;0;0;0\x1b\\",
		"colour request":               "\x1b]10;?\a\x1b]11;?\x1b\\\x1b]4;1;?\a",
		"colour set":                   "\x1b]11;#000000\a",
		"working directory":            "\x1b]7;file:///\a",
		"notification":                 "\x1b]9;hello\a\x1b]777;notify;a;b\a\x1b]99;;x\x1b\\",
		"file transfer":                "\x1b]1337;File=name=eA==:eA==\a",
		"print":                        "\x1b[i\x1b[5i\x1b[?5i",
		"keyboard locked":              "\x1b[2h",
		"keyboard state request":       "\x1b[?u",
		"key mode request":             "\x1b[?4m",
		"unasked reports":              "\x1b[?2031h\x1b[?2048h",
		"highlight tracking":           "\x1b[?1001h\x1b[1;1;1;1;1T",
		"one bad mode among good":      "\x1b[?25;1001h",
		"132 columns":                  "\x1b[?3h",
		"8-bit answers":                "\x1b G\x1b[62;1\"p",
		"out of UTF-8":                 "\x1b%@\x1b%G",
		"enquiry, flow control":        "\x05\x11\x13\x00\x7f",
		"application program command":  "\x1b_Gi=1;AAAA\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\",
		"link to a file":               "\x1b]8;;file:///etc/passwd\x1b\\",
		"link to a program":            "\x1b]8;;vscode://x\a",
		"link with a user":             "\x1b]8;;https://example.com@evil.test/\a",
		"link with a control":          "\x1b]8;;https://a\rb/\a",
		"link that is too long":        "\x1b]8;;https://a/" + strings.Repeat("x", 3000) + "\a",
		"long string":                  "\x1b]52;c;" + strings.Repeat("A", 1<<16) + "\a",
		"long sequence":                "\x1b[" + strings.Repeat("1;", 1000) + "m",
		"number too large":             "\x1b[999999999b",
		"unknown escape":               "\x1bn\x1b6\x1b~\x1b\\",
		"parameter after intermediate": "\x1b[ 1q",
		"two intermediates":            "\x1b((0",
		"cancelled":                    "\x1b[31\x18\x1b]0;x\x1a",
		"escape within a string":       "\x1b]0;x\x1b[6n",
	} {
		t.Run(name, func(t *testing.T) {
			if got := filter(t, "a"+s+"b"); got != "ab" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestReplaced: what is no text shows as such, and never as a control.
func TestReplaced(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"C1 as a byte":               {"a\x9b6nb", "a\ufffd6nb"},
		"C1 as a character":          {"a\u009b6nb", "a\ufffd6nb"},
		"OSC as a character":         {"\u009d52;c;x\u009c", "\ufffd52;c;x\ufffd"},
		"C1 inside a broken one":     {"\xe2\x9b[6n", "\ufffd\ufffd[6n"},
		"overlong escape":            {"\xc0\x9b[6n", "\ufffd\ufffd[6n"},
		"surrogate":                  {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
		"broken before a sequence":   {"\xe2\x1b[1m", "\ufffd\x1b[1m"},
		"broken before a control":    {"\xf0\x9f\n", "\ufffd\ufffd\n"},
		"a sequence broken by text":  {"\x1b[3\u00e91m", "é1m"},
		"a sequence broken by a key": {"\x1b[3\r1m", "\r1m"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filter(t, c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestUnfinishedSequenceHoldsLittle(t *testing.T) {
	for _, start := range []string{"\x1b[", "\x1b]8;;http://a/", "\x1bP", "\x1b ", "\x1b]\x1b"} {
		var out bytes.Buffer
		f := NewFilter(&out)
		for range 1000 {
			if _, err := f.Write([]byte(start + strings.Repeat("1", 4000))); err != nil {
				t.Fatal(err)
			}
		}
		if cap(f.held) > 4*maxLink {
			t.Errorf("%q: %d bytes held", start, cap(f.held))
		}
	}
}

func TestReset(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text needs nothing":    {"text\n", ""},
		"colours":                     {"\x1b[31m", "\x1b[0m"},
		"hidden cursor":               {"\x1b[?25l", "\x1b[?25h\x1b[0m"},
		"put right by itself":         {"\x1b[?25l\x1b[?25h", "\x1b[0m"},
		"mouse":                       {"\x1b[?1002;1006h", "\x1b[?1002l\x1b[?1006l\x1b[0m"},
		"alternate screen left alone": {"\x1b[?1049h\x1b[?1049l", "\x1b[0m"},
		"alternate screen":            {"\x1b[?1049h", "\x1b[?1049l\x1b[0m"},
		"open link":                   {"\x1b]8;;http://a\x1b\\", "\x1b]8;;\x1b\\\x1b[0m"},
		"line drawing":                {"\x1b(0", "\x0f\x1b(B\x1b)B\x1b*B\x1b+B\x1b[0m"},
		"margins":                     {"\x1b[2;5r", "\x1b7\x1b[?6l\x1b[?69l\x1b[r\x1b8\x1b[!p\x1b[0m"},
		"no wrap":                     {"\x1b[?7l", "\x1b[?7h\x1b[0m"},
		"insert, keypad, keys":        {"\x1b[4h\x1b=\x1b[>4;2m\x1b[>1u\x1b[3 q", "\x1b[4l\x1b>\x1b[0 q\x1b[>4;0m\x1b[<99u\x1b[=0u\x1b[0m"},
		"a full reset undoes":         {"\x1b[?25l\x1b[4h\x1bc", "\x1b[0m"},
		"a dropped sequence":          {"\x1b[?1001h\x1b]0;x\a", ""},
		"an unfinished one":           {"\x1b[?25", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			f := NewFilter(&out)
			if _, err := f.Write([]byte(c.in)); err != nil {
				t.Fatal(err)
			}
			out.Reset()
			if err := f.Reset(); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			out.Reset()
			if err := f.Reset(); err != nil || out.Len() > 0 {
				t.Errorf("second reset wrote %q, %v", out.String(), err)
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriteErrorIsReturned(t *testing.T) {
	if _, err := NewFilter(brokenWriter{}).Write([]byte("x")); err == nil {
		t.Error("no error")
	}
}

// passing is the whole language that may reach a terminal, written a second
// time and in another way than the filter.
var passing = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`[\x07-\x0f]`,
	`[\x20-\x7e]`,
	`[\x{a0}-\x{10ffff}]`,
	`\x1b[78DEHMc=>]`,
	`\x1b[()*+][0AB]`,
	`\x1b#[34568]`,
	"\x1b\\[[0-9;]{0,256}[@ABCDEFGHIJKLMPSXZ`abdefgr]",
	`\x1b\[[0-9;:]{0,256}m`,
	`\x1b\[[0-9]{0,256}T`,
	`\x1b\[(?:[0-9]*;[0-9]*)?s`,
	`\x1b\[u`,
	`\x1b\[(?:0*4;?)+[hl]`,
	`\x1b\[\?[0-9;]+[hl]`,
	`\x1b\[\?[0-9;]*[JK]`,
	`\x1b\[>0*4(?:;[0-9]*)?m`,
	`\x1b\[>[0-9]*u`,
	`\x1b\[[<=][0-9]*(?:;[0-9]*)?u`,
	`\x1b\[[0-9]* q`,
	`\x1b\[!p`,
	`\x1b\]8;(?:id=[A-Za-z0-9_.-]{0,64})?;(?:https?://[\x21-\x7e]+)?\x1b\\`,
}, "|") + `)*$`)

var modeList = regexp.MustCompile(`\x1b\[\?([0-9;]+)[hl]`)

func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		"plain\r\n", "\x1b[31mred\x1b[0m", "\x1b]52;c;eA==\a", "\x1bPtmux;\x1b\x1b]52;c;eA==\a\x1b\\",
		"\x1b]8;id=x;https://a.test/\x1b\\l\x1b]8;;\x1b\\", "\x1b[?1049;25h", "\xe2\x9b[6n", "\u009b6n",
		"\x1b[38:2::1:2:3m", "\x1b]\x1b\x1b\\", "\x1b[1\x1b[2\x18m", "\x1b[4;4h\x1b[>4;m\x1b[;u", "日本語\xff",
	} {
		f.Add(seed, uint8(1), uint8(3))
	}
	f.Fuzz(func(t *testing.T, s string, first, step uint8) {
		whole := filter(t, s)
		if !passing.MatchString(whole) {
			t.Errorf("filter(%q) = %q: not in the language that may pass", s, whole)
		}
		for _, m := range modeList.FindAllStringSubmatch(whole, -1) {
			for _, bad := range []string{"3", "1001", "2031", "2048"} {
				if strings.Contains(";"+m[1]+";", ";"+bad+";") {
					t.Errorf("filter(%q) = %q: mode %s passed", s, whole, bad)
				}
			}
		}
		var parts []string
		rest := s
		for n := int(first); len(rest) > 0; n = int(step) + 1 {
			n = min(n, len(rest))
			parts = append(parts, rest[:n])
			rest = rest[n:]
		}
		if split := filter(t, parts...); split != whole {
			t.Errorf("split %q = %q, whole %q", parts, split, whole)
		}
		if again := filter(t, whole); again != whole {
			t.Errorf("filtered twice %q, once %q", again, whole)
		}
		plain := strings.ToValidUTF8(strings.Map(func(r rune) rune {
			if r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 {
				return -1
			}
			return r
		}, s), "")
		if got := filter(t, plain); got != plain {
			t.Errorf("plain text %q became %q", plain, got)
		}
	})
}
