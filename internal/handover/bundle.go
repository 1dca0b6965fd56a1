package handover

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"confine/internal/gitcmd"
)

// Caps of a bundle's header. Git itself writes the subject of each prerequisite
// behind its id, which the agent chose.
const (
	maxBundleLine  = 64 << 10
	maxBundleLines = 1000
)

// BundleHeader is what a bundle says about itself. All of it is untrusted.
type BundleHeader struct {
	Version int
	Format  gitcmd.ObjectFormat
	// Prerequisites are commits that the receiver must have.
	Prerequisites []gitcmd.Hash
	Ref           string
	Head          gitcmd.Hash
}

// ReadBundleHeader reads the header of a bundle, up to the first byte of its
// pack: version 2, or 3 without any capability but the object format; exactly
// one ref. Every other form is a *Refusal of RuleBundle; an error of the stream
// itself is returned as it is.
func ReadBundleHeader(r *bufio.Reader) (BundleHeader, error) {
	h, err := readBundleHeader(r)
	var stream *streamError
	if errors.As(err, &stream) {
		return BundleHeader{}, stream.err
	}
	if err != nil {
		return BundleHeader{}, &Refusal{Rule: RuleBundle, Detail: err.Error()}
	}
	return h, nil
}

func readBundleHeader(r *bufio.Reader) (BundleHeader, error) {
	h := BundleHeader{Format: gitcmd.SHA1}
	first, err := readLine(r)
	switch {
	case err != nil:
		return h, err
	case first == "# v2 git bundle":
		h.Version = 2
	case first == "# v3 git bundle":
		h.Version = 3
	default:
		return h, fmt.Errorf("the first line is %.60q", first)
	}
	capabilities := h.Version == 3
	for range maxBundleLines {
		line, err := readLine(r)
		if err != nil {
			return h, err
		}
		if line == "" {
			if h.Head == "" {
				return h, errors.New("it brings no ref")
			}
			return h, nil
		}
		if capability, ok := strings.CutPrefix(line, "@"); ok {
			if !capabilities {
				return h, fmt.Errorf("capability %.60q is out of place", capability)
			}
			if err := h.addCapability(capability); err != nil {
				return h, err
			}
			continue
		}
		capabilities = false
		if err := h.addLine(line); err != nil {
			return h, err
		}
	}
	return h, fmt.Errorf("its header has more than %d lines", maxBundleLines)
}

func (h *BundleHeader) addCapability(text string) error {
	switch text {
	case "object-format=sha1":
		h.Format = gitcmd.SHA1
	case "object-format=sha256":
		h.Format = gitcmd.SHA256
	default:
		// A filter leaves objects out: what is checked would not be all.
		return fmt.Errorf("capability %.60q is not accepted", text)
	}
	return nil
}

func (h *BundleHeader) addLine(line string) error {
	prerequisite := strings.HasPrefix(line, "-")
	text := strings.TrimPrefix(line, "-")
	id, rest, spaced := strings.Cut(text, " ")
	hash, err := gitcmd.ParseHash(id)
	if err != nil {
		return err
	}
	if (len(hash) == 64) != (h.Format == gitcmd.SHA256) {
		return fmt.Errorf("object id %s does not fit the object format %s", hash.Short(), h.Format)
	}
	switch {
	case prerequisite && h.Head != "":
		return errors.New("a prerequisite follows the ref")
	case prerequisite:
		h.Prerequisites = append(h.Prerequisites, hash)
	case h.Head != "":
		return errors.New("it brings more than one ref")
	case !spaced || rest == "":
		return errors.New("its ref has no name")
	default:
		h.Head, h.Ref = hash, rest
	}
	return nil
}

// readLine reads a line of at most maxBundleLine bytes without its end.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxBundleLine {
			return "", fmt.Errorf("a line of its header is longer than %d bytes", maxBundleLine)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return string(line[:len(line)-1]), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return "", errors.New("its header is cut off")
		default:
			return "", &streamError{err}
		}
	}
}

// streamError tells that reading failed, whatever the bundle says.
type streamError struct{ err error }

func (e *streamError) Error() string { return e.err.Error() }
