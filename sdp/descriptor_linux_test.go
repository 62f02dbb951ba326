package sdp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The tests of this file do what programs do with the descriptor of a connection. Each runs over package net, over a
// connection of this library that has not moved yet, and over one that has. What the program sees must be the same.

// onEachPath runs a script on these connections, and compares what it returns.
func onEachPath(t *testing.T, script func(t *testing.T, c, s promised) any) {
	var want any
	t.Run("net", func(t *testing.T) {
		ln := plainListen(t)
		defer ln.Close()
		c, s, err := bothEnds(ln, func(address string) (net.Conn, error) { return net.Dial("tcp", address) })
		require.NoError(t, err)
		for _, c := range []net.Conn{c, s} {
			t.Cleanup(func() { c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
		}
		want = script(t, c.(promised), s.(promised))
	})
	for _, path := range []string{devicePlain, deviceSHM} {
		t.Run(path, func(t *testing.T) {
			c, s := localPair(t, "tcp", nil)
			if path == deviceSHM {
				intoRing(t, c, s)
			}
			assert.Equal(t, want, script(t, c, s))
		})
	}
}

// control calls f with the descriptor.
func control(t *testing.T, c promised, f func(fd int)) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { f(int(fd)) }))
}

// descriptors are how programs get a descriptor that they keep: with Control as most event loops, with File as
// gobwas/ws' easygo, and from the fields of a net.TCPConn, which "sdp go" leaves where they are.
var descriptors = map[string]func(t *testing.T, c promised) int{
	"Control": func(t *testing.T, c promised) (got int) {
		control(t, c, func(fd int) { got = fd })
		return got
	},
	"File": func(t *testing.T, c promised) int {
		f, err := c.(interface{ File() (*os.File, error) }).File()
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		require.NoError(t, unix.SetNonblock(int(f.Fd()), true))
		return int(f.Fd())
	},
	"reflection": func(t *testing.T, c promised) int {
		v := reflect.ValueOf(c)
		if c, ok := c.(*Conn); ok {
			v = reflect.ValueOf(c.carrier).Elem().FieldByName("Conn").FieldByName("tcp")
		}
		return int(v.Elem().FieldByName("conn").FieldByName("fd").Elem().FieldByName("pfd").FieldByName("Sysfd").Int())
	},
}

// TestEventLoop: a program that waits for the descriptor with epoll, and then calls Read, gets everything.
func TestEventLoop(t *testing.T) {
	for way, descriptor := range descriptors {
		t.Run(way, func(t *testing.T) {
			onEachPath(t, func(t *testing.T, c, s promised) any {
				fd := descriptor(t, s)
				loop, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
				require.NoError(t, err)
				defer unix.Close(loop)
				require.NoError(t, unix.EpollCtl(loop, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
				b := make([]byte, 16)
				for i := range byte(100) {
					_, err := c.Write([]byte{i})
					require.NoError(t, err)
					var events [1]unix.EpollEvent
					n, err := 0, error(unix.EINTR)
					for err == unix.EINTR {
						n, err = unix.EpollWait(loop, events[:], int(soon/time.Millisecond))
					}
					require.NoError(t, err)
					require.Equal(t, 1, n, "the descriptor must become readable")
					n, err = s.Read(b)
					require.NoError(t, err)
					require.Equal(t, []byte{i}, b[:n])
					_, err = s.Write([]byte("answer"))
					require.NoError(t, err)
					_, err = io.ReadFull(c, b[:6])
					require.NoError(t, err)
				}
				return nil
			})
		})
	}
}

// TestQueuesAndPoll: poll(2), SIOCINQ and SIOCOUTQ in Control tell of everything that is unread.
func TestQueuesAndPoll(t *testing.T) {
	onEachPath(t, func(t *testing.T, c, s promised) any {
		poll := func(events int16) (got int16) {
			control(t, s, func(fd int) {
				p := []unix.PollFd{{Fd: int32(fd), Events: events}}
				err := error(unix.EINTR) // by the runtime's signals
				for err == unix.EINTR {
					_, err = unix.Poll(p, 0)
				}
				require.NoError(t, err)
				got = p[0].Revents
			})
			return got
		}
		queue := func(c promised, request uint) (n int) {
			control(t, c, func(fd int) {
				var err error
				n, err = unix.IoctlGetInt(fd, request)
				require.NoError(t, err)
			})
			return n
		}
		seen := []any{poll(unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP)}
		for range 3 {
			_, err := c.Write([]byte("12345"))
			require.NoError(t, err)
			seen = append(seen, queue(s, unix.SIOCINQ), poll(unix.POLLIN))
			_, err = io.ReadFull(s, make([]byte, 5))
			require.NoError(t, err)
			seen = append(seen, queue(s, unix.SIOCINQ), poll(unix.POLLIN))
			require.Eventually(t, func() bool { return queue(c, unix.SIOCOUTQ) == 0 }, soon, time.Millisecond, "acknowledged")
			exchange(t, c, s)
		}
		require.NoError(t, c.CloseWrite())
		awaitState(t, s, unix.BPF_TCP_CLOSE_WAIT)
		return append(seen, poll(unix.POLLIN|unix.POLLRDHUP))
	})
}

// TestUrgentData: a program sends a byte out of band, between two Writes. The peer receives it out of band, or in line
// (SO_OOBINLINE) in its place.
func TestUrgentData(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprint("in line ", inline), func(t *testing.T) {
			onEachPath(t, func(t *testing.T, c, s promised) any { return urgent(t, c, s, inline) })
		})
	}
}

func urgent(t *testing.T, c, s promised, inline bool) string {
	var err error
	if inline {
		ours, _ := c.(*Conn)
		moved := ours != nil && ours.Device() == deviceSHM
		control(t, s, func(fd int) { err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
		require.NoError(t, err)
		if moved {
			before := ours.Stats().ShmSent
			lines(t, c, s, func() bool { return ours.Stats().ShmSent > before })
		}
	}
	_, err = c.Write([]byte("before"))
	require.NoError(t, err)
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB, nil)
		return err != unix.EAGAIN
	}))
	require.NoError(t, err)
	_, err = c.Write([]byte("after"))
	require.NoError(t, err)
	got := make([]byte, 12)
	_, err = io.ReadFull(s, got[:6])
	require.NoError(t, err)
	rest := got[6:]
	if !inline {
		control(t, s, func(fd int) { _, _, err = unix.Recvfrom(fd, rest[:1], unix.MSG_OOB) })
		require.NoError(t, err)
		rest = rest[1:]
	}
	_, err = io.ReadFull(s, rest)
	require.NoError(t, err)
	for range 50 {
		exchange(t, c, s)
	}
	return string(got)
}

// TestRawReadsAndWrites: system calls on the descriptor, between Reads and Writes, see each byte once and in order.
func TestRawReadsAndWrites(t *testing.T) {
	onEachPath(t, func(t *testing.T, c, s promised) any {
		out, err := c.SyscallConn()
		require.NoError(t, err)
		in, err := s.SyscallConn()
		require.NoError(t, err)
		var got []byte
		for i := range byte(20) {
			_, err := c.Write([]byte{3 * i})
			require.NoError(t, err)
			more := []byte{3*i + 1, 3*i + 2}
			n := 0
			if i%2 == 0 {
				n, err = c.Write(more)
			} else {
				require.NoError(t, out.Write(func(fd uintptr) bool {
					n, err = unix.Write(int(fd), more)
					return err != unix.EAGAIN
				}))
			}
			require.NoError(t, err)
			require.Equal(t, 2, n)
			b := make([]byte, 1)
			for range 2 {
				require.NoError(t, in.Read(func(fd uintptr) bool {
					_, err = unix.Read(int(fd), b)
					return err != unix.EAGAIN
				}))
				require.NoError(t, err)
				got = append(got, b...)
			}
			_, err = io.ReadFull(s, b)
			require.NoError(t, err)
			got = append(got, b...)
			exchange(t, c, s)
		}
		return got
	})
}

// TestShutdownOfTheDescriptor: shutdown(2) in Control ends a direction as CloseWrite and CloseRead do.
func TestShutdownOfTheDescriptor(t *testing.T) {
	onEachPath(t, func(t *testing.T, c, s promised) any {
		_, err := c.Write([]byte("last"))
		require.NoError(t, err)
		control(t, c, func(fd int) { require.NoError(t, unix.Shutdown(fd, unix.SHUT_WR)) })
		_, err = c.Write([]byte("x"))
		assert.ErrorIs(t, err, unix.EPIPE)
		got, err := io.ReadAll(s)
		require.NoError(t, err)
		b := make([]byte, 4)
		for range 50 { // enough to move
			_, err = s.Write([]byte("half"))
			require.NoError(t, err)
			_, err = io.ReadFull(c, b)
			require.NoError(t, err)
			n, err := s.Read(b)
			require.Equal(t, io.EOF, err)
			require.Zero(t, n)
		}
		control(t, c, func(fd int) { require.NoError(t, unix.Shutdown(fd, unix.SHUT_RD)) })
		_, err = c.Read(b)
		return []any{string(got), errors.Is(err, io.EOF)}
	})
}
