//go:build linux

package sandboxtest

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketOption is an option that reaches beyond its socket: past routing, the
// owner's limits, other users' interfaces, or into code of the kernel that only
// administrators need.
type socketOption struct {
	name          string
	family, kind  int
	level, option uintptr
	value         []byte
	want          string
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

var socketOptions = []socketOption{
	{"SO_MARK", unix.AF_INET, unix.SOCK_STREAM, unix.SOL_SOCKET, unix.SO_MARK, number(1), "EPERM"},
	{"SO_MARK of UDP", unix.AF_INET6, unix.SOCK_DGRAM, unix.SOL_SOCKET, unix.SO_MARK, number(1), "EPERM"},
	{"SO_PRIORITY", unix.AF_INET, unix.SOCK_DGRAM, unix.SOL_SOCKET, unix.SO_PRIORITY, number(7), "EPERM"},
	{"SO_DEBUG", unix.AF_INET, unix.SOCK_STREAM, unix.SOL_SOCKET, unix.SO_DEBUG, number(1), "EACCES"},
	{"SO_RCVBUFFORCE", unix.AF_INET, unix.SOCK_STREAM, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, number(1 << 20), "EPERM"},
	{"SO_SNDBUFFORCE", unix.AF_UNIX, unix.SOCK_STREAM, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, number(1 << 20), "EPERM"},
	{"SO_PREFER_BUSY_POLL", unix.AF_INET, unix.SOCK_DGRAM, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL, number(1), "EPERM"},
	{"IP_TRANSPARENT", unix.AF_INET, unix.SOCK_STREAM, unix.SOL_IP, unix.IP_TRANSPARENT, number(1), "EPERM"},
	{"IPV6_TRANSPARENT", unix.AF_INET6, unix.SOCK_STREAM, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, number(1), "EPERM"},
	{"IPV6_HOPOPTS", unix.AF_INET6, unix.SOCK_DGRAM, unix.SOL_IPV6, unix.IPV6_HOPOPTS, []byte{0, 0, 1, 4, 0, 0, 0, 0}, "EPERM"},
	{"IPV6_DSTOPTS", unix.AF_INET6, unix.SOCK_DGRAM, unix.SOL_IPV6, unix.IPV6_DSTOPTS, []byte{0, 0, 1, 4, 0, 0, 0, 0}, "EPERM"},
	{"TCP_REPAIR", unix.AF_INET, unix.SOCK_STREAM, unix.SOL_TCP, unix.TCP_REPAIR, number(1), "EPERM"},
	{"NETLINK_LISTEN_ALL_NSID", unix.AF_NETLINK, unix.SOCK_RAW, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, number(1), "EPERM"},
	{"IP_XFRM_POLICY", unix.AF_INET, unix.SOCK_DGRAM, unix.SOL_IP, unix.IP_XFRM_POLICY, make([]byte, 168), "EPERM"},
	{"IPT_SO_SET_REPLACE", unix.AF_INET, unix.SOCK_DGRAM, unix.SOL_IP, 64, make([]byte, 96), "EPERM"},
	{"IP6T_SO_SET_REPLACE", unix.AF_INET6, unix.SOCK_DGRAM, unix.SOL_IPV6, 64, make([]byte, 96), "EPERM"},
}

// initialOnly are those that need a capability in the initial user namespace, so
// that a namespace of one's own is no control of them.
const initialOnly = "SO_DEBUG SO_RCVBUFFORCE SO_SNDBUFFORCE SO_PREFER_BUSY_POLL SIOCSIFMAP SIOCSIFTXQLEN"

// interfaceRequests are ioctls of a socket that change interfaces, routes,
// neighbours or reach another namespace. Each takes a struct ifreq or the like,
// which begins with the name of an interface.
var interfaceRequests = map[string]uintptr{
	"SIOCADDRT": unix.SIOCADDRT, "SIOCDELRT": unix.SIOCDELRT, "SIOCSIFFLAGS": unix.SIOCSIFFLAGS,
	"SIOCSIFADDR": unix.SIOCSIFADDR, "SIOCSIFDSTADDR": unix.SIOCSIFDSTADDR, "SIOCSIFBRDADDR": unix.SIOCSIFBRDADDR,
	"SIOCSIFNETMASK": unix.SIOCSIFNETMASK, "SIOCSIFMETRIC": unix.SIOCSIFMETRIC, "SIOCSIFMTU": unix.SIOCSIFMTU, "SIOCSIFNAME": unix.SIOCSIFNAME,
	"SIOCSIFHWADDR": unix.SIOCSIFHWADDR, "SIOCSIFTXQLEN": unix.SIOCSIFTXQLEN, "SIOCADDMULTI": unix.SIOCADDMULTI, "SIOCDELMULTI": unix.SIOCDELMULTI,
	"SIOCSIFMAP": unix.SIOCSIFMAP, "SIOCDARP": unix.SIOCDARP, "SIOCSARP": unix.SIOCSARP, "SIOCSIFHWBROADCAST": unix.SIOCSIFHWBROADCAST,
	"SIOCGSKNS": unix.SIOCGSKNS,
}

// netlinkChanges are messages of route netlink that change something.
var netlinkChanges = map[string]uint16{
	"RTM_NEWLINK": unix.RTM_NEWLINK, "RTM_DELLINK": unix.RTM_DELLINK, "RTM_SETLINK": unix.RTM_SETLINK, "RTM_NEWADDR": unix.RTM_NEWADDR,
	"RTM_DELADDR": unix.RTM_DELADDR, "RTM_NEWROUTE": unix.RTM_NEWROUTE, "RTM_DELROUTE": unix.RTM_DELROUTE, "RTM_NEWNEIGH": unix.RTM_NEWNEIGH,
	"RTM_NEWRULE": unix.RTM_NEWRULE, "RTM_NEWQDISC": unix.RTM_NEWQDISC, "RTM_NEWTFILTER": unix.RTM_NEWTFILTER, "RTM_NEWNSID": unix.RTM_NEWNSID,
	"RTM_NEWNETCONF": unix.RTM_NEWNETCONF, "RTM_NEWNEXTHOP": unix.RTM_NEWNEXTHOP,
}

// tryCapable makes the attempt that args name with every capability in namespaces
// of its own. The process that verifies can't do that itself: its memory does not
// come along in a fork.
func tryCapable(args []string) (a Answer) {
	cmd := exec.Command("/proc/self/exe", append([]string{ProgramArgument}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	if err == nil {
		a, err = parseAnswer(string(out))
	}
	if err != nil {
		a.try("with capabilities", err)
	}
	return a
}

// tryOptions makes each of them. Its control is the same by a process that has
// every capability in a network namespace of its own.
func tryOptions([]string) (a Answer) {
	for _, o := range socketOptions {
		fd, err := unix.Socket(o.family, o.kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			a.expect(o.name+", its socket", err, "ok")
			continue
		}
		_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), o.level, o.option, bytesPtr(o.value), uintptr(len(o.value)), 0)
		a.expect(o.name, errnoErr(errno), o.want)
		unix.Close(fd)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		a.neighbour(err)
		return a
	}
	defer unix.Close(fd)
	for _, name := range sortedKeys(interfaceRequests) {
		request := make([]byte, 256)
		copy(request, "lo")
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), interfaceRequests[name], bytesPtr(request))
		a.expect(name, errnoErr(errno), "EPERM")
	}
	for _, name := range sortedKeys(netlinkChanges) {
		a.expect(name, netlinkAsk(netlinkChanges[name]), "EPERM")
	}
	list, err := net.Interfaces()
	if err != nil {
		a.neighbour(err)
		return a
	}
	for _, i := range list {
		if a.saw("interface", i.Name); i.Name == "lo" {
			a.Tries[len(a.Tries)-1].Want = "lo"
		}
	}
	a.neighbour(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, 3))
	return a
}

// netlinkAsk sends an empty message of a kind and gives the kernel's answer.
func netlinkAsk(kind uint16) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3})
	const length = unix.NLMSG_HDRLEN + 32
	m := make([]byte, length)
	binary.NativeEndian.PutUint32(m, length)
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return unix.EBADMSG
	}
	if code := int32(binary.NativeEndian.Uint32(reply[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
