package proxy

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"

	"confine/internal/egress"
)

// refuse ends a connection and tells the program why, in the protocol it
// speaks where that has a way to say it: HTTP a response, TLS an alert, SSH a
// disconnect message. Other protocols see the connection close.
func (s *session) refuse(client *stream, r egress.Refusal) {
	first := firstBytes(client)
	var answer []byte
	switch {
	case len(first) > 0 && first[0] == recordHandshake:
		// Alert, TLS 1.2 record, fatal access_denied (RFC 8446, section 6).
		answer = []byte{21, 3, 3, 0, 2, 2, 49}
	case strings.HasPrefix(string(first), "SSH-") || len(first) == 0 && r.Verdict.Attempt.Port == 22:
		answer = sshRefusal(r)
	case len(first) > 0 && new(opening).hold(client, drainTime) == isHTTP:
		answer = httpAnswer(403, r.Notice())
	}
	if len(answer) > 0 {
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
	linger(client)
}

// sshRefusal is a server's version line and SSH_MSG_DISCONNECT, before any key
// exchange, so in the clear (RFC 4253, sections 6 and 11.1). Clients print its
// text; they print none of a connection that just closes.
func sshRefusal(r egress.Refusal) []byte {
	const disconnect, notAllowed = 1, 1
	text := strings.ReplaceAll(strings.TrimSpace(r.Notice()), "\n", "; ")
	if r.Verdict.Reason == egress.ReasonNotListed || r.Verdict.Reason == egress.ReasonPort {
		text += "; git can use https instead of ssh"
	}
	payload := []byte{disconnect}
	payload = binary.BigEndian.AppendUint32(payload, notAllowed)
	payload = binary.BigEndian.AppendUint32(payload, uint32(len(text)))
	payload = append(payload, text...)
	payload = binary.BigEndian.AppendUint32(payload, 0) // language
	padding := make([]byte, 8-(5+len(payload))%8+8)     // at least 4, to a multiple of 8
	rand.Read(padding)
	packet := binary.BigEndian.AppendUint32(nil, uint32(1+len(payload)+len(padding)))
	packet = append(packet, byte(len(padding)))
	packet = append(append(packet, payload...), padding...)
	return append([]byte("SSH-2.0-confine\r\n"), packet...)
}

// httpAnswer is a whole response of our own, after which the connection ends.
func httpAnswer(status int, text string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s",
		status, statusText[status], len(text), text)
}

var statusText = map[int]string{400: "Bad Request", 403: "Forbidden by confine", 502: "Bad Gateway"}

// quote shows untrusted text inside our own: quoted, capped.
func quote(s string) string { return fmt.Sprintf("%.80q", s) }
