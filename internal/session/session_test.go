package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// pair returns the two Sessions of a connection.
func pair(direct bool) (a, b *Session) {
	hello := wire.Hello{Bufs: 16, LocalRcvSz: 4096, MaxAdverts: 4}
	var s [2]Session
	for i := range s {
		s[i] = New(Config{Dialled: i == 0, Local: hello, Peer: hello, Invalidates: true})
		if direct {
			s[i].StartDirect(DirectConfig{Threshold: 1, PeerAdverts: 4, Worth: 1})
		}
	}
	return &s[0], &s[1]
}

// post sends the Batch to the peer, all of it, and returns what it has become there.
func post(t testing.TB, from, to *Session, b *Batch) (events []Event) {
	t.Helper()
	for i := range b.WRs {
		raw := append(append([]byte(nil), b.WRs[i].Header...), b.WRs[i].Payload...)
		e, err := to.Receive(raw, nil, uint32(b.WRs[i].Invalidate), false)
		require.NoError(t, err)
		events = append(events, e)
	}
	from.Sent(b, len(b.WRs))
	return events
}

// next returns which message of the protocol's own goes next, and sends it; 0: none.
func next(t testing.TB, from, to *Session) wire.MID {
	t.Helper()
	var b Batch
	if !from.Control(&b, false) {
		return 0xFF
	}
	post(t, from, to, &b)
	return b.MID()
}

const none = wire.MID(0xFF)

// TestControlOrder: what is due at the same time goes in this order. An AbortConn follows a
// DisConn, and is the only message that a device which has failed is given.
func TestControlOrder(t *testing.T) {
	a, b := pair(false)
	assert.False(t, a.Due())
	assert.Equal(t, none, next(t, a, b))
	a.source.Carried(1 << 30)
	a.source.Wrote(1 << 30)
	require.True(t, a.EndWrites())
	require.False(t, a.EndWrites(), "it is due already")
	a.Update()
	assert.True(t, a.Due())
	assert.False(t, a.Abort(), "before the DisConn")
	assert.False(t, a.EndSent())
	assert.Equal(t, wire.MIDChRcvBuf, next(t, a, b))
	assert.Equal(t, wire.MIDDisConn, next(t, a, b))
	assert.True(t, a.EndSent())
	assert.True(t, b.sink.Ended())
	assert.True(t, a.Abort())
	var failed Batch
	require.True(t, a.Control(&failed, true))
	assert.Equal(t, wire.MIDAbortConn, failed.MID())
	a.Sent(&failed, 0)
	assert.True(t, a.DropAbort())
	assert.False(t, a.DropAbort())
	assert.False(t, a.Control(&failed, true), "an empty Data message")
	assert.Equal(t, wire.MIDData, next(t, a, b))
	assert.Equal(t, none, next(t, a, b))
	assert.False(t, a.Due())
}

// TestResize: the answer to a ChRcvBuf waits for the driver, which says how large the
// buffers are.
func TestResize(t *testing.T) {
	a, b := pair(false)
	a.source.Carried(1 << 30)
	a.source.Wrote(1 << 30)
	var batch Batch
	require.True(t, a.Control(&batch, false))
	events := post(t, a, b, &batch)
	require.EqualValues(t, 64750, events[0].Resize)
	assert.False(t, b.Due())
	b.sink.Resize(8192)
	assert.True(t, b.Due())
	assert.Equal(t, wire.MIDChRcvBufAck, next(t, b, a))
	assert.Equal(t, 8192, a.source.Size())
}

// TestDataThatDoesNotGo: what the device did not take is sent anew, and counted once.
func TestDataThatDoesNotGo(t *testing.T) {
	a, b := pair(false)
	var batch Batch
	a.Data(&batch, make([]byte, 10_000), 16, a.source.Payload())
	require.Len(t, batch.WRs, 3)
	assert.Equal(t, 10_000, batch.Bytes())
	batch.WRs = batch.WRs[:1]
	events := post(t, a, b, &batch)
	assert.True(t, events[0].Kept)
	assert.Equal(t, a.source.Payload(), events[0].Payload)
	a.Data(&batch, make([]byte, 10_000-events[0].Payload), 16, a.source.Payload())
	post(t, a, b, &batch)
	assert.Equal(t, 10_000, b.sink.Bytes())
	a.Data(&batch, nil, 16, a.source.Payload())
	assert.Empty(t, batch.WRs)
	n, due := a.Sent(&batch, 0)
	assert.Zero(t, n)
	assert.False(t, due)
}

// TestDropped: payload that nobody will read is not kept.
func TestDropped(t *testing.T) {
	a, b := pair(false)
	var batch Batch
	a.Data(&batch, []byte("one"), 1, 100)
	raw := append(append([]byte(nil), batch.WRs[0].Header...), batch.WRs[0].Payload...)
	posted := b.Posted()
	e, err := b.Receive(raw, nil, 0, true)
	require.NoError(t, err)
	assert.Equal(t, Event{MID: wire.MIDData, Valid: true, Payload: 3}, e)
	assert.Zero(t, b.sink.Bytes())
	assert.Equal(t, posted, b.Posted(), "its buffer is posted again")
}

// TestZeroCopyIsThePeers: an end that takes no part in zero copy learns of it from the peer,
// and has what is advertised come as Data.
func TestZeroCopyIsThePeers(t *testing.T) {
	a, b := pair(true)
	b.zsource, b.zsink = nil, nil
	var batch Batch
	require.True(t, a.BeginWrite(1000))
	plan := a.PlanWrite(1000, WriteGoesOn)
	require.Equal(t, WriteOffer, plan.Step)
	require.True(t, a.Offer(&batch, make([]byte, 1000), plan, 7, 8))
	post(t, a, b, &batch)
	require.NotNil(t, b.zsink)
	assert.Equal(t, zcopy.Ride, b.sink.Bytes())
	assert.Equal(t, ReadCopy, b.PlanRead(2000, false, false))
	b.sink.Consume(zcopy.Ride)
	assert.Equal(t, wire.MIDSendSm, next(t, b, a))
	plan = a.PlanWrite(1000-zcopy.Ride, WriteGoesOn)
	assert.Equal(t, WriteInvalidate, plan.Step)
	assert.EqualValues(t, 7, plan.STag)
	plan = a.PlanWrite(1000-zcopy.Ride, WriteGoesOn)
	assert.Equal(t, WriteCopy, plan.Step)
	assert.Equal(t, 1000-zcopy.Ride, plan.N)
}

// TestPlanRead: a Read copies, fetches, declines, advertises and waits.
func TestPlanRead(t *testing.T) {
	a, b := pair(true)
	assert.Equal(t, ReadWait, b.PlanRead(8192, false, false))
	var batch Batch
	require.True(t, a.BeginWrite(1000))
	require.True(t, a.Offer(&batch, make([]byte, 1000), a.PlanWrite(1000, WriteGoesOn), 7, 8))
	post(t, a, b, &batch)
	b.sink.Consume(b.sink.Bytes())
	assert.Equal(t, ReadFetch, b.PlanRead(8192, false, false))
	assert.NotEqual(t, ReadFetch, b.PlanRead(8192, false, true), "nothing can be asked for any more")
}

// TestAllocsOfHotPath: neither end of a small message allocates.
func TestAllocsOfHotPath(t *testing.T) {
	for _, direct := range []bool{false, true} {
		a, b := pair(direct)
		var batch Batch
		var raw [200]byte
		p := make([]byte, 64)
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			a.Data(&batch, p, a.Room(), a.source.Payload())
			wr := &batch.WRs[0]
			n := copy(raw[:], wr.Header)
			n += copy(raw[n:], wr.Payload)
			if _, err := b.Receive(raw[:n], nil, 0, false); err != nil {
				t.Fatal(err)
			}
			a.Sent(&batch, 1)
			b.sink.Consume(64)
			b.account.Post(1)
			if b.Due() && b.Control(&batch, false) {
				wr := &batch.WRs[0]
				if _, err := a.Receive(append(raw[:0], wr.Header...), nil, 0, false); err != nil {
					t.Fatal(err)
				}
				b.Sent(&batch, 1)
			}
		}), "zero copy %v", direct)
	}
}

// TestCarry: payload of any length takes an advertisement along, if the device's messages
// are long enough for both.
func TestCarry(t *testing.T) {
	for _, v := range []struct {
		size, payload, first int
		mid                  wire.MID
	}{
		{4080, 1, 1, wire.MIDSinkAvail},
		{4080, 10_000, 4080 - Extension, wire.MIDSinkAvail},
		{Extension + 1, 1, 1, wire.MIDSinkAvail},
		{Extension + 1, 100, 1, wire.MIDSinkAvail},
		{Extension, 100, Extension, wire.MIDData},
		{1, 1, 1, wire.MIDData},
	} {
		a, _ := pair(true)
		require.NoError(t, a.zsink.ModeChange(wire.ModePipelined))
		require.Equal(t, ReadAdvertise, a.PlanRead(1<<20, false, false))
		a.zsink.Offer(7, 1, 1<<20)
		var batch Batch
		a.Data(&batch, make([]byte, v.payload), 16, v.size)
		require.NotEmpty(t, batch.WRs)
		assert.Equal(t, v.mid, batch.MID(), v)
		assert.Len(t, batch.WRs[0].Payload, v.first, v)
	}
}
