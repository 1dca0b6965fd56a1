package gate

import "sync"

// The parts of a check's output that are kept.
const (
	keepHead = 8 << 10
	keepTail = 24 << 10
)

// keeper keeps the beginning and the end of a stream in bounded memory. It may
// be written to by several goroutines.
type keeper struct {
	mu    sync.Mutex
	head  []byte
	tail  []byte // a ring of keepTail bytes once it is full
	next  int
	bytes int64
}

func (k *keeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(p)
	k.bytes += int64(n)
	if room := keepHead - len(k.head); room > 0 {
		take := min(room, len(p))
		k.head = append(k.head, p[:take]...)
		p = p[take:]
	}
	if len(p) > keepTail {
		p = p[len(p)-keepTail:]
	}
	for len(p) > 0 {
		if len(k.tail) < keepTail {
			take := min(keepTail-len(k.tail), len(p))
			k.tail = append(k.tail, p[:take]...)
			p = p[take:]
			continue
		}
		take := copy(k.tail[k.next:], p)
		k.next = (k.next + take) % keepTail
		p = p[take:]
	}
	return n, nil
}

// output returns what was kept. All is how many bytes there were, where that is
// known to be more than what came here.
func (k *keeper) output(all int64) Output {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Output{
		Head:  string(k.head),
		Tail:  string(k.tail[k.next:]) + string(k.tail[:k.next]),
		Bytes: max(all, k.bytes),
	}
}
