package gitcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Object is one object of a stream.
type Object struct {
	Hash Hash
	Type ObjectType
	Size int64
}

// errStopped ends git when the reader of a stream stops early.
var errStopped = errors.New("the reader of the objects stopped")

// ReadObjects streams objects to f in the order given, in one process. The
// content is valid during the call of f, which need not read all of it. A
// missing object is a *NotFoundError. maxBytes caps the sum of their sizes
// (0: 16 GiB).
func (r *Repo) ReadObjects(ctx context.Context, hashes []Hash, maxBytes int64, f func(Object, io.Reader) error) error {
	if len(hashes) == 0 {
		return nil
	}
	if err := r.checkHash(hashes...); err != nil {
		return err
	}
	var input strings.Builder
	for _, h := range hashes {
		input.WriteString(string(h) + "\n")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		// Headers come on top of the content.
		_, err := r.run(ctx, command{op: "cat-file", args: []string{"--batch"}, stdin: strings.NewReader(input.String()),
			stdout: in, time: transferTime, maxOut: orDefault(maxBytes, 16<<30) + int64(len(hashes))*128})
		in.CloseWithError(orEOF(err))
		ended <- err
	}()
	err := eachObject(bufio.NewReaderSize(out, 64<<10), hashes, f)
	if err != nil {
		cancel(errStopped)
	}
	out.CloseWithError(errStopped)
	gitErr := <-ended
	if err != nil {
		return err
	}
	return gitErr
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// eachObject reads what cat-file --batch writes: a line, the content, a newline.
func eachObject(out *bufio.Reader, hashes []Hash, f func(Object, io.Reader) error) error {
	for _, h := range hashes {
		line, err := out.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read object %s: %w", h.Short(), err)
		}
		t, size, err := parseObjectLine(strings.TrimSuffix(string(line), "\n"), h)
		if err != nil {
			return err
		}
		content := io.LimitReader(out, size)
		if err := f(Object{h, t, size}, content); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return fmt.Errorf("read object %s: %w", h.Short(), err)
		}
		end, err := out.ReadByte()
		if err != nil {
			// Which may be that the answer was larger than allowed.
			return fmt.Errorf("read object %s: git's answer is cut off: %w", h.Short(), err)
		}
		if end != '\n' {
			return fmt.Errorf("read object %s: git's answer is cut off", h.Short())
		}
	}
	return nil
}

// Sizes reads the sizes of objects, in the order given, in one process. A missing
// object is a *NotFoundError.
func (r *Repo) Sizes(ctx context.Context, hashes []Hash) ([]int64, error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	if err := r.checkHash(hashes...); err != nil {
		return nil, err
	}
	var input strings.Builder
	for _, h := range hashes {
		input.WriteString(string(h) + "\n")
	}
	out, _, err := r.output(ctx, command{op: "cat-file", args: []string{"--batch-check"}, stdin: strings.NewReader(input.String()), maxOut: int64(len(hashes)) * 128})
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(hashes) {
		return nil, fmt.Errorf("read sizes: git wrote %d lines for %d objects", len(lines), len(hashes))
	}
	sizes := make([]int64, len(hashes))
	for i, h := range hashes {
		if _, sizes[i], err = parseObjectLine(lines[i], h); err != nil {
			return nil, err
		}
	}
	return sizes, nil
}
