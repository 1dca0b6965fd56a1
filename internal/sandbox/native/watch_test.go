//go:build linux

package native

import (
	"strings"
	"testing"
	"time"
)

func TestLooksThatCostMuchAreFewer(t *testing.T) {
	for _, test := range []struct{ took, want time.Duration }{
		{0, 100 * time.Millisecond}, {time.Millisecond, 100 * time.Millisecond},
		{20 * time.Millisecond, 200 * time.Millisecond}, {time.Hour, 500 * time.Millisecond},
	} {
		if got := pause(100*time.Millisecond, test.took); got != test.want {
			t.Errorf("after %v: %v, want %v", test.took, got, test.want)
		}
	}
}

// TestMappingsAreRead: names are the processes' own, and are no more than names.
func TestMappingsAreRead(t *testing.T) {
	const smaps = `7f0000000000-7f0000100000 rw-s 00002000 00:01 77                         /memfd:Pss: 999 kB (deleted)
Size:               1024 kB
Rss:                 100 kB
Pss:                  50 kB
Pss_Dirty:            50 kB
Anonymous:             8 kB
Swap:                  4 kB
VmFlags: rd wr sh
00400000-00401000 r-xp 00000000 103:02 12345678901 /x\012Pss: 1 kB
Pss:                   4 kB
bad line
55d0-55e0 rw-p 00000000 00:00 0
Pss:                   1 kB
`
	var got []mapping
	if err := eachMapping(strings.NewReader(smaps), func(m mapping) { got = append(got, m) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	m := got[0]
	if m.size != 1<<20 || m.offset != 0x2000 || m.pss != 54<<10 || m.anonymous != 12<<10 || m.inode.number != 77 || m.inode.device != 1 || !strings.HasSuffix(m.name, " (deleted)") {
		t.Errorf("%+v", m)
	}
	if got[1].inode.number != 12345678901 || got[1].pss != 4<<10 || got[2].inode != (inode{}) || got[2].pss != 1<<10 {
		t.Errorf("%+v", got[1:])
	}
}

func FuzzMappings(f *testing.F) {
	f.Add("7f00-7f10 rw-s 0 00:01 77 /x\nPss: 4 kB\n")
	f.Add("-")
	f.Add("x-y z 0 1:2 3\nPss:\nAnonymous: -1 kB")
	f.Fuzz(func(_ *testing.T, s string) {
		_ = eachMapping(strings.NewReader(s), func(mapping) {})
	})
}
