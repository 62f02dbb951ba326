package adopt

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// socketOptions returns the options of the socket of this process that has a local address.
func socketOptions(t *testing.T, local net.Addr) string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		name, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		in, ok := name.(*unix.SockaddrInet4)
		if !ok || (&net.TCPAddr{IP: in.Addr[:], Port: in.Port}).String() != local.String() {
			continue
		}
		text := "socket:"
		for _, o := range []struct {
			name       string
			level, opt int
		}{
			{"nodelay", unix.IPPROTO_TCP, unix.TCP_NODELAY},
			{"keepalive", unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			{"idle", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
			{"interval", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
			{"count", unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
			{"user timeout", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
		} {
			value, err := unix.GetsockoptInt(fd, o.level, o.opt)
			if err != nil {
				return err.Error()
			}
			text += fmt.Sprintf(" %s %d", o.name, value)
		}
		return text
	}
	t.Errorf("no socket is at %v", local)
	return ""
}

// bound returns a socket that has a port and does not listen yet.
func bound(t *testing.T) (fd int, at *unix.SockaddrInet4) {
	t.Helper()
	fd = socket(t)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return fd, name.(*unix.SockaddrInet4)
}

func socket(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// refused returns an address that nobody listens on.
func refused(t *testing.T) string {
	t.Helper()
	_, at := bound(t)
	return fmt.Sprintf("127.0.0.1:%d", at.Port)
}

// stallable returns a listener, and a function that fills its backlog: a connection is then neither made nor
// refused. Nobody must call Accept after that.
func stallable(t *testing.T) (listener net.Listener, stall func()) {
	t.Helper()
	fd, at := bound(t)
	require.NoError(t, unix.Listen(fd, 0))
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(again), "listener")
	defer file.Close()
	listener, err = net.FileListener(file)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener, func() {
		t.Helper()
		for range 4 {
			if err := unix.Connect(socket(t), at); err != nil {
				require.ErrorIs(t, err, unix.EINPROGRESS)
			}
		}
	}
}
