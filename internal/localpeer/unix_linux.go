package localpeer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// announcement returns the name of the abstract socket that announces the Unix socket with
// that address. It is derived from the socket's name if that is abstract, or from its file.
func announcement(a *net.UnixAddr) (string, error) {
	if strings.HasPrefix(a.Name, "@") || strings.HasPrefix(a.Name, "\x00") {
		const most = 107 - len("@gosdp-listener-") // of a socket's name
		if len(a.Name) > most {
			return "", unix.ENAMETOOLONG
		}
		return "@gosdp-listener-" + a.Name[1:], nil
	}
	var st unix.Stat_t
	if err := unix.Stat(a.Name, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("@gosdp-listener/%x/%x", st.Dev, st.Ino), nil
}

// announceUnix listens, and closes every connection: a dialler only wants to see which process
// the socket belongs to (SO_PEERCRED), which cannot be forged.
func announceUnix(a *net.UnixAddr) (io.Closer, error) {
	name, err := announcement(a)
	if err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: name})
	if err != nil {
		return nil, err
	}
	s := &announcer{ln: ln}
	s.accepting.Go(s.run)
	return s, nil
}

// announcer is the socket and its goroutine.
type announcer struct {
	ln        *net.UnixListener
	accepting sync.WaitGroup
}

func (s *announcer) run() {
	for {
		c, err := s.ln.Accept()
		switch {
		case err == nil:
			c.Close()
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(time.Millisecond) // for example, no descriptor is free
		}
	}
}

// Close ends both.
func (s *announcer) Close() error {
	err := s.ln.Close()
	s.accepting.Wait()
	return err
}

func unixAnnouncer(a *net.UnixAddr) int {
	name, err := announcement(a)
	if err != nil {
		return 0
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if unix.Connect(fd, &unix.SockaddrUnix{Name: name}) != nil {
		return 0
	}
	return peerOf(fd)
}

func unixServer(c *net.UnixConn) (pid int) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	rc.Control(func(fd uintptr) { pid = peerOf(int(fd)) })
	return pid
}

// peerOf returns the process that listened at the other end of the socket.
func peerOf(fd int) int {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}
