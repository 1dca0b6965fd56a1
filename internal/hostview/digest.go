package hostview

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"confine/internal/boundary"
)

// Digest names a view: two views that a driver would build differently have
// different digests. It covers which host paths a view shows, not what is in
// them. Every string is written with its length and as the bytes it has (paths
// need not be UTF-8, so no text encoding would do).
func Digest(v boundary.View) string {
	d := digester{sha256.New()}
	d.text("confine view 1")
	d.number(uint64(len(v.Mounts)))
	for _, m := range v.Mounts {
		d.text(string(m.Kind), m.Target, m.Source)
		d.flag(m.Writable)
		d.flag(m.Owned)
		d.flag(m.NoExec)
		d.number(uint64(m.Size))
		d.number(uint64(m.Mode))
	}
	d.number(uint64(len(v.Files)))
	for _, f := range v.Files {
		d.text(f.Path, string(f.Data))
		d.number(uint64(f.Mode))
	}
	d.number(uint64(len(v.Links)))
	for _, l := range v.Links {
		d.text(l.Path, l.Target)
	}
	d.text(v.Workdir, v.Hostname)
	return "sha256:" + hex.EncodeToString(d.Sum(nil))
}

type digester struct{ hash.Hash }

func (d digester) number(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	d.Write(b[:])
}

func (d digester) flag(b bool) {
	if b {
		d.number(1)
	} else {
		d.number(0)
	}
}

func (d digester) text(list ...string) {
	for _, s := range list {
		d.number(uint64(len(s)))
		d.Write([]byte(s))
	}
}
