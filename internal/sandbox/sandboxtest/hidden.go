//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/sandbox"
)

// probeInitHidden looks from outside at the processes above a command. Inside,
// each of several layers hides them, so that no attempt there tells one from the
// other. The kernel shows the /proc files of a process that no other one of its
// user may look into as root's.
func probeInitHidden(ctx context.Context, h *Host) (outcome, error) {
	_, b, err := h.workspace("hidden", nil)
	if err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	word := "hidden-" + filepath.Base(h.Dir)
	ready := &waiter{c: make(chan struct{})}
	r, err := h.Driver.Start(ctx, sandbox.Spec{
		Boundary: b, Args: []string{"bash", "-c", "echo ready; read x", word}, Stdin: blockedReader{ctx}, Stdout: ready,
	})
	if err != nil {
		return outcome{}, err
	}
	defer func() { r.Kill(); r.Wait() }()
	select {
	case <-ready.c:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	chain, err := above(word)
	if err != nil {
		return outcome{}, err
	}
	uid := func(pid int) (uint32, error) {
		var st unix.Stat_t
		err := unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &st)
		return st.Uid, err
	}
	command, err := uid(chain[0])
	var a Answer
	for _, pid := range chain[1:] {
		switch owner, err := uid(pid); {
		case errors.Is(err, unix.ENOENT) || err == nil && owner == 0:
			// A /proc of the host that hides what can't be traced hides it whole.
			a.saw("process", "closed")
		case err != nil:
			a.try("process", err)
		default:
			a.saw(fmt.Sprintf("process %d above the command", len(a.Tries)+1), fmt.Sprintf("open to user %d", owner))
		}
	}
	a.neighbour(err)
	o := a.judge(fmt.Sprintf("the command itself is open to its user %d", command), err == nil && command != 0, "closed")
	return o, nil
}

// above is the process with word in its command line and those above it, up to
// this one, which is not in it.
func above(word string) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(text, []byte("\x00"+word+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, err
		}
		var chain []int
		for p := pid; p > 1; {
			if p == os.Getpid() {
				return chain, nil
			}
			chain = append(chain, p)
			if p, err = parent(p); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.New("find the sandbox's command: it is not below this process")
}

func parent(pid int) (int, error) {
	// Not /proc/PID/stat, in which a program's name can be anything.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if v, ok := strings.CutPrefix(line, "PPid:\t"); ok {
			return strconv.Atoi(v)
		}
	}
	return 0, fmt.Errorf("read status of process %d: no parent", pid)
}
