//go:build linux

package native

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"confine/internal/sandbox"
)

// processes lists the processes of a sandbox by their ids outside: everything
// below its outer process.
func processes(root int) []int {
	out, queue := []int{}, []int{root}
	for len(queue) > 0 && len(out) < 1<<16 {
		pid := queue[0]
		queue = queue[1:]
		out = append(out, pid)
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			continue
		}
		for _, t := range tasks {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
			if err != nil {
				continue
			}
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					queue = append(queue, n)
				}
			}
		}
	}
	return out
}

// ownProcesses are the first two of a sandbox: outer and init.
const ownProcesses = 2

// watch samples what no cgroup limits here: the memory of all processes when
// there is no cgroup, and the bytes in writable directories. The two don't wait
// for each other: a directory may have a million files.
func (r *run) watch() (stop func()) {
	quit := make(chan struct{})
	var looking sync.WaitGroup
	sample := func(every time.Duration, exceeded func(quit <-chan struct{}) bool, why sandbox.Reason) {
		looking.Add(1)
		go func() {
			defer looking.Done()
			timer := time.NewTimer(every)
			defer timer.Stop()
			for {
				select {
				case <-quit:
					return
				case <-timer.C:
				}
				start := time.Now()
				if exceeded(quit) {
					r.kill(why)
				}
				timer.Reset(pause(every, time.Since(start)))
			}
		}()
	}
	if r.memory != nil {
		sample(memoryEvery, func(<-chan struct{}) bool { return r.memory.exceeded() }, sandbox.OutOfMemory)
	}
	if r.disk != nil {
		sample(diskEvery, r.disk.exceeded, sandbox.DiskFull)
	}
	return func() { close(quit); looking.Wait() }
}

// pause is how long after a look that took so long the next one comes: hundreds of
// processes must not cost their user a processor, and thousands must not buy
// themselves time.
func pause(every, took time.Duration) time.Duration {
	return max(every, min(lookShare*took, every*longestPause))
}

const (
	// lookShare and longestPause: a look takes one part in ten of a processor,
	// unless it would come less often than every fifth time.
	lookShare    = 10
	longestPause = 5

	memoryEvery = 100 * time.Millisecond
	diskEvery   = time.Second
	// fullEvery is every how many looks at the memory nothing is left out.
	fullEvery = 10
)
