package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"confine/internal/egress"
)

const (
	maxHead   = 64 << 10
	maxFields = 200
	maxMethod = 32
)

// head is the head of one HTTP/1 request, taken apart strictly: whatever two
// programs could read in two ways is an error, since the decision is made on
// one reading and the server acts on another.
type head struct {
	method  string
	target  string
	minor   int // of HTTP/1.x
	fields  []field
	host    string // the one Host field; may be missing of CONNECT in HTTP/1.0
	length  int64  // of the body; -1 for none or chunked
	chunked bool
}

type field struct{ name, value string }

// headError is a request that is not served: malformed, or ambiguous.
type headError struct{ why string }

func (e *headError) Error() string { return e.why }

func malformed(format string, args ...any) error { return &headError{fmt.Sprintf(format, args...)} }

// readHead reads one request's head. io.EOF means that there is none.
func readHead(r *bufio.Reader) (*head, error) {
	budget := maxHead
	line, err := readLine(r, &budget)
	if err == nil && line == "" { // RFC 9112, section 2.2: one empty line is skipped
		line, err = readLine(r, &budget)
	}
	if err != nil {
		return nil, err
	}
	h := &head{length: -1}
	if err := h.parseRequestLine(line); err != nil {
		return nil, err
	}
	for {
		line, err := readLine(r, &budget)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if line == "" {
			return h, h.check()
		}
		if err := h.parseField(line); err != nil {
			return nil, err
		}
	}
}

// readLine reads a line that ends in CR LF, without it, and takes it from the
// budget. io.EOF only before the first byte of a line.
func readLine(r *bufio.Reader, budget *int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if *budget -= len(part); *budget < 0 {
			return "", malformed("the head is longer than %d bytes", maxHead)
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if err == io.EOF && len(line) > 0 {
			return "", io.ErrUnexpectedEOF
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok {
		return "", malformed("a line does not end in CR LF")
	}
	return text, nil
}

func (h *head) parseRequestLine(line string) error {
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || !isToken(method) || target == "" || len(method) > maxMethod {
		return malformed("the request line is not one")
	}
	for i := range len(target) {
		// Servers differ on whether a # ends the path.
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return malformed("the request target holds %q", string(rune(c)))
		}
	}
	switch version {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
	case "HTTP/2.0":
		return malformed("HTTP/2 in the clear can't be decided request by request")
	default:
		return malformed("the version is not HTTP/1.0 or HTTP/1.1")
	}
	h.method, h.target = method, target
	return nil
}

func (h *head) parseField(line string) error {
	if len(h.fields) == maxFields {
		return malformed("there are more than %d header lines", maxFields)
	}
	if line[0] == ' ' || line[0] == '\t' {
		return malformed("a header line is folded")
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return malformed("a header line has no proper name")
	}
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return malformed("the header %q holds a control character", name)
		}
	}
	h.fields = append(h.fields, field{name, value})
	return nil
}

// check reads the fields that say where a request goes and where it ends.
func (h *head) check() error {
	hosts := h.values("Host")
	switch {
	case len(hosts) > 1:
		return malformed("there is more than one Host")
	case len(hosts) == 1 && hosts[0] != "":
		h.host = hosts[0]
	case h.method != http.MethodConnect || h.minor != 0:
		return malformed("there is no Host, which says which site is meant, in HTTP/1.0 too")
	}
	lengths, codings := h.values("Content-Length"), h.values("Transfer-Encoding")
	switch {
	case len(lengths)+len(codings) == 0:
		return nil
	case len(lengths)+len(codings) > 1:
		return malformed("the length is given more than once")
	case len(codings) == 1:
		if h.minor == 0 || !strings.EqualFold(codings[0], "chunked") {
			return malformed("the transfer coding is not chunked")
		}
		h.chunked = true
		return nil
	}
	if s := lengths[0]; s == "" || len(s) > 18 || strings.Trim(s, "0123456789") != "" {
		return malformed("the Content-Length is not a number")
	}
	n, err := strconv.ParseInt(lengths[0], 10, 64)
	if err != nil {
		return malformed("the Content-Length is not a number")
	}
	h.length = n
	return nil
}

func (h *head) values(name string) []string {
	var values []string
	for _, f := range h.fields {
		if strings.EqualFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}

// lists reports whether a comma-separated field holds a word.
func (h *head) lists(name, word string) bool {
	for _, value := range h.values(name) {
		for _, part := range strings.Split(value, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), word) {
				return true
			}
		}
	}
	return false
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// parseAuthority parses host[:port] or [address]:port into an attempt; port is
// what none means, and 0 makes it required.
func parseAuthority(s string, port uint16) (egress.Attempt, error) {
	host, portText, hasPort := s, "", false
	if strings.HasPrefix(s, "[") {
		inside, after, ok := strings.Cut(s[1:], "]")
		if !ok {
			return egress.Attempt{}, malformed("the host has no closing bracket")
		}
		addr, err := egress.ParseAddr(inside)
		if err != nil || !strings.Contains(inside, ":") {
			return egress.Attempt{}, malformed("the brackets hold no IPv6 address")
		}
		if after != "" {
			if portText, hasPort = strings.CutPrefix(after, ":"); !hasPort {
				return egress.Attempt{}, malformed("the port is not one")
			}
		}
		return attemptAt(egress.Attempt{Addr: addr}, portText, hasPort, port)
	}
	if host, portText, hasPort = strings.Cut(s, ":"); !hasPort {
		host = s
	}
	if addr, err := egress.ParseAddr(host); err == nil {
		return attemptAt(egress.Attempt{Addr: addr}, portText, hasPort, port)
	}
	name, err := egress.ParseHost(host)
	if err != nil {
		return egress.Attempt{}, err
	}
	return attemptAt(egress.Attempt{Host: name, Addr: netip.Addr{}}, portText, hasPort, port)
}

func attemptAt(a egress.Attempt, text string, given bool, otherwise uint16) (egress.Attempt, error) {
	a.Port = otherwise
	if given {
		port, err := egress.ParsePort(text)
		if err != nil {
			return egress.Attempt{}, malformed("the port is not one")
		}
		a.Port = port
	}
	if a.Port == 0 {
		return egress.Attempt{}, malformed("the port is missing")
	}
	return a, nil
}
