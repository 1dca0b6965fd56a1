package plaintext

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "a plain line", "a plain line"},
		{"letters of any script", "naïve Ωμέγα 文字 שלום", "naïve Ωμέγα 文字 שלום"},
		{"line breaks", "a\nb\tc\rd\r\ne\vf\u2028g\u0085h", "a b c d e f g h"},
		{"colour", "\x1b[1;31mred\x1b[0m", "red"},
		{"eight-bit control sequence", "\u009b31mred", "red"},
		{"title", "\x1b]0;owned\x07text", "text"},
		{"clipboard", "a\x1b]52;c;aGk=\x1b\\b", "ab"},
		{"device control", "a\x1bP1$r0m\x1b\\b", "ab"},
		{"charset", "a\x1b(0b", "ab"},
		{"reset", "a\x1bcb", "ab"},
		{"unfinished string hides nothing", "\x1b]0;see\nthis", "0;see this"},
		{"unfinished sequence hides nothing", "\x1b[31\nthis", "31 this"},
		{"lone escape", "a\x1b", "a"},
		{"controls", "a\x00b\bc\x7fd\u0080e", "abcde"},
		{"bidi override", "a\u202egpj.exe\u202c", "agpj.exe"},
		{"bidi isolate", "\u2066a\u2069", "a"},
		{"zero width", "pay\u200bpal\ufeff", "paypal"},
		{"tag letters", "hi\U000e0068\U000e0069", "hi"},
		{"variation selectors", "a\ufe0fb\U000e0100c", "abc"},
		{"invalid UTF-8", "a\xffb\xc3", "a\ufffdb\ufffd"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Line(test.in, 100); got != test.want {
				t.Errorf("Line(%q) = %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestBlockKeepsLines(t *testing.T) {
	in := "one\r\ntwo\rthree\n\tfour\u2029five\x1b[2J"
	if got, want := Block(in, 100), "one\ntwo\nthree\n\tfour\nfive"; got != want {
		t.Errorf("Block(%q) = %q, want %q", in, got, want)
	}
}

func TestLimit(t *testing.T) {
	tests := []struct {
		in    string
		limit int
		want  string
	}{
		{"abcd", 4, "abcd"},
		{"abcde", 4, "abc…"},
		{"äöüß!", 4, "äöü…"},
		{"abcd\x1b[0m", 4, "abcd"},
		{"abcd", 1, "…"},
		{"abcd", 0, ""},
		{"abcd", -1, ""},
		{"", 4, ""},
		{"abcd", math.MaxInt, "abcd"},
	}
	for _, test := range tests {
		if got := Line(test.in, test.limit); got != test.want {
			t.Errorf("Line(%q, %d) = %q, want %q", test.in, test.limit, got, test.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{
		"text", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07", "\x1b]\x1b]\x1b]", "\u009b1", "a\u202eb", "\xff\xfe",
		"\x1b\x1b[m[31m", "\x1b \r\n", "\U000e0041", strings.Repeat("é", 50),
	} {
		f.Add(seed, 20)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		for name, clean := range map[string]func(string, int) string{"Line": Line, "Block": Block} {
			got := clean(s, limit)
			if !utf8.ValidString(got) {
				t.Errorf("%s(%q) is not UTF-8: %q", name, s, got)
			}
			if n := utf8.RuneCountInString(got); n > max(limit, 0) {
				t.Errorf("%s(%q, %d) has %d characters", name, s, limit, n)
			}
			for _, r := range got {
				if r == '\n' || r == '\t' {
					if name == "Line" {
						t.Errorf("Line(%q) has a line break: %q", s, got)
					}
					continue
				}
				if r < 0x20 || r == 0x7f || invisible(r) {
					t.Errorf("%s(%q) holds %q", name, s, r)
				}
			}
			if again := clean(got, limit); again != got {
				t.Errorf("%s is not stable: %q then %q", name, got, again)
			}
		}
	})
}
