package proxy

import (
	"bufio"
	"io"
	"net/http/httputil"
	"sync"
)

// body is a request's body on its way upstream. The transport reads it in a
// goroutine of its own, also after the response came, so what it shares with
// the client's connection is behind a lock.
type body struct {
	mu sync.Mutex
	// go100 tells a client that waits for it to send the body; nil after that.
	go100 func()
	from  io.Reader
	end   func() error // reads what comes after the last byte
	left  int64        // of a known length; -1 for chunked
	done  bool         // every byte was read: the next request can be
	shut  bool
}

// newBody returns the body of h, or nil when it has none.
func newBody(h *head, r *bufio.Reader, go100 func()) *body {
	switch {
	case h.chunked:
		return &body{from: httputil.NewChunkedReader(r), left: -1, go100: go100, end: func() error { return skipTrailer(r) }}
	case h.length > 0:
		return &body{from: r, left: h.length, go100: go100}
	}
	return nil
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut || b.done {
		return 0, io.EOF
	}
	if b.go100 != nil {
		b.go100()
		b.go100 = nil
	}
	if b.left >= 0 {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.from.Read(p)
	if b.left >= 0 {
		b.left -= int64(n)
		switch {
		case b.left == 0:
			b.done, err = true, io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	if err == io.EOF {
		if err = b.end(); err == nil {
			b.done, err = true, io.EOF
		}
	}
	return n, err
}

// Close is called by the transport when it wants no more.
func (b *body) Close() error { return nil }

// complete reports whether all was read, without waiting. A nil body is.
func (b *body) complete() bool {
	if b == nil {
		return true
	}
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	return b.done
}

// finish stops further reads and reports whether all was read. A read that
// waits for the client holds the lock; interrupt ends it.
func (b *body) finish(interrupt func()) bool {
	if b == nil {
		return true
	}
	if !b.mu.TryLock() {
		interrupt()
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	b.shut = true
	b.go100 = nil
	return b.done
}

// skipTrailer reads the trailer of a chunked body, which is not passed on.
func skipTrailer(r *bufio.Reader) error {
	budget := maxHead
	for {
		line, err := readLine(r, &budget)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || line == "" {
			return err
		}
	}
}
