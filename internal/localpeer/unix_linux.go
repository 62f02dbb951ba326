package localpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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
	s, err := newAnnouncer(name)
	if err != nil {
		return nil, err
	}
	s.accepting.Go(s.run)
	return s, nil
}

// announcer is the socket and its goroutine.
type announcer struct {
	ln        net.Listener
	accepting sync.WaitGroup
	ending    sync.Once
	over      chan struct{} // closed when Close is called
}

func newAnnouncer(name string) (*announcer, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { refuseRights(int(fd)) }) // accepted sockets inherit that
	}}
	ln, err := config.Listen(context.Background(), "unixpacket", name)
	if err != nil {
		return nil, err
	}
	return &announcer{ln: ln, over: make(chan struct{})}, nil
}

func (s *announcer) run() {
	for {
		c, err := s.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(time.Millisecond) // for example, no descriptor is free
		case !takesRights.Load():
			c.Close()
		default:
			select {
			case closers <- struct{}{}:
				go func() {
					c.Close()
					<-closers
				}()
			case <-s.over:
				go c.Close()
			}
		}
	}
}

// Close ends both. Where the kernel lets others send descriptors, the connections that nobody has
// accepted may hold it up. The name is free before that.
func (s *announcer) Close() error {
	if !takesRights.Load() {
		return s.end()
	}
	done := make(chan error, 1)
	go func() { done <- s.end() }()
	late := time.NewTimer(closeTime)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return nil
	}
}

func (s *announcer) end() error {
	s.ending.Do(func() { close(s.over) })
	err := s.ln.Close()
	s.accepting.Wait()
	return err
}

// closeTime is how long the end of an announcement may take.
const closeTime = 100 * time.Millisecond

func unixAnnouncer(a *net.UnixAddr) int {
	name, err := announcement(a)
	if err != nil {
		return 0
	}
	fd, err := visit(name)
	if err != nil {
		return 0
	}
	defer leave(fd)
	return peerOf(fd)
}

// visit connects to an announcement. It does not wait for that. The caller then calls leave.
func visit(name string) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	refuseRights(fd)
	if takesRights.Load() && !mayClose() {
		err = errBlocked
	} else if err = unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err == nil {
		return fd, nil
	} else if takesRights.Load() {
		<-closers
	}
	unix.Close(fd) // it is not connected
	return -1, err
}

func leave(fd int) {
	if !takesRights.Load() {
		unix.Close(fd)
		return
	}
	go func() {
		unix.Close(fd)
		<-closers
	}()
}

// Any process may connect to an announcement, or announce a socket, and send descriptors. Closing
// one may block for as long as the sender likes: a TCP socket with SO_LINGER and unsent data does.
// Linux 6.16 and later refuse them at the sender. On older kernels goroutines close the sockets, as
// many at a time as closers has room for. While none has, connections to an announcement wait to be
// closed, and no announcement is looked for.

var (
	rightsOption = unix.SO_PASSRIGHTS // tests replace it
	takesRights  atomic.Bool          // a socket could not be told to refuse descriptors
	closers      = make(chan struct{}, 64)
)

func refuseRights(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, rightsOption, 0) != nil {
		takesRights.Store(true)
	}
}

var errBlocked = errors.New("too many closes of sockets blocked by another process")

// mayClose takes room in closers, and reports whether it could. It is not full for long unless
// closes block.
func mayClose() bool {
	select {
	case closers <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(5 * time.Millisecond)
	defer late.Stop()
	select {
	case closers <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

func unixServer(c *net.UnixConn) (pid int) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	rc.Control(func(fd uintptr) { pid = peerOf(int(fd)) })
	return pid
}

func listensUnix(listener syscall.RawConn) (is bool) {
	listener.Control(func(fd uintptr) { is = peerOf(int(fd)) == os.Getpid() })
	return is
}

// peerOf returns the process that listened at the other end of the socket, or on the socket itself if
// that listens.
func peerOf(fd int) int {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}
