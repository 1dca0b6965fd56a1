//go:build unix

package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"confine/internal/codehost"
)

// commentMatter is the front matter of a comment.
type commentMatter struct {
	Author  string `yaml:"author"`
	Created string `yaml:"created"`
	Marker  string `yaml:"marker"`
}

func (h *Host) threadDir(t codehost.Thread) string {
	if t.Pull > 0 {
		return h.path("comments", "pull-"+strconv.Itoa(t.Pull))
	}
	return h.path("comments", "issue-"+strconv.Itoa(t.Issue))
}

// comments reads a thread, oldest first.
func (h *Host) comments(t codehost.Thread, p people) ([]codehost.Comment, error) {
	dir := h.threadDir(t)
	ns, err := numbers(dir, ".md")
	if err != nil {
		return nil, err
	}
	var all []codehost.Comment
	for _, n := range ns {
		path := filepath.Join(dir, numbered(n, ".md"))
		var m commentMatter
		body, changed, err := readMarkdown(path, &m)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since the directory was read
		}
		if err != nil {
			return nil, err
		}
		created, err := parseStamp("created", m.Created, changed.UTC())
		if err == nil && m.Author == "" {
			err = errors.New("author: it is missing")
		}
		if err != nil {
			return nil, &FileError{path, err}
		}
		c := codehost.Comment{
			ID:   strconv.Itoa(n),
			Text: codehost.Text{Author: p.account(m.Author), Body: body, CreatedAt: created, ChangedAt: changed.UTC()},
		}
		if m.Author == h.account {
			// Another's marker would make him the author of what we edit.
			c.Marker = m.Marker
		}
		all = append(all, c)
	}
	return all, nil
}

func encodeComment(m commentMatter, created time.Time, body string) []byte {
	f := newFrontMatter()
	f.text("author", m.Author)
	f.time("created", created)
	f.text("marker", m.Marker)
	return f.with(body)
}

// NewComment is a comment that a person makes.
type NewComment struct {
	Thread       codehost.Thread
	Author, Body string
}

// AddComment adds a comment and returns its id.
func (h *Host) AddComment(ctx context.Context, n NewComment) (string, error) {
	if err := checkName("author", n.Author); err != nil {
		return "", err
	}
	release, err := h.lock(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	if err := h.checkThread(n.Thread); err != nil {
		return "", err
	}
	now := h.now()
	id, err := addNumbered(h.threadDir(n.Thread), ".md", now, func(int) []byte {
		return encodeComment(commentMatter{Author: n.Author}, now, n.Body)
	})
	return strconv.Itoa(id), err
}

// checkThread reports a thread without its issue or pull request.
func (h *Host) checkThread(t codehost.Thread) error {
	dir, kind, n := "issues", "issue", t.Issue
	if t.Pull > 0 {
		dir, kind, n = "pulls", "pull request", t.Pull
	}
	if _, err := os.Lstat(h.path(dir, numbered(n, ".md"))); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &codehost.NotFoundError{Kind: kind, Name: strconv.Itoa(n)}
		}
		return err
	}
	return nil
}

// UpsertComment writes our comment that carries a marker.
func (h *Host) UpsertComment(ctx context.Context, c codehost.CommentEdit) (codehost.Comment, codehost.Result, error) {
	none := codehost.Comment{}
	if err := c.Validate(); err != nil {
		return none, codehost.Result{}, err
	}
	release, err := h.lock(ctx)
	if err != nil {
		return none, codehost.Result{}, err
	}
	defer release()
	p, result, err := h.mayWrite()
	if err != nil || !result.OK() {
		return none, result, err
	}
	if err := h.checkThread(c.Thread); err != nil {
		return none, codehost.Result{}, err
	}
	if c.ExpectedHead != "" {
		pull, err := h.Pull(ctx, c.Thread.Pull)
		if err != nil {
			return none, codehost.Result{}, err
		}
		if pull.HeadCommit != c.ExpectedHead {
			return none, codehost.Result{Outcome: codehost.Moved, Moved: codehost.MovedHead}, nil
		}
	}
	all, err := h.comments(c.Thread, p)
	if err != nil {
		return none, codehost.Result{}, err
	}
	now := h.now()
	comment := codehost.Comment{Marker: c.Marker, Text: codehost.Text{
		Author: p.account(h.account), Body: c.Body, CreatedAt: now.UTC(), ChangedAt: now.UTC(),
	}}
	for _, old := range all {
		if old.Marker != c.Marker {
			continue
		}
		if old.Body == c.Body {
			return old, codehost.Result{Outcome: codehost.Already}, nil
		}
		comment.ID, comment.CreatedAt = old.ID, old.CreatedAt
		data := encodeComment(commentMatter{Author: h.account, Marker: c.Marker}, old.CreatedAt, c.Body)
		err := save(filepath.Join(h.threadDir(c.Thread), old.ID+".md"), data, 0o600, now)
		return comment, codehost.Result{Outcome: codehost.Done}, err
	}
	id, err := addNumbered(h.threadDir(c.Thread), ".md", now, func(int) []byte {
		return encodeComment(commentMatter{Author: h.account, Marker: c.Marker}, now, c.Body)
	})
	comment.ID = strconv.Itoa(id)
	return comment, codehost.Result{Outcome: codehost.Done}, err
}
