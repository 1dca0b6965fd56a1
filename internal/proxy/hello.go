package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// The numbers of RFC 8446 and RFC 6066 that matter here.
const (
	recordHandshake = 22
	typeClientHello = 1
	extServerName   = 0
	nameTypeHost    = 0
	maxRecord       = 1 << 14
	maxHello        = 64 << 10
)

// errNotTLS is a first message that is no ClientHello; errNoName one that
// names no server.
var (
	errNotTLS = errors.New("not a TLS ClientHello")
	errNoName = errors.New("the ClientHello names no server")
)

// readHello reads the client's first TLS message, split over however many
// records and segments, and returns the server name in it, in lower case. The
// bytes stay held in the stream, also those that came after it.
func readHello(s *stream) (string, error) {
	var msg []byte
	for at := 0; ; {
		if err := s.fill(at + 1); err != nil {
			return "", err
		}
		if s.buf[at] != recordHandshake {
			return "", errNotTLS
		}
		if err := s.fill(at + 5); err != nil {
			return "", err
		}
		length := int(binary.BigEndian.Uint16(s.buf[at+3:]))
		if s.buf[at+1] != 3 || length == 0 || length > maxRecord {
			return "", errNotTLS
		}
		if at+5+length > maxHello {
			return "", fmt.Errorf("read ClientHello: %w", errTooLong)
		}
		if err := s.fill(at + 5 + length); err != nil {
			return "", err
		}
		msg = append(msg, s.buf[at+5:at+5+length]...)
		at += 5 + length
		if msg[0] != typeClientHello {
			return "", errNotTLS
		}
		if len(msg) < 4 {
			continue
		}
		want := 4 + (int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3]))
		switch {
		case want > maxHello:
			return "", fmt.Errorf("read ClientHello: %w", errTooLong)
		case len(msg) > want:
			return "", errNotTLS // no client puts anything behind it in one record
		case len(msg) == want:
			return helloName(msg[4:])
		}
	}
}

// helloName returns the one host name of a ClientHello's body.
func helloName(body []byte) (string, error) {
	r := reader{rest: body}
	r.take(2 + 32)             // version, random
	r.vector8()                // session
	ciphers := r.vector16()    // cipher suites
	compression := r.vector8() // compression methods
	if r.bad || len(ciphers) < 2 || len(ciphers)%2 != 0 || len(compression) == 0 {
		return "", errNotTLS
	}
	if len(r.rest) == 0 {
		return "", errNoName
	}
	ext := reader{rest: r.vector16()}
	if r.bad || len(r.rest) != 0 {
		return "", errNotTLS
	}
	name, found := "", false
	for len(ext.rest) > 0 {
		kind, data := ext.uint16(), ext.vector16()
		if ext.bad {
			return "", errNotTLS
		}
		if kind != extServerName {
			continue
		}
		if found {
			return "", errNotTLS // two names: the server may take the other one
		}
		found = true
		list := reader{rest: data}
		names := reader{rest: list.vector16()}
		if list.bad || len(list.rest) != 0 {
			return "", errNotTLS
		}
		nameType, host := names.uint8(), names.vector16()
		if names.bad || len(names.rest) != 0 || nameType != nameTypeHost || len(host) == 0 {
			return "", errNotTLS
		}
		name = strings.ToLower(string(host))
	}
	if !found {
		return "", errNoName
	}
	return name, nil
}

// reader takes bytes apart; bad is set for good once there were too few.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) uint8() int {
	if b := r.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (r *reader) uint16() int {
	if b := r.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) vector8() []byte  { return r.take(r.uint8()) }
func (r *reader) vector16() []byte { return r.take(r.uint16()) }
