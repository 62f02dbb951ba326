package session

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// TestTurns: which Writes are predicted to be answered. In a story, W is a large Write that is
// sent at once, w one that is still under way, s the end of that, o a small Write, and p payload
// that arrives. It says which of the large Writes are advertised: a for those, and - for others.
func TestTurns(t *testing.T) {
	for _, v := range []struct{ name, story, want string }{
		{"requests", "WpWpWpW", "--aa"},
		{"responses", "pWpWpWpW", "--aa"},
		{"answers of several messages", "WpppWpppWpp", "--a"},
		{"small Writes beside large ones", "oWopoWopoWop", "--a"},
		{"small requests", "opopopWp", "-"},
		{"a stream", "WWWWWW", "------"},
		{"a stream that is acknowledged once", "WWWpWWWpWWWp", "---------"},
		{"a stream after requests", "WpWpWpWWWW", "--aa---"},
		{"requests after a stream", "WWWpWpWpW", "----aa"},
		{"both directions at once", "wpsWpwpsWpwps", "-----"},
		{"an answer before the end of an advertised Write", "WpWpwpsWpWpWpWpWpW", "--a----aa"},
	} {
		t.Run(v.name, func(t *testing.T) {
			turns := newTurns(1000)
			var got strings.Builder
			for _, c := range v.story {
				switch c {
				case 'W', 'w':
					way := "-"
					if turns.begin(1001, true) {
						way = "a"
					}
					got.WriteString(way)
					if c == 'W' {
						turns.sent(1001)
					}
				case 's':
					turns.sent(1001)
				case 'o':
					assert.False(t, turns.begin(1000, true))
				case 'p':
					turns.payload()
				}
			}
			assert.Equal(t, v.want, got.String())
		})
	}
}

// TestTurnsNeedMore: each advertised Write that the peer did not wait for doubles the number of
// answered Writes that the next prediction needs, up to a limit.
func TestTurnsNeedMore(t *testing.T) {
	turns := newTurns(1000)
	for want := int32(needLeast); want < 4*needMost; want *= 2 {
		for range min(want, needMost) {
			require.False(t, turns.begin(2000, true))
			turns.sent(2000)
			turns.payload()
		}
		turns.classes = [len(turns.classes)]pace{}
		require.True(t, turns.begin(2000, true), "after %d", want)
		turns.payload()
		turns.sent(2000)
		turns.payload()
		turns.answered = 0
	}
}

// TestSmallWriteAfterTimed: a small Write that follows a large one, as the end of a request, does not
// begin the time that is measured again.
func TestSmallWriteAfterTimed(t *testing.T) {
	s := &Session{}
	s.StartDirect(predicted)
	for range needLeast {
		s.BeginWrite(1<<20, false)
		s.turns.sent(1 << 20)
		s.turns.payload()
	}
	s.BeginWrite(1<<20, false)
	require.True(t, s.Timed())
	s.turns.sent(1 << 20)
	s.BeginWrite(100, false)
	assert.False(t, s.Timed())
	assert.True(t, s.turns.payload(), "it is measured nevertheless")
}

// TestTurnsCannot: where zero copy cannot be used, a Write is not advertised and not measured.
func TestTurnsCannot(t *testing.T) {
	turns := newTurns(1000)
	for range 10 {
		assert.False(t, turns.begin(2000, false))
		assert.False(t, turns.timed)
		turns.sent(2000)
		assert.False(t, turns.payload())
	}
}

// TestPace: the faster way is found, kept, and compared again after more and more Writes.
func TestPace(t *testing.T) {
	for _, faster := range []bool{false, true} {
		var p pace
		rest := int32(0)
		for comparison := range 10 {
			tried := [2]int{}
			for range 2 * paceTries {
				direct, timed := p.next()
				require.True(t, timed)
				d := 20 * time.Microsecond
				if direct == faster {
					d = 10 * time.Microsecond
				}
				tried[map[bool]int{true: 1}[direct]]++
				if tried[1] == 1 {
					d = time.Second // one that was disturbed
				}
				p.measured(direct, d)
			}
			assert.Equal(t, [2]int{paceTries, paceTries}, tried)
			if comparison == 0 {
				rest = restLeast
			} else {
				rest = min(2*rest, restMost)
			}
			assert.Equal(t, rest, p.rest, "comparison %d", comparison)
			for range p.rest {
				direct, timed := p.next()
				require.Equal(t, faster, direct)
				require.False(t, timed)
			}
		}
	}
}

// predicting returns two Sessions that predict, and a Write of n bytes from one to the other.
func predicting() (a, b *Session, copied func(t *testing.T, from, to *Session, n int) (answers int)) {
	hello := wire.Hello{Bufs: 600, LocalRcvSz: 16 << 10, MaxAdverts: 1}
	var s [2]Session
	for i := range s {
		s[i] = New(Config{Dialled: i == 0, Local: hello, Peer: hello, Grows: true})
		s[i].Predict()
	}
	return &s[0], &s[1], func(t *testing.T, from, to *Session, n int) (answers int) {
		require.False(t, from.BeginWrite(n, false))
		if from.Timed() {
			from.WriteBegan(1)
		}
		var batch Batch
		for n > 0 {
			from.Data(&batch, make([]byte, n), MaxBatch, from.Payload())
			n -= batch.Bytes()
			for _, e := range post(t, from, to, &batch) {
				if e.Answer {
					answers++
					to.Answered(20)
				}
			}
		}
		for to.Unread() > 0 {
			to.Consume(len(to.Head()))
			to.Post(1)
		}
		return answers
	}
}

// TestPredictedWrite: zero copy begins with the first Write that is predicted, at an end that has
// exchanged messages before. The peer, whose state is created then, fetches, and asks neither for
// Pipelined mode nor for Data.
func TestPredictedWrite(t *testing.T) {
	const n = 1 << 20
	a, b, copied := predicting()
	copied(t, a, b, 100)
	assert.Nil(t, a.zsource, "a small Write needs no zero copy")
	assert.Positive(t, a.Growth())
	for range 2 {
		copied(t, a, b, n)
		copied(t, b, a, 100)
	}
	assert.Nil(t, b.zsource)
	for i := range 3 {
		require.True(t, a.BeginWrite(n, false), "Write %d", i)
		require.True(t, a.Timed())
		a.WriteBegan(10)
		assert.Zero(t, a.Growth(), "in a planned Write")
		p := a.PlanWrite(n, WriteGoesOn)
		require.Equal(t, WriteOffer, p.Step)
		var batch Batch
		require.True(t, a.Offer(&batch, make([]byte, n), p, 7, 8))
		event := post(t, a, b, &batch)[0]
		assert.Equal(t, i == 0, event.Direct)
		b.Consume(zcopy.Ride)
		b.Post(1)
		require.Equal(t, ReadFetch, b.PlanRead(n, true, false))
		size, _, _, ok := b.Fetch(n)
		require.True(t, ok)
		b.Fetched(size)
		require.Equal(t, wire.MIDRdmaRdCompl, next(t, b, a))
		assert.Equal(t, WriteInvalidate, a.PlanWrite(n-zcopy.Ride, WriteGoesOn).Step)
		assert.Equal(t, WriteDone, a.PlanWrite(0, WriteGoesOn).Step)
		assert.Equal(t, 1, copied(t, b, a, 100), "the answer is timed")
		assert.Equal(t, wire.ModeCombined, a.zsource.Mode())
	}
	assert.EqualValues(t, 10, a.turns.class.best[1])
	a.zsource.Hint()
	a.zsource.Hint()
	assert.False(t, a.zsource.Pending(), "Pipelined mode is not entered")
	copied(t, a, b, 100)
	assert.Positive(t, a.Growth(), "a small Write may be appended to again")
	copied(t, a, b, n) // for comparison
}

// TestPredictingEndIsLiedTo: an end that has not used zero copy yet checks what the peer says about
// it as any other end does.
func TestPredictingEndIsLiedTo(t *testing.T) {
	advert := wire.Advert{Len: 1 << 20, STag: 1, VA: 1}
	for _, v := range []struct {
		name     string
		messages []wire.Message
		why      string
	}{
		{"a completion of nothing", []wire.Message{{Header: wire.Header{MID: wire.MIDRdmaRdCompl}, Size: 1}}, "§9.2: RdmaRdCompl without a SrcAvail"},
		{"an answer to nothing", []wire.Message{{Header: wire.Header{MID: wire.MIDSendSm}}}, "§9.5.2: SendSm without a SrcAvail"},
		{"a fill of nothing", []wire.Message{{Header: wire.Header{MID: wire.MIDRdmaWrCompl}, Size: 1}}, "§9.3: RdmaWrCompl without a SinkAvail"},
		{"memory that was not asked for", []wire.Message{{Header: wire.Header{MID: wire.MIDSinkAvail}, Advert: advert}}, "§12: SinkAvail in mode"},
		{"an advertisement without payload", []wire.Message{{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: advert}}, "§11.2: SrcAvail without payload"},
		{"two advertisements", []wire.Message{
			{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: advert, Payload: []byte("x")},
			{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: advert, Payload: []byte("x")},
		}, "§11.2: SrcAvail with payload after SrcAvail|§11.2: second SrcAvail"},
		{"payload after an advertisement", []wire.Message{
			{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: advert, Payload: []byte("x")},
			{Header: wire.Header{MID: wire.MIDData}, Payload: []byte("x")},
		}, "§11.2: Data with payload after SrcAvail"},
		{"an advertisement after the end", []wire.Message{
			{Header: wire.Header{MID: wire.MIDDisConn}},
			{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: advert, Payload: []byte("x")},
		}, "§8.2.1: SrcAvail"},
		{"an end before the answer", []wire.Message{
			{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: advert, Payload: []byte("x")},
			{Header: wire.Header{MID: wire.MIDDisConn}},
		}, "§8.2.1: DisConn before the end of advertised data"},
	} {
		t.Run(v.name, func(t *testing.T) {
			a, _, _ := predicting()
			var err error
			for i := range v.messages {
				require.NoError(t, err)
				m := &v.messages[i]
				m.MSeq, m.Bufs = uint32(i+1), 1
				raw := append(m.AppendHeader(nil), m.Payload...)
				_, err = a.Receive(raw, nil, 0, false)
			}
			require.Error(t, err)
			assert.Regexp(t, v.why, err.Error())
		})
	}
}
