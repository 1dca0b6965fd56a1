package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A text is looked at in windows that overlap by more than any form is long.
const (
	WindowBytes  = 256 << 10
	OverlapBytes = 8 << 10
)

// Hit is one thing that looks like a secret.
type Hit struct {
	// Rule names the kind. Text is the secret: it is never shown whole.
	Rule, Text string
	// Weak: the form alone says little, a person has to look.
	Weak bool
}

// Masked shows what kind of text it is and none of its secret part: the first
// characters name the issuer, the length helps to find it.
func (h Hit) Masked() string {
	const shown = 4
	if len(h.Text) < 3*shown {
		return fmt.Sprintf("%s (%d characters)", h.Rule, len(h.Text))
	}
	return fmt.Sprintf("%s %q (%d characters)", h.Rule, h.Text[:shown]+"…", len(h.Text))
}

// Scanner finds secrets in texts.
type Scanner struct {
	rules []rule
	known []knownSecret
}

// knownSecret is a credential of the tenant as the pieces that would give it
// away: in every encoding, any two thirds of it in one stretch. An agent may be
// told to leave out the first characters so that a scanner misses it.
type knownSecret struct{ pieces [][]byte }

// NewScanner makes a scanner that also finds known credentials, in common
// encodings.
func NewScanner(known []string) *Scanner {
	s := &Scanner{rules: rules}
	for _, k := range known {
		if len(k) < 8 {
			continue // shorter ones are found everywhere
		}
		var pieces [][]byte
		for _, form := range encodings(k) {
			n := max(8, len(form)*2/3)
			for i := 0; i+n <= len(form); i++ {
				pieces = append(pieces, []byte(form[i:i+n]))
			}
		}
		s.known = append(s.known, knownSecret{pieces})
	}
	return s
}

// encodings are common ways to write a text: itself, reversed, in hexadecimal,
// for a URL, and in base64 at each alignment.
func encodings(k string) []string {
	reversed := []byte(k)
	slices.Reverse(reversed)
	forms := []string{k, string(reversed), hex.EncodeToString([]byte(k)), strings.ToUpper(hex.EncodeToString([]byte(k)))}
	if e := url.QueryEscape(k); e != k {
		forms = append(forms, e)
	}
	for shift := range 3 {
		padded := strings.Repeat("\x00", shift) + k
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString([]byte(padded))
			if from, to := (shift*8+5)/6, len(padded)*8/6; to-from >= 8 {
				forms = append(forms, text[from:to])
			}
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// ScanReader looks at a stream of any length in bounded memory. Each hit is
// returned once, at most maxHits.
func (s *Scanner) ScanReader(r io.Reader) ([]Hit, error) {
	var hits []Hit
	buf := make([]byte, 0, WindowBytes+OverlapBytes)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		hits = s.Scan(hits, buf)
		if err != nil {
			return hits, nil
		}
		kept := copy(buf, buf[len(buf)-OverlapBytes:])
		buf = buf[:kept]
	}
}

const maxHits = 20

var base64Run = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9+/_-]{28,}`) })

// Scan looks at one window: as it is, without NUL bytes (UTF-16), and at what
// runs of base64 in it hold.
func (s *Scanner) Scan(hits []Hit, window []byte) []Hit {
	hits = s.scanPlain(hits, window)
	if bytes.IndexByte(window, 0) >= 0 {
		hits = s.scanPlain(hits, bytes.ReplaceAll(window, []byte{0}, nil))
	}
	var decoded bytes.Buffer
	for _, run := range base64Run().FindAll(window, 4096) {
		enc := base64.RawStdEncoding
		if bytes.ContainsAny(run, "-_") {
			enc = base64.RawURLEncoding
		}
		text := make([]byte, enc.DecodedLen(len(run)))
		if n, err := enc.Decode(text, run[:len(run)/4*4]); err == nil && mostlyText(text[:n]) {
			decoded.Write(text[:n])
			decoded.WriteByte('\n')
		}
	}
	if decoded.Len() > 0 {
		for _, h := range s.scanPlain(nil, decoded.Bytes()) {
			if !h.Weak { // a decoded text is a guess already
				hits = addHit(hits, Hit{h.Rule + " in base64", h.Text, false})
			}
		}
	}
	return hits
}

func mostlyText(b []byte) bool {
	text := 0
	for _, c := range b {
		if c >= 0x20 && c < 0x7f || c == '\n' || c == '\r' || c == '\t' {
			text++
		}
	}
	return text*10 >= len(b)*9
}

func (s *Scanner) scanPlain(hits []Hit, text []byte) []Hit {
	var folded []byte
	for i := range s.rules {
		rule := &s.rules[i]
		in := text
		if rule.fold {
			if folded == nil {
				folded = asciiLower(text)
			}
			in = folded
		}
		if !slices.ContainsFunc(rule.any, func(l string) bool { return bytes.Contains(in, []byte(l)) }) {
			continue
		}
		for _, at := range rule.expr().FindAllSubmatchIndex(in, maxHits) {
			found := string(text[at[2*rule.group]:at[2*rule.group+1]])
			if entropy(found) >= rule.entropy {
				hits = addHit(hits, Hit{rule.name, found, rule.weak})
			}
		}
	}
	for _, k := range s.known {
		if slices.ContainsFunc(k.pieces, func(p []byte) bool { return bytes.Contains(text, p) }) {
			hits = addHit(hits, Hit{Rule: "a credential of this tenant"})
		}
	}
	return hits
}

func addHit(hits []Hit, h Hit) []Hit {
	if len(hits) >= maxHits || slices.Contains(hits, h) {
		return hits
	}
	return append(hits, h)
}

// asciiLower keeps the length, so that offsets stay.
func asciiLower(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}

// entropy is the Shannon entropy in bits per character.
func entropy(s string) float64 {
	if s == "" {
		return 0
	}
	var count [256]int
	for _, c := range []byte(s) {
		count[c]++
	}
	bits := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(s))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}
