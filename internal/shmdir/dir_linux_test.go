package shmdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain has no time limit end by itself: a test that is about one makes a claim or a connection older.
func TestMain(m *testing.M) {
	limits.ask, limits.hold, limits.claim, limits.open = time.Hour, 2*time.Hour, 8*time.Hour, time.Minute
	goleak.VerifyTestMain(m)
}

// opened returns a new directory.
func opened(t testing.TB) *Dir {
	t.Helper()
	d, err := Open(t.TempDir())
	require.NoError(t, err)
	return d
}

// files are those in the directory.
func files(t testing.TB, d *Dir) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(d.Path())
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// aged makes what is in the directory older than a sweep leaves alone.
func aged(t testing.TB, d *Dir) {
	t.Helper()
	long := time.Now().Add(-time.Minute)
	for _, name := range files(t, d) {
		require.NoError(t, os.Chtimes(filepath.Join(d.Path(), name), long, long))
	}
}

func socket(t testing.TB, kind int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	return fd
}

func TestWhichDirectoriesAreSafe(t *testing.T) {
	for _, v := range []struct {
		owner, own int
		mode       uint32
		why        string
	}{
		{0, 0, 0o755, ""},
		{0, 1000, 0o775, ""},
		{1000, 1000, 0o700, ""},
		{0, 1000, 0o1777, ""},
		{0, 0, 0o777, "mode 0777 lets every user replace files"},
		{0, 0, 0o2777, "mode 2777 lets"},
		{1000, 1000, 0o702, "lets every user replace files"},
		{1001, 1000, 0o755, "owner has uid 1001, expected 1000 or 0"},
		{65534, 65534, 0o700, "owner has no uid in this user namespace"},
	} {
		err := safe(v.owner, unix.S_IFDIR|v.mode, v.own)
		if v.why == "" {
			assert.NoError(t, err, "%+v", v)
		} else {
			assert.ErrorContains(t, err, v.why, "%+v", v)
		}
	}
}

func TestWhichFileSystemsAreLocal(t *testing.T) {
	for _, kind := range []uint32{unix.TMPFS_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, 0xca451a4e} {
		assert.True(t, localFileSystem(int64(kind)), "%#x", kind)
		assert.True(t, localFileSystem(int64(int32(kind))), "%#x, as on linux/386", kind)
	}
	for _, kind := range []uint32{unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC} {
		assert.False(t, localFileSystem(int64(kind)), "%#x", kind)
	}
}

func TestOpen(t *testing.T) {
	at := t.TempDir()
	d, err := Open(at)
	require.NoError(t, err)
	again, err := Open(at)
	require.NoError(t, err)
	assert.Same(t, d, again)

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(at, link))
	same, err := Open(link)
	require.NoError(t, err)
	assert.Equal(t, d.ID(), same.ID(), "another name of it")
	other, err := Open(t.TempDir())
	require.NoError(t, err)
	assert.NotEqual(t, d.ID(), other.ID())

	_, err = Open("/proc/self")
	assert.ErrorContains(t, err, "may be shared with other hosts")
	_, err = Open(filepath.Join(at, "none"))
	assert.ErrorIs(t, err, unix.ENOENT)
	file := filepath.Join(at, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(file)
	assert.ErrorIs(t, err, unix.ENOTDIR)
}

// TestBindAndConnect: a name leads to its socket.
func TestBindAndConnect(t *testing.T) {
	d := opened(t)
	ln, fd := socket(t, unix.SOCK_STREAM), socket(t, unix.SOCK_STREAM)
	defer unix.Close(ln)
	defer unix.Close(fd)
	n, err := d.Bind(ln, 8, false, func(int) { assert.Fail(t, "there is no stranger") })
	require.NoError(t, err)
	require.NoError(t, d.Connect(fd, n))
	came, _, err := unix.Accept(ln)
	require.NoError(t, err)
	unix.Close(came)
	d.Remove(n)
	assert.Empty(t, files(t, d))
	assert.ErrorIs(t, d.Connect(fd, n), unix.ENOENT)
}

// TestReplacedSocket: a socket that has taken the place of another is not connected to, and is
// not taken for one's own.
func TestReplacedSocket(t *testing.T) {
	for _, v := range []string{"a socket", "a link to a socket", "a file", "a pipe"} {
		t.Run(v, func(t *testing.T) {
			d := opened(t)
			ln, other, fd := socket(t, unix.SOCK_STREAM), socket(t, unix.SOCK_STREAM), socket(t, unix.SOCK_STREAM)
			defer unix.Close(ln)
			defer unix.Close(other)
			defer unix.Close(fd)
			n, err := d.Bind(ln, 8, false, discard)
			require.NoError(t, err)
			file := filepath.Join(d.Path(), n.file())
			require.NoError(t, os.Rename(file, file+"0"))
			require.NoError(t, d.bind(other, "c-0123456789abcdef", 8, false))
			theirs := filepath.Join(d.Path(), "c-0123456789abcdef")
			switch v {
			case "a socket":
				require.NoError(t, os.Rename(theirs, file))
			case "a link to a socket":
				require.NoError(t, os.Symlink(file+"0", file))
			case "a file":
				require.NoError(t, os.WriteFile(file, nil, 0o600))
			case "a pipe":
				require.NoError(t, unix.Mkfifo(file, 0o600))
			}
			assert.Error(t, d.Connect(fd, n))
			_, err = d.tried(ln, n.file(), discard)
			assert.Error(t, err)
			_, _, err = unix.Accept(ln)
			assert.Equal(t, unix.EAGAIN, err, "there is no connection")
			_, _, err = unix.Accept(other)
			if v != "a socket" {
				assert.Equal(t, unix.EAGAIN, err, "there is no connection to the other one either")
			}
		})
	}
}

// TestTriedByAnother: a connection that is led to our socket, but is not the one by which it is
// tried, proves nothing.
func TestTriedByAnother(t *testing.T) {
	d := opened(t)
	ln, other := socket(t, unix.SOCK_STREAM), socket(t, unix.SOCK_STREAM)
	defer unix.Close(ln)
	defer unix.Close(other)
	n, err := d.Bind(ln, 8, false, discard)
	require.NoError(t, err)
	require.NoError(t, d.bind(other, "c-0123456789abcdef", 8, false))
	passed := socket(t, unix.SOCK_STREAM) // a goroutine that tries another socket
	defer unix.Close(passed)
	require.NoError(t, d.Connect(passed, n))
	_, err = unix.SendmsgN(passed, make([]byte, 16), nil, nil, 0)
	require.NoError(t, err)
	_, err = d.tried(ln, "c-0123456789abcdef", discard)
	assert.ErrorIs(t, err, errReplaced)
}

// TestTriedTakesNoDescriptor: the socket by which a file is tried may be led to another process,
// which sends a descriptor. It is refused, or the socket is closed as one that may have it.
func TestTriedTakesNoDescriptor(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		d := opened(t)
		ln, other := socket(t, unix.SOCK_STREAM), socket(t, unix.SOCK_STREAM)
		defer unix.Close(ln)
		defer unix.Close(other)
		_, err := d.Bind(ln, 8, false, discard)
		require.NoError(t, err)
		require.NoError(t, d.bind(other, "c-0123456789abcdef", 8, false))
		discarded := 0
		_, err = d.tried(ln, "c-0123456789abcdef", func(fd int) {
			discarded++
			came, _, err := unix.Accept(other)
			require.NoError(t, err)
			defer unix.Close(came)
			err = unix.Sendmsg(came, []byte{0}, unix.UnixRights(other), nil, 0)
			if takesRights.Load() {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, unix.EPERM)
			}
			discard(fd)
		})
		assert.ErrorIs(t, err, errReplaced)
		assert.Equal(t, 1, discarded)
	})
}

// TestClean removes the sockets of processes that have ended, and nothing else.
func TestClean(t *testing.T) {
	d := opened(t)
	live, dead := socket(t, unix.SOCK_STREAM), socket(t, unix.SOCK_STREAM)
	defer unix.Close(live)
	kept, err := d.Bind(live, 8, false, discard)
	require.NoError(t, err)
	_, err = d.Bind(dead, 8, false, discard)
	require.NoError(t, err)
	unix.Close(dead)
	a, err := d.Announce(nil)
	require.NoError(t, err)
	defer a.Close()
	deadListener := socket(t, unix.SOCK_SEQPACKET)
	require.NoError(t, d.bind(deadListener, "a-00112233445566778899aabbccddeeff", 8, false))
	unix.Close(deadListener)
	foreign := socket(t, unix.SOCK_STREAM)
	require.NoError(t, unix.Bind(foreign, &unix.SockaddrUnix{Name: filepath.Join(d.Path(), "another.sock")}))
	unix.Close(foreign)
	for _, name := range []string{"c-0000000000000000", "note"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.Path(), name), nil, 0o600))
	}
	require.Len(t, files(t, d), 7)
	d.Clean()
	require.Len(t, files(t, d), 7, "they are too young")
	aged(t, d)
	d.Clean()
	assert.ElementsMatch(t, []string{kept.file(), a.file, "another.sock", "c-0000000000000000", "note"}, files(t, d))
}

// TestCleanIsBounded: a sweep of a huge directory takes a part of it, and the next one goes on.
func TestCleanIsBounded(t *testing.T) {
	d := opened(t)
	const many = 4 * mostTried
	for i := range many {
		fd := socket(t, unix.SOCK_STREAM)
		require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: d.entry(clientPrefix + strconv.FormatUint(1<<60+uint64(i), 16))}))
		unix.Close(fd)
	}
	aged(t, d)
	d.Clean()
	assert.Len(t, files(t, d), many-mostTried)
	for range 2 * many / mostTried {
		d.Clean()
	}
	assert.Empty(t, files(t, d))
}

// TestCleanAmongMany: a sweep reaches dead sockets wherever they are among many that are alive.
func TestCleanAmongMany(t *testing.T) {
	d := opened(t)
	a, err := d.Announce(nil)
	require.NoError(t, err)
	defer a.Close()
	dead := func() {
		for range mostTried / 2 {
			fd := socket(t, unix.SOCK_STREAM)
			require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: d.entry(randomFile(clientPrefix))}))
			unix.Close(fd)
		}
	}
	dead()
	const alive = 2 * mostTried
	for range alive {
		require.NoError(t, unix.Linkat(d.fd, a.file, d.fd, randomFile(addressPrefix), 0))
	}
	dead()
	aged(t, d)
	for range 4 * mostListed / mostTried {
		d.Clean()
	}
	assert.Len(t, files(t, d), alive+1)
}

// TestFullVolume: the reason is told.
func TestFullVolume(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to mount a volume")
	}
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=4k,nr_inodes=2"); err != nil {
		t.Skip("missing: permission to mount a volume: ", err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	d, err := Open(at)
	require.NoError(t, err)
	first, second := socket(t, unix.SOCK_STREAM), socket(t, unix.SOCK_STREAM)
	defer unix.Close(first)
	defer unix.Close(second)
	n, err := d.Bind(first, 8, false, discard)
	require.NoError(t, err)
	_, err = d.Bind(second, 8, false, discard)
	assert.ErrorContains(t, err, "volume full")
	_, err = d.Announce(nil)
	assert.ErrorContains(t, err, "volume full")
	d.Remove(n)
}

// TestRemovedDirectory: it is opened anew when it is there again.
func TestRemovedDirectory(t *testing.T) {
	defer func() { limits.again = againTime }()
	limits.again = 0
	at := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.Mkdir(at, 0o700))
	d, err := Open(at)
	require.NoError(t, err)
	require.NoError(t, os.Remove(at))
	_, err = d.Announce(nil)
	require.ErrorContains(t, err, "directory removed")
	_, err = Open(at)
	require.ErrorIs(t, err, unix.ENOENT)
	require.NoError(t, os.Mkdir(at, 0o700))
	require.Eventually(t, func() bool {
		other, err := Open(at)
		return err == nil && other != d
	}, time.Minute, time.Millisecond)
}

// TestMissingName: the directory stays open if a process removes files in it.
func TestMissingName(t *testing.T) {
	d := opened(t)
	a, err := d.Announce(nil)
	require.NoError(t, err)
	defer a.Close()
	require.NoError(t, os.Remove(filepath.Join(d.Path(), a.file)))
	assert.ErrorIs(t, a.Add(server), unix.ENOENT)
	again, err := Open(d.Path())
	require.NoError(t, err)
	assert.Same(t, d, again)
}

// TestRemovedVolume: a directory is not opened again and again that was removed and can still be reached,
// as one can that is mounted.
func TestRemovedVolume(t *testing.T) {
	at := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.Mkdir(at, 0o700))
	volume, err := os.Open(at)
	require.NoError(t, err)
	defer volume.Close()
	mounted := fmt.Sprintf("/proc/self/fd/%d", volume.Fd())
	d, err := Open(mounted)
	require.NoError(t, err)
	require.NoError(t, os.Remove(at))
	_, err = d.Announce(nil)
	require.ErrorContains(t, err, "directory removed")
	_, err = Open(mounted)
	assert.EqualError(t, err, "directory removed")
}
