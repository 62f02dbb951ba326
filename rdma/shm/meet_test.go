//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

const joinTime = time.Minute

var stepConfig = rdma.ChannelConfig{IRD: 16, Buffers: 16, BufSize: 4096, Timeout: joinTime, ZeroCopy: true}

func newPlace(t testing.TB) *place {
	t.Helper()
	p, err := device{}.Listen(stepConfig)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p.(*place)
}

func newOffer(t testing.TB, at string, cfg rdma.ChannelConfig) *offer {
	t.Helper()
	o, err := device{}.Offer(at, cfg)
	require.NoError(t, err)
	return o.(*offer)
}

// open opens a channel: both ends take what they are offered.
func open(ctx context.Context, p *place, o *offer, peer rdma.Peer) (a, b *QueuePair, err error) {
	w, err := p.Meet(peer, o.Ticket(), 7)
	if err != nil {
		o.Drop()
		return nil, nil, err
	}
	type taken struct {
		q   rdma.QueuePair
		err error
	}
	there := make(chan taken, 1)
	go func() {
		q, err := w.Take(ctx)
		there <- taken{q, err}
	}()
	q, err := o.Take(5)
	if err != nil {
		o.Drop()
	}
	other := <-there
	if err := errors.Join(err, other.err); err != nil {
		return nil, nil, err
	}
	return q.(*QueuePair), other.q.(*QueuePair), nil
}

func opened(t testing.TB, p *place, at string) (a, b *QueuePair) {
	t.Helper()
	a, b, err := open(t.Context(), p, newOffer(t, at, stepConfig), rdma.Peer{})
	require.NoError(t, err)
	return a, b
}

func TestMeet(t *testing.T) {
	p := newPlace(t)
	for k := range 3 {
		o := newOffer(t, "", stepConfig)
		if k == 1 {
			o.Prepare()
			require.NotNil(t, o.area)
			area := o.area
			o.Prepare() // which is enough
			assert.Same(t, area, o.area)
		}
		a, b, err := open(t.Context(), p, o, rdma.Peer{PID: os.Getpid()})
		require.NoError(t, err)
		assert.Equal(t, rdma.Limits{MaxMessage: maxMessage, SendBatch: maxBatch, IRD: 16, ORD: 5, ShortMessages: true, Predict: true, Outlives: true, Elastic: true}, a.Limits())
		assert.Equal(t, 7, b.Limits().ORD)
		says(t, a, b, "message")
		says(t, b, a, "message")
		closed(t, a, b)
	}
}

// TestPlaceIsClosed, and what is open goes on.
func TestPlaceIsClosed(t *testing.T) {
	before := descriptors(t)
	p := newPlace(t)
	a, b := opened(t, p, "")
	require.NoError(t, p.Close())
	says(t, a, b, "message")
	a.Abort()
	b.Abort()
	assert.LessOrEqual(t, descriptors(t), before)
}

// TestMeetFails where there is no client's socket.
func TestMeetFails(t *testing.T) {
	before := descriptors(t)
	p := newPlace(t)
	meet := func(ticket rdma.Ticket, peer rdma.Peer) error {
		_, err := p.Meet(peer, ticket, 1)
		return err
	}
	assert.ErrorIs(t, meet(newTicket(), rdma.Peer{}), unix.ECONNREFUSED, "nobody listens")
	o := newOffer(t, "", stepConfig)
	assert.ErrorContains(t, meet(o.Ticket(), rdma.Peer{PID: 1}), "belongs to another process")
	o.Drop()
	assert.ErrorIs(t, meet(o.Ticket(), rdma.Peer{}), unix.ECONNREFUSED, "the client has dropped it")

	o = newOffer(t, "", stepConfig)
	_, socket := halves(o.Ticket())
	var full []int
	for {
		fd, err := connect(socket)
		full = append(full, fd)
		if err != nil {
			break
		}
	}
	assert.Len(t, full, backlog+2)
	assert.ErrorIs(t, meet(o.Ticket(), rdma.Peer{}), unix.EAGAIN, "strangers have filled the backlog")
	files(full).Close()
	o.Drop()
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}

// customer stands for a client: a socket as an offer's.
type customer struct {
	*net.UnixConn
	token token
	sight sight // that the place has said
	w     *pending
}

// meets has the place meet a customer, who has read the meeting and wants no reach.
func meets(t testing.TB, p *place) *customer { return meetsAt(t, p, func(token) uint64 { return 0 }) }

// wanting is the probe of a customer that wants reach.
func wanting(k token) (address uint64, mine *probe) {
	mine = newProbe(k.probe())
	return mine.address(), mine
}

// meetsAt is meets, of a customer whose probe is at the address.
func meetsAt(t testing.TB, p *place, probe func(k token) (address uint64)) *customer {
	t.Helper()
	ticket := newTicket()
	setProbe(&ticket, probe(token(ticket[:tokenLen])))
	k, socket := halves(ticket)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	defer ln.Close()
	w, err := p.Meet(rdma.Peer{}, ticket, 7)
	require.NoError(t, err)
	c := &customer{token: k, w: w.(*pending)}
	c.UnixConn, err = ln.AcceptUnix()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	rc, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, rc.Control(func(fd uintptr) { c.sight, err = k.readMeeting(int(fd)) }))
	require.NoError(t, err)
	return c
}

// TestMeetIsNotFooled: whatever a client says instead of its decision, the place ends that
// channel, and holds no descriptor of it.
func TestMeetIsNotFooled(t *testing.T) {
	for _, v := range []struct {
		name  string
		says  func(b []byte) []byte
		kinds string // descriptors that come with it; see filesOf
		more  bool   // it says more, in a message of its own
		stays bool   // it says no more, and stays
		is    error
		error string
	}{
		{name: "gone", says: func([]byte) []byte { return nil }, is: rdma.ErrDeclined},
		{name: "silence", says: func([]byte) []byte { return nil }, stays: true, is: rdma.ErrDeclined},
		{name: "half a decision", says: func(b []byte) []byte { return b[:len(b)-1] }, kinds: "m", is: errShort},
		{name: "half a decision and silence", says: func(b []byte) []byte { return b[:20] }, stays: true, is: errShort},
		{name: "another proof", says: func(b []byte) []byte { b[0]++; return b }, kinds: "m", is: errUnproved},
		{name: "no proof", says: func(b []byte) []byte { clear(b[:proofLen]); return b }, kinds: "m", is: errUnproved},
		{name: "the place's own proof", kinds: "m", is: errUnproved},
		{name: "no descriptor", error: "decision message without a file descriptor"},
		{name: "two descriptors", kinds: "mm", error: "more than one file descriptor"},
		{name: "many descriptors", kinds: "mmmmmmmmmmmm", error: "more than one file descriptor"},
		{name: "a pipe", kinds: "p", error: "is not a memfd"},
		{name: "more after the decision", says: func(b []byte) []byte { return append(b, 'm') }, kinds: "m", error: "unexpected data after the decision message"},
		{name: "another message after it", kinds: "m", more: true, error: "unexpected data after the decision message"},
		{name: "a file that can be cut short", kinds: "s", error: "has seals"},
		{name: "a file of another layout", kinds: "l", error: "has layout version 4, want 5"},
	} {
		t.Run(v.name, func(t *testing.T) {
			onEachKernel(t, func(t *testing.T) {
				before := descriptors(t)
				p := newPlace(t)
				c := meets(t, p)
				assert.False(t, c.w.Decided())
				b := c.token.decision(0)
				if v.name == "the place's own proof" {
					copy(b, c.token.proof(serves))
				}
				if b = changed(b, v.says); len(b) > 0 {
					gives(t, c.UnixConn, b, v.kinds)
				}
				if v.more {
					_, err := c.Write([]byte("more"))
					require.NoError(t, err)
				}
				if !v.stays {
					require.NoError(t, c.CloseWrite())
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if v.stays {
					cancel()
				}
				_, err := c.w.Take(ctx)
				if v.is != nil {
					assert.ErrorIs(t, err, v.is)
				} else {
					assert.ErrorContains(t, err, v.error)
				}
				c.w.Withdraw() // is nothing any more
				_, err = c.w.Take(t.Context())
				assert.ErrorIs(t, err, net.ErrClosed)
				_, err = c.Read(make([]byte, 1))
				assert.Error(t, err, "it is closed")
				c.Close()
				assert.Eventually(t, func() bool { return descriptors(t) <= before }, time.Minute, time.Millisecond)
			})
		})
	}
}

// TestDecisionAfterItsTime: a machine that has stood still finds that the time is over before
// it finds what has come.
func TestDecisionAfterItsTime(t *testing.T) {
	p := newPlace(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	c := meets(t, p)
	gives(t, c.UnixConn, c.token.decision(0), "m")
	q, err := c.w.Take(over)
	require.NoError(t, err)
	q.Abort()
}

// TestClientIsTooSlow: the place no longer waits, so the client cannot take the channel either, and
// both ends know it. They may decide at the same time.
func TestClientIsTooSlow(t *testing.T) {
	before := descriptors(t)
	p := newPlace(t)
	agreed := map[bool]int{}
	for i := range 200 {
		o := newOffer(t, "", stepConfig)
		w, err := p.Meet(rdma.Peer{}, o.Ticket(), 1)
		require.NoError(t, err)
		o.Prepare()
		over, cancel := context.WithCancel(t.Context())
		var a, b rdma.QueuePair
		var late, errClient error
		var server sync.WaitGroup
		server.Go(func() { b, late = w.Take(over) })
		if i == 0 { // the server is first
			cancel()
			server.Wait()
		} else {
			go cancel()
		}
		a, errClient = o.Take(1)
		server.Wait()
		switch {
		case errors.Is(late, errTooLate): // then the connection ends
		case late == nil:
			require.NoError(t, errClient)
			says(t, a.(*QueuePair), b.(*QueuePair), "x")
			b.Abort()
		default:
			require.ErrorIs(t, late, rdma.ErrDeclined)
			require.Error(t, errClient)
		}
		agreed[late == nil]++
		if errClient == nil {
			a.Abort()
		} else {
			o.Drop()
		}
	}
	t.Log(agreed)
	assert.Positive(t, agreed[false])
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}

// TestWithdraw ends the channel, before the decision and after it.
func TestWithdraw(t *testing.T) {
	before := descriptors(t)
	p := newPlace(t)
	for _, decided := range []bool{false, true} {
		c := meets(t, p)
		if decided {
			gives(t, c.UnixConn, c.token.decision(0), "m")
			assert.True(t, c.w.Decided())
		}
		c.w.Withdraw()
		c.w.Withdraw()
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err)
		c.Close()
	}
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}

// TestReachIsAskedFor: neither end tells where anything lies in its memory, nor looks
// into the other's, unless both programs want RDMA.
func TestReachIsAskedFor(t *testing.T) {
	for _, v := range []struct{ client, server bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprint(v.client, v.server), func(t *testing.T) {
			here, there := stepConfig, stepConfig
			here.ZeroCopy, there.ZeroCopy = v.client, v.server
			p := newPlace(t)
			p.cfg = there
			both := v.client && v.server
			a, b, err := open(t.Context(), p, newOffer(t, "", here), rdma.Peer{})
			require.NoError(t, err)
			for _, q := range []*QueuePair{a, b} {
				assert.Equal(t, !both, q.Limits().BufferedOnly)
				if !both {
					bufferedOnly(t, q)
				}
				q.Abort()
			}
			var mine *probe
			c := meetsAt(t, p, func(k token) (address uint64) {
				if v.client {
					address, mine = wanting(k)
				}
				return address
			})
			assert.Equal(t, both, c.sight != sight{}, "the server says where")
			assert.Equal(t, both, c.sight.flags == canRead)
			runtime.KeepAlive(mine)
			c.w.Withdraw()
			o := newOffer(t, "", here)
			address := probeAddress(&o.ticket)
			assert.Equal(t, v.client, address != 0, "the client says where")
			g := guestOf(t, o)
			s := sight{}
			if v.server && v.client {
				s = sight{flags: canRead, address: 1} // where there is nothing
			}
			gives(t, g.UnixConn, g.token.meeting(&s), "")
			q, err := o.Take(1)
			require.NoError(t, err)
			bufferedOnly(t, q)
			q.Abort()
			assert.Zero(t, g.decision(t))
		})
	}
}

// TestMemoryOutOfReach: if one end cannot read the other's memory, neither end tries to.
func TestMemoryOutOfReach(t *testing.T) {
	p := newPlace(t)
	for name, v := range map[string]struct {
		moved uint64 // where the client's probe is not
		says  byte   // the client
		both  bool
	}{
		"both can":                          {0, canRead, true},
		"the client cannot":                 {0, 0, false},
		"the server cannot":                 {1, 0, false},
		"the server cannot, and is told so": {1, canRead, false},
	} {
		t.Run(name, func(t *testing.T) {
			var mine *probe
			c := meetsAt(t, p, func(k token) (address uint64) {
				address, mine = wanting(k)
				return address + v.moved
			})
			defer runtime.KeepAlive(mine)
			if v.moved == 0 {
				assert.EqualValues(t, canRead, c.sight.flags)
				assert.True(t, c.sight.visible(os.Getpid()), "its own is")
				far := c.sight
				far.address++
				assert.False(t, far.visible(os.Getpid()))
				assert.False(t, c.sight.visible(0))
			} else {
				assert.Zero(t, c.sight, "it says nothing of its memory")
			}
			gives(t, c.UnixConn, c.token.decision(v.says), "m")
			q, err := c.w.Take(t.Context())
			require.NoError(t, err)
			defer q.Abort()
			assert.Equal(t, !v.both, q.Limits().BufferedOnly)
			if !v.both {
				bufferedOnly(t, q)
			}
		})
	}
}

// TestDecisionIsLast: a client whose decision cannot be sent has no channel, and the server is told
// nothing.
func TestDecisionIsLast(t *testing.T) {
	before := descriptors(t)
	o := newOffer(t, "", stepConfig)
	g := guestOf(t, o)
	gives(t, g.UnixConn, g.token.meeting(&sight{}), "")
	g.Close()
	assert.ErrorIs(t, failing(o), unix.EPIPE)
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}

func bufferedOnly(t *testing.T, q rdma.QueuePair) {
	t.Helper()
	assert.True(t, q.Limits().BufferedOnly)
	assert.Error(t, q.PostRead(rdma.ReadWR{Local: make([]byte, 1)}))
	assert.Error(t, q.PostWrite(rdma.WriteWR{Local: make([]byte, 1)}))
}

// TestReachIsForOurOwnUser alone, whoever else may be the peer.
func TestReachIsForOurOwnUser(t *testing.T) {
	assert.True(t, reachable(os.Getpid(), os.Geteuid()))
	assert.False(t, reachable(os.Getpid(), os.Geteuid()+1))
	assert.False(t, reachable(0, os.Geteuid()))
}

func TestReaches(t *testing.T) {
	assert.NoError(t, device{}.Reaches(rdma.Peer{SameHost: true}))
	assert.Error(t, device{}.Reaches(rdma.Peer{}))
}

// TestDescriptorsAreRefused by the kernel, if it can: at the client's end always, at the
// place's from when it has the memory file.
func TestDescriptorsAreRefused(t *testing.T) {
	p := newPlace(t)
	o := newOffer(t, "", stepConfig)
	if takesRights.Load() {
		o.Drop()
		t.Skip("missing: SO_PASSRIGHTS (Linux 6.16)")
	}
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	refuses := func(c syscall.Conn) {
		t.Helper()
		rc, err := c.SyscallConn()
		require.NoError(t, err)
		require.NoError(t, rc.Control(func(fd uintptr) {
			err = unix.Sendmsg(int(fd), []byte{0}, unix.UnixRights(int(null.Fd())), nil, unix.MSG_NOSIGNAL)
		}))
		assert.ErrorIs(t, err, unix.EPERM)
	}
	refuses(guestOf(t, o))
	a, b, err := open(t.Context(), p, o, rdma.Peer{})
	require.NoError(t, err)
	defer a.Abort()
	defer b.Abort()
	refuses(a.bell.conn)
	refuses(b.bell.conn)
}
