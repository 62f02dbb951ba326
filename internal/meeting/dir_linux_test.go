package meeting

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// apart returns a pair whose ends have addresses in different networks, and meet in a directory.
func apart(t *testing.T, dir string) (d, a Ends, fd, fa Facts) {
	t.Helper()
	d, a, fd, fa = pair(t)
	own := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), d.Dialler.Port())
	d.Dialler, d.Acceptor, d.Dir = own, netip.MustParseAddrPort("10.96.0.1:80"), dir // a service address
	a.Dialler, a.Acceptor, a.Dir = own, netip.MustParseAddrPort("172.17.0.2:8080"), dir
	fd.Moments, fa.Moments = talk()
	fd.FirstOut, fa.FirstIn = []byte("GET / HTTP/1.1"), []byte("GET / HTTP/1.1")
	return d, a, fd, fa
}

// meets has the ends meet, and returns the errors of both, of which the first one ends the meeting.
func meets(t *testing.T, d, a Ends, fd, fa Facts) error {
	t.Helper()
	dm, err := Invite(d, fd)
	if err != nil {
		return err
	}
	defer dm.Close()
	am, err := Seek(a, fa)
	if err != nil {
		return err
	}
	require.NotNil(t, am, "the acceptor does not find the dialler")
	defer am.Close()
	seg, s, err := dm.Step(fd)
	if err != nil {
		return err
	}
	require.NotNil(t, seg)
	defer seg.Unmap()
	defer unix.Close(s)
	seg, s, err = am.Step(fa)
	if seg != nil {
		seg.Unmap()
		unix.Close(s)
	}
	return err
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestMeetInDirectory: the ends meet at the dialler's address, whatever they know of the acceptor's, in a directory of any
// path, and leave nothing there.
func TestMeetInDirectory(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d/", 100)+"sdp")
	require.NoError(t, os.MkdirAll(long, 0o700))
	for _, dir := range []string{t.TempDir(), long} {
		d, a, fd, fa := apart(t, dir)
		none, err := Seek(a, fa)
		require.NoError(t, err)
		require.Nil(t, none)
		before := descriptors(t)

		dm, err := Invite(d, fd)
		require.NoError(t, err)
		assert.Equal(t, []string{"v1-" + d.Dialler.String()}, list(t, dir))
		st, err := os.Stat(filepath.Join(dir, list(t, dir)[0]))
		require.NoError(t, err)
		assert.Equal(t, os.ModeSocket|0o600, st.Mode())
		_, err = Invite(d, fd)
		assert.ErrorIs(t, err, unix.EADDRINUSE, "another network has the same address")
		assert.Len(t, list(t, dir), 1)
		dm.Close()
		assert.Empty(t, list(t, dir))

		require.NoError(t, meets(t, d, a, fd, fa))
		assert.Empty(t, list(t, dir))
		assert.LessOrEqual(t, descriptors(t), before)
	}
}

// TestWhereTheyMeet: ends that have an address of their host in common use no directory.
func TestWhereTheyMeet(t *testing.T) {
	for _, v := range []struct {
		dir, dialler, acceptor, want string
	}{
		{"/run/sdp", "10.0.0.2:5", "10.0.0.3:80", "v1-10.0.0.2:5"},
		{"/run/sdp", "[::ffff:10.0.0.2]:5", "10.0.0.3:80", "v1-10.0.0.2:5"},
		{"/run/sdp", "[fe80::2%eth0]:5", "[fe80::3%eth0]:80", "v1-[fe80::2]:5"},
		{"/run/sdp", "10.0.0.2:5", "[::ffff:10.0.0.2]:80", "@gosdp/1/10.0.0.2:5/10.0.0.2:80"},
		{"/run/sdp", "127.0.0.1:5", "127.0.0.2:80", "@gosdp/1/127.0.0.1:5/127.0.0.2:80"},
		{"", "10.0.0.2:5", "10.0.0.3:80", "@gosdp/1/10.0.0.2:5/10.0.0.3:80"},
	} {
		e := Ends{Dialler: netip.MustParseAddrPort(v.dialler), Acceptor: netip.MustParseAddrPort(v.acceptor), Dir: v.dir}
		assert.Equal(t, v.want, e.name())
	}
}

// TestRefusedInDirectory: the dialler of another network that has the same address is not taken for the peer.
func TestRefusedInDirectory(t *testing.T) {
	for name, v := range map[string]struct {
		spoil func(fd, fa *Facts)
		want  error
	}{
		"too little":      {func(fd, fa *Facts) { fd.FirstOut, fa.FirstIn = fd.FirstOut[:4], fa.FirstIn[:4] }, ErrEarly},
		"dialler early":   {func(fd, _ *Facts) { fd.FirstOut, fd.FirstIn = nil, nil }, ErrEarly},
		"acceptor early":  {func(_, fa *Facts) { fa.FirstOut, fa.FirstIn = nil, nil }, ErrEarly},
		"little was read": {func(fd, fa *Facts) { fd.FirstIn, fa.FirstIn, fa.FirstOut = nil, nil, make([]byte, 64) }, ErrEarly},
		"few turns":       {func(fd, _ *Facts) { fd.Moments.reads.n.Store(3); fd.Moments.writes.n.Store(4) }, ErrEarly},
		"other turns":     {func(fd, _ *Facts) { fd.Moments, _ = talk() }, errMoments},
		"other request":   {func(_, fa *Facts) { fa.FirstIn = []byte("GET /x HTTP/1.") }, errProof},
		"other answer":    {func(fd, _ *Facts) { fd.FirstIn = []byte("pang") }, errProof},
		"an heir":         {func(fd, _ *Facts) { fd.FirstOut, fd.Inherited = []byte("GET / HTTP/1"), true }, errUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d, a, fd, fa := apart(t, dir)
			v.spoil(&fd, &fa)
			assert.ErrorIs(t, meets(t, d, a, fd, fa), v.want)
			assert.Empty(t, list(t, dir))
		})
	}
	t.Run("one is behind", func(t *testing.T) {
		dir := t.TempDir()
		d, a, fd, fa := apart(t, dir)
		var err error
		d.TCP.Write(func(s uintptr) bool {
			_, err = unix.Write(int(s), make([]byte, 1000))
			return true
		})
		require.NoError(t, err)
		_, other, _, _ := apart(t, dir)
		other.Dialler = a.Dialler
		assert.ErrorIs(t, meets(t, d, other, fd, fa), errCounts)
		require.NoError(t, meets(t, d, a, fd, fa))
	})
}

// TestOtherUsersInDirectory: other users can connect to the socket of a dialler that allows one of them.
func TestOtherUsersInDirectory(t *testing.T) {
	dir := t.TempDir()
	d, a, fd, _ := apart(t, dir)
	d.Allow = func(uint32) bool { return true }
	m, err := Invite(d, fd)
	require.NoError(t, err)
	st, err := os.Stat(filepath.Join(dir, a.name()))
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o666, st.Mode())
	m.Close()
}

// TestObstacles: what a process puts in the place of a socket is neither opened nor followed. Neither end waits for it.
func TestObstacles(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, path string){
		"a pipe":      func(t *testing.T, path string) { require.NoError(t, unix.Mkfifo(path, 0o666)) },
		"a file":      func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, nil, 0o666)) },
		"a directory": func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o777)) },
		"a link to another socket": func(t *testing.T, path string) {
			ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			require.NoError(t, err)
			t.Cleanup(func() {
				require.NoError(t, ln.(*net.UnixListener).SetDeadline(time.Now()))
				_, err := ln.Accept()
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				ln.Close()
			})
			require.NoError(t, os.Symlink(ln.Addr().String(), path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d, a, fd, fa := apart(t, dir)
			make(t, filepath.Join(dir, a.name()))
			before := descriptors(t)
			_, err := Invite(d, fd)
			assert.ErrorIs(t, err, unix.EADDRINUSE)
			m, err := Seek(a, fa)
			assert.Nil(t, m)
			assert.Error(t, err)
			assert.LessOrEqual(t, descriptors(t), before+1) // the seeker
			assert.Len(t, list(t, dir), 1)
		})
	}
}

// abandon leaves a socket in the directory, as a process does that is killed.
func abandon(t *testing.T, path string, listens bool) {
	t.Helper()
	s, err := unixSocket()
	require.NoError(t, err)
	require.NoError(t, bindTo(path, s))
	if listens {
		require.NoError(t, unix.Listen(s, 1))
		t.Cleanup(func() { unix.Close(s) })
	} else {
		unix.Close(s)
	}
}

// withAge makes sockets count as old when they are.
func withAge(t *testing.T, age time.Duration) {
	t.Helper()
	before := oldAge
	oldAge = age
	t.Cleanup(func() { oldAge = before })
}

// TestLeftovers: sockets of killed processes are removed by an acceptor that finds one, by the next dialler of the name, and
// by diallers of other names; new ones are not, nor those where a process listens, nor other files.
func TestLeftovers(t *testing.T) {
	at := func(dir string, e Ends) string { return filepath.Join(dir, e.name()) }
	for _, v := range []struct {
		age  time.Duration
		gone bool
	}{{time.Hour, false}, {-time.Hour, true}} {
		withAge(t, v.age)
		dir := t.TempDir()
		d, a, fd, fa := apart(t, dir)
		abandon(t, at(dir, a), false)
		m, err := Seek(a, fa)
		require.NoError(t, err)
		require.Nil(t, m)
		assert.Equal(t, v.gone, len(list(t, dir)) == 0, "by an acceptor")

		dir = t.TempDir()
		d.Dir = dir
		abandon(t, at(dir, d), false)
		m, err = Invite(d, fd)
		if v.gone {
			require.NoError(t, err, "by the next one")
			m.Close()
		} else {
			require.ErrorIs(t, err, unix.EADDRINUSE)
		}

		dir = t.TempDir()
		d.Dir = dir
		abandon(t, dir+"/v1-10.0.0.3:1", false)
		abandon(t, dir+"/v1-10.0.0.3:2", true)
		abandon(t, dir+"/other", false)
		require.NoError(t, os.WriteFile(dir+"/v1-10.0.0.3:3", nil, 0o600))
		m, err = Invite(d, fd)
		require.NoError(t, err)
		m.Close()
		want := []string{"other", "v1-10.0.0.3:1", "v1-10.0.0.3:2", "v1-10.0.0.3:3"}
		if v.gone {
			want = append(want[:1], want[2:]...)
		}
		assert.Equal(t, want, list(t, dir), "by others")
	}
}

// TestUnsolicitedDescriptors: a dialler is sent none, where the kernel can refuse them.
func TestUnsolicitedDescriptors(t *testing.T) {
	probe, err := unixSocket()
	require.NoError(t, err)
	defer unix.Close(probe)
	if _, err := unix.GetsockoptInt(probe, unix.SOL_SOCKET, unix.SO_PASSRIGHTS); err != nil {
		t.Skip("missing: SO_PASSRIGHTS, of Linux 6.16")
	}
	dir := t.TempDir()
	d, a, fd, _ := apart(t, dir)
	m, err := Invite(d, fd)
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, a.connect(probe, a.name()))
	assert.ErrorIs(t, unix.Sendmsg(probe, []byte("x"), unix.UnixRights(0), nil, 0), unix.EPERM)
	require.NoError(t, unix.Sendmsg(probe, []byte("x"), nil, nil, 0))
	_, _, err = m.Step(fd)
	assert.ErrorIs(t, err, errShort)
}

// TestCheckDir: owner, mode and file system decide.
func TestCheckDir(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, CheckDir(dir))
	assert.ErrorIs(t, CheckDir(dir+"/none"), unix.ENOENT)
	assert.ErrorContains(t, CheckDir("/proc"), "file system")
	require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))
	assert.ErrorIs(t, CheckDir(dir+"/file"), unix.ENOTDIR)
	for _, v := range []struct {
		owner, mode uint32
		want        string
	}{
		{0, 0o755, ""}, {1000, 0o700, ""}, {1000, 0o775, ""}, {0, 0o1777, ""},
		{0, 0o777, "mode 0777 lets every user replace files"},
		{1000, 0o702, "mode 0702"},
		{1001, 0o700, "owner has uid 1001, expected 1000 or 0"},
		{65534, 0o700, "owner has no uid"},
	} {
		if err := safe(v.owner, v.mode, 1000); v.want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, v.want)
		}
	}
}

// BenchmarkSeek is what an acceptor's attempt costs that finds nobody.
func BenchmarkSeek(b *testing.B) {
	e := Ends{Dialler: netip.MustParseAddrPort("10.0.0.2:5"), Acceptor: netip.MustParseAddrPort("10.0.0.3:80")}
	var f Facts
	f.Moments, _ = talk()
	f.FirstIn = make([]byte, FirstLen)
	for name, dir := range map[string]string{"abstract": "", "directory": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			e.Dir = dir
			for b.Loop() {
				if m, err := Seek(e, f); m != nil || err != nil {
					b.Fatal(m, err)
				}
			}
		})
	}
}
