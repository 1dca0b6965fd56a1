// Package audit keeps the record of what happened: one line of JSON for each
// event, each line holding the hash of the one before it.
//
// It promises that a changed, removed or inserted line is found by Verify, and
// that registered secrets are in no line. It can't tell that lines are missing at
// the end: whoever wants to know that keeps the head (Log.Head) elsewhere. Text
// from a sandbox, an agent or a code host is data in here, never interpreted.
package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Event is one thing that happened.
type Event struct {
	Time time.Time `json:"time"`
	// Kind is a short word of ours: "stage_started", "refusal", "merged".
	Kind string `json:"kind"`
	// Stage is the stage it belongs to; may be empty.
	Stage string `json:"stage,omitempty"`
	// Text is for a person.
	Text string `json:"text,omitempty"`
	// Data is anything more.
	Data any `json:"data,omitempty"`
}

// line is an event as it is written. Hash is over the previous hash and the
// event's own bytes.
type line struct {
	Event json.RawMessage `json:"event"`
	Prev  string          `json:"prev"`
	Hash  string          `json:"hash"`
}

// Log is an open log. It is safe for several goroutines.
type Log struct {
	mu      sync.Mutex
	f       *os.File
	head    string
	secrets []string
}

// Open opens a log for appending, after verifying what is in it.
func Open(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	head, err := Verify(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Log{f: f, head: head}, nil
}

// Redact registers a secret that must not be written.
func (l *Log) Redact(secret string) {
	if len(secret) < 4 {
		return // would blot out ordinary text and protect nothing
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	quoted, _ := json.Marshal(secret)
	l.secrets = append(l.secrets, strings.Trim(string(quoted), `"`))
}

// Append writes one event and returns when it is on stable storage.
func (l *Log) Append(e Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	for _, s := range l.secrets {
		raw = bytes.ReplaceAll(raw, []byte(s), []byte("[redacted]"))
	}
	next := chain(l.head, raw)
	out, err := json.Marshal(line{Event: raw, Prev: l.head, Hash: next})
	if err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if _, err := l.f.Write(append(out, '\n')); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if err := l.f.Sync(); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	l.head = next
	return nil
}

// Head is the hash of the last line.
func (l *Log) Head() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Close closes the log.
func (l *Log) Close() error { return l.f.Close() }

func chain(prev string, event []byte) string {
	h := sha256.New()
	io.WriteString(h, prev)
	h.Write([]byte{0})
	h.Write(event)
	return hex.EncodeToString(h.Sum(nil))
}

// maxLine caps one line of a log.
const maxLine = 16 << 20

// Verify reads a log and returns its head. A last line without its end was being
// written when the writer died; it is an error like any other damage, as it
// can't be told from a cut.
func Verify(r io.Reader) (head string, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for n := 1; s.Scan(); n++ {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return "", &DamageError{Line: n, Why: "is not an event"}
		}
		if l.Prev != head || l.Hash != chain(head, l.Event) {
			return "", &DamageError{Line: n, Why: "does not follow the line before it"}
		}
		head = l.Hash
	}
	if err := s.Err(); err != nil {
		return "", fmt.Errorf("read event log: %w", errors.Join(err))
	}
	return head, nil
}

// DamageError is a log that was changed.
type DamageError struct {
	Line int
	Why  string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("verify event log: line %d %s", e.Line, e.Why)
}
