package localpeer

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestUnixAnnouncer has sockets in the file system, by two names, and abstract ones.
func TestUnixAnnouncer(t *testing.T) { onEachKernel(t, testUnixAnnouncer) }

func testUnixAnnouncer(t *testing.T) {
	dir := t.TempDir()
	for _, v := range [][2]string{
		{filepath.Join(dir, "s"), filepath.Dir(dir) + "/./" + filepath.Base(dir) + "/s"},
		{"@gosdp-test-" + filepath.Base(dir), "@gosdp-test-" + filepath.Base(dir)},
	} {
		at, also := &net.UnixAddr{Net: "unix", Name: v[0]}, &net.UnixAddr{Net: "unix", Name: v[1]}
		assert.Zero(t, UnixAnnouncer(at))
		ln, err := net.ListenUnix("unix", at)
		require.NoError(t, err)
		assert.Zero(t, UnixAnnouncer(at), "it is plain")
		a, err := AnnounceUnix(at)
		require.NoError(t, err)
		assert.Equal(t, os.Getpid(), UnixAnnouncer(at))
		assert.Equal(t, os.Getpid(), UnixAnnouncer(also))
		_, err = AnnounceUnix(at)
		assert.Error(t, err, "it is another's")
		for range 300 { // more than wait for anybody to accept them
			require.Equal(t, os.Getpid(), UnixAnnouncer(at))
		}
		assert.NoError(t, a.Close())
		assert.Error(t, a.Close())
		assert.Zero(t, UnixAnnouncer(at))
		ln.Close()
	}
	_, err := AnnounceUnix(&net.UnixAddr{Net: "unix", Name: "@" + strings.Repeat("x", 100)})
	assert.Error(t, err)
	_, err = AnnounceUnix(&net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "missing")})
	assert.Error(t, err)
}

// TestUnixDialler has the server see who connects.
func TestUnixDialler(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer ln.Close()
	for _, local := range []*net.UnixAddr{nil, UnixDialler(), UnixDialler()} {
		c, err := net.DialUnix("unix", local, ln.Addr().(*net.UnixAddr))
		require.NoError(t, err)
		defer c.Close()
		s, err := ln.Accept()
		require.NoError(t, err)
		defer s.Close()
		assert.Equal(t, os.Getpid(), UnixServer(c))
		assert.Equal(t, local != nil, IsUnixDialler(s.RemoteAddr().(*net.UnixAddr)))
	}
}

// onEachKernel runs a test here, and as on a kernel before 6.16, which does not refuse descriptors.
func onEachKernel(t *testing.T, test func(t *testing.T)) {
	t.Run("this kernel", test)
	t.Run("an old kernel", func(t *testing.T) {
		was := takesRights.Load()
		rightsOption = 0x7FFF
		defer func() {
			require.Eventually(t, func() bool { return len(closers) == 0 }, time.Minute, time.Millisecond)
			rightsOption = unix.SO_PASSRIGHTS
			takesRights.Store(was)
		}()
		test(t)
	})
}

// lingers sends a TCP socket whose last close blocks until release is called, and closes its own.
// The kernel must refuse it at the sender if it can.
func lingers(t *testing.T, to int) (release func()) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	at := ln.Addr().(*net.TCPAddr)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}))
	require.NoError(t, unix.SetNonblock(fd, true))
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 1<<20))
	}
	require.Equal(t, unix.EAGAIN, err)
	require.NoError(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}))
	err = unix.Sendmsg(to, []byte{1}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	if takesRights.Load() {
		require.NoError(t, err)
	} else {
		require.Equal(t, unix.EPERM, err)
		ln.Close() // nobody has accepted the connection, so that it is reset
	}
	unix.Close(fd)
	return func() { ln.Close() }
}

// soon requires that a function does not wait for a socket that lingers.
func soon(t *testing.T, does func()) {
	t.Helper()
	begin := time.Now()
	does()
	assert.Less(t, time.Since(begin), 40*time.Second)
}

// TestAnnouncementTakesNoDescriptor: a process that connects to an announcement does not hold up its end,
// whether or not its connection has been accepted by then.
func TestAnnouncementTakesNoDescriptor(t *testing.T) {
	const name = "@gosdp-test-lingers"
	for _, accepted := range []bool{false, true} {
		onEachKernel(t, func(t *testing.T) {
			s, err := newAnnouncer(name)
			require.NoError(t, err)
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			defer unix.Close(fd)
			require.NoError(t, unix.Connect(fd, &unix.SockaddrUnix{Name: name}))
			release := lingers(t, fd)
			defer release()
			if accepted {
				s.accepting.Go(s.run)
				unix.Read(fd, make([]byte, 1)) // until it is closed
			}
			soon(t, func() { s.Close() })
			again, err := newAnnouncer(name)
			require.NoError(t, err, "the name is free")
			again.Close()
			release()
		})
	}
}

// TestVisitTakesNoDescriptor: a process that announces a socket does not hold up programs that dial it.
func TestVisitTakesNoDescriptor(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		ln, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(ln)
		require.NoError(t, unix.Bind(ln, &unix.SockaddrUnix{Name: "@gosdp-test-visited"}))
		require.NoError(t, unix.Listen(ln, 1))
		fd, err := visit("@gosdp-test-visited")
		require.NoError(t, err)
		came, _, err := unix.Accept(ln)
		require.NoError(t, err)
		defer unix.Close(came)
		release := lingers(t, came)
		defer release()
		soon(t, func() { leave(fd) })
		release()
	})
}

// TestVisitWhileClosesBlock: then nobody is visited, at once.
func TestVisitWhileClosesBlock(t *testing.T) {
	at := &net.UnixAddr{Net: "unix", Name: "@gosdp-test-blocked"}
	onEachKernel(t, func(t *testing.T) {
		a, err := AnnounceUnix(at)
		require.NoError(t, err)
		for range cap(closers) {
			closers <- struct{}{}
		}
		if takesRights.Load() {
			soon(t, func() { assert.Zero(t, UnixAnnouncer(at)) })
		} else {
			assert.Equal(t, os.Getpid(), UnixAnnouncer(at))
		}
		soon(t, func() { a.Close() })
		for range cap(closers) {
			<-closers
		}
	})
}
