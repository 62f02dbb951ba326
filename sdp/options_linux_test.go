package sdp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// socketOption is an option that programs set on the descriptor.
type socketOption struct {
	name string
	set  func(fd int, peer *net.TCPAddr) error
	// both sets it on both ends.
	both bool
	// stays says that a connection with it stays on TCP.
	stays bool
	// quiet says that lines do not arrive, or not soon.
	quiet bool
	// effect returns what the program and its peer see, once lines have arrived. It may be nil.
	effect func(t *testing.T, c, s promised) any
}

func number(level, option, value int) func(int, *net.TCPAddr) error {
	return func(fd int, _ *net.TCPAddr) error { return unix.SetsockoptInt(fd, level, option, value) }
}

func linger(seconds int32) func(int, *net.TCPAddr) error {
	return func(fd int, _ *net.TCPAddr) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: seconds})
	}
}

// filter keeps so many bytes of each segment.
func filter(bytes uint32) func(int, *net.TCPAddr) error {
	return func(fd int, _ *net.TCPAddr) error {
		program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: bytes}}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &program[0]})
	}
}

func sign(fd int, peer *net.TCPAddr) error {
	key := unix.TCPMD5Sig{Keylen: 3}
	address := (*unix.RawSockaddrInet4)(unsafe.Pointer(&key.Addr))
	address.Family, address.Addr = unix.AF_INET, [4]byte(peer.IP.To4())
	copy(key.Key[:], "key")
	return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &key)
}

// endOf returns what the peer reads until the end, after c has written and closed.
func endOf(t *testing.T, c, s promised) any {
	_, err := c.Write([]byte("last"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	got, err := io.ReadAll(s)
	return fmt.Sprint(string(got), " ", errors.Is(err, unix.ECONNRESET), " ", err == nil)
}

// fill writes until nothing fits. It returns whether that is little, and whether the peer then gets all of it.
func fill(t *testing.T, from, to promised) any {
	require.NoError(t, from.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
	wrote, err := from.Write(make([]byte, 64<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	n, err := io.CopyN(io.Discard, to, int64(wrote))
	require.NoError(t, err)
	return []bool{wrote < 16<<20, n == int64(wrote)}
}

// late returns how a Read ends for which nothing arrives.
func late(t *testing.T, c, s promised) any {
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	n, err := c.Read(make([]byte, 1))
	return []any{n, errors.Is(err, os.ErrDeadlineExceeded)}
}

// longWrite returns how many bytes of a long Write arrive.
func longWrite(t *testing.T, c, s promised) any {
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 1<<20))
		wrote <- err
	}()
	n, err := io.CopyN(io.Discard, s, 1<<20)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	return n
}

var socketOptions = []socketOption{
	{name: "SO_LINGER 0", set: linger(0), effect: endOf},
	{name: "SO_LINGER 5", set: linger(5), effect: endOf},
	{name: "SO_SNDBUF", set: number(unix.SOL_SOCKET, unix.SO_SNDBUF, 16<<10), effect: fill},
	{name: "SO_RCVBUF", set: number(unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10), effect: func(t *testing.T, c, s promised) any { return fill(t, s, c) }},
	{name: "SO_RCVTIMEO", set: func(fd int, _ *net.TCPAddr) error {
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000})
	}, effect: late},
	{name: "SO_RCVLOWAT", set: number(unix.SOL_SOCKET, unix.SO_RCVLOWAT, 5)}, // a line
	{name: "TCP_NOTSENT_LOWAT", set: number(unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 1), effect: longWrite},
	{name: "SO_ATTACH_FILTER, nothing", set: filter(0), quiet: true, effect: func(t *testing.T, c, s promised) any {
		_, err := s.Write([]byte("dropped"))
		require.NoError(t, err)
		return late(t, c, s)
	}},
	{name: "SO_ATTACH_FILTER, all", set: filter(1 << 30), stays: true},
	{name: "TCP_MD5SIG", set: sign, both: true},
	{name: "TCP_ULP", set: func(fd int, _ *net.TCPAddr) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls")
	}, stays: true},
	{name: "SO_KEEPALIVE", set: number(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)},
	{name: "TCP_KEEPIDLE", set: number(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77)},
	{name: "TCP_KEEPINTVL", set: number(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 7)},
	{name: "TCP_KEEPCNT", set: number(unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3)},
	{name: "TCP_NODELAY", set: number(unix.IPPROTO_TCP, unix.TCP_NODELAY, 0)},
	{name: "TCP_CORK", set: number(unix.IPPROTO_TCP, unix.TCP_CORK, 1), quiet: true, effect: longWrite},
	{name: "SO_ZEROCOPY", set: number(unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1)},
	{name: "SO_TIMESTAMP", set: number(unix.SOL_SOCKET, unix.SO_TIMESTAMP, 1)},
	{name: "SO_PEEK_OFF", set: number(unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0)},
	{name: "SO_MARK", set: number(unix.SOL_SOCKET, unix.SO_MARK, 7)},
	{name: "SO_PRIORITY", set: number(unix.SOL_SOCKET, unix.SO_PRIORITY, 5)},
	{name: "SO_OOBINLINE", set: number(unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)},
	{name: "SO_BUSY_POLL", set: number(unix.SOL_SOCKET, unix.SO_BUSY_POLL, 50)},
	{name: "SO_MAX_PACING_RATE", set: number(unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 1<<30)},
	{name: "TCP_WINDOW_CLAMP", set: number(unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 64<<10), effect: longWrite},
	{name: "IP_TOS", set: number(unix.IPPROTO_IP, unix.IP_TOS, 16)},
}

// lines makes c and s exchange lines, with Reads that wait, a few times and then until the connection is where it will be.
func lines(t *testing.T, c, s promised, until func() bool) {
	echoed := make(chan error, 1)
	go func() {
		b := make([]byte, 5)
		for string(b) != "last\n" {
			if _, err := io.ReadFull(s, b); err != nil {
				echoed <- err
				return
			}
			s.Write(b)
		}
		echoed <- nil
	}()
	b := make([]byte, 5)
	for i, last := 0, false; !last; i++ {
		require.Less(t, i, 100_000)
		line := "line\n"
		if last = i > 20 && until(); last {
			line = "last\n"
		}
		_, err := c.Write([]byte(line))
		require.NoError(t, err)
		_, err = io.ReadFull(c, b)
		require.NoError(t, err)
		require.Equal(t, line, string(b))
	}
	require.NoError(t, <-echoed)
}

// TestSocketOptions: an option that a program sets on the descriptor has the effect that it has over package net, before and
// after a move, or docs/differences.md has it.
func TestSocketOptions(t *testing.T) {
	for _, o := range socketOptions {
		t.Run(o.name, func(t *testing.T) {
			onEachPath(t, func(t *testing.T, c, s promised) any {
				var failed error
				set := func(end promised) {
					control(t, end, func(fd int) { failed = errors.Join(failed, o.set(fd, end.RemoteAddr().(*net.TCPAddr))) })
				}
				if set(c); o.both {
					set(s)
				}
				if failed != nil {
					return failed.Error()
				}
				ours, there := c.(*Conn)
				switch {
				case o.quiet:
				case !there:
					lines(t, c, s, func() bool { return true })
				case o.stays:
					lines(t, c, s, func() bool { return strings.Contains(ours.Stats().OnTCP, "filter") })
				default:
					intoRingAgain(t, ours, s.(*Conn))
				}
				if o.effect == nil {
					return nil
				}
				return o.effect(t, c, s)
			})
		})
	}
}

// intoRingAgain is intoRing for programs that have taken the descriptor, whose Reads must wait before they move.
func intoRingAgain(t *testing.T, c, s *Conn) {
	moved := func(c *Conn) bool { return c.Device() == deviceSHM || restless && c.Stats().Moves > 0 }
	lines(t, c, s, func() bool { return moved(c) && moved(s) })
}
