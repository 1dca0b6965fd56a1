package gitcmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Identity is the name and address in a commit.
type Identity struct {
	Name, Email string
	When        time.Time
}

// check refuses what git would strip or what would break the commit's header.
func (i Identity) check() error {
	if strings.TrimSpace(i.Name) == "" || strings.TrimSpace(i.Email) == "" || i.When.IsZero() {
		return fmt.Errorf("write identity: name, email and time are needed")
	}
	for _, s := range []string{i.Name, i.Email} {
		if strings.ContainsAny(s, "<>\n\x00") || len(s) > 256 {
			return fmt.Errorf("write identity %.60q: holds a character that a commit can't", s)
		}
	}
	return nil
}

// date is the form that git reads without guessing.
func (i Identity) date() string { return "@" + strconv.FormatInt(i.When.Unix(), 10) + " +0000" }

// Commit is a commit object. Author, Committer and Message are untrusted bytes;
// the time of an Identity is zero where the commit's can't be read.
type Commit struct {
	Hash              Hash
	Tree              Hash
	Parents           []Hash
	Author, Committer Identity
	// Headers are the names of all other header lines, such as gpgsig.
	Headers []string
	Message string
}

// ReadCommit reads a commit of at most maxBytes bytes (0: 1 MiB).
func (r *Repo) ReadCommit(ctx context.Context, h Hash, maxBytes int64) (Commit, error) {
	raw, err := r.CatFile(ctx, h, CatOptions{Type: CommitObject, Max: maxBytes})
	if err != nil {
		return Commit{}, err
	}
	c, err := ParseCommit(raw)
	if err != nil {
		return Commit{}, fmt.Errorf("read commit %s: %w", h.Short(), err)
	}
	c.Hash = h
	return c, r.checkHash(append([]Hash{c.Tree}, c.Parents...)...)
}

// ParseCommit reads the bytes of a commit object. Bytes are hostile.
func ParseCommit(raw []byte) (Commit, error) {
	var c Commit
	header, message, ok := strings.Cut(string(raw), "\n\n")
	if !ok {
		header, message = strings.TrimSuffix(string(raw), "\n"), ""
	}
	c.Message = message
	for n, line := range strings.Split(header, "\n") {
		if strings.HasPrefix(line, " ") {
			continue // the rest of a header of several lines
		}
		key, value, _ := strings.Cut(line, " ")
		var err error
		switch {
		case key == "tree" && n == 0:
			c.Tree, err = ParseHash(value)
		case key == "parent" && n > 0 && n == 1+len(c.Parents):
			var p Hash
			p, err = ParseHash(value)
			c.Parents = append(c.Parents, p)
		case key == "author":
			c.Author = parseIdentity(value)
		case key == "committer":
			c.Committer = parseIdentity(value)
		case key == "tree" || key == "parent":
			err = fmt.Errorf("parse commit: header %.40q is out of place", line)
		default:
			c.Headers = append(c.Headers, key)
		}
		if err != nil {
			return Commit{}, err
		}
	}
	if c.Tree == "" {
		return Commit{}, fmt.Errorf("parse commit: no tree")
	}
	return c, nil
}

// parseIdentity reads "Name <email> SECONDS ZONE", and what it can of anything
// else.
func parseIdentity(value string) Identity {
	open := strings.LastIndex(value, " <")
	if open < 0 {
		open = strings.IndexByte(value, '<') - 1
	}
	end := strings.LastIndexByte(value, '>')
	if open < 0 || end < open {
		return Identity{Name: value}
	}
	id := Identity{Name: strings.TrimSpace(value[:open]), Email: strings.TrimLeft(value[open:end], " <")}
	if fields := strings.Fields(value[end+1:]); len(fields) > 0 {
		// The bounds keep time.Time in the years that RFC 3339 can write.
		if s, err := strconv.ParseInt(fields[0], 10, 64); err == nil && s > -62135596800 && s < 253402300800 {
			id.When = time.Unix(s, 0).UTC()
		}
	}
	return id
}

// NewCommit describes a commit to be written.
type NewCommit struct {
	Tree              Hash
	Parents           []Hash
	Author, Committer Identity
	Message           string
}

// CommitTree writes a commit object and returns its id. No ref changes.
func (r *Repo) CommitTree(ctx context.Context, c NewCommit) (Hash, error) {
	if err := r.checkHash(append([]Hash{c.Tree}, c.Parents...)...); err != nil {
		return "", err
	}
	for _, id := range []Identity{c.Author, c.Committer} {
		if err := id.check(); err != nil {
			return "", err
		}
	}
	if strings.ContainsRune(c.Message, 0) || strings.ToValidUTF8(c.Message, "") != c.Message {
		return "", fmt.Errorf("write commit: the message holds a NUL or is not UTF-8")
	}
	args := []string{}
	for _, p := range c.Parents {
		args = append(args, "-p", string(p))
	}
	args = append(args, "-F", "-", "--end-of-options", string(c.Tree))
	return r.hashOutput(ctx, command{op: "commit-tree", args: args, stdin: strings.NewReader(c.Message), env: []string{
		"GIT_AUTHOR_NAME=" + c.Author.Name, "GIT_AUTHOR_EMAIL=" + c.Author.Email, "GIT_AUTHOR_DATE=" + c.Author.date(),
		"GIT_COMMITTER_NAME=" + c.Committer.Name, "GIT_COMMITTER_EMAIL=" + c.Committer.Email, "GIT_COMMITTER_DATE=" + c.Committer.date(),
	}})
}

// hashOutput runs a command that prints one object id.
func (r *Repo) hashOutput(ctx context.Context, c command) (Hash, error) {
	out, _, err := r.output(ctx, c)
	if err != nil {
		return "", err
	}
	h := Hash(strings.TrimSuffix(string(out), "\n"))
	if err := r.checkHash(h); err != nil {
		return "", fmt.Errorf("git %s: %w", c.op, err)
	}
	return h, nil
}
