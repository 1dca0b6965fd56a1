package engine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"confine/internal/boundary"
	"confine/internal/gate"
	"confine/internal/gitcmd"
	"confine/internal/plaintext"
	"confine/internal/sandbox"
)

// baseMissingError is a base branch that the code host does not have.
type baseMissingError struct{ base gitcmd.Ref }

func (e *baseMissingError) Error() string {
	return fmt.Sprintf("the code host has no branch %q", e.base.BranchName())
}

// agentHint says what would let the agent's command start, in the config's words.
func agentHint(v boundary.View, searchPath, command string, start *sandbox.StartError) string {
	inside, host := findCommand(v, searchPath, command)
	switch {
	case host == "":
		if p := onHost(command); p != "" {
			return fmt.Sprintf("the host has it at %q: add the directory %q to view.ro%s", p, filepath.Dir(p), alsoPath(command))
		}
		return "neither the view nor the host has it: correct agent.command"
	case start.NotExecutable:
		return fmt.Sprintf("the sandbox's user can't execute %q: chmod a+rx it, or put its interpreter first in agent.command", inside)
	}
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return fmt.Sprintf("%q is a link to nowhere: correct it, or agent.command", inside)
	}
	if real != host {
		if seen, ok := inView(v, real); !ok || seen != real {
			return fmt.Sprintf("%q is a link to %q, which is not in the view: add the directory %q to view.ro", inside, real, filepath.Dir(real))
		}
	}
	if name := interpreter(real); name != "" {
		return fmt.Sprintf("the first line of %q names %q, which is not in the view: correct that line, or add the interpreter's directory to view.ro", inside, name)
	}
	return fmt.Sprintf("%q is in the view, and what loads it (its interpreter or dynamic loader) is not: add that one's directory to view.ro", inside)
}

func alsoPath(command string) string {
	if strings.Contains(command, "/") {
		return ""
	}
	return " and to view.path"
}

// findCommand finds a command as the sandbox does. Host is "" if it is not there.
func findCommand(v boundary.View, searchPath, command string) (inside, host string) {
	if strings.Contains(command, "/") {
		if h, ok := inView(v, path.Clean(command)); ok {
			return command, h
		}
		return "", ""
	}
	for _, dir := range filepath.SplitList(searchPath) {
		p := path.Join(dir, command)
		if h, ok := inView(v, p); ok {
			return p, h
		}
	}
	return "", ""
}

// inView is the host's name of what the view shows at a path, if it is a bind and
// there is something. It follows links of the last part only: a hint may err.
func inView(v boundary.View, p string) (string, bool) {
	var best boundary.Mount
	for _, m := range v.Mounts {
		if (p == m.Target || strings.HasPrefix(p, strings.TrimSuffix(m.Target, "/")+"/")) && len(m.Target) > len(best.Target) {
			best = m
		}
	}
	if best.Target == "" || best.Kind != boundary.Bind {
		return "", false
	}
	host := filepath.Join(best.Source, strings.TrimPrefix(p, best.Target))
	_, err := os.Lstat(host)
	return host, err == nil
}

// onHost looks for a command where a shell of the host's would.
func onHost(command string) string {
	candidates := []string{command}
	if !strings.Contains(command, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			candidates = append(candidates, filepath.Join(dir, command))
		}
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode().IsRegular() && filepath.IsAbs(c) {
			return c
		}
	}
	return ""
}

// interpreter is what the first line of a script names, made plain.
func interpreter(file string) string {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 256))
	first, _, _ := bytes.Cut(head, []byte("\n"))
	rest, ok := bytes.CutPrefix(first, []byte("#!"))
	if err != nil || !ok {
		return ""
	}
	words := bytes.Fields(rest)
	if len(words) == 0 {
		return ""
	}
	return plaintext.Line(string(words[0]), 200)
}

// The end of a failed command's output that is shown.
const (
	shownLines = 20
	shownBytes = 8 << 10
	shownLine  = 400
)

// lastLines is the end of an output as plain lines.
func lastLines(b []byte) []string {
	cut := len(b) > shownBytes
	if cut {
		b = b[len(b)-shownBytes:]
		if _, rest, ok := bytes.Cut(b, []byte("\n")); ok {
			b = rest
		}
	}
	lines := []string{}
	for l := range strings.Lines(plaintext.Block(string(b), 2*shownBytes)) {
		lines = append(lines, plaintext.Line(strings.TrimRight(l, "\n"), shownLine))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines[max(0, len(lines)-shownLines):]
}

// outputEnd is the end of what a check wrote.
func outputEnd(o gate.Output) []string {
	if o.Bytes > int64(len(o.Head)+len(o.Tail)) {
		return lastLines([]byte(o.Tail))
	}
	return lastLines([]byte(o.Head + o.Tail))
}
