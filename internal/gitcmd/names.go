package gitcmd

import (
	"fmt"
	"strings"
)

// Hash is the id of a git object in lower-case hexadecimal: 40 digits (SHA-1) or
// 64 (SHA-256). The zero value names no object.
type Hash string

// ParseHash checks that text is a whole object id. Abbreviations, upper case and
// revision expressions are errors.
func ParseHash(text string) (Hash, error) {
	h := Hash(text)
	if err := h.check(); err != nil {
		return "", err
	}
	return h, nil
}

// Short is the first twelve digits, for people.
func (h Hash) Short() string {
	if len(h) < 12 {
		return string(h)
	}
	return string(h[:12])
}

func (h Hash) check() error {
	if len(h) != 40 && len(h) != 64 {
		return fmt.Errorf("parse object id %.70q: want 40 or 64 hexadecimal digits", string(h))
	}
	zero := true
	for _, c := range []byte(h) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fmt.Errorf("parse object id %.70q: want lower-case hexadecimal digits", string(h))
		}
		zero = zero && c == '0'
	}
	if zero {
		// Git reads the null id as "no object" in several commands: what an
		// absent value means is said by the empty Hash alone.
		return fmt.Errorf("parse object id: the null id names no object")
	}
	return nil
}

// Ref is a full ref name, such as refs/heads/main. The zero value names no ref.
type Ref string

// maxRef caps a ref name; git itself is limited by the file system only.
const maxRef = 400

// ParseRef checks a full ref name by the rules of git check-ref-format, and more
// strictly: it begins with refs/, is printable ASCII or valid UTF-8 without
// control characters, and no component begins with a dash.
func ParseRef(text string) (Ref, error) {
	r := Ref(text)
	if err := r.check(); err != nil {
		return "", err
	}
	return r, nil
}

// Branch makes refs/heads/NAME.
func Branch(name string) (Ref, error) { return ParseRef("refs/heads/" + name) }

// BranchName is the name below refs/heads/, or "" for any other ref.
func (r Ref) BranchName() string {
	name, ok := strings.CutPrefix(string(r), "refs/heads/")
	if !ok {
		return ""
	}
	return name
}

func (r Ref) check() error {
	bad := func(why string) error {
		return fmt.Errorf("parse ref name %.100q: %s", string(r), why)
	}
	switch s := string(r); {
	case len(s) > maxRef:
		return bad(fmt.Sprintf("longer than %d bytes", maxRef))
	case !strings.HasPrefix(s, "refs/"):
		return bad("want a full name that begins with refs/")
	case strings.Contains(s, "..") || strings.Contains(s, "@{"):
		return bad(`holds ".." or "@{"`)
	case strings.ContainsAny(s, " ~^:?*[\\\x7f"):
		return bad("holds a character that git gives a meaning")
	case strings.ToValidUTF8(s, "") != s:
		return bad("is not UTF-8")
	}
	for _, c := range string(r) {
		if c < 0x20 || isHidden(c) {
			return bad("holds a control or invisible character")
		}
	}
	parts := strings.Split(string(r), "/")
	if len(parts) < 3 {
		return bad("want refs/KIND/NAME")
	}
	for _, part := range parts {
		switch {
		case part == "":
			return bad("has an empty component")
		case part[0] == '.' || part[0] == '-':
			return bad("has a component that begins with a dot or a dash")
		case strings.HasSuffix(part, ".lock") || strings.HasSuffix(part, "."):
			return bad(`has a component that ends in "." or ".lock"`)
		}
	}
	return nil
}

// isHidden reports C1 controls, zero-width, bidirectional and other format
// characters, which make a name look like another one.
func isHidden(c rune) bool {
	switch {
	case c >= 0x7f && c <= 0x9f, c == 0xad, c == 0x61c, c == 0x180e, c == 0xfeff:
		return true
	case c >= 0x200b && c <= 0x200f, c >= 0x2028 && c <= 0x202e, c >= 0x2060 && c <= 0x206f:
		return true
	case c >= 0xe0000 && c <= 0xe007f, c >= 0xfff9 && c <= 0xfffb:
		return true
	}
	return false
}

// ObjectType is the type of a git object.
type ObjectType string

// The object types.
const (
	CommitObject ObjectType = "commit"
	TreeObject   ObjectType = "tree"
	BlobObject   ObjectType = "blob"
	TagObject    ObjectType = "tag"
)

func (t ObjectType) check() error {
	switch t {
	case CommitObject, TreeObject, BlobObject, TagObject:
		return nil
	}
	return fmt.Errorf("parse object type %.20q: unknown", string(t))
}

// Mode is the mode of a tree entry, such as 0o100644.
type Mode uint32

// The modes that git writes.
const (
	ModeFile    Mode = 0o100644
	ModeExec    Mode = 0o100755
	ModeSymlink Mode = 0o120000
	ModeGitlink Mode = 0o160000
	ModeTree    Mode = 0o040000
)

func (m Mode) String() string { return fmt.Sprintf("%06o", uint32(m)) }
