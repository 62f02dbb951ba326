package shmdir

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/test/watchdog"
)

var (
	server = netip.MustParseAddrPort("10.9.8.7:7000")
	client = netip.MustParseAddr("10.9.8.6")
)

// announced returns an announcement of server.
func announced(t testing.TB, d *Dir) *Announcer {
	t.Helper()
	a, err := d.Announce(nil)
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	require.NoError(t, a.Add(server))
	return a
}

// claims has a dialler claim a connection from the port of client.
func claims(t testing.TB, d *Dir, port uint16, change func(c *claimed)) *dialled {
	t.Helper()
	n, err := d.visit(server, nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n.fd, 0)
	c := &n
	t.Cleanup(func() { unix.Close(c.fd) })
	c.from, c.port, c.key, c.since = client, port, newKey(), time.Now()
	m := claimed{from: client, commitment: c.key.commit(port)}
	m.hint = m.commitment.hint(port)
	if change != nil {
		change(&m)
	}
	_, err = unix.SendmsgN(c.fd, m.append(nil), nil, nil, 0)
	require.NoError(t, err)
	return c
}

// colliding returns another port with the same hint.
func colliding(c *dialled) uint16 {
	commitment := c.key.commit(c.port)
	for port := c.port + 1; ; port++ {
		if commitment.hint(port) == commitment.hint(c.port) {
			return port
		}
	}
}

func from(port uint16) netip.AddrPort { return netip.AddrPortFrom(client, port) }

// over lets the time end for which a connection is held.
func over(t testing.TB, h *Held) {
	t.Helper()
	h.since = time.Now().Add(-2 * limits.hold)
	require.False(t, h.Expected())
}

// TestClaim: both ends know of each other, and the port is not known to the listener before.
func TestClaim(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	c := claims(t, d, 4711, nil)
	assert.Nil(t, a.Claimed(netip.AddrPortFrom(client.Next(), 4711)), "another host's")
	h := a.Claimed(from(4711))
	require.NotNil(t, h)
	assert.True(t, h.Expected(), "it may be opened")
	require.NoError(t, c.confirm(client))
	assert.True(t, h.Expected())
	h.since = time.Now().Add(-2 * limits.hold)
	assert.True(t, h.Expected(), "it was opened")
	assert.Nil(t, a.Claimed(from(4711)), "for this connection alone")
	assert.True(t, h.Expected())
	require.NoError(t, unix.Shutdown(c.fd, unix.SHUT_RDWR)) // the dialler has found that it cannot use SDP
	assert.False(t, h.Expected())
	h.Release(false)
	assert.Nil(t, a.Claimed(from(4711)), "a claim is for one connection")
}

// TestUnclaimedConnections are held at most for a moment, and after a claim in vain not at all.
func TestUnclaimedConnections(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	assert.Nil(t, a.Claimed(from(4711)), "there are no claims")
	c := claims(t, d, 4711, nil)
	h := a.Claimed(from(colliding(c)))
	require.NotNil(t, h)
	require.True(t, h.Expected())
	over(t, h)
	c = claims(t, d, 4712, nil)
	assert.Nil(t, a.Claimed(from(4712)), "a claim was in vain just now")
	assert.ErrorIs(t, c.confirm(client), errLeft, "of which the dialler is told")
	a.vain = time.Time{}
	claims(t, d, 4713, nil)
	assert.NotNil(t, a.Claimed(from(4713)))
}

// TestLateReaction: a process that makes claims for the connections of others, and takes them back just
// before the listener gives up, does not have each connection wait.
func TestLateReaction(t *testing.T) {
	for name, v := range map[string]struct {
		waited time.Duration
		vain   bool
	}{
		"late":    {limits.hold / 2, true},
		"at once": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := opened(t)
			a := announced(t, d)
			c := claims(t, d, 4711, nil)
			h := a.Claimed(from(colliding(c)))
			require.NotNil(t, h)
			require.NoError(t, say(c.fd, []byte{0}))
			h.since = time.Now().Add(-v.waited)
			assert.False(t, h.Expected())
			h.Release(false)
			assert.Equal(t, v.vain, a.Claimed(from(4711)) == nil)
		})
	}
}

// TestGuessedPort: a process that has guessed the port of another's connection opens its claim, and the
// connection waits for a Request that does not come. That does not happen to the next one.
func TestGuessedPort(t *testing.T) {
	for name, v := range map[string]struct {
		asked  bool
		waited time.Duration
		vain   bool
	}{
		"no Request":       {false, 2 * limits.hold, true},
		"a late one":       {true, 2 * limits.hold, false},
		"taken back early": {false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := opened(t)
			a := announced(t, d)
			c := claims(t, d, 4711, nil)
			h := a.Claimed(from(4711))
			require.NotNil(t, h)
			require.NoError(t, c.confirm(client))
			h.since = time.Now().Add(-v.waited)
			require.True(t, h.Expected())
			h.Release(v.asked)
			claims(t, d, 4712, nil)
			assert.Equal(t, v.vain, a.Claimed(from(4712)) == nil)
		})
	}
}

// TestGivenUp: an opening cannot be sent any more when the listener has given up, and one that
// was sent before counts.
func TestGivenUp(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	late := claims(t, d, 4711, nil)
	over(t, a.Claimed(from(4711)))
	assert.ErrorContains(t, late.confirm(client), "gave up")

	a.vain = time.Time{}
	sent := claims(t, d, 4712, nil)
	h := a.Claimed(from(4712))
	require.NoError(t, sent.confirm(client))
	h.since = time.Now().Add(-2 * limits.hold)
	assert.True(t, h.Expected())
}

// TestHeldBack: if the process that holds the listener's name holds back openings, the listener still
// waits when the dialler sends its Request. A dialler that is too late sends none.
func TestHeldBack(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	s := &Claims{dir: d, all: []dialled{*claims(t, d, 4711, nil)}}
	h := a.Claimed(from(4711))
	require.NoError(t, s.Confirm(from(4711), server))
	assert.NoError(t, s.Late())
	s.all[0].since = time.Now().Add(-limits.ask)
	assert.ErrorContains(t, s.Late(), "claim on 10.9.8.7:7000 expired after 1h0m0s")
	assert.True(t, h.Expected())
	s.Close()
	assert.False(t, h.Expected(), "the dialler has taken the claim back")

	claims(t, d, 4712, nil)
	h = a.Claimed(from(4712))
	h.since = time.Now().Add(-limits.ask)
	assert.True(t, h.Expected())
	assert.GreaterOrEqual(t, HoldTime, 2*AskWithin)
}

// TestSpentClaim: the Request of a connection has come, and the opening of its claim is held back.
// The dialler takes the next answer on that socket as one to its next claim, so there is none.
func TestSpentClaim(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	c := claims(t, d, 4711, nil)
	h := a.Claimed(from(4711))
	require.NotNil(t, h)
	h.Release(true)
	assert.Nil(t, a.Claimed(from(colliding(c))))

	c = claims(t, d, 4711, nil)
	h = a.Claimed(from(colliding(c)))
	require.NotNil(t, h)
	h.Release(false) // plain TCP
	h = a.Claimed(from(4711))
	require.NotNil(t, h)
	require.NoError(t, c.confirm(client))
	assert.True(t, h.Expected())
}

// TestHintsThatCollide: a claim that fits two connections is opened for the right one, whatever
// becomes of the other one first.
func TestHintsThatCollide(t *testing.T) {
	for name, ends := range map[string]func(h *Held){
		"released": func(h *Held) { h.Release(false) },
		"held":     func(h *Held) { h.Expected() },
		"in vain":  func(h *Held) { h.since = time.Now().Add(-2 * limits.hold); h.Expected() },
		"claims are old": func(h *Held) {
			for _, c := range h.a.claims {
				c.since = time.Now().Add(-2 * limits.claim)
			}
			h.a.Claimed(from(1))
		},
		"closed": func(h *Held) { h.a.Close(); h.Release(false) },
	} {
		t.Run(name, func(t *testing.T) {
			d := opened(t)
			a := announced(t, d)
			c := claims(t, d, 4711, nil)
			wrong := a.Claimed(from(colliding(c)))
			require.NotNil(t, wrong)
			right := a.Claimed(from(4711))
			require.NotNil(t, right)
			require.NoError(t, c.confirm(client))
			ends(wrong)
			assert.True(t, right.Expected(), "the dialler sends a Request")
			assert.Nil(t, wrong.opened)
		})
	}
}

// TestOpenedForNobody: a claim that is opened when its connection is over does not outlive the listener.
func TestOpenedForNobody(t *testing.T) {
	for _, closedFirst := range []bool{true, false} {
		d := opened(t)
		a := announced(t, d)
		c := claims(t, d, 4711, nil)
		a.Claimed(from(4711)).Release(false)
		other := a.Claimed(from(colliding(c)))
		require.NoError(t, c.confirm(client))
		if closedFirst {
			require.NoError(t, a.Close())
		}
		other.Release(false)
		require.NoError(t, a.Close())
		assert.Eventually(t, func() bool {
			_, err := receive(c.fd, make([]byte, answerLen))
			return err == errLeft
		}, time.Minute, time.Millisecond)
	}
}

// TestForgedClaims: a process that does not have the connection cannot have it expected.
func TestForgedClaims(t *testing.T) {
	for _, v := range []struct {
		name string
		says func(c *dialled) []byte // to the answer
	}{
		{"another key", func(*dialled) []byte { k := newKey(); return k[:] }},
		{"a short key", func(c *dialled) []byte { return c.key[:keyLen-1] }},
		{"a long key", func(c *dialled) []byte { return append(c.key[:], 0) }},
		{"another connection's", func(*dialled) []byte { return []byte{0} }},
		{"nothing", func(*dialled) []byte { return nil }},
	} {
		t.Run(v.name, func(t *testing.T) {
			d := opened(t)
			a := announced(t, d)
			c := claims(t, d, 4711, nil)
			h := a.Claimed(from(4711))
			require.NotNil(t, h)
			if b := v.says(c); b != nil {
				_, err := unix.SendmsgN(c.fd, b, nil, nil, 0)
				require.NoError(t, err)
			}
			over(t, h)
		})
	}
	t.Run("the key to another port", func(t *testing.T) {
		d := opened(t)
		a := announced(t, d)
		c := claims(t, d, 4711, nil)
		other := colliding(c)
		h := a.Claimed(from(other))
		require.NotNil(t, h)
		c.port = other // says that it is its own
		require.NoError(t, c.confirm(client))
		assert.False(t, h.Expected())
	})
	for name, change := range map[string]func(c *claimed){
		"no such hint": func(c *claimed) { c.hint = hintMask + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			d := opened(t)
			a := announced(t, d)
			claims(t, d, 4711, change)
			assert.Nil(t, a.Claimed(from(4711)))
			assert.Empty(t, a.claims)
		})
	}
}

// TestKnownListener: one that has answered is given longer next time, but not after its claim is too old
// for the Request, and not again and again if it does not answer.
func TestKnownListener(t *testing.T) {
	d := opened(t)
	announced(t, d)
	s := &Claims{dir: d, all: []dialled{*claims(t, d, 4711, nil)}}
	c := &s.all[0]
	defer delete(known.of, c.at)
	known.add(c.at)
	require.True(t, known.has(c.at))
	c.since = time.Now().Add(-limits.ask)
	assert.ErrorContains(t, s.Confirm(from(4711), server), "no confirmation")
	known.forget(c.at, time.Hour)
	assert.False(t, known.has(c.at))

	known.forget(c.at, time.Hour)
	known.add(c.at)
	assert.False(t, known.has(c.at), "others may listen there")
	known.forget(c.at, 0)
	assert.False(t, known.has(c.at))
	known.add(c.at)
	assert.True(t, known.has(c.at))
}

// TestForgedAnnouncement: a process that has taken the listener's name, and does not accept the
// connection, does not get the dialler to open its claim.
func TestForgedAnnouncement(t *testing.T) {
	for _, v := range []struct {
		name string
		does func(t *testing.T, fd int, c *dialled)
		why  string
	}{
		{"silence", func(*testing.T, int, *dialled) {}, "no confirmation that the listener accepted the connection"},
		{"a close", func(_ *testing.T, fd int, _ *dialled) { unix.Shutdown(fd, unix.SHUT_RDWR) }, "peer closed the socket"},
		{"guesses", func(t *testing.T, fd int, c *dialled) {
			for port := uint16(20000); port < 20200; port++ {
				unix.SendmsgN(fd, binary.BigEndian.AppendUint16(nil, port), nil, nil, 0)
			}
		}, "listener guesses"},
		{"no answer", func(t *testing.T, fd int, _ *dialled) { unix.SendmsgN(fd, []byte("hello"), nil, nil, 0) }, "malformed answer"},
		{"a descriptor", func(t *testing.T, fd int, c *dialled) {
			err := unix.Sendmsg(fd, []byte{18, 103}, unix.UnixRights(fd), nil, 0)
			if err == unix.EPERM { // the kernel has told
				unix.Shutdown(fd, unix.SHUT_RDWR)
			}
		}, "announcement of"},
	} {
		t.Run(v.name, func(t *testing.T) {
			d := opened(t)
			ln := socket(t, unix.SOCK_SEQPACKET)
			defer unix.Close(ln)
			require.NoError(t, d.bind(ln, addressFile(server), 8, false))
			c := claims(t, d, 4711, nil)
			fd, _, err := unix.Accept(ln)
			require.NoError(t, err)
			defer unix.Close(fd)
			var b [2 * claimLen]byte
			n, _, err := unix.Recvfrom(fd, b[:], 0)
			require.NoError(t, err)
			_, ok := parseClaim(b[:n])
			require.True(t, ok)
			v.does(t, fd, c)
			assert.ErrorContains(t, c.confirm(client), v.why)
			for {
				n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT)
				if err != nil || n == 0 {
					break
				}
				assert.NotEqual(t, keyLen, n, "the claim was opened")
			}
		})
	}
}

// TestWhatIsInTheWay of an announcement is passed over, with a reason.
func TestWhatIsInTheWay(t *testing.T) {
	for _, v := range []struct {
		name string
		put  func(t *testing.T, d *Dir, file string)
		why  string
	}{
		{"nothing", func(*testing.T, *Dir, string) {}, ""},
		{"a file", func(t *testing.T, _ *Dir, file string) { require.NoError(t, os.WriteFile(file, nil, 0o600)) }, "is not a socket"},
		{"a pipe", func(t *testing.T, _ *Dir, file string) { require.NoError(t, unix.Mkfifo(file, 0o600)) }, "is not a socket"},
		{"a directory", func(t *testing.T, _ *Dir, file string) { require.NoError(t, os.Mkdir(file, 0o700)) }, "is not a socket"},
		{"a link", func(t *testing.T, _ *Dir, file string) { require.NoError(t, os.Symlink("/dev/zero", file)) }, "is not a socket"},
		{"a dead socket", func(t *testing.T, d *Dir, file string) {
			fd := socket(t, unix.SOCK_SEQPACKET)
			require.NoError(t, d.bind(fd, filepath.Base(file), 8, false))
			unix.Close(fd)
		}, ""},
		{"a socket of another kind", func(t *testing.T, d *Dir, file string) {
			fd := socket(t, unix.SOCK_STREAM)
			t.Cleanup(func() { unix.Close(fd) })
			require.NoError(t, d.bind(fd, filepath.Base(file), 8, false))
		}, "protocol wrong type"},
		{"a socket with a full queue", func(t *testing.T, d *Dir, file string) {
			fd := socket(t, unix.SOCK_SEQPACKET)
			t.Cleanup(func() { unix.Close(fd) })
			require.NoError(t, d.bind(fd, filepath.Base(file), 0, false))
			first := socket(t, unix.SOCK_SEQPACKET)
			t.Cleanup(func() { unix.Close(first) })
			require.NoError(t, unix.Connect(first, &unix.SockaddrUnix{Name: file}))
		}, errBusy.Error()},
	} {
		t.Run(v.name, func(t *testing.T) {
			d := opened(t)
			v.put(t, d, filepath.Join(d.Path(), addressFile(server)))
			n, err := d.visit(server, nil)
			assert.Equal(t, -1, n.fd)
			if v.why == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, v.why)
			}
		})
	}
}

// TestAnotherUser: neither end has to do with a process of a user that it is not told of.
func TestAnotherUser(t *testing.T) {
	assert.NoError(t, MayMeet(1000, 1000, nil))
	assert.NoError(t, MayMeet(1001, 1000, []int{1001}))
	assert.ErrorContains(t, MayMeet(1001, 1000, nil), "peer has uid 1001, ours 1000")
	assert.Error(t, MayMeet(noUser, noUser, []int{noUser}), "it stands for many")
	assert.Error(t, MayMeet(overflow(), overflow(), []int{overflow()}), "it stands for many")
}

// TestAnnouncements: the last one of an address counts, and its end leaves what is not its own.
func TestAnnouncements(t *testing.T) {
	d := opened(t)
	first, second := announced(t, d), announced(t, d)
	require.NoError(t, second.Add(netip.MustParseAddrPort("[::ffff:10.9.8.7]:7000")), "the same")
	assert.Len(t, files(t, d), 3)
	for _, meaningless := range []string{"127.0.0.1:1", "[::1]:1", "[fe80::1%eth0]:1", "0.0.0.0:1", "[::]:1", "224.0.0.1:1"} {
		require.NoError(t, second.Add(netip.MustParseAddrPort(meaningless)))
	}
	assert.Len(t, files(t, d), 3)
	require.NoError(t, first.Close())

	require.NoError(t, os.Remove(filepath.Join(d.Path(), addressFile(server))))
	require.NoError(t, second.Add(server))
	assert.Len(t, files(t, d), 1, "that was looked at just now")
	second.names[server].looked = time.Time{}
	require.NoError(t, second.Add(server))
	claims(t, d, 4711, nil)
	assert.NotNil(t, second.Claimed(from(4711)))
	require.NoError(t, second.Close())
	assert.Empty(t, files(t, d))
	assert.Nil(t, second.Claimed(from(4711)))
}

// TestSharedAnnouncement: listeners of IPv4 and IPv6 may have the same port. Each has the announcements of
// the addresses at which it is given connections.
func TestSharedAnnouncement(t *testing.T) {
	d := opened(t)
	four, six := announced(t, d), announced(t, d)
	require.NoError(t, four.AddListener(netip.MustParseAddrPort("0.0.0.0:7000")))
	for at := range four.names {
		assert.True(t, at.Addr().Is4(), "%v", at)
	}
	require.True(t, six.leadsHere(addressFile(server)))
	for range 2 {
		require.NoError(t, four.Add(server))
		assert.True(t, six.leadsHere(addressFile(server)), "that was looked at just now")
	}
	four.names[server].looked = time.Time{}
	require.NoError(t, four.Add(server))
	assert.True(t, four.leadsHere(addressFile(server)))
}

// TestLateAnnouncement: an announcement that could not be made is made later.
func TestLateAnnouncement(t *testing.T) {
	d := opened(t)
	a, err := d.Announce(nil)
	require.NoError(t, err)
	defer a.Close()
	inTheWay := filepath.Join(d.Path(), addressFile(server))
	require.NoError(t, os.Mkdir(inTheWay, 0o700))
	require.Error(t, a.Add(server))
	require.NoError(t, os.Remove(inTheWay))
	require.NoError(t, a.Add(server))
	require.False(t, a.leadsHere(addressFile(server)), "that was tried just now")
	a.names[server].looked = time.Time{}
	require.NoError(t, a.Add(server))
	assert.True(t, a.leadsHere(addressFile(server)))
}

// TestOwnNamespace: dials in the listener's own network namespace leave nothing in the queue for claims,
// which would be full for the diallers of others.
func TestOwnNamespace(t *testing.T) {
	d := opened(t)
	a, err := d.Announce(nil)
	require.NoError(t, err)
	defer a.Close()
	require.NoError(t, a.AddListener(netip.MustParseAddrPort("0.0.0.0:7000")))
	if len(a.names) == 0 {
		t.Skip("missing: an address that other hosts reach")
	}
	for at := range a.names {
		_, ok, err := d.begin(nil, at, nil)
		assert.False(t, ok)
		assert.EqualError(t, err, "address belongs to this network namespace")
	}
	_, _, err = unix.Accept(a.fd)
	assert.Equal(t, unix.EAGAIN, err)
}

// TestSuspended: while announcements are suspended there is none, and diallers that have claimed a
// connection before learn that, unless the connection was accepted.
func TestSuspended(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	accepted := claims(t, d, 4711, nil)
	h := a.Claimed(from(4711))
	require.NotNil(t, h)
	heard := claims(t, d, 4712, nil)
	require.Nil(t, a.Claimed(netip.AddrPortFrom(client.Next(), 4712)), "it only takes the claim in")
	waiting := claims(t, d, 4713, nil)

	for range 2 {
		a.Suspend()
		require.NoError(t, a.Add(server))
		n, err := d.visit(server, nil)
		require.NoError(t, err)
		require.Equal(t, -1, n.fd, "it is announced")
	}
	for _, c := range []*dialled{heard, waiting} {
		require.Eventually(t, func() bool {
			_, err := receive(c.fd, make([]byte, answerLen))
			return err != unix.EAGAIN
		}, time.Minute, time.Millisecond, "the dialler waits")
		assert.Error(t, c.confirm(client))
	}
	require.NoError(t, accepted.confirm(client))
	assert.True(t, h.Expected())
	h.Release(true)
	assert.True(t, refused(accepted), "its socket serves another claim")

	require.NoError(t, a.Resume())
	again := claims(t, d, 4714, nil)
	h = a.Claimed(from(4714))
	require.NotNil(t, h)
	require.NoError(t, again.confirm(client))
	h.Release(true)
	assert.False(t, refused(again))

	a.Suspend()
	require.NoError(t, a.Close())
	require.NoError(t, a.Resume())
	assert.Empty(t, files(t, d))
}

// TestClaimsAreBounded: more than so many are turned away, and none is kept for long.
func TestClaimsAreBounded(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	for range 3 * mostClaims / mostAtOnce {
		for range mostAtOnce {
			claims(t, d, 4711, nil)
		}
		a.Claimed(from(1))
		assert.LessOrEqual(t, len(a.claims), mostClaims)
	}
	for _, c := range a.claims {
		c.since = time.Now().Add(-2 * limits.claim)
	}
	a.Claimed(from(1))
	assert.Empty(t, a.claims)
	for port := range uint16(mostAnnounced - 1) {
		require.NoError(t, a.Add(netip.AddrPortFrom(server.Addr(), 10+port)))
	}
	assert.ErrorContains(t, a.Add(netip.AddrPortFrom(server.Addr(), 9)), "too many addresses announced, limit is 64")
}

// TestClaimsTakenBack: claims of diallers that have left do not keep others out.
func TestClaimsTakenBack(t *testing.T) {
	d := opened(t)
	a := announced(t, d)
	for range mostClaims / mostAtOnce {
		for range mostAtOnce {
			c := claims(t, d, 4711, nil)
			require.NoError(t, unix.Shutdown(c.fd, unix.SHUT_RDWR))
		}
		a.Claimed(from(1))
	}
	claims(t, d, 4712, nil)
	assert.NotNil(t, a.Claimed(from(4712)))
	assert.Len(t, a.claims, 1)
}

func FuzzClaim(f *testing.F) {
	m := claimed{from: client, commitment: newKey().commit(1), hint: 3}
	f.Add(m.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		if c, ok := parseClaim(b); ok {
			again, ok := parseClaim(c.append(nil))
			assert.True(t, ok)
			assert.Equal(t, c, again)
		}
	})
}
