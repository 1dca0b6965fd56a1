//go:build linux

package native

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"confine/internal/boundary"
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

// treeMemory sums the memory that the sandbox's processes hold by themselves.
// The first two are confine's own.
func treeMemory(root int) int64 {
	var sum int64
	page := int64(os.Getpagesize())
	for i, pid := range processes(root) {
		if i < 2 {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue
		}
		f := strings.Fields(string(b))
		if len(f) < 3 {
			continue
		}
		resident, _ := strconv.ParseInt(f[1], 10, 64)
		shared, _ := strconv.ParseInt(f[2], 10, 64)
		sum += (resident - shared) * page
	}
	return sum
}

// diskUse sums the blocks of all writable binds, and stops counting beyond enough.
func diskUse(mounts []preparedMount, enough int64) int64 {
	var sum int64
	for _, m := range mounts {
		if m.Kind != boundary.Bind || !m.Writable || !m.dir {
			continue
		}
		root, err := os.OpenRoot(m.Source)
		if err != nil {
			continue
		}
		_ = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if info, err := d.Info(); err == nil {
				if st, ok := info.Sys().(*unix.Stat_t); ok {
					sum += st.Blocks * 512
				} else {
					sum += info.Size()
				}
			}
			if sum > enough {
				return fs.SkipAll
			}
			return nil
		})
		root.Close()
	}
	return sum
}
