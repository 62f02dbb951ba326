//go:build linux

package shm

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// guest stands for a server that has come to an offer.
type guest struct {
	*net.UnixConn
	token token
}

func guestOf(t testing.TB, o *offer) *guest {
	t.Helper()
	k, socket := halves(o.Ticket())
	c, err := net.Dial("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return &guest{c.(*net.UnixConn), k}
}

// gives says b, with descriptors that the other end accepts.
func gives(t testing.TB, c *net.UnixConn, b []byte, kinds string) {
	t.Helper()
	fds := filesOf(t, kinds)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(b, rights, nil)
	assert.NoError(t, err)
	fds.Close()
}

// decision reads the client's, which is a good one, and closes what comes with it.
func (g *guest) decision(t testing.TB) (flags byte) {
	t.Helper()
	rc, err := g.SyscallConn()
	require.NoError(t, err)
	var failed error
	require.NoError(t, rc.Read(func(fd uintptr) bool {
		var file int
		flags, file, failed = g.token.readDecision(int(fd))
		if failed == nil {
			unix.Close(file)
		}
		return failed != unix.EAGAIN
	}))
	require.NoError(t, failed)
	return flags
}

// failing takes an offer, which is to fail, and drops it.
func failing(o *offer) error {
	q, err := o.Take(1)
	if err == nil {
		q.Abort()
		return nil
	}
	o.Drop()
	return err
}

// send says b, with descriptors, and reports whether the kernel lets it.
func send(t testing.TB, c *net.UnixConn, b []byte, kinds string) bool {
	t.Helper()
	fds := filesOf(t, kinds)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(b, rights, nil)
	fds.Close()
	if len(kinds) > 0 && !takesRights.Load() {
		assert.ErrorIs(t, err, unix.EPERM)
		return false
	}
	require.NoError(t, err)
	return true
}

// filesOf makes memory files that are good (m), that may shrink (s), or that have
// another layout (l), and pipes (p).
func filesOf(t testing.TB, kinds string) (all files) {
	t.Helper()
	for _, k := range kinds {
		switch k {
		case 'm', 'l':
			a, fd, err := newArea()
			require.NoError(t, err)
			if k == 'l' {
				a.ctl.version.Store(layout - 1)
			}
			a.unmap()
			all = append(all, fd)
		case 's':
			f := memoryFile(t, areaLen, areaSeals&^unix.F_SEAL_SHRINK)
			fd, err := unix.Dup(int(f.Fd()))
			require.NoError(t, err)
			f.Close()
			all = append(all, fd)
		default:
			var ends [2]int
			require.NoError(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
			unix.Close(ends[1])
			all = append(all, ends[0])
		}
	}
	return all
}

// TestOfferIsNotFooled: whatever a process of our own user says in the server's stead, Take
// fails, takes no descriptor of it, and has said nothing; and it waits for nothing.
func TestOfferIsNotFooled(t *testing.T) {
	for _, v := range []struct {
		name  string
		says  func(b []byte) []byte
		kinds string // descriptors that come with it; see filesOf
		error string
	}{
		{name: "silence", says: func([]byte) []byte { return nil }, error: "resource temporarily unavailable"},
		{name: "no magic", says: func(b []byte) []byte { b[0]++; return b }, error: "malformed rendezvous message"},
		{name: "half a meeting", says: func(b []byte) []byte { return b[:meetingLen-1] }, error: "short rendezvous message"},
		{name: "another proof", says: func(b []byte) []byte { b[len(magic)]++; return b }, error: "failed to prove that it has the token"},
		{name: "no proof", says: func(b []byte) []byte { clear(b[len(magic):]); return b }, error: "failed to prove that it has the token"},
		{name: "a descriptor", kinds: "m", error: "an unexpected file descriptor"},
		{name: "many descriptors", kinds: "mmmmmmmmmmmm", error: "an unexpected file descriptor"},
	} {
		t.Run(v.name, func(t *testing.T) {
			onEachKernel(t, func(t *testing.T) {
				before := descriptors(t)
				o := newOffer(t, "", stepConfig)
				g := guestOf(t, o)
				want := v.error
				if b := changed(g.token.meeting(&sight{}), v.says); len(b) > 0 && !send(t, g.UnixConn, b, v.kinds) {
					want = "resource temporarily unavailable" // the kernel has told the guest, and nothing came
				}
				err := failing(o)
				assert.ErrorContains(t, err, want)
				said, _ := io.ReadAll(g)
				assert.Empty(t, said)
				g.Close()
				assert.Eventually(t, func() bool { return descriptors(t) <= before }, time.Minute, time.Millisecond)
			})
		})
	}
	t.Run("nobody", func(t *testing.T) {
		err := failing(newOffer(t, "", stepConfig))
		assert.ErrorIs(t, err, errNobody)
	})
	t.Run("its own proof", func(t *testing.T) {
		o := newOffer(t, "", stepConfig)
		g := guestOf(t, o)
		b := g.token.meeting(&sight{})
		copy(b[len(magic):], g.token.proof(decides))
		gives(t, g.UnixConn, b, "")
		err := failing(o)
		assert.ErrorIs(t, err, errUnproved)
	})
}

// TestOfferPassesOverStrangers who have come before the server.
func TestOfferPassesOverStrangers(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		before := descriptors(t)
		p := newPlace(t)
		o := newOffer(t, "", stepConfig)
		for range 8 {
			send(t, guestOf(t, o).UnixConn, []byte(magic), "pp")
			guestOf(t, o).Close()
		}
		a, b, err := open(t.Context(), p, o, rdma.Peer{})
		require.NoError(t, err)
		says(t, a, b, "x")
		a.Abort()
		b.Abort()
		closesEnd(t)
		assert.LessOrEqual(t, descriptors(t), before+8, "the strangers' own ends")
	})
}

// TestDrop: a server that has come finds that it is closed.
func TestDrop(t *testing.T) {
	before := descriptors(t)
	p := newPlace(t)
	o := newOffer(t, "", stepConfig)
	w, err := p.Meet(rdma.Peer{}, o.Ticket(), 1)
	require.NoError(t, err)
	o.Drop()
	_, err = w.Take(t.Context())
	assert.ErrorIs(t, err, rdma.ErrDeclined)
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}

// lingering returns a TCP socket whose last close blocks, until release is called.
func lingering(t *testing.T) (socket int, release func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	far, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).SetLinger(60))
	f, err := c.(*net.TCPConn).File()
	require.NoError(t, err)
	defer f.Close()
	// A Write that begins when its deadline has passed fills nothing. The other end's buffer, which does not
	// grow as nobody reads, has no room for so much.
	for begin, wrote := time.Now(), 0; wrote < 1<<19 || err == nil; {
		require.Less(t, time.Since(begin), time.Minute)
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		var n int
		n, err = c.Write(make([]byte, 1<<20))
		wrote += n
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	socket, err = unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	t.Cleanup(func() { far.Close() })
	return socket, func() { far.(*net.TCPConn).SetLinger(0); far.Close() }
}

// TestClosesThatBlock: on a kernel without SO_PASSRIGHTS, who connects to an offer may send
// descriptors whose closing blocks, and on any kernel a client may to the place. They hold up
// nobody; and when they are many, no channels are opened, at once, until they are through.
func TestClosesThatBlock(t *testing.T) {
	oldKernel(t)
	p := newPlace(t)
	for _, how := range []string{"take", "drop", "meet", "withdraw"} {
		socket, release := lingering(t)
		defer release()
		gives := func(c *net.UnixConn, b []byte) {
			_, _, err := c.WriteMsgUnix(b, unix.UnixRights(socket, socket), nil)
			require.NoError(t, err)
			unix.Close(socket)
		}
		var act func()
		switch how {
		case "take", "drop":
			o := newOffer(t, "", stepConfig)
			gives(guestOf(t, o).UnixConn, []byte(magic))
			act = o.Drop
			if how == "take" {
				act = func() {
					a, b, err := open(t.Context(), p, o, rdma.Peer{})
					require.NoError(t, err)
					a.Abort()
					b.Abort()
				}
			}
		default:
			c := meets(t, p)
			gives(c.UnixConn, c.token.decision(0))
			act = c.w.Withdraw
			if how == "meet" {
				act = func() {
					_, err := c.w.Take(t.Context())
					assert.ErrorContains(t, err, "more than one file descriptor")
				}
			}
		}
		act()
		require.Eventually(t, func() bool { return blocked.Load() == 1 }, time.Minute, time.Millisecond, "%s: it is blocked", how)
		release()
		closesEnd(t)
	}
	blocked.Add(mostAside) // as if there were many
	defer blocked.Add(-mostAside)
	_, err := device{}.Offer("", stepConfig)
	assert.ErrorIs(t, err, errAside)
	_, err = p.Meet(rdma.Peer{}, newTicket(), 1)
	assert.ErrorIs(t, err, errAside)
}

// TestStrangerMet: a stranger who has the place connect to his socket, and sends a descriptor whose
// closing blocks before the place has seen whose socket it is, does not hold up the place.
func TestStrangerMet(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		ticket := newTicket()
		_, name := halves(ticket)
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		require.NoError(t, err)
		defer ln.Close()
		fd, err := connect(name)
		require.NoError(t, err)
		c, err := ln.AcceptUnix()
		require.NoError(t, err)
		defer c.Close()
		socket, release := lingering(t)
		defer release()
		_, _, err = c.WriteMsgUnix([]byte(magic), unix.UnixRights(socket), nil)
		if takesRights.Load() {
			require.NoError(t, err)
			unix.Close(socket)
		} else {
			assert.ErrorIs(t, err, unix.EPERM)
			defer unix.Close(socket)
			defer release()
		}
		w := &pending{place: newPlace(t), fd: fd}
		assert.ErrorContains(t, w.open(&rdma.Peer{PID: 1}, 0), "belongs to another process")
		release()
		closesEnd(t)
	})
}

// TestUrgentDescriptor: a read passes over an urgent byte, and drops the descriptor that
// comes with it, unless it was told to see it.
func TestUrgentDescriptor(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	defer unix.Close(fds[1])
	defer unix.Close(fds[0])
	assert.NoError(t, inline(fds[0]))
	err = unix.Sendmsg(fds[1], []byte("u"), unix.UnixRights(fds[1]), nil, unix.MSG_OOB)
	if err == unix.EOPNOTSUPP || err == unix.EPERM {
		t.Skipf("missing: a kernel that sends a descriptor with an urgent byte: %v", err)
	}
	require.NoError(t, err)
	_, err = unix.Write(fds[1], []byte("x"))
	require.NoError(t, err)
	var b [2]byte
	for range 2 { // it stays in the socket
		_, err = receive(fds[0], b[:])
		assert.ErrorIs(t, err, errRights)
	}
}

func changed(b []byte, how func([]byte) []byte) []byte {
	if how == nil {
		return b
	}
	return how(b)
}

// onEachKernel runs a test with this kernel, and as on one without SO_PASSRIGHTS.
func onEachKernel(t *testing.T, f func(t *testing.T)) {
	t.Run("this kernel", f)
	t.Run("an old kernel", func(t *testing.T) {
		oldKernel(t)
		f(t)
	})
}

// oldKernel has this one refuse the option, as kernels before 6.16 do.
func oldKernel(t *testing.T) {
	was := takesRights.Load()
	rightsOption.Store(0x7FFF)
	takesRights.Store(true) // also for sockets that a test makes itself
	t.Cleanup(func() {
		rightsOption.Store(unix.SO_PASSRIGHTS)
		closesEnd(t)
		takesRights.Store(was)
	})
}

// closesEnd waits for what is closed in the background.
func closesEnd(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return aside.Load() == 0 }, time.Minute, 100*time.Microsecond)
}

// descriptors counts those of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}
