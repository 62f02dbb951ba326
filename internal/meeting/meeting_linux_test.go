package meeting

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/shm"
)

func TestMain(m *testing.M) {
	TestSelf = true
	os.Exit(m.Run())
}

// pair returns both ends of a TCP connection through which "ping" and "pong" have gone.
func pair(t *testing.T) (d, a Ends, fd, fa Facts) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	accepted, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	raw := func(c net.Conn) syscall.RawConn {
		r, err := c.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		return r
	}
	at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	d = Ends{Dialler: at(dialled.LocalAddr()), Acceptor: at(dialled.RemoteAddr()), TCP: raw(dialled)}
	a = Ends{Dialler: at(accepted.RemoteAddr()), Acceptor: at(accepted.LocalAddr()), TCP: raw(accepted)}
	fd = Facts{FirstIn: []byte("pong"), FirstOut: []byte("ping")}
	fa = Facts{FirstIn: []byte("ping"), FirstOut: []byte("pong")}
	return d, a, fd, fa
}

// descriptors returns how many this process has, and nothing else of it.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestMeet(t *testing.T) {
	d, a, fd, fa := pair(t)
	none, err := Seek(a, fa)
	require.NoError(t, err)
	require.Nil(t, none, "nobody has invited")
	before := descriptors(t)

	dm, err := Invite(d, fd)
	require.NoError(t, err)
	seg, _, err := dm.Step(fd)
	require.NoError(t, err)
	require.Nil(t, seg, "nobody has come")
	am, err := Seek(a, fa)
	require.NoError(t, err)
	require.NotNil(t, am)
	seg, _, err = am.Step(fa)
	require.NoError(t, err)
	require.Nil(t, seg, "the dialler has not answered")

	ds, dfd, err := dm.Step(fd)
	require.NoError(t, err)
	require.NotNil(t, ds)
	as, afd, err := am.Step(fa)
	require.NoError(t, err)
	require.NotNil(t, as)

	out, in := ds.Out(), as.In()
	_, err = out.Put([]byte("through memory"))
	require.NoError(t, err)
	b := make([]byte, 20)
	n, err := in.Take(b)
	require.NoError(t, err)
	assert.Equal(t, "through memory", string(b[:n]))
	_, err = unix.Write(dfd, []byte("x"))
	require.NoError(t, err)
	n, err = unix.Read(afd, b)
	require.NoError(t, err)
	assert.Equal(t, "x", string(b[:n]))

	ds.Unmap()
	as.Unmap()
	unix.Close(dfd)
	unix.Close(afd)
	assert.LessOrEqual(t, descriptors(t), before)
}

// TestRefused: an end that is wrong in one respect ends the meeting, and leaves nothing behind.
func TestRefused(t *testing.T) {
	otherUser := uint32(unix.Geteuid() + 1)
	for name, v := range map[string]struct {
		spoil func(d, a *Ends, fd, fa *Facts)
		want  string
	}{
		"other bytes":     {func(_, _ *Ends, _, fa *Facts) { fa.FirstIn = []byte("pinG") }, errProof.Error()},
		"longer proof":    {func(_, _ *Ends, _, fa *Facts) { fa.FirstIn = []byte("pingping") }, errProof.Error()},
		"dialler's bytes": {func(_, _ *Ends, fd, _ *Facts) { fd.FirstIn = []byte("pinG") }, errProof.Error()},
		"other address":   {func(d, a *Ends, _, _ *Facts) { a.Acceptor = netip.MustParseAddrPort("127.0.0.1:1") }, "nobody"},
		"an heir": {func(_, _ *Ends, fd, fa *Facts) {
			fd.FirstIn, fd.FirstOut, fd.Inherited = nil, nil, true
		}, ""},
		"user is allowed":   {func(d, a *Ends, _, _ *Facts) { d.Allow = func(uid uint32) bool { return uid == otherUser } }, ""},
		"both know nothing": {func(_, _ *Ends, fd, fa *Facts) { *fd, *fa = Facts{}, Facts{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, a, fd, fa := pair(t)
			v.spoil(&d, &a, &fd, &fa)
			dm, err := Invite(d, fd)
			require.NoError(t, err)
			defer dm.Close()
			am, err := Seek(a, fa)
			if am == nil && err == nil {
				assert.Equal(t, v.want, "nobody")
				return
			}
			require.NoError(t, err)
			defer am.Close()
			seg, fd1, err := dm.Step(fd)
			if seg != nil {
				defer seg.Unmap()
				defer unix.Close(fd1)
				seg, fd2, e := am.Step(fa)
				if err = e; seg != nil {
					defer seg.Unmap()
					defer unix.Close(fd2)
				}
			}
			if v.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, v.want)
			}
		})
	}
}

// TestHello: process numbers that the ends do not agree on are refused, as are other lengths and versions, and counts that
// cannot be those of one connection.
func TestHello(t *testing.T) {
	f := Facts{FirstIn: []byte("abc"), FirstOut: []byte("abc")}
	reads := func(m *Moments) *moments { return &m.reads }
	writes := func(m *Moments) *moments { return &m.writes }
	here := view{name: "name", self: 9, peer: 7, numbers: 3, Facts: f, counts: counts{written: 10, acked: 8, received: 20}}
	there := view{name: "name", self: 7, peer: 9, numbers: 3, Facts: f, counts: counts{written: 21, acked: 20, received: 10}}
	assert.Len(t, there.hello(), helloLen)
	assert.NoError(t, here.check(there.hello()))
	assert.ErrorIs(t, here.check(there.hello()[1:]), errShort)
	for name, v := range map[string]struct {
		spoil func(here, there *view)
		want  string
	}{
		"peer":            {func(here, _ *view) { here.peer = 8 }, "process"},
		"self":            {func(here, _ *view) { here.self = 8 }, "process"},
		"hidden":          {func(here, there *view) { here.peer, there.self = 0, 0 }, "process"},
		"other namespace": {func(here, there *view) { here.peer, there.self, here.numbers = 0, 1, 4 }, ""},
		"no /proc":        {func(here, there *view) { here.peer, there.self, here.numbers, there.numbers = 0, 1, 0, 0 }, ""},
		"name":            {func(here, _ *view) { here.name = "other name" }, errProof.Error()},
		"has too much":    {func(_, there *view) { there.received = 11 }, errCounts.Error()},
		"lacks some":      {func(_, there *view) { there.acked = 21 }, errCounts.Error()},
		"some under way":  {func(_, there *view) { there.received = 9 }, ""},
		"read too early": {func(here, there *view) {
			here.Moments, there.Moments = noted(writes, 100, 7), noted(reads, 101, 6)
		}, errMoments.Error()},
		"written too late": {func(here, there *view) {
			here.Moments, there.Moments = noted(reads, 101, 6), noted(writes, 100, 7)
		}, errMoments.Error()},
		"read in time": {func(here, there *view) {
			here.Moments, there.Moments = noted(writes, 100, 7), noted(reads, 101, 7)
		}, ""},
		"read what was there": {func(here, there *view) {
			here.Moments, there.Moments = noted(writes, 100, 7), noted(reads, 100, 6)
		}, ""},
		"apart, few": {func(here, there *view) { here.apart, there.apart = true, true }, ErrEarly.Error()},
		"apart": {func(here, there *view) {
			here.apart, there.apart = true, true
			here.FirstOut, there.FirstIn = []byte("abcdefghijklm"), []byte("abcdefghijklm")
		}, ""},
		"apart, an heir": {func(here, there *view) {
			here.apart, there.apart, here.Inherited = true, true, true
			here.FirstOut, there.FirstIn = nil, []byte("abcdefghijklm")
		}, errUnseen.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := here, there
			v.spoil(&here, &there)
			if err := here.check(there.hello()); v.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, v.want)
			}
		})
	}
	b := there.hello()
	b[0] ^= 2
	assert.ErrorIs(t, here.check(b), errVersion)
}

// noted returns Moments of which the second one of a direction is given.
func noted(of func(*Moments) *moments, pos, at uint64) *Moments {
	m := new(Moments)
	of(m).at[1] = moment{pos, at}
	of(m).n.Store(2)
	return m
}

// talk returns what two ends have noted that took turns.
func talk() (d, a *Moments) {
	d, a = new(Moments), new(Moments)
	p, q := net.Pipe()
	go func() {
		for pos := uint64(0); pos < 10; pos++ {
			q.Read(make([]byte, 1))
			a.Read(pos + 1)
			a.Write(pos)
			q.Write([]byte{1})
		}
		q.Close()
	}()
	for pos := uint64(0); pos < 10; pos++ {
		d.Write(pos)
		p.Write([]byte{1})
		p.Read(make([]byte, 1))
		d.Read(pos + 1)
	}
	p.Read(make([]byte, 1))
	return d, a
}

// TestMoments: what two ends note while they talk never looks impossible, and what they note of two connections does, of
// which one is ahead of the other.
func TestMoments(t *testing.T) {
	d1, a1 := talk()
	d2, a2 := talk()
	possible := func(d, a *Moments) bool {
		return causal(d.writes.list(), a.reads.list()) && causal(a.writes.list(), d.reads.list())
	}
	assert.True(t, possible(d1, a1))
	assert.True(t, possible(d2, a2))
	assert.False(t, possible(d1, a2))
	assert.False(t, possible(d2, a1))
}

// TestCounts: what the kernel counts on both ends of a connection holds at any moment while bytes flow, and not between the
// ends of two connections of which one is behind.
func TestCounts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	open := func() (ends [2]*net.TCPConn) {
		d, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		a, err := ln.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { d.Close(); a.Close() })
		return [2]*net.TCPConn{d.(*net.TCPConn), a.(*net.TCPConn)}
	}
	length := func(n int) int { return 1 + n*7%5000 }
	at := func(c *net.TCPConn) (v view) {
		raw, err := c.SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) { v.counts, err = count(int(fd)) }))
		require.NoError(t, err)
		v.peer, v.self = 1, 1
		return v
	}
	ends := open()
	const writes = 3000
	total := int64(0)
	for n := range writes {
		total += int64(length(n))
	}
	var done sync.WaitGroup
	for i, c := range ends {
		done.Go(func() {
			for n := range writes {
				c.Write(make([]byte, length(n)))
			}
			if i == 0 {
				c.CloseWrite()
			}
		})
		done.Go(func() { io.CopyN(io.Discard, ends[1-i], total) })
	}
	for i := range 2000 {
		first := at(ends[i%2]).hello()
		second := at(ends[1-i%2])
		require.NoError(t, second.check(first))
		third := at(ends[i%2])
		require.NoError(t, third.check(second.hello()))
	}
	done.Wait()
	for i := range ends { // with a FIN in one direction
		v := at(ends[1-i])
		require.NoError(t, v.check(at(ends[i]).hello()))
	}

	twin := open()
	v := at(twin[1])
	assert.ErrorIs(t, v.check(at(ends[0]).hello()), errCounts)
	v = at(ends[1])
	assert.NoError(t, v.check(at(twin[0]).hello()), "it may be behind")
	v = at(twin[0])
	assert.ErrorIs(t, v.check(at(ends[1]).hello()), errCounts, "but not for the other end")
}

// TestSquatter: a process that has taken the name makes the invitation fail, and one that connects to it and
// says nothing, or leaves, ends the meeting.
func TestSquatter(t *testing.T) {
	d, a, fd, _ := pair(t)
	first, err := Invite(d, fd)
	require.NoError(t, err)
	_, err = Invite(d, fd)
	assert.ErrorIs(t, err, unix.EADDRINUSE)

	s, err := unixSocket()
	require.NoError(t, err)
	require.NoError(t, unix.Connect(s, &unix.SockaddrUnix{Name: a.name()}))
	seg, _, err := first.Step(fd)
	require.NoError(t, err)
	require.Nil(t, seg)
	unix.Close(s)
	_, _, err = first.Step(fd)
	assert.ErrorIs(t, err, ErrVanished)
	first.Close()
	second, err := Invite(d, fd)
	require.NoError(t, err)
	second.Close()
}

// TestSuitable: a socket that does more than carry plain TCP in this namespace does not move.
func TestSuitable(t *testing.T) {
	for _, v := range []struct {
		name string
		set  func(fd int) error
		want string
	}{
		{"plain", func(int) error { return nil }, ""},
		{"a device", func(fd int) error { return unix.BindToDevice(fd, "lo") }, "socket is bound to a network device"},
	} {
		t.Run(v.name, func(t *testing.T) {
			d, _, _, _ := pair(t)
			beside, err := unixSocket()
			require.NoError(t, err)
			defer unix.Close(beside)
			require.NoError(t, d.TCP.Control(func(fd uintptr) {
				if err := v.set(int(fd)); err != nil {
					t.Skipf("missing: a kernel that does this: %v", err)
				}
				err = suitable(int(fd), beside, false)
			}))
			if v.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, v.want)
			}
		})
	}
	beside, err := unixSocket()
	require.NoError(t, err)
	defer unix.Close(beside)
	multipath, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		t.Skipf("missing: multipath TCP: %v", err)
	}
	defer unix.Close(multipath)
	assert.EqualError(t, suitable(multipath, beside, false), "connection is not plain TCP")
}

// TestKeeps: memory is kept for a process of the own user in the own network namespace alone.
func TestKeeps(t *testing.T) {
	d, _, _, _ := pair(t)
	assert.Equal(t, shm.Peer{PID: 7}, (&Meeting{ends: d}).keeps(7))
	assert.Zero(t, (&Meeting{ends: d, other: true}).keeps(7))
	d.Dir, d.Dialler = t.TempDir(), netip.MustParseAddrPort("10.0.0.1:1")
	require.True(t, d.Apart())
	assert.Zero(t, (&Meeting{ends: d}).keeps(7))
}
