package session

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// offered begins a Write of n bytes at a and sends its SrcAvail to b.
func offered(t *testing.T, a, b *Session, n int) {
	t.Helper()
	require.True(t, a.BeginWrite(n))
	var batch Batch
	require.True(t, a.Offer(&batch, make([]byte, n), a.PlanWrite(n, WriteGoesOn), 7, 8))
	post(t, a, b, &batch)
}

// TestPlainWrite: a Write that the Source does not plan is copied, and ends when all of it
// was sent or when it must end.
func TestPlainWrite(t *testing.T) {
	a, _ := pair(false)
	require.False(t, a.BeginWrite(1<<20))
	p := a.PlanWrite(1<<20, WriteGoesOn)
	assert.Equal(t, WriteCopy, p.Step)
	assert.Equal(t, 1<<20, p.N)
	assert.Equal(t, WriteDone, a.PlanWrite(0, WriteGoesOn).Step)
	assert.Equal(t, WriteDone, a.PlanWrite(1, WriteStops).Step)
	assert.Equal(t, WriteLost, a.PlanWrite(1, WriteBroken).Step)
}

// TestPlanThatHoldsNoLonger: what was planned without the lock is not offered if the peer's
// program has advertised memory in the meantime.
func TestPlanThatHoldsNoLonger(t *testing.T) {
	a, b := pair(true)
	require.True(t, a.BeginWrite(1<<20))
	p := a.PlanWrite(1<<20, WriteGoesOn)
	require.Equal(t, WriteOffer, p.Step)
	a.zsource.Plain()
	var batch Batch
	assert.False(t, a.Offer(&batch, make([]byte, 1<<20), p, 7, 8))
	assert.False(t, a.Offering())
	assert.Equal(t, WriteCopy, a.PlanWrite(1<<20, WriteGoesOn).Step)
	assert.Zero(t, b.Unread())
}

// TestOfferWithoutCredit: a Write whose SrcAvail lacks credit waits for that.
func TestOfferWithoutCredit(t *testing.T) {
	a, b := pair(true)
	var batch Batch
	a.Data(&batch, make([]byte, 16), 13, 1)
	post(t, a, b, &batch)
	require.True(t, a.Stalled())
	require.True(t, a.BeginWrite(1000))
	assert.Equal(t, WriteStall, a.PlanWrite(1000, WriteGoesOn).Step)
}

// TestControlPrecedesPayload: what a Write has to tell about its advertisement comes before
// more of it.
func TestControlPrecedesPayload(t *testing.T) {
	a, b := pair(true)
	offered(t, a, b, 1000)
	assert.Equal(t, WriteWait, a.PlanWrite(1000-zcopy.Ride, WriteGoesOn).Step)
	a.Overdue()
	assert.Equal(t, WriteControl, a.PlanWrite(1000-zcopy.Ride, WriteGoesOn).Step)
	assert.Equal(t, wire.MIDSrcAvailCancel, next(t, a, b))
}

// TestProgressIsNotOverdue: bytes that were fetched before the time was over count.
func TestProgressIsNotOverdue(t *testing.T) {
	a, b := pair(true)
	offered(t, a, b, 1000)
	b.Consume(zcopy.Ride)
	size, _, _, ok := b.Fetch(100)
	require.True(t, ok)
	b.Fetched(size)
	require.Equal(t, wire.MIDRdmaRdCompl, next(t, b, a))
	a.Overdue()
	p := a.PlanWrite(1000-zcopy.Ride, WriteGoesOn)
	assert.Equal(t, 100, p.Moved)
	assert.Equal(t, WriteWait, p.Step)
	a.Overdue()
	assert.Equal(t, WriteControl, a.PlanWrite(1000-zcopy.Ride-100, WriteGoesOn).Step)
}

// TestBrokenWrite: when nothing can be sent any more, what the peer fetched before counts, and
// the rest is lost when the driver gives up.
func TestBrokenWrite(t *testing.T) {
	a, b := pair(true)
	offered(t, a, b, 1000)
	rest := 1000 - zcopy.Ride
	assert.Equal(t, WriteWait, a.PlanWrite(rest, WriteBroken).Step)
	a.AbandonWrite()
	p := a.PlanWrite(rest, WriteBroken)
	assert.Equal(t, WriteInvalidate, p.Step)
	assert.EqualValues(t, 7, p.STag)
	assert.Equal(t, WriteLost, a.PlanWrite(rest, WriteBroken).Step)
	assert.Equal(t, WriteDone, a.PlanWrite(0, WriteBroken).Step)
}

// pipelined has a's direction in Pipelined mode, and b's Read of n bytes advertised.
func pipelined(t *testing.T, n int) (a, b *Session) {
	t.Helper()
	a, b = pair(true)
	a.zsource.Hint()
	a.zsource.Hint()
	require.Equal(t, wire.MIDModeChange, next(t, a, b))
	require.Equal(t, ReadAdvertise, b.PlanRead(n, false, false))
	require.True(t, b.Advertise(9, 100, n))
	require.False(t, b.Advertise(9, 100, n), "a second time")
	require.Equal(t, wire.MIDSinkAvail, next(t, b, a))
	return a, b
}

// TestFillInParts: a Write fills what is advertised part by part, and a call that must end
// tells how far it came.
func TestFillInParts(t *testing.T) {
	a, b := pipelined(t, 10_000)
	require.True(t, a.BeginWrite(20_000))
	p := a.PlanWrite(20_000, WriteGoesOn)
	require.Equal(t, WriteFill, p.Step)
	require.Equal(t, 10_000, p.N)
	a.Fill(p)
	a.Filled(4000)
	p = a.PlanWrite(16_000, WriteGoesOn)
	assert.Equal(t, WriteFill, p.Step)
	assert.Equal(t, 6000, p.N)
	assert.EqualValues(t, 4100, p.VA)
	assert.Equal(t, WriteControl, a.PlanWrite(16_000, WriteStops).Step)
	assert.Equal(t, wire.MIDRdmaWrCompl, next(t, a, b))
	n, ended := b.AdvertEnded()
	assert.True(t, ended)
	assert.Equal(t, 4000, n)
	assert.Equal(t, WriteDone, a.PlanWrite(16_000, WriteStops).Step)
}

// TestOneMessage: a Read whose advertisement was used up by payload returns that of one
// message (§9.5.1).
func TestOneMessage(t *testing.T) {
	a, b := pipelined(t, 10_000)
	var batch Batch
	a.Data(&batch, []byte("two"), 2, 2)
	post(t, a, b, &batch)
	n, ended := b.AdvertEnded()
	require.True(t, ended)
	require.Zero(t, n)
	assert.Equal(t, ReadMessage, b.PlanRead(10_000, false, false))
	b.ReadDone()
	assert.Equal(t, ReadCopy, b.PlanRead(10_000, false, false), "the next Read")
}

// TestReadGoesOnAfterACopy: what rode along with an advertisement is a small part of it.
func TestReadGoesOnAfterACopy(t *testing.T) {
	a, b := pair(true)
	offered(t, a, b, 1000)
	_, _, _, ok := b.Fetch(1000)
	assert.False(t, ok, "unread payload comes first")
	require.Equal(t, ReadCopy, b.PlanRead(2000, false, false))
	b.Consume(zcopy.Ride)
	assert.Equal(t, ReadFetch, b.PlanRead(2000-zcopy.Ride, true, false))
	assert.Equal(t, ReadDone, b.PlanRead(0, true, false), "the Read is full")
	assert.Equal(t, ReadDone, b.PlanRead(2000-zcopy.Ride, true, true), "nothing can be asked for")
}

// TestUnfetch: if no RDMA Read is under way whose completion would say when to try again, the
// peer is asked for Data.
func TestUnfetch(t *testing.T) {
	a, b := pair(true)
	offered(t, a, b, 1000)
	b.Consume(zcopy.Ride)
	first, _, _, _ := b.Fetch(100)
	second, _, _, _ := b.Fetch(100)
	assert.False(t, b.Unfetch(second), "the first is under way")
	assert.True(t, b.Unfetch(first))
	assert.Equal(t, wire.MIDSendSm, next(t, b, a))
}

// TestWithdrawnBeforeUnfetch: the peer has withdrawn its advertisement while the only RDMA
// Read was being posted. Its answer is due at once, because nothing else would send it.
func TestWithdrawnBeforeUnfetch(t *testing.T) {
	a, b := pair(true)
	offered(t, a, b, 1000)
	b.Consume(zcopy.Ride)
	size, _, _, ok := b.Fetch(1000)
	require.True(t, ok)
	a.Overdue()
	require.Equal(t, wire.MIDSrcAvailCancel, next(t, a, b))
	require.False(t, b.Due(), "the RDMA Read may be under way")
	assert.True(t, b.Unfetch(size))
	assert.Equal(t, wire.MIDSendSm, next(t, b, a))
}

// TestReadWithoutMemory: a call that takes payload where it is asks for Data.
func TestReadWithoutMemory(t *testing.T) {
	a, b := pair(true)
	assert.Equal(t, ReadWait, b.PlanRead(0, false, false))
	offered(t, a, b, 1000)
	assert.Equal(t, ReadCopy, b.PlanRead(0, false, false))
	b.Consume(zcopy.Ride)
	assert.Equal(t, ReadControl, b.PlanRead(0, false, false))
}

// TestChannelEnded: what the end of the channel means.
func TestChannelEnded(t *testing.T) {
	violation, failure := &rdma.ProtocolError{}, errors.New("no route")
	for _, v := range []struct {
		name             string
		err, before      error
		disConn, outlive bool
		recv, send       error
		violated         bool
	}{
		{"a violation", violation, syscall.EPIPE, false, true, violation, violation, true},
		{"after a DisConn", failure, nil, true, false, io.EOF, syscall.EPIPE, false},
		{"after a DisConn and a failed Write", io.EOF, failure, true, false, io.EOF, failure, false},
		{"a failure", failure, nil, false, true, failure, failure, false},
		{"an end, all has arrived", io.EOF, nil, false, true, io.EOF, syscall.EPIPE, false},
		{"an end in a message", io.ErrUnexpectedEOF, nil, false, true, syscall.ECONNRESET, syscall.ECONNRESET, false},
		{"an end in a message, after a failed Write", io.ErrUnexpectedEOF, syscall.EPIPE, false, true, syscall.ECONNRESET, syscall.EPIPE, false},
		{"an end after a reset", io.EOF, syscall.ECONNRESET, false, true, syscall.ECONNRESET, syscall.ECONNRESET, false},
		{"an end, bytes may be missing", io.EOF, nil, false, false, syscall.ECONNRESET, syscall.ECONNRESET, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			a, b := pair(false)
			if v.disConn {
				b.EndWrites()
				next(t, b, a)
			}
			recv, send, violated := a.ChannelEnded(v.err, v.before, v.outlive)
			assert.Equal(t, v.recv, recv)
			assert.Equal(t, v.send, send)
			assert.Equal(t, v.violated, violated)
		})
	}
}

// TestCutInATransfer: the end of the channel is a reset if the peer has announced bytes that have
// not arrived.
func TestCutInATransfer(t *testing.T) {
	for _, v := range []struct {
		name string
		do   func(a, b *Session) // after b has received a SrcAvail of a and has read what it carried
		cut  bool
	}{
		{"not fetched", func(a, b *Session) {}, true},
		{"asked for, and the SendSm is due", func(a, b *Session) { b.RefuseAdverts() }, true},
		{"asked for", func(a, b *Session) {
			b.RefuseAdverts()
			next(t, b, a)
		}, true},
		{"being fetched", func(a, b *Session) { b.Fetch(1000) }, true},
		{"fetched", func(a, b *Session) {
			size, _, _, _ := b.Fetch(1000)
			b.Fetched(size)
		}, false},
		{"withdrawn", func(a, b *Session) {
			a.Overdue()
			next(t, a, b)
			next(t, b, a)
		}, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			a, b := pair(true)
			offered(t, a, b, 1000)
			b.Consume(zcopy.Ride)
			v.do(a, b)
			recv, send, _ := b.ChannelEnded(io.EOF, nil, true)
			if v.cut {
				assert.Equal(t, syscall.ECONNRESET, recv)
				assert.Equal(t, syscall.ECONNRESET, send)
			} else {
				assert.Equal(t, io.EOF, recv)
				assert.Equal(t, syscall.EPIPE, send)
			}
			recv, _, _ = a.ChannelEnded(io.EOF, nil, true)
			assert.Equal(t, io.EOF, recv, "the other direction is whole")
		})
	}
}

type owner struct{ released int }

func (o *owner) Release() { o.released++ }

// TestGather: small messages are gathered when they hold more than half of the buffers.
func TestGather(t *testing.T) {
	a, b := pair(false)
	var o owner
	release := func(owner bcopy.Owner) { owner.Release() }
	var batch Batch
	for i := range 10 {
		a.Data(&batch, []byte("x"), 1, 1)
		raw := append(append([]byte(nil), batch.WRs[0].Header...), batch.WRs[0].Payload...)
		_, err := b.Receive(raw, &o, 0, false)
		require.NoError(t, err)
		a.Sent(&batch, 1)
		assert.Equal(t, i == 8, b.Gather(release), i)
	}
	assert.Equal(t, 8, o.released, "all but the oldest")
	buffers, copied := b.Held()
	assert.Equal(t, 2, buffers)
	assert.Positive(t, copied)
	assert.Equal(t, 10, b.Unread())

	assert.False(t, b.GatherMore(100, 2*gatherMost), "there is room")
	b.gather = 10
	assert.True(t, b.GatherMore(100, 50))
	assert.EqualValues(t, 50, b.gather)
	b.gather = 10
	assert.False(t, b.GatherMore(100, 10), "it would be more than that")
	for b.Unread() > 0 {
		assert.EqualValues(t, 10, b.gather)
		b.Consume(len(b.Head()))
	}
	assert.Zero(t, b.Ahead(), "everything was read")
}
