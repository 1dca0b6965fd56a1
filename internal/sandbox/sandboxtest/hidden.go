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
	"time"

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
	command := look(chain[0])
	var a Answer
	for i, pid := range chain[1:] {
		var seen string
		// The one that forked the other may still be on its way to rest.
		for range 40 {
			if seen = look(pid); seen == closed {
				break
			}
			time.Sleep(25 * time.Millisecond)
		}
		if seen != closed {
			seen = fmt.Sprintf("%s, %d above the command", seen, i+1)
		}
		a.saw("process", seen)
	}
	a.neighbour(nil)
	return a.judge("the command itself is "+command, strings.HasPrefix(command, "open to user ") && command != "open to user 0", closed), nil
}

const closed = "closed and without capabilities"

// look says whether other processes of its user may look into a process, and
// whether it could do more than they.
func look(pid int) string {
	var st unix.Stat_t
	// A /proc of the host that hides what can't be traced hides it whole.
	if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &st); errors.Is(err, unix.ENOENT) {
		return closed
	} else if err != nil {
		return result(err)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		v, err := status(pid, set)
		if err != nil {
			return err.Error()
		}
		if strings.Trim(v, "0") != "" {
			return set + " " + v
		}
	}
	if st.Uid != 0 {
		return fmt.Sprintf("open to user %d", st.Uid)
	}
	return closed
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
		for p := pid; p > 0; { // confine may be a container's PID 1
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
	v, err := status(pid, "PPid")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(v)
}

// status is a line of a process's status. Not of its stat, in which a program's
// name can be anything.
func status(pid int, key string) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if v, ok := strings.CutPrefix(line, key+":\t"); ok {
			return v, nil
		}
	}
	return "", fmt.Errorf("read status of process %d: no %s", pid, key)
}
