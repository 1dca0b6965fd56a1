//go:build linux

package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// unixKinds are the types of Unix sockets, and unixVerbs the ways to reach one.
var unixKinds = []struct {
	name string
	kind int
}{{"stream", unix.SOCK_STREAM}, {"dgram", unix.SOCK_DGRAM}, {"seqpacket", unix.SOCK_SEQPACKET}}

var unixVerbs = []string{"connect", "sendto", "sendmsg", "sendmmsg", "sendmsg with a descriptor"}

// reach makes one attempt at a socket. A connection-less verb is of datagrams
// only; the others connect first, and then send by it.
func reach(kind int, verb, name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrUnix{Name: name}
	var dest unix.Sockaddr = to
	if verb == "connect" || kind != unix.SOCK_DGRAM {
		if err := unix.Connect(fd, to); err != nil {
			return err
		}
		dest = nil
	}
	switch verb {
	case "sendto":
		if dest == nil {
			return unix.Send(fd, []byte("x"), unix.MSG_NOSIGNAL)
		}
		return unix.Sendto(fd, []byte("x"), unix.MSG_NOSIGNAL, dest)
	case "sendmsg":
		return unix.Sendmsg(fd, []byte("x"), nil, dest, unix.MSG_NOSIGNAL)
	case "sendmsg with a descriptor":
		return unix.Sendmsg(fd, []byte("x"), unix.UnixRights(0), dest, unix.MSG_NOSIGNAL)
	case "sendmmsg":
		return sendMany(fd, name, dest != nil)
	}
	return nil
}

// sendMany is sendmmsg of one message.
func sendMany(fd int, name string, addressed bool) error {
	data := []byte("x")
	iov := make([]byte, 16)
	putPtr(iov, bytesPtr(data))
	putPtr(iov[8:], uintptr(len(data)))
	m := make([]byte, 64) // struct mmsghdr
	if addressed {
		address := make([]byte, 110) // struct sockaddr_un
		address[0] = unix.AF_UNIX
		copy(address[2:], name)
		length := 2 + len(name)
		if name[0] == '@' {
			address[2] = 0
		} else {
			length++
		}
		putPtr(m, bytesPtr(address))
		putPtr(m[8:], uintptr(length))
	}
	putPtr(m[16:], bytesPtr(iov))
	putPtr(m[24:], 1)
	_, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), bytesPtr(m), 1, unix.MSG_NOSIGNAL, 0, 0)
	return errnoErr(errno)
}

// listenAll makes sockets of all types, at name with the type's name after it.
func listenAll(name string) (stop func(), err error) {
	var fds []int
	stop = func() {
		for i, fd := range fds {
			unix.Close(fd)
			if name[0] != '@' {
				_ = os.Remove(name + "-" + unixKinds[i].name)
			}
		}
	}
	for _, k := range unixKinds {
		fd, err := unix.Socket(unix.AF_UNIX, k.kind|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			fds = append(fds, fd)
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: name + "-" + k.name})
		}
		if err == nil && k.kind != unix.SOCK_DGRAM {
			err = unix.Listen(fd, 64)
		}
		if err == nil && name[0] != '@' {
			err = os.Chmod(name+"-"+k.name, 0o666)
		}
		if err != nil {
			stop()
			return func() {}, err
		}
	}
	return stop, nil
}

// tryUnixVerbs reaches sockets outside by every type and verb. Its arguments are
// the errno that holds and the sockets' names.
func tryUnixVerbs(args []string) (a Answer) {
	want := args[0]
	all := func(name string, each func(string, error)) {
		for _, k := range unixKinds {
			for _, verb := range unixVerbs {
				each(k.name+" "+verb+" "+name, reach(k.kind, verb, name+"-"+k.name))
			}
		}
	}
	for _, name := range args[1:] {
		all(name, func(what string, err error) { a.expect(what, err, want) })
	}
	// Its own it reaches by all of them.
	a.neighbour(nil)
	for _, own := range []string{"/tmp/own-" + fmt.Sprint(time.Now().UnixNano()), "@own-" + fmt.Sprint(os.Getpid())} {
		stop, err := listenAll(own)
		if err != nil {
			a.neighbour(err)
			return a
		}
		all(own, func(what string, err error) {
			if err != nil && a.Neighbour == "ok" {
				a.Neighbour = what + ": " + result(err)
			}
		})
		stop()
	}
	if err := passOwn(); err != nil {
		a.neighbour(err)
	}
	return a
}

// passOwn passes a descriptor and true credentials between own processes' sockets.
func passOwn() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(pair[0]), nil, 0); err != nil {
		return err
	}
	oob := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(pair[1], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("no descriptor came")
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err == nil {
		unix.Close(fds[0])
	}
	return err
}

// tryCredentials claims to be others in a message, which a service may believe.
func tryCredentials([]string) (a Answer) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		a.neighbour(err)
		return a
	}
	own := unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())}
	say := func(c unix.Ucred) error { return unix.Sendmsg(pair[0], []byte("x"), unix.UnixCredentials(&c), nil, 0) }
	for _, c := range []struct {
		what  string
		claim unix.Ucred
	}{
		{"another user", unix.Ucred{Pid: own.Pid, Uid: own.Uid + 1, Gid: own.Gid}},
		{"another group", unix.Ucred{Pid: own.Pid, Uid: own.Uid, Gid: own.Gid + 1}},
		{"init", unix.Ucred{Pid: 1, Uid: own.Uid, Gid: own.Gid}},
	} {
		a.try("credentials of "+c.what, say(c.claim))
	}
	a.neighbour(say(own))
	return a
}
