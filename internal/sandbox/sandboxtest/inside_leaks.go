//go:build linux

package sandboxtest

import (
	"bytes"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// closedFiles give away kernel memory, its log or other processes. Whether one is
// not there or may not be read depends on how the kernel was built.
const closedFiles = `
/proc/kcore /proc/kmsg /proc/vmallocinfo /proc/slabinfo /proc/pagetypeinfo /proc/timer_list /proc/kpagecount /proc/kpageflags /proc/kpagecgroup
/proc/sysrq-trigger /proc/sched_debug /proc/latency_stats /proc/dynamic_debug /proc/mtrr /proc/self/stack
/dev/mem /dev/kmem /dev/port /dev/kmsg /dev/vda /dev/sda /dev/nvme0n1 /dev/kvm /dev/fuse /dev/net/tun /dev/loop-control /dev/cpu/0/msr
/dev/console /dev/tty0 /dev/tty1 /dev/ttyS0 /dev/vcs /dev/input /dev/snd /dev/dri /dev/vsock /dev/vhost-net /dev/userfaultfd /dev/rtc0 /dev/watchdog /dev/mapper/control
/sys /sys/kernel/debug /sys/kernel/tracing /sys/kernel/security /sys/fs/cgroup /sys/fs/bpf /sys/firmware /sys/class/dmi/id/product_uuid
/etc/machine-id /var/lib/dbus/machine-id /etc/shadow /etc/gshadow /etc/ssh/ssh_host_ed25519_key /etc/krb5.keytab /etc/sudoers
/run/systemd /run/dbus/system_bus_socket /run/docker.sock /var/run/docker.sock /run/containerd/containerd.sock /run/user /var/log /var/lib /boot /root/.ssh /proc/1/environ
`

// addressFiles hold addresses of the kernel or of hardware at the line's begin.
const addressFiles = `/proc/kallsyms /proc/iomem /proc/ioports /proc/modules`

// emptyFiles hold a header of so many lines and then what there is of others.
var emptyFiles = map[string]int{
	"/proc/keys": 0, "/proc/locks": 0, "/proc/sysvipc/shm": 1, "/proc/sysvipc/sem": 1, "/proc/sysvipc/msg": 1,
	"/proc/net/unix": 1, "/proc/net/tcp": 1, "/proc/net/tcp6": 1, "/proc/net/udp": 1, "/proc/net/udp6": 1, "/proc/net/raw": 1, "/proc/net/packet": 1,
	"/proc/net/arp": 1, "/proc/net/route": 1,
}

// tryLeaks reads each of them. Its argument is the name that the sandbox has.
func tryLeaks(args []string) (a Answer) {
	for _, f := range strings.Fields(closedFiles) {
		err := opens(f)
		if r := result(err); r == "ENOENT" || r == "EACCES" || r == "EPERM" || r == "ENXIO" || r == "ENODEV" {
			a.Tries = append(a.Tries, Try{What: f, Result: "closed", Want: "closed"})
			continue
		}
		a.expect(f, err, "closed")
	}
	for _, f := range strings.Fields(addressFiles) {
		a.Tries = append(a.Tries, Try{What: f, Result: addresses(f), Want: "no address"})
	}
	for _, f := range sortedKeys(emptyFiles) {
		b, err := os.ReadFile(f)
		got := "nothing of others"
		n := bytes.Count(b, []byte("\n")) - emptyFiles[f]
		if f == "/proc/locks" {
			// Locks of open files have no owner (-1), and the kernel tells them to
			// everybody: a device, an inode and a range.
			n -= bytes.Count(b, []byte(" -1 "))
		}
		if err == nil && n > 0 {
			got = "entries"
		}
		a.Tries = append(a.Tries, Try{What: f, Result: got, Want: "nothing of others"})
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	got := "the root of its own"
	for _, line := range strings.Fields(string(groups)) {
		if !strings.HasSuffix(line, ":/") {
			got = "a group of the host"
		}
	}
	a.Tries = append(a.Tries, Try{What: "control groups", Result: got, Want: "the root of its own"})
	var u unix.Utsname
	err := unix.Uname(&u)
	name := unix.ByteSliceToString(u.Nodename[:])
	if len(args) > 0 && (args[0] == "" || name == args[0]) && name != "" && len(args[0])+len(name) > 0 {
		name = "its own"
	}
	a.Tries = append(a.Tries, Try{What: "host name", Result: name, Want: "its own"})
	a.neighbour(err)
	return a
}

// opens says whether a file can be opened. Nothing is read, which could wait
// forever, and a device is not even opened: outside, that alone can do something
// (a watchdog starts).
func opens(file string) error {
	if strings.HasPrefix(file, "/dev/") {
		return unix.Access(file, unix.F_OK)
	}
	if file == "/proc/self/stack" { // anybody opens it
		return readable(file)
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// addresses says whether a file tells any.
func addresses(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "no address"
	}
	for _, line := range strings.Split(string(b), "\n") {
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '-' || r == ':' })
		if file == "/proc/modules" && len(fields) > 5 {
			fields = fields[5:]
		}
		// Ports of a PC are fixed and no secret.
		if len(fields) > 0 && file != "/proc/ioports" && strings.Trim(fields[0], "0x") != "" {
			return "addresses"
		}
	}
	return "no address"
}
