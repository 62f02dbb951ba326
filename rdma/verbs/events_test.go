//go:build linux && cgo

package verbs

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/rdma"
)

// Events of rdma_cm, as in abi.h: a test cannot import C.
const (
	connectRequest = 4
	rejected       = 8
	disconnected   = 10
	deviceRemoval  = 11
	addrChange     = 14
)

// allocate points p to a new value, whose type may be C's.
func allocate[T any](p **T) { *p = new(T) }

// newTestID returns an id that the event loop does not know, with a queue pair that has nothing on a
// device.
func newTestID(e *eventLoop) *cmID {
	id := &cmID{e: e, events: make(chan cmEvent, 8)}
	q := &QueuePair{id: id}
	allocate(&q.end)
	id.q.Store(q)
	return id
}

// TestEngineHandsOut: the goroutine that distributes events leaves the end of a queue pair to the
// dispatcher, in the order of the events. A goroutine that waits for an event gets it at once.
func TestEngineHandsOut(t *testing.T) {
	defer goleak.VerifyNone(t)
	e := new(eventLoop)
	id := newTestID(e)
	free := occupy(&e.work, mostDispatching)
	for _, ev := range []cmEvent{{kind: disconnected}, {kind: deviceRemoval}, {kind: addrChange}} {
		id.handle(ev)
		require.Equal(t, ev, <-id.events)
	}
	require.Equal(t, []*eventQueue{&id.later}, e.work.ready)
	require.Len(t, id.later.events, 2)
	free()
	within(t, closed(e.work.wait), "events are left")
}

// TestLeftDoesNotWait: the event that the peer has left does not wait until a queue pair has freed
// everything, which takes long.
func TestLeftDoesNotWait(t *testing.T) {
	defer goleak.VerifyNone(t)
	e := new(eventLoop)
	id := newTestID(e)
	q := id.q.Load()
	q.using.Lock() // as finish has it
	id.handle(cmEvent{kind: disconnected})
	within(t, closed(e.work.wait), "left waits for finish")
	q.using.Unlock()
}

// TestRejectedWhenOpen: the peer's kernel rejects a connection that is open at this end, if RTU has not
// arrived when the peer leaves. That is no violation.
func TestRejectedWhenOpen(t *testing.T) {
	onFake(t, func(f *fake) {
		q := f.queuePair()
		defer q.Abort()
		q.id.handle(cmEvent{kind: rejected})
		until(t, "the peer is not gone", q.gone.Load)
	})
}

// TestListenerIsTold: an id that listens passes on requests, and the news that there will be no
// more, without the dispatcher.
func TestListenerIsTold(t *testing.T) {
	var requests int
	var lost []error
	id := &cmID{
		e:      new(eventLoop),
		accept: func(cmEvent) { requests++ },
		lost:   func(why error) { lost = append(lost, why) },
	}
	id.handle(cmEvent{kind: connectRequest})
	assert.Equal(t, 1, requests)
	assert.Empty(t, lost)
	id.handle(cmEvent{kind: deviceRemoval})
	id.handle(cmEvent{kind: addrChange})
	assert.Equal(t, []error{errRemoved, errMoved}, lost)
	id.handle(cmEvent{kind: disconnected}) // a listening id does not get this one
	assert.Len(t, lost, 2)
	assert.Equal(t, 1, requests)
	assert.Zero(t, id.e.work.ready)
}

// newTestAcceptor returns an acceptor on an event loop that reads no events. Its listeners are opened
// by open, on the only device.
func newTestAcceptor(open func(at netip.Addr, lost func(error)) (opened, error)) *acceptor {
	p := &acceptor{e: new(eventLoop), invited: make(map[[16]byte]*invitation), ending: context.Background(), end: func() {}}
	p.listeners.open = open
	p.listeners.device = func(netip.Addr) (any, error) { return nil, nil }
	return p
}

var toHere = rdma.Peer{Local: netip.AddrPortFrom(here, 1), Remote: netip.AddrPortFrom(there, 1)}

// TestInviteAfterRemoval: a peer is invited to the present listener, not to one whose device was
// removed.
func TestInviteAfterRemoval(t *testing.T) {
	defer goleak.VerifyNone(t)
	var lost []func(error)
	p := newTestAcceptor(func(_ netip.Addr, l func(error)) (opened, error) {
		lost = append(lost, l)
		return opened{port: uint16(len(lost)), stop: func() {}}, nil
	})
	for want := range uint16(3) {
		for range 2 {
			i, err := p.Invite(toHere, nil)
			require.NoError(t, err)
			assert.Equal(t, want+1, i.Address().Port)
			i.Withdraw()
		}
		(&cmID{e: p.e, accept: p.request, lost: lost[want]}).handle(cmEvent{kind: deviceRemoval})
	}
	assert.Empty(t, p.invited)
	p.listeners.close()
}

// TestRequestsDuringInvite: while the acceptor begins to listen at an address, in the kernel, a
// peer that connects does not block the goroutine that distributes events, and neither does its
// rejection.
func TestRequestsDuringInvite(t *testing.T) {
	defer goleak.VerifyNone(t)
	opening, held := make(chan struct{}), make(chan struct{})
	p := newTestAcceptor(func(netip.Addr, func(error)) (opened, error) {
		close(opening)
		<-held
		return opened{port: 1, stop: func() {}}, nil
	})
	inviting := closed(func() {
		_, err := p.Invite(toHere, nil)
		assert.Equal(t, net.ErrClosed, err)
	})
	<-opening
	free := occupy(&p.e.work, mostDispatching)
	for _, crowd := range []struct {
		joining int
		closed  bool
	}{{maxJoining, false}, {0, true}} {
		within(t, closed(func() {
			p.mu.Lock()
			p.joining, p.closed = crowd.joining, crowd.closed
			p.invited[[16]byte{}] = new(invitation)
			p.mu.Unlock()
			p.request(cmEvent{id: &cmID{e: p.e}, private: make([]byte, 16)})
		}), "a request waits for Invite")
	}
	p.e.work.mu.Lock()
	assert.Len(t, p.e.work.ready, 2)
	p.e.work.ready = nil // there is no rdma_cm to reject them
	p.e.work.mu.Unlock()
	free()
	close(held)
	within(t, inviting, "Invite does not return")
	within(t, closed(p.e.work.wait), "events are left")
	p.listeners.close()
}

// TestQueuePairStaysDuringEvent: rdma_get_cm_event uses the queue pair of the event's id, which Abort
// does not destroy meanwhile. Queue pairs may be destroyed at the same time.
func TestQueuePairStaysDuringEvent(t *testing.T) {
	onFake(t, func(f *fake) {
		f.set("cm_us", 100_000)
		for range 3 {
			q := f.queuePair()
			ctx, cancel := context.WithCancel(t.Context())
			connects, using := f.get("connects"), f.get("cm_using")
			asking := closed(func() {
				if _, err := q.request(ctx, []byte("said")); err == nil {
					q.Abort() // the answer was faster than this test
				} else {
					assert.ErrorIs(t, err, context.Canceled)
				}
			})
			until(t, "no request", func() bool { return f.get("connects") > connects })
			f.order("establish", "asked", 0)
			until(t, "no event", func() bool { return f.get("cm_using") > using })
			cancel()
			within(t, asking, "the request does not end")
		}
		until(t, "events or queue pairs are left", func() bool { return f.get("cm_events") == 3 && f.get("qps") == 0 })
		assert.Zero(t, f.get("torn"), "rdma_get_cm_event used queue pairs that were destroyed")
	})
}

// TestStrangersTakeNoPlace: a peer without a good token gets neither a goroutine nor one of the places
// for peers that were invited. The dispatcher rejects it, and the invitation remains good.
func TestStrangersTakeNoPlace(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := newTestAcceptor(func(netip.Addr, func(error)) (opened, error) {
		return opened{port: 1, stop: func() {}}, nil
	})
	i, err := p.Invite(toHere, nil)
	require.NoError(t, err)
	token := i.Address().Token
	other := token
	other[0]++
	free := occupy(&p.e.work, mostDispatching)
	said := [][]byte{nil, token[:15], other[:], append(other[:], token[:]...)}
	for _, private := range said {
		err := p.hear(cmEvent{private: private})
		assert.ErrorContains(t, err, "token")
		p.request(cmEvent{id: &cmID{e: p.e}, private: private})
	}
	assert.Zero(t, p.joining)
	assert.Contains(t, p.invited, token)
	p.e.work.mu.Lock()
	assert.Len(t, p.e.work.ready, len(said))
	p.e.work.ready = nil // there is no rdma_cm to reject them
	p.e.work.mu.Unlock()
	free()
	within(t, closed(p.e.work.wait), "events are left")
	p.listeners.close()
}

// TestNoMoreEvents: when rdma_cm refuses the process, as after setuid, the dial that waits for an event
// and all later ones fail at once and say why, and so do invitations. An open channel remains.
func TestNoMoreEvents(t *testing.T) {
	onFake(t, func(f *fake) {
		p, err := listen(config)
		require.NoError(t, err)
		defer p.Close()
		_, err = p.Invite(toHere, nil)
		require.NoError(t, err)
		dial := func() {
			_, err := join(t.Context(), rdma.Address{Port: 7, Local: here, Remote: here}, config, []byte("hello"), nil)
			assert.ErrorContains(t, err, "credentials changed")
		}
		connects := f.get("connects")
		waiting := closed(dial)
		until(t, "no request", func() bool { return f.get("connects") > connects })
		q := f.queuePair()
		defer q.Abort()
		f.set("cm_errno", int(syscall.EACCES))
		f.set("cm_failures", -1)
		f.order("poke", "-", 0)
		within(t, waiting, "a dial waits for an event that cannot be read")
		within(t, closed(dial), "a dial waits for an event that cannot be read")
		_, err = p.Invite(toHere, nil)
		assert.ErrorContains(t, err, "credentials changed")
		until(t, "a listener is left", func() bool {
			p.listeners.mu.Lock()
			defer p.listeners.mu.Unlock()
			return len(p.listeners.byAddress) == 0
		})

		f.order("receive", "-", 100)
		var wcs [1]rdma.Completion
		n, err := q.Wait(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		wcs[0].Buffer.Release()
		q.flushed = true // now the peer has left, which nothing reports
		assert.ErrorIs(t, q.reasonLocked(), syscall.ECONNRESET)
	})
}

// TestChangedCredentials: after setuid the kernel may refuse any thread, so nothing begins to use RDMA.
func TestChangedCredentials(t *testing.T) {
	onFake(t, func(f *fake) {
		p, err := listen(config)
		require.NoError(t, err)
		defer p.Close()
		for _, change := range []func(){
			func() { atStart.uids[1]++ },
			func() { atStart.gids[2]++ },
			func() { atStart.groups = append(atStart.groups, 1) },
			func() { atStart.capabilities[0].Effective ^= 1 },
		} {
			require.NoError(t, device{}.Reaches(rdma.Peer{Local: toHere.Local, Remote: toHere.Local}))
			before := atStart
			change()
			require.ErrorIs(t, probe(), errCredentials)
			require.ErrorIs(t, device{}.Reaches(rdma.Peer{Local: toHere.Local, Remote: toHere.Local}), errCredentials)
			_, err := join(t.Context(), rdma.Address{Port: 7, Local: here, Remote: here}, config, []byte("hello"), nil)
			require.ErrorIs(t, err, errCredentials)
			_, err = listen(config)
			require.ErrorIs(t, err, errCredentials)
			atStart = before
		}
	})
}

// TestEventsAfterENOMEM: a shortage of memory delays events, and loses none.
func TestEventsAfterENOMEM(t *testing.T) {
	onFake(t, func(f *fake) {
		f.set("cm_errno", int(syscall.ENOMEM))
		f.set("cm_failures", 3)
		q := f.queuePair()
		defer q.Abort()
		connects := f.get("connects")
		asking := closed(func() {
			_, err := q.request(t.Context(), []byte("said"))
			assert.NoError(t, err)
		})
		until(t, "no request", func() bool { return f.get("connects") > connects })
		f.order("establish", "asked", 0)
		within(t, asking, "the event is lost")
		assert.Zero(t, f.get("cm_failures"))
	})
}

// TestCompletionQueueIsLost: a queue pair ends when its device reports that the completion queue is in
// error, because nothing may be reported through that any more.
func TestCompletionQueueIsLost(t *testing.T) {
	onFake(t, func(f *fake) {
		const cqError = 0
		other := f.queuePair()
		defer other.Abort()
		q := f.queuePair()
		defer q.Abort()
		f.order("async", "-", cqError)
		within(t, closed(func() {
			var wcs [1]rdma.Completion
			_, err := q.Wait(wcs[:])
			assert.ErrorIs(t, err, errOverrun)
		}), "Wait goes on")
		assert.NoError(t, other.failed())
	})
}
