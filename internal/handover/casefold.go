package handover

import (
	"strings"

	"confine/internal/gitcmd"
)

// spellings knows how each path and directory of a set of trees is written.
type spellings struct {
	// base are the spellings in the base, old problems of which are not the
	// change's.
	base map[string]bool
	// byFold has every spelling of a folded path, in the base or in any step.
	byFold map[string][]string
	// trees are the full lists of the commits that were looked at.
	trees map[gitcmd.Hash]map[string]bool
}

// loadNames reads the names of the base and adds those of all changes. With them
// most changes need no further look.
func (c *checker) loadNames() error {
	entries, err := c.repo.LsTree(c.ctx, c.report.Base, gitcmd.LsTreeOptions{Recursive: true})
	if err != nil {
		return err
	}
	n := &spellings{base: map[string]bool{}, byFold: map[string][]string{}, trees: map[gitcmd.Hash]map[string]bool{}}
	for _, e := range entries {
		for _, p := range prefixes(e.Path) {
			if !n.base[p] {
				n.base[p] = true
				n.add(p)
			}
		}
	}
	known := map[string]bool{}
	for _, p := range c.changedPaths() {
		for _, prefix := range prefixes(p) {
			if !known[prefix] && !n.base[prefix] {
				known[prefix] = true
				n.add(prefix)
			}
		}
	}
	c.names = n
	return nil
}

func (n *spellings) add(p string) {
	f := Fold(p)
	n.byFold[f] = append(n.byFold[f], p)
}

// prefixes lists a path and the directories above it.
func prefixes(p string) []string {
	var all []string
	for i, c := range p {
		if c == '/' {
			all = append(all, p[:i])
		}
	}
	return append(all, p)
}

// checkCase refuses names that are new and mean the same file or directory as
// another one of the same tree, on a file system that folds case.
func (c *checker) checkCase(s step) error {
	for _, ch := range s.changes {
		if ch.NewHash == "" {
			continue
		}
		for _, p := range prefixes(ch.Path) {
			if c.names.base[p] {
				continue
			}
			for _, other := range c.names.byFold[Fold(p)] {
				if other == p {
					continue
				}
				both, err := c.treeHas(s.tree, other)
				if err != nil {
					return err
				}
				if both {
					c.refuse(Refusal{Rule: RuleCase, Commit: s.commit, Path: ch.Path,
						Detail: "on some file systems it is the same as " + ShowPath(other)})
				}
			}
		}
	}
	return nil
}

// treeHas reads the names of a tree once.
func (c *checker) treeHas(tree gitcmd.Hash, p string) (bool, error) {
	names, ok := c.names.trees[tree]
	if !ok {
		entries, err := c.repo.LsTree(c.ctx, tree, gitcmd.LsTreeOptions{Recursive: true})
		if err != nil {
			return false, err
		}
		names = map[string]bool{}
		for _, e := range entries {
			for _, prefix := range prefixes(e.Path) {
				names[strings.Clone(prefix)] = true
			}
		}
		// One tree at a time: a change can touch hundreds of commits.
		clear(c.names.trees)
		c.names.trees[tree] = names
	}
	return names[p], nil
}
