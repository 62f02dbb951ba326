package stream

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/timing"
)

func openFiles(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// TestFile: a connection whose descriptor the program takes comes home, with what was unread, and moves again in the
// program that gets it.
func TestFile(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	_, err := a.Write([]byte("unread"))
	require.NoError(t, err)
	l := b.linked.Load()
	require.True(t, l.hold(), "so that Close still finds the link, as while a visit has it")
	f, err := b.File()
	require.NoError(t, err)
	defer f.Close()
	assert.True(t, l.home(incoming|outgoing))
	require.NoError(t, b.Close())
	l.drop()
	linger, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_LINGER)
	require.NoError(t, err)
	assert.Zero(t, linger, "it is the socket's, and would make the heir's Close a reset")
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	heir := new(Conn)
	heir.Inherit(conn.(*net.TCPConn))
	t.Cleanup(func() { heir.Close() })
	got := make([]byte, 6)
	_, err = io.ReadFull(heir, got)
	require.NoError(t, err)
	assert.Equal(t, "unread", string(got))
	for a.linked.Load() != nil {
		a.Visit()
	}
	attach(t, a, heir)
	move(t, a, heir)
}

// TestRawConn: what programs do with a descriptor works wherever the connection is.
func TestRawConn(t *testing.T) {
	for _, moved := range []bool{false, true} {
		a, b := linkedPair(t)
		if moved {
			move(t, a, b)
		}
		raw, err := b.SyscallConn()
		require.NoError(t, err)
		look := func() (n int, err error) { // as connection pools do
			e := raw.Read(func(fd uintptr) bool {
				var one [1]byte
				n, err = unix.Read(int(fd), one[:])
				return true
			})
			require.NoError(t, e)
			return n, err
		}
		_, err = look()
		assert.ErrorIs(t, err, unix.EAGAIN)
		if moved {
			assert.Equal(t, inRing, b.linked.Load().reader.at(), "a look does not bring it home")
			say(t, a, b, "still in the ring")
		}
		_, err = a.Write([]byte("xyz"))
		require.NoError(t, err)
		await(t, b)
		var looked atomic.Bool
		visited := make(chan bool)
		go func() { // a's monitor
			for !looked.Load() {
				a.Visit()
			}
			close(visited)
		}()
		n, err := look()
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.Equal(t, !moved, b.linked.Load() != nil && b.linked.Load().reader.at()&^lent == onTCP, "bytes on TCP need no way home")
		looked.Store(true)
		<-visited
		got := make([]byte, 2)
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		assert.Equal(t, "yz", string(got))

		require.NoError(t, raw.Write(func(fd uintptr) bool {
			_, err := unix.Write(int(fd), []byte("raw"))
			return err == nil
		}))
		got = make([]byte, 3)
		_, err = io.ReadFull(a, got)
		require.NoError(t, err)
		assert.Equal(t, "raw", string(got))
		bringHome(t, a, b)
		say(t, a, b, "and on")
		say(t, b, a, "and on")
		attach(t, a, b)
		move(t, a, b)
		a.Close()
		for err = unix.EAGAIN; err == unix.EAGAIN; {
			n, err = look()
		}
		assert.NoError(t, err)
		assert.Zero(t, n, "the peer's end shows")
	}
}

// TestPolledDescriptor: a program that waits for the descriptor itself, and then reads with the Conn, gets everything.
func TestPolledDescriptor(t *testing.T) {
	for _, moved := range []bool{false, true} {
		a, b := movers(t, 4)
		if moved {
			for !a.moved() || !b.moved() {
				say(t, a, b, "ping")
				say(t, b, a, "pong")
			}
		}
		raw, err := b.SyscallConn()
		require.NoError(t, err)
		fd := int32(-1)
		require.NoError(t, raw.Control(func(f uintptr) { fd = int32(f) }))
		buf := make([]byte, 10)
		for i := range 200 {
			_, err := a.Write([]byte{byte(i)})
			require.NoError(t, err)
			p := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
			for {
				if n, err := unix.Poll(p, 1); n > 0 {
					break
				} else if err != nil {
					require.ErrorIs(t, err, unix.EINTR)
				}
			}
			n, err := b.Read(buf)
			require.NoError(t, err)
			require.Equal(t, []byte{byte(i)}, buf[:n])
			_, err = b.Write([]byte("answer"))
			require.NoError(t, err)
			_, err = io.ReadFull(a, buf[:6])
			require.NoError(t, err)
		}
	}
}

// TestOptionsDoNotKeepAConnectionOnTCP: a program that sets an option with Control, and waits in Read, moves nevertheless.
// When it then leaves unread what has arrived, it may poll: the connection comes home and stays there.
func TestOptionsDoNotKeepAConnectionOnTCP(t *testing.T) {
	a, b := movers(t, 4)
	for _, c := range []*Conn{a, b} {
		raw, err := c.SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(uintptr) {}))
		assert.True(t, c.polled.yes())
	}
	echoed := make(chan error, 1)
	last := byte(1)
	go func() {
		buf := make([]byte, 1)
		for buf[0] != last {
			if _, err := io.ReadFull(b, buf); err != nil {
				echoed <- err
				return
			}
			b.Write(buf)
		}
		echoed <- nil
	}()
	buf := make([]byte, 1)
	exchange := func(with byte) {
		_, err := a.Write([]byte{with})
		require.NoError(t, err)
		_, err = io.ReadFull(a, buf)
		require.NoError(t, err)
	}
	for a.polled.yes() || b.polled.yes() || a.Device() != "shm" || b.Device() != "shm" {
		exchange(0)
	}
	exchange(0)
	exchange(last)
	require.NoError(t, <-echoed)

	for b.Unread() == 0 {
		_, err := a.Write([]byte("unread"))
		require.NoError(t, err)
	}
	k := &watched{since: 1}
	b.visited(k, 1)
	b.visited(k, 2)
	for !a.Visit() || !b.Visit() {
		runtime.Gosched()
	}
	assert.Equal(t, errPolled, b.Why(), "no Read takes what is in the ring")
}

// TestHookedSocket: a connection whose socket has a filter or the kernel's TLS stays on TCP, also if the program has set that
// after the ends have met.
func TestHookedSocket(t *testing.T) {
	accept := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 30}}
	for name, set := range map[string]func(fd int) error{
		"filter": func(fd int) error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &accept[0]})
		},
		"kernel TLS": func(fd int) error { return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls") },
	} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/reads=%t", name, reads), func(t *testing.T) {
				a, b := linkedPair(t)
				hooked := a
				if reads {
					hooked = b
				}
				if err := set(fdOf(t, hooked)); err != nil {
					t.Skipf("missing: a kernel that does this: %v", err)
				}
				say(t, a, b, "x") // a has joined, or b has not consented
				assert.Equal(t, errAltered, hooked.Why())
				for range 10 {
					say(t, b, a, "y")
					say(t, a, b, "x")
				}
				assert.Zero(t, a.Moves()+b.Moves())
			})
		}
	}
}

// TestDescriptorFromReflection: a program that polls a descriptor which it has not got from a method gets what arrives, too,
// although its Writes keep the connection busy. When it has shown that it does not wait in Read, it stays on TCP.
func TestDescriptorFromReflection(t *testing.T) {
	a, b := withPolicy(t, &Policy{At: scoreOf(1e6)}, &Policy{At: scoreOf(1e6)})
	attach(t, a, b)
	move(t, a, b)
	unwatch(a, b)
	fd := fdOf(t, b)
	_, err := a.Write([]byte("unread"))
	require.NoError(t, err)
	var k watched
	for now := int64(1); !b.polled.asked(); now += int64(timing.Visit) {
		require.Less(t, now, int64(2*timing.Idle), "nobody looks after the bytes")
		say(t, b, a, "busy")
		b.visited(&k, now)
	}
	for !a.Visit() || !b.Visit() {
		runtime.Gosched()
	}
	unread, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	require.NoError(t, err)
	assert.Equal(t, 6, unread)
	assert.Equal(t, errPolled, b.Why())
}

// TestFileWaitsForAVisit: a visit that brings the last direction home lets the peer unmap its part before it has noted
// where the direction is.
func TestFileWaitsForAVisit(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	l := a.linked.Load()
	a.wmu.Lock()
	a.rmu.Lock()
	l.visiting.Add(1)
	b.linked.Load().bell.Close()
	filed := make(chan error, 1)
	go func() {
		f, err := a.File()
		if err == nil {
			err = f.Close()
		}
		filed <- err
	}()
	select {
	case err := <-filed:
		assert.Fail(t, "File has not waited", err)
	case <-time.After(20 * time.Millisecond):
	}
	l.bring(&l.reader.half)
	l.bring(&l.writer.half)
	a.rmu.Unlock()
	a.wmu.Unlock()
	l.visiting.Add(-1)
	require.NoError(t, <-filed)
	assert.Equal(t, "tcp", a.Device())
}
