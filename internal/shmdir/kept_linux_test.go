package shmdir

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// again claims another connection on the socket of c, and returns where it comes from.
func again(t testing.TB, c *dialled) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "tcp")
	t.Cleanup(func() { f.Close() })
	rc, err := f.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, c.claim(rc))
	return from(c.port)
}

// used has the claim opened, and its connection over.
func used(t testing.TB, a *Announcer, c *dialled) {
	t.Helper()
	h := a.Claimed(from(c.port))
	require.NotNil(t, h)
	require.NoError(t, c.confirm(client))
	require.True(t, h.Expected())
	h.Release(false)
}

// refused reports that the listener has closed the socket of c.
func refused(c *dialled) bool {
	_, err := receive(c.fd, make([]byte, 1))
	return err == errLeft
}

// onEachKernel runs a test here, and as on a kernel before 6.16, which does not refuse descriptors.
func onEachKernel(t *testing.T, test func(t *testing.T)) {
	t.Run("this kernel", test)
	t.Run("an old kernel", func(t *testing.T) {
		was := takesRights.Load()
		rightsOption = 0x7FFF
		defer func() {
			require.Eventually(t, func() bool { return blocked.Load() == 0 }, time.Minute, time.Millisecond)
			rightsOption = unix.SO_PASSRIGHTS
			takesRights.Store(was)
		}()
		test(t)
	})
}

// TestClaimWithDescriptor: the listener takes no descriptor, whether or not the kernel refuses it.
func TestClaimWithDescriptor(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		d := opened(t)
		a := announced(t, d)
		n, err := d.visit(server, nil)
		require.NoError(t, err)
		defer unix.Close(n.fd)
		m := claimed{from: client, commitment: newKey().commit(4711)}
		m.hint = m.commitment.hint(4711)
		err = unix.Sendmsg(n.fd, m.append(nil), unix.UnixRights(n.fd), nil, 0)
		if takesRights.Load() {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, unix.EPERM)
		}
		assert.Nil(t, a.Claimed(from(4711)))
		if takesRights.Load() {
			assert.Empty(t, a.claims)
		}
	})
}

// TestNextClaim: a socket serves one claim after the other, each with its own proof.
func TestNextClaim(t *testing.T) { onEachKernel(t, testNextClaim) }

func testNextClaim(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	c := claims(t, d, 4711, nil)
	used(t, a, c)
	assert.Nil(t, a.Claimed(from(4711)), "the first claim is over")
	for range 3 {
		key := c.key
		again(t, c)
		require.NotEqual(t, key, c.key)
		assert.Nil(t, a.Claimed(netip.AddrPortFrom(client.Next(), c.port)), "another host's")
		used(t, a, c)
	}
	again(t, c)
	h := a.Claimed(from(c.port))
	require.NotNil(t, h)
	require.NoError(t, unix.Shutdown(c.fd, unix.SHUT_RDWR))
	assert.False(t, h.Expected(), "which the dialler took back")
}

// TestOldSocket: the listener closes a socket that waits for long, but not before it has looked
// whether a claim has come there.
func TestOldSocket(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	old := func() {
		for _, c := range a.claims {
			c.since = time.Now().Add(-2 * limits.claim)
		}
	}
	c := claims(t, d, 4711, nil)
	used(t, a, c)
	at := again(t, c)
	old()
	h := a.Claimed(at)
	require.NotNil(t, h, "the claim had come")
	require.NoError(t, c.confirm(client))
	require.True(t, h.Expected())
	h.Release(false)
	old()
	assert.Nil(t, a.Claimed(at))
	assert.True(t, refused(c))
	assert.Empty(t, a.claims)
}

// TestLateAnswer: a socket is not used again on which the dialler has not read all answers.
func TestLateAnswer(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	c := claims(t, d, 4711, nil)
	h := a.Claimed(from(4711))
	require.NotNil(t, h)
	other := a.Claimed(from(colliding(c)))
	require.NotNil(t, other)
	require.NoError(t, c.confirm(client))
	require.True(t, h.Expected())
	h.Release(false)
	var b [answerLen]byte
	_, err := receive(c.fd, b[:])
	require.NoError(t, err, "the answer that came too late")
	assert.True(t, refused(c))
	assert.False(t, other.Expected())
}

// TestWaitingSocketsAreBounded at the listener, and end with it.
func TestWaitingSocketsAreBounded(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	all := make([]*dialled, 2*mostKept)
	for i := range all {
		all[i] = claims(t, d, uint16(1000+i), nil)
		used(t, a, all[i])
	}
	open := 0
	for _, c := range all {
		if _, err := receive(c.fd, make([]byte, 1)); err == unix.EAGAIN {
			open++
		}
	}
	assert.Equal(t, mostKept, open)
	require.NoError(t, a.Close())
	for _, c := range all {
		assert.True(t, refused(c))
	}
}

// TestAnotherSource: the listener is not waited for if the kernel connects from another address
// than the one that was claimed.
func TestAnotherSource(t *testing.T) {
	d := opened(t)
	announced(t, d)
	c := claims(t, d, 4711, nil)
	s := &Claims{dir: d, all: []dialled{*c}}
	defer delete(known.of, c.at)
	assert.ErrorContains(t, s.Confirm(netip.AddrPortFrom(client.Next(), 4711), server), "connection from 10.9.8.7, expected 10.9.8.6")
}

// end returns a socket to keep, and a function that reports that it was closed.
func end(t *testing.T, at listening, uid int) (d dialled, closed func() bool) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fds[1]) })
	return dialled{fd: fds[0], at: at, uid: uid}, func() bool {
		synctest.Wait() // older kernels: another goroutine closes it
		_, err := receive(fds[1], make([]byte, 1))
		return err == errLeft
	}
}

func size(k *keptSockets) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}

// TestKeptSockets of a dialler are bounded in number and time, and serve the listener and the
// users that they were made for.
func TestKeptSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k keptSockets
		own := os.Geteuid()
		one := listening{server, 1}
		first, closed := end(t, one, own)
		k.put(first)
		_, ok := k.take(new(Dir), server, nil)
		assert.False(t, ok, "another directory")
		_, ok = k.take(nil, netip.AddrPortFrom(client, 7000), nil)
		assert.False(t, ok, "another address")
		d, ok := k.take(nil, server, nil)
		require.True(t, ok)
		assert.Equal(t, first.fd, d.fd)
		_, ok = k.take(nil, server, nil)
		assert.False(t, ok, "it was taken")
		k.put(d)

		time.Sleep(keptTime / 2)
		stranger, strange := end(t, listening{netip.AddrPortFrom(client, 1), 2}, own+1)
		k.put(stranger)
		_, ok = k.take(nil, stranger.at.AddrPort, nil)
		assert.False(t, ok, "another user")
		_, ok = k.take(nil, stranger.at.AddrPort, []int{own + 1})
		assert.True(t, ok)
		k.put(stranger)
		assert.False(t, closed())
		time.Sleep(keptTime/2 + time.Millisecond)
		assert.True(t, closed(), "its time is over")
		assert.False(t, strange())
		time.Sleep(keptTime)
		assert.True(t, strange())
		assert.Zero(t, size(&k))

		var ends [mostKeptAt + 1]func() bool
		for i := range ends {
			d, ends[i] = end(t, one, own)
			k.put(d)
		}
		assert.True(t, ends[0](), "more than mostKeptAt for one listener")
		assert.False(t, ends[1]())
		for i := range mostKept {
			d, _ = end(t, listening{server, uint64(10 + i)}, own)
			k.put(d)
		}
		assert.Equal(t, mostKept, size(&k))
		assert.True(t, ends[mostKeptAt]())
		time.Sleep(2 * keptTime)
		synctest.Wait()
		assert.Zero(t, size(&k))
	})
}

// TestBound: the port of a socket is known before it connects, also of one that is bound already,
// or that is one of IPv6 and connects to an address of IPv4.
func TestBound(t *testing.T) {
	for _, v := range []struct {
		family int
		before syscall.Sockaddr
	}{
		{syscall.AF_INET, nil},
		{syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}},
		{syscall.AF_INET6, nil},
	} {
		fd, err := syscall.Socket(v.family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer syscall.Close(fd)
		want := uint16(0)
		if v.before != nil {
			require.NoError(t, syscall.Bind(fd, v.before))
			name, err := nameOf(fd)
			require.NoError(t, err)
			want = name.Port()
		}
		port, err := bound(fd, server)
		require.NoError(t, err)
		assert.NotZero(t, port)
		if want != 0 {
			assert.Equal(t, want, port)
		}
	}
}

// TestLateHook: a dial that has its connection does not leave behind the socket of a claim that is made
// after that, for another address.
func TestLateHook(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	c := claims(t, d, 4711, nil)
	used(t, a, c)
	kept.put(*c)
	fd := c.fd
	c.fd = -1 // it is not the test's any more
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	rc, err := ln.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	s := d.NewClaims(nil)
	s.Close()
	s.Add(rc, server.String())
	assert.Empty(t, s.all)
	assert.Empty(t, kept.all)
	assert.Eventually(t, func() bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == unix.EBADF
	}, time.Minute, time.Millisecond)
}
