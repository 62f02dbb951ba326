package meeting

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

	dm, err := Invite(d)
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
			dm, err := Invite(d)
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

// TestHello: process numbers that the ends do not agree on are refused, as are other lengths and versions.
func TestHello(t *testing.T) {
	f := Facts{FirstIn: []byte("abc"), FirstOut: []byte("abc")}
	b := makeHello("name", 7, 9, f)
	require.Len(t, b, helloLen)
	assert.NoError(t, checkHello(b, "name", 9, 7, f))
	assert.ErrorContains(t, checkHello(b, "name", 9, 8, f), "process")
	assert.ErrorContains(t, checkHello(b, "name", 8, 7, f), "process")
	assert.ErrorIs(t, checkHello(b, "other name", 9, 7, f), errProof)
	assert.ErrorIs(t, checkHello(b[1:], "name", 9, 7, f), errShort)
	hidden := makeHello("name", 0, 9, f)
	assert.ErrorContains(t, checkHello(hidden, "name", 9, 0, f), "process", "a peer whose number is not visible")
	b[0] ^= 2
	assert.ErrorIs(t, checkHello(b, "name", 9, 7, f), errVersion)
}

// TestSquatter: a process that has taken the name makes the invitation fail, and one that connects to it and
// says nothing, or leaves, ends the meeting.
func TestSquatter(t *testing.T) {
	d, a, fd, _ := pair(t)
	first, err := Invite(d)
	require.NoError(t, err)
	_, err = Invite(d)
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
	second, err := Invite(d)
	require.NoError(t, err)
	second.Close()
}
