package gitcmd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// asNotFound is errors.As for the one type that several callers ask for.
func asNotFound(err error, target **NotFoundError) bool { return errors.As(err, target) }

// PackOptions select the objects of a pack: everything reachable from Include
// that is not reachable from Exclude.
type PackOptions struct {
	Include, Exclude []Hash
	// Thin lets objects be deltas against excluded ones, which the receiver has.
	Thin bool
	// Max caps the bytes written; 0 means 16 GiB.
	Max int64
}

// PackObjects writes a pack to w.
func (r *Repo) PackObjects(ctx context.Context, w io.Writer, o PackOptions) error {
	input, err := r.revisions(o.Include, o.Exclude)
	if err != nil {
		return err
	}
	args := []string{"--revs", "--stdout", "--delta-base-offset", "-q"}
	if o.Thin {
		args = append(args, "--thin")
	}
	_, err = r.run(ctx, command{op: "pack-objects", args: args, stdin: input, stdout: w, time: transferTime, maxOut: orDefault(o.Max, 16<<30)})
	return err
}

// BundleOptions describe a bundle of one ref.
type BundleOptions struct {
	Ref     Ref
	Head    Hash
	Exclude []Hash
	Max     int64 // as PackOptions.Max
}

// WriteBundle writes a bundle that brings Ref to Head for someone who has
// Exclude.
func (r *Repo) WriteBundle(ctx context.Context, w io.Writer, o BundleOptions) error {
	if err := o.Ref.check(); err != nil {
		return err
	}
	if err := r.checkHash(append([]Hash{o.Head}, o.Exclude...)...); err != nil {
		return err
	}
	var head bytes.Buffer
	if r.format == SHA1 {
		head.WriteString("# v2 git bundle\n")
	} else {
		head.WriteString("# v3 git bundle\n@object-format=" + string(r.format) + "\n")
	}
	for _, h := range o.Exclude {
		fmt.Fprintf(&head, "-%s \n", h)
	}
	fmt.Fprintf(&head, "%s %s\n\n", o.Head, o.Ref)
	if _, err := w.Write(head.Bytes()); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return r.PackObjects(ctx, w, PackOptions{Include: []Hash{o.Head}, Exclude: o.Exclude, Thin: true, Max: o.Max})
}

// IndexPackOptions limit the import of a pack. The zero value is the strict one.
type IndexPackOptions struct {
	// MaxBytes caps the pack itself; 0 means 1 GiB.
	MaxBytes int64
	// MaxObjects caps the number of objects that it says it holds; 0 means one
	// million.
	MaxObjects uint32
	// Trusted leaves out the strict check of every object: only for packs that
	// come from a repository of the engine, whose old history may hold objects
	// that git would refuse today.
	Trusted bool
}

// IndexPack imports a pack from a stream into the repository's objects. Every
// object is checked, and every object that one names must be there. On an error
// no object was added. No ref changes.
func (r *Repo) IndexPack(ctx context.Context, pack io.Reader, o IndexPackOptions) error {
	maxBytes := orDefault(o.MaxBytes, 1<<30)
	if o.MaxObjects == 0 {
		o.MaxObjects = 1_000_000
	}
	head := make([]byte, 12)
	if _, err := io.ReadFull(pack, head); err != nil {
		return fmt.Errorf("import pack: read its header: %w", err)
	}
	count := binary.BigEndian.Uint32(head[8:])
	switch version := binary.BigEndian.Uint32(head[4:]); {
	case string(head[:4]) != "PACK" || version != 2:
		return fmt.Errorf("import pack: %w", ErrNotAPack)
	case count > o.MaxObjects:
		return fmt.Errorf("import pack: %d objects, allowed are %d: %w", count, o.MaxObjects, ErrTooLarge)
	}
	// One byte more than allowed shows git, or us, that there is too much.
	stream := io.MultiReader(bytes.NewReader(head), &limitedReader{r: pack, left: maxBytes - int64(len(head))})
	args := []string{"--stdin", "--fix-thin", fmt.Sprintf("--max-input-size=%d", maxBytes), "--threads=1"}
	if !o.Trusted {
		// Git itself lets odd modes of files pass, and then reads them as others.
		args = append(args, "--strict=badFilemode=error", "--fsck-objects")
	}
	_, err := r.run(ctx, command{op: "index-pack", args: args, stdin: stream, time: transferTime, maxOut: 1 << 20})
	return err
}

// limitedReader is an io.LimitedReader whose end is an error.
type limitedReader struct {
	r    io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}
