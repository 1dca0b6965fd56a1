//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"confine/internal/boundary"
	"confine/internal/sandbox"
)

// exhaustion is one resource and what ends the taking of it: an errno that the
// taker sees, or the reason why its run ends. The limits are small, so that the
// proof costs the machine little.
type exhaustion struct {
	kind    string
	stopped []string
}

var exhaustions = []exhaustion{
	{"processes", []string{"EAGAIN"}},
	{"descriptors", []string{"EMFILE"}},
	{"memory", []string{string(sandbox.OutOfMemory)}},
	{"page tables", []string{string(sandbox.OutOfMemory)}},
	{"files in memory", []string{string(sandbox.OutOfMemory), "ENOSPC"}},
	{"memory files", []string{string(sandbox.OutOfMemory), "EMFILE"}},
	{"files in /tmp", []string{string(sandbox.OutOfMemory), "ENOSPC"}},
	{"files in /run", []string{string(sandbox.OutOfMemory), "ENOSPC"}},
	{"inodes of /run", []string{"ENOSPC", string(sandbox.OutOfMemory)}},
	{"disk", []string{string(sandbox.DiskFull)}},
	{"file size", []string{"EFBIG"}},
	{"pipes", []string{"EMFILE", "EPERM", string(sandbox.OutOfMemory)}},
	{"socket buffers", []string{"EMFILE", string(sandbox.OutOfMemory)}},
	{"descriptors under way", []string{"ETOOMANYREFS", "EMFILE"}},
	{"inotify instances", []string{"EMFILE", "ENOSPC"}},
	{"terminals", []string{"ENOSPC", "EMFILE"}},
	{"message queues", []string{"ENOSPC", "EMFILE", "ENOMEM"}},
	{"shared segments", []string{"ENOSPC", string(sandbox.OutOfMemory)}},
	{"semaphores", []string{string(sandbox.OutOfMemory)}},
	{"System V queues", []string{"ENOSPC", "ENOMEM", string(sandbox.OutOfMemory)}},
	{"servers", []string{"EMFILE"}},
	{"timers", []string{"EAGAIN"}},
	{"signals under way", []string{"EAGAIN"}},
	{"locks", []string{"EMFILE", "ENOLCK", string(sandbox.OutOfMemory)}},
}

func exhaustionProbes() []Probe {
	var all []Probe
	for _, e := range exhaustions {
		all = append(all, Probe{
			Name: "exhaust-" + strings.ReplaceAll(strings.ReplaceAll(e.kind, " ", "-"), "/", ""), Group: "exhaustion",
			Expected: "taking all " + e.kind + " ends at a limit (" + strings.Join(e.stopped, " or ") + "), and a sandbox beside it works on",
			run:      e.run,
		})
	}
	return all
}

// small are the limits of the one that takes.
func small(l *boundary.Limits) {
	*l = boundary.Limits{Memory: 128 << 20, Pids: 400, Files: 256, FileSize: 64 << 20, Disk: 24 << 20, Output: 1 << 20, Time: 40 * time.Second}
}

// run starts an innocent sandbox, which does its work; then the one that takes;
// then has the innocent do it again while all is taken.
func (e exhaustion) run(ctx context.Context, h *Host) (outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := strings.ReplaceAll(strings.ReplaceAll(e.kind, " ", "-"), "/", "")
	_, b, err := h.workspace("innocent-"+name, nil)
	if err != nil {
		return outcome{}, err
	}
	innocent, err := h.start(ctx, b, "innocent", "waits")
	if err != nil {
		return outcome{}, err
	}
	defer innocent.end()
	if err := innocent.told(ctx, &innocent.errs); err != nil {
		return outcome{}, fmt.Errorf("innocent sandbox: %w", err)
	}
	_, b, err = h.workspace("taker-"+name, nil)
	if err != nil {
		return outcome{}, err
	}
	small(&b.Limits)
	if e.kind == "processes" {
		b.Limits.Pids = 48
	}
	b.Identity.HostUID, b.Identity.HostGID = b.Identity.HostUID+1, b.Identity.HostGID+1 // another run's
	taker, err := h.start(ctx, b, "exhaust", e.kind, "40")
	if err != nil {
		return outcome{}, err
	}
	defer taker.end()
	heldErr := taker.told(ctx, &taker.out)
	if heldErr == nil && len(e.stopped) == 1 && e.stopped[0] == string(sandbox.OutOfMemory) {
		// What looks from time to time needs its time.
		select {
		case <-taker.done:
			heldErr = errEnded
		case <-time.After(10 * time.Second):
		}
	}
	innocent.stdin.Close()
	exit := innocent.wait()
	if !exit.Success() {
		return outcome{}, fmt.Errorf("innocent sandbox ended: %s, status %d: %.300q", exit.Reason, exit.Status, innocent.errs.text.String())
	}
	work, err := parseAnswer(innocent.out.text.String())
	if err != nil {
		return outcome{}, err
	}
	half := len(work.Tries) / 2
	before := Answer{Tries: work.Tries[:half], Neighbour: "ok"}.judge("", true)
	o := Answer{Tries: work.Tries[half:], Neighbour: "ok"}.judge(fmt.Sprintf("before, the sandbox beside it did all of its work (%s)", before.observed), before.held)
	o.observed = "beside it: " + o.observed
	stopped := ""
	line, _, _ := strings.Cut(taker.out.text.String(), "\n")
	if errors.Is(heldErr, errEnded) {
		stopped = string(taker.wait().Reason)
	} else if heldErr != nil {
		return o, heldErr
	} else if a, err := parseAnswer(line); err != nil {
		return o, err
	} else if len(a.Tries) == 2 {
		stopped = a.Tries[0].Result
		o.control += "; taken: " + a.Tries[1].Result
	}
	held := false
	for _, want := range e.stopped {
		held = held || stopped == want
	}
	o.held = o.held && held
	o.observed = "stopped by " + stopped + "; " + o.observed
	return o, nil
}

var errEnded = errors.New("it ended")

// beside is a running probe.
type beside struct {
	running   sandbox.Running
	stdin     *io.PipeWriter
	out, errs firstLine
	exit      chan sandbox.Exit
	ended     *sandbox.Exit
	done      chan struct{}
}

// firstLine is output whose first line can be waited for.
type firstLine struct {
	text bytes.Buffer
	c    chan struct{}
	told bool
}

func (f *firstLine) Write(p []byte) (int, error) {
	f.text.Write(p)
	if !f.told && bytes.Contains(p, []byte("\n")) {
		f.told = true
		close(f.c)
	}
	return len(p), nil
}

func (h *Host) start(ctx context.Context, b boundary.Boundary, args ...string) (*beside, error) {
	s := &beside{done: make(chan struct{})}
	s.out.c, s.errs.c = make(chan struct{}), make(chan struct{})
	var stdin *io.PipeReader
	stdin, s.stdin = io.Pipe()
	b.View.Mounts = append(b.View.Mounts, boundary.Mount{Kind: boundary.Bind, Source: h.Program, Target: programInside})
	r, err := h.Driver.Start(ctx, sandbox.Spec{
		Boundary: b, Args: append([]string{programInside, ProgramArgument}, args...), Stdin: stdin, Stdout: &s.out, Stderr: &s.errs,
	})
	if err != nil {
		return nil, err
	}
	s.running = r
	go func() {
		e := r.Wait()
		s.ended = &e
		close(s.done)
	}()
	return s, nil
}

// told waits for a line of out.
func (s *beside) told(ctx context.Context, out *firstLine) error {
	select {
	case <-out.c:
		return nil
	case <-s.done:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *beside) wait() sandbox.Exit {
	<-s.done
	return *s.ended
}

func (s *beside) end() {
	s.stdin.Close()
	s.running.Kill()
	<-s.done
}
