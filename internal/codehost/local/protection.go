//go:build unix

package local

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"confine/internal/codehost"
	"confine/internal/gitcmd"
)

// hook is the repository's pre-receive hook.
//
//go:embed pre-receive.sh
var hook []byte

// protectionFile is protection.yaml: branch name to what its merges need.
type protectionFile struct {
	Branches map[string]branchRule `yaml:"branches"`
}

type branchRule struct {
	RequiredChecks    []string `yaml:"required_checks"`
	RequiredApprovals int      `yaml:"required_approvals"`
}

// protections reads protection.yaml.
func (h *Host) protections() (map[gitcmd.Ref]branchRule, error) {
	path := h.path("protection.yaml")
	data, _, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file protectionFile
	if err := decodeYAML(data, &file); err != nil {
		return nil, &FileError{path, err}
	}
	rules := map[gitcmd.Ref]branchRule{}
	for name, rule := range file.Branches {
		ref, err := gitcmd.Branch(name)
		if err != nil {
			return nil, &FileError{path, err}
		}
		if rule.RequiredApprovals < 0 {
			return nil, &FileError{path, fmt.Errorf("branch %.100q: required_approvals is negative", name)}
		}
		for _, check := range rule.RequiredChecks {
			// A name that no status can have would never be met.
			if err := (codehost.Status{Commit: zeroCommit, Context: check, State: codehost.Success}).Validate(); err != nil {
				return nil, &FileError{path, fmt.Errorf("branch %.100q: required_checks: %w", name, err)}
			}
		}
		rules[ref] = rule
	}
	return rules, nil
}

// zeroCommit stands for any commit where a status is only checked for its form.
const zeroCommit gitcmd.Hash = "0000000000000000000000000000000000000001"

func encodeProtections(rules map[gitcmd.Ref]branchRule) []byte {
	var b bytes.Buffer
	b.WriteString("# Branches that only a merge changes. After an edit by hand run the protection\n# again (Protect): the hook has its own copy of the list.\nbranches:\n")
	for _, ref := range slices.Sorted(maps.Keys(rules)) {
		checks := make([]string, len(rules[ref].RequiredChecks))
		for i, c := range rules[ref].RequiredChecks {
			checks[i] = scalar(c)
		}
		fmt.Fprintf(&b, "  %s:\n    required_checks: [%s]\n    required_approvals: %d\n",
			scalar(ref.BranchName()), strings.Join(checks, ", "), rules[ref].RequiredApprovals)
	}
	return b.Bytes()
}

// protectedList is what the hook reads: one full ref name a line.
func protectedList(rules map[gitcmd.Ref]branchRule) []byte {
	var b bytes.Buffer
	for _, ref := range slices.Sorted(maps.Keys(rules)) {
		b.WriteString(string(ref) + "\n")
	}
	return b.Bytes()
}

// Protect protects a branch as said, and puts the hook in place.
func (h *Host) Protect(ctx context.Context, p codehost.Protection) error {
	if err := codehost.CheckBranch(p.Branch); err != nil {
		return err
	}
	release, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	rules, err := h.protections()
	if err != nil {
		return err
	}
	if rules == nil {
		rules = map[gitcmd.Ref]branchRule{}
	}
	rules[p.Branch] = branchRule{RequiredChecks: p.RequiredChecks, RequiredApprovals: p.RequiredApprovals}
	return h.writeProtections(rules)
}

// writeProtections writes the list before the hook: a hook without a list
// refuses every push.
func (h *Host) writeProtections(rules map[gitcmd.Ref]branchRule) error {
	for _, dir := range []string{"confine", "hooks"} {
		if err := os.Mkdir(h.path("repo.git", dir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("protect: %w", err)
		}
	}
	now := h.now()
	if err := save(h.path("repo.git", "confine", "protected"), protectedList(rules), 0o600, now); err != nil {
		return err
	}
	if err := save(h.path("repo.git", "hooks", "pre-receive"), hook, 0o700, now); err != nil {
		return err
	}
	return save(h.path("protection.yaml"), encodeProtections(rules), 0o600, now)
}

// Protection reads what protects a branch: not what protection.yaml asks for
// alone, but whether the hook that does it is there, unchanged, and run by git.
func (h *Host) Protection(ctx context.Context, branch gitcmd.Ref) (codehost.Protection, error) {
	p := codehost.Protection{Branch: branch}
	if err := codehost.CheckBranch(branch); err != nil {
		return p, err
	}
	rules, err := h.protections()
	if err != nil {
		return p, err
	}
	rule, ok := rules[branch]
	if !ok {
		return p, nil
	}
	p.RequiredChecks = slices.Clone(rule.RequiredChecks)
	p.RequiredApprovals = rule.RequiredApprovals
	for _, check := range []func(map[gitcmd.Ref]branchRule) error{h.checkHook, h.checkList, h.checkGitConfig} {
		if err := check(rules); err != nil {
			p.Unknown = append(p.Unknown, err.Error())
		}
	}
	if len(p.Unknown) == 0 {
		p.Exists, p.RequirePR, p.BaseCheck = true, true, codehost.BaseLease
	}
	return p, nil
}

func (h *Host) checkHook(map[gitcmd.Ref]branchRule) error {
	path := h.path("repo.git", "hooks", "pre-receive")
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the pre-receive hook is missing")
	}
	if err != nil {
		return fmt.Errorf("the pre-receive hook: %w", err)
	}
	data, _, err := read(path)
	if err != nil {
		return fmt.Errorf("the pre-receive hook: %w", err)
	}
	if !bytes.Equal(data, hook) {
		return errors.New("the pre-receive hook is not the one that confine wrote")
	}
	if info.Mode().Perm()&0o100 == 0 {
		return errors.New("the pre-receive hook is not executable, so git does not run it")
	}
	return nil
}

func (h *Host) checkList(rules map[gitcmd.Ref]branchRule) error {
	data, _, err := read(h.path("repo.git", "confine", "protected"))
	if err != nil {
		return fmt.Errorf("the hook's list of branches: %w", err)
	}
	if !bytes.Equal(data, protectedList(rules)) {
		return errors.New("the hook's list of branches is not that of protection.yaml")
	}
	return nil
}

// gitConfigKeys are all keys that the repository's config may hold: what git
// itself writes, and what makes it stricter. Any other could point git away from
// the hook (core.hooksPath, include.path, receive.procReceiveRefs, a worktree
// config).
var gitConfigKeys = map[string]bool{
	"core.repositoryformatversion": true, "core.filemode": true, "core.bare": true,
	"core.ignorecase": true, "core.precomposeunicode": true, "core.symlinks": true,
	"core.sharedrepository": true, "core.logallrefupdates": true,
	"extensions.objectformat": true, "extensions.refstorage": true,
	"gc.auto": true, "receive.denynonfastforwards": true, "receive.denydeletes": true, "receive.fsckobjects": true,
}

func (h *Host) checkGitConfig(map[gitcmd.Ref]branchRule) error {
	data, _, err := read(h.path("repo.git", "config"))
	if err != nil {
		return fmt.Errorf("the repository's config: %w", err)
	}
	return checkConfigText(string(data))
}

// checkConfigText holds a git config to gitConfigKeys. It reads the plainest
// form only (one `[section]` or `key = value` a line) and refuses the rest.
func checkConfigText(text string) error {
	section := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		bad := func() error {
			return fmt.Errorf("the repository's config, line %d: %.80q is not known to leave the hook in force", i+1, line)
		}
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			name, ok := strings.CutSuffix(line[1:], "]")
			if !ok || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz") != "" {
				return bad()
			}
			section = strings.ToLower(name)
		default:
			key, value, _ := strings.Cut(line, "=")
			if !gitConfigKeys[section+"."+strings.ToLower(strings.TrimSpace(key))] || strings.ContainsAny(value, "\\\"#;") {
				return bad()
			}
		}
	}
	return nil
}
