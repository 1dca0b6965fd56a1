package handover

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"confine/internal/gitcmd"
	"confine/internal/leak"
)

// checkContent looks at the bytes of all new files, and at everything else that
// would be published with them: messages, names of people, names of files.
func (c *checker) checkContent(commits []gitcmd.Commit) error {
	s := leak.NewScanner(c.rules.KnownSecrets)
	for _, commit := range commits {
		texts := map[string]string{
			"message":   commit.Message,
			"author":    commit.Author.Name + " " + commit.Author.Email,
			"committer": commit.Committer.Name + " " + commit.Committer.Email,
		}
		for _, where := range []string{"message", "author", "committer"} {
			c.reportHits(source{commit: commit.Hash}, "in the "+where, s.Scan(nil, []byte(texts[where])))
		}
	}
	for _, step := range c.steps {
		for _, ch := range step.changes {
			if ch.NewHash != "" {
				hits := s.Scan(nil, []byte(ch.Path))
				for _, h := range hits {
					c.inNames = append(c.inNames, h.Text)
				}
				c.reportHits(source{commit: step.commit, path: ch.Path}, "in the name", hits)
			}
		}
	}
	return c.scanBlobs(s)
}

// scanBlobs reads each new blob once. Sizes are read first, so that a small pack
// of enormous files costs no more than its headers.
func (c *checker) scanBlobs(s *leak.Scanner) error {
	var read []gitcmd.Hash
	var sum int64
	sizes, err := c.repo.Sizes(c.ctx, c.order)
	if err != nil {
		return err
	}
	for i, h := range c.order {
		sum += sizes[i]
		if sizes[i] > c.rules.MaxFileBytes {
			src := c.blobs[h]
			c.refuse(Refusal{Rule: RuleFileBytes, Commit: src.commit, Path: src.path, Field: "handover.max_bytes",
				Detail: fmt.Sprintf("%d bytes, allowed are %d", sizes[i], c.rules.MaxFileBytes)})
			continue
		}
		read = append(read, h)
	}
	if sum > c.rules.MaxBytes {
		c.refuse(Refusal{Rule: RuleBytes, Field: "handover.max_bytes", Detail: fmt.Sprintf("%d bytes of new content, allowed are %d", sum, c.rules.MaxBytes)})
		return nil
	}
	found := map[gitcmd.Hash][]leak.Hit{}
	err = c.repo.ReadObjects(c.ctx, read, 0, func(o gitcmd.Object, content io.Reader) error {
		hits, err := s.ScanReader(content)
		if len(hits) > 0 {
			found[o.Hash] = hits
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.reportBlobs(s, read, found)
}

// reportBlobs reports what is new in a file. What its former version held too is
// published already and only noted: else a file with a test key could never be
// changed.
func (c *checker) reportBlobs(s *leak.Scanner, blobs []gitcmd.Hash, found map[gitcmd.Hash][]leak.Hit) error {
	for _, h := range blobs {
		hits, src := found[h], c.blobs[h]
		if len(hits) == 0 {
			continue
		}
		old, err := c.oldHits(s, src)
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(slices.Clone(hits), func(h leak.Hit) bool { return slices.Contains(old, h) })
		c.reportHits(src, "in the file", fresh)
		if len(fresh) < len(hits) {
			c.note(Refusal{Rule: RuleSecret, Commit: src.commit, Path: src.path, Detail: "what looks like a secret was there in the base already"})
		}
	}
	return nil
}

// oldHits scans the version of a file in the base, if it has one.
func (c *checker) oldHits(s *leak.Scanner, src source) (hits []leak.Hit, err error) {
	entries, err := c.repo.LsTree(c.ctx, c.report.Base, gitcmd.LsTreeOptions{Path: src.path})
	if err != nil || len(entries) != 1 || entries[0].Path != src.path || entries[0].Type != gitcmd.BlobObject {
		return nil, err
	}
	err = c.repo.ReadObjects(c.ctx, []gitcmd.Hash{entries[0].Hash}, 0, func(_ gitcmd.Object, content io.Reader) error {
		hits, err = s.ScanReader(content)
		return err
	})
	return hits, err
}

func (c *checker) reportHits(src source, where string, hits []leak.Hit) {
	for _, h := range hits {
		r := Refusal{Rule: RuleSecret, Commit: src.commit, Path: src.path, Detail: h.Masked() + " " + where}
		if h.Weak {
			c.approve(r)
			continue
		}
		c.refuse(r)
	}
}

// maskNames takes secrets out of the paths of all findings, which are shown to
// more people than the change is.
func (c *checker) maskNames() {
	for _, list := range [][]Refusal{c.report.Refusals, c.report.Approvals, c.report.Notes} {
		for i := range list {
			for _, text := range c.inNames {
				if text != "" {
					list[i].Path = strings.ReplaceAll(list[i].Path, text, "[secret]")
					list[i].Detail = strings.ReplaceAll(list[i].Detail, text, "[secret]")
				}
			}
		}
	}
}
