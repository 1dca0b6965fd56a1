package handover

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
	windowBytes  = 256 << 10
	overlapBytes = 8 << 10
)

// hit is one thing that looks like a secret.
type hit struct {
	rule string
	text string
	weak bool
}

// masked shows what kind of text it is and none of its secret part: the first
// characters name the issuer, the length helps to find it.
func (h hit) masked() string {
	const shown = 4
	if len(h.text) < 3*shown {
		return fmt.Sprintf("%s (%d characters)", h.rule, len(h.text))
	}
	return fmt.Sprintf("%s %q (%d characters)", h.rule, h.text[:shown]+"…", len(h.text))
}

// scanner finds secrets in texts.
type scanner struct {
	rules []secretRule
	known []knownSecret
}

// knownSecret is a credential of the tenant as the pieces that would give it
// away: in every encoding, any two thirds of it in one stretch. An agent may be
// told to leave out the first characters so that a scanner misses it.
type knownSecret struct{ pieces [][]byte }

func newScanner(known []string) *scanner {
	s := &scanner{rules: secretRules}
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

// scanReader looks at a stream of any length in bounded memory. Each hit is
// returned once, at most maxHits.
func (s *scanner) scanReader(r io.Reader) ([]hit, error) {
	var hits []hit
	buf := make([]byte, 0, windowBytes+overlapBytes)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		hits = s.scan(hits, buf)
		if err != nil {
			return hits, nil
		}
		kept := copy(buf, buf[len(buf)-overlapBytes:])
		buf = buf[:kept]
	}
}

const maxHits = 20

var base64Run = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9+/_-]{28,}`) })

// scan looks at one window: as it is, without NUL bytes (UTF-16), and at what
// runs of base64 in it hold.
func (s *scanner) scan(hits []hit, window []byte) []hit {
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
			if !h.weak { // a decoded text is a guess already
				hits = addHit(hits, hit{h.rule + " in base64", h.text, false})
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

func (s *scanner) scanPlain(hits []hit, text []byte) []hit {
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
				hits = addHit(hits, hit{rule.name, found, rule.weak})
			}
		}
	}
	for _, k := range s.known {
		if slices.ContainsFunc(k.pieces, func(p []byte) bool { return bytes.Contains(text, p) }) {
			hits = addHit(hits, hit{rule: "a credential of this tenant"})
		}
	}
	return hits
}

func addHit(hits []hit, h hit) []hit {
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
