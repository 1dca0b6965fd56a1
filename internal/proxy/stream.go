package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// stream is a connection of which some first bytes were read to decide.
type stream struct {
	net.Conn
	buf []byte // read and not yet passed on
}

// errTooLong is more bytes than anything needs that the proxy decides by.
var errTooLong = errors.New("too long")

// fill reads until n bytes are held.
func (s *stream) fill(n int) error {
	for len(s.buf) < n {
		if cap(s.buf) == len(s.buf) {
			grown := make([]byte, len(s.buf), max(2048, 2*len(s.buf), n))
			copy(grown, s.buf)
			s.buf = grown
		}
		got, err := s.Conn.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+got]
		if err != nil && len(s.buf) < n {
			return err
		}
	}
	return nil
}

// Read reads what is held first.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.buf) > 0 {
		n := copy(p, s.buf)
		s.buf = s.buf[n:]
		return n, nil
	}
	return s.Conn.Read(p)
}

// limit bounds the time of the reads that follow; 0 lifts it.
func (s *stream) limit(d time.Duration) {
	if d == 0 {
		_ = s.SetReadDeadline(time.Time{})
		return
	}
	_ = s.SetReadDeadline(time.Now().Add(d))
}

// firstToSpeak waits until a or b sends something, ends or fails, with no limit
// on the time, and returns whether it was a. Nothing is lost of either.
func firstToSpeak(a, b *stream) bool {
	spoke := make(chan bool, 2)
	wait := func(s *stream, isA bool) {
		_ = s.fill(1) // an error shows again when the bytes are wanted
		spoke <- isA
	}
	go wait(a, true)
	go wait(b, false)
	first := <-spoke
	other := a
	if first {
		other = b
	}
	_ = other.SetReadDeadline(time.Unix(1, 0))
	<-spoke
	other.limit(0)
	return first || len(a.buf) > 0
}

// The idle times of a spliced connection. A connection that carries data in
// either direction has no limit; one that carries none ends in the end, or a
// sandbox's slots would fill with connections both ends have forgotten.
const (
	idleStep  = 5 * time.Minute
	idleLimit = 2 * time.Hour
	spliceMax = 1 << 30 // bytes of one splice call, so that the time is looked at
)

// flow is one direction of a spliced connection.
type flow struct {
	from, to *stream
	last     *atomic.Int64 // when either direction last carried something
	// inspect, where set, looks at bytes before they are carried, until it
	// returns true. Those that are held already are not for it.
	inspect func(*stream) (done bool, err error)
}

// run copies until from ends, then ends to's half too. It returns the bytes
// and, where the end was not a clean one, an error. Held bytes go first, then
// the kernel moves the rest without them coming up here (splice(2)).
func (f flow) run() (total int64, err error) {
	if len(f.from.buf) > 0 {
		n, err := f.to.Conn.Write(f.from.buf)
		f.from.buf = nil
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	if f.inspect != nil {
		n, err := f.inspected()
		if total += n; err != nil {
			return total, err
		}
	}
	for {
		f.from.limit(idleStep)
		n, err := io.CopyN(f.to.Conn, f.from.Conn, spliceMax)
		total += n
		if n > 0 {
			f.last.Store(time.Now().UnixNano())
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return total, closeWrite(f.to.Conn)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return total, err
		case f.idle():
			return total, err
		}
	}
}

func (f flow) idle() bool { return time.Since(time.Unix(0, f.last.Load())) > idleLimit }

// inspected carries bytes for as long as they are looked at. An end is left for
// run to meet again.
func (f flow) inspected() (total int64, err error) {
	for done := false; !done; {
		f.from.limit(idleStep)
		err := f.from.fill(1)
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case errors.Is(err, os.ErrDeadlineExceeded) && !f.idle():
			continue
		case err != nil:
			return total, err
		}
		if done, err = f.inspect(f.from); err != nil {
			return total, err
		}
		n, err := f.to.Conn.Write(f.from.buf)
		f.from.buf = f.from.buf[:0]
		f.last.Store(time.Now().UnixNano())
		if total += int64(n); err != nil {
			return total, err
		}
	}
	return total, nil
}

// splice carries both directions until both ended or one broke. inspect, where
// not nil, looks at what the client sends next and may refuse it.
func splice(client, server *stream, inspect func(*stream) (bool, error)) (up, down int64) {
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		if down, err = (flow{from: server, to: client, last: &last}).run(); err != nil {
			abort(client, server)
		}
	}()
	var err error
	if up, err = (flow{from: client, to: server, last: &last, inspect: inspect}).run(); err != nil {
		abort(client, server)
	}
	<-done
	return up, down
}

func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return conn.Close()
}

// abort resets both sides. An end that looked clean would let a program take
// the part it got for the whole.
func abort(streams ...*stream) {
	for _, s := range streams {
		if c, ok := s.Conn.(interface{ SetLinger(int) error }); ok {
			_ = c.SetLinger(0)
		}
		s.Conn.Close()
	}
}
