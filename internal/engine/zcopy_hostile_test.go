package engine

import (
	"encoding/binary"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

const hostileSize = 100_000 // of what the victim writes and reads

// A victim is an end that keeps the rules, whose memory the hostile peer has.
type victim struct {
	t *testing.T
	*hostilePeer
	c     *Conn
	write chan error // the result of its Write
	read  chan error // of its Read
	over  chan error // how the channel ended, once it polls in a goroutine
	src   wire.Advert
	sink  wire.Advert
}

// writes has the victim advertise a Write.
func (v *victim) writes() {
	v.t.Helper()
	go func() {
		_, err := v.c.Write(make([]byte, hostileSize))
		v.write <- err
	}()
	v.src = v.gets(0xFE).Advert
}

// reads has the victim advertise a Read.
func (v *victim) reads() {
	v.t.Helper()
	v.say(hostileMode(wire.ModePipelined))
	go func() {
		_, err := v.c.Read(make([]byte, hostileSize))
		v.read <- err
	}()
	v.sink = v.gets(0xFD).Advert
}

// pipelined has the victim's Writes go Pipelined: two completions say that
// somebody waits.
func (v *victim) pipelined() {
	v.t.Helper()
	v.writes()
	for _, n := range []uint32{1, v.src.Len - zcopy.Ride - 1} {
		m := hostileWord(6, n)
		m.flags = byte(wire.FlagReqPipe)
		v.say(m)
	}
	v.hears(7)
	require.NoError(v.t, <-v.write)
}

// poll keeps the peer's device going in a goroutine.
func (v *victim) poll() {
	v.over = make(chan error, 1)
	go func(over chan error) { over <- v.ended() }(v.over)
}

// revokes is m that invalidates a region of the victim's.
func revokes(m hostileMessage, s uint32) hostileMessage {
	m.invalidate = rdma.STag(s)
	return m
}

func hostileMode(m wire.Mode) hostileMessage { return hostileWord(7, uint32(m)<<28) }

// hostileSinkAvail advertises memory that there is not.
func hostileSinkAvail(size, nonDiscards uint32) hostileMessage {
	b := binary.BigEndian.AppendUint32(nil, size)
	b = append(b, make([]byte, 12)...)
	return hostileMessage{mid: 0xFD, extension: binary.BigEndian.AppendUint32(b, nonDiscards)}
}

// transferRules are those about advertised memory.
var transferRules = []rule{
	{"Zero copy: §9.2, no more than was advertised", "RdmaRdCompl for more than is left", func(v *victim) {
		v.writes()
		v.say(hostileWord(6, v.src.Len))
	}, "§9.2: RdmaRdCompl for 100000 bytes of a SrcAvail of which 99936 were left", ""},
	{"Zero copy: §9.2, of a SrcAvail", "RdmaRdCompl twice", func(v *victim) {
		v.writes()
		v.say(hostileWord(6, v.src.Len-zcopy.Ride), hostileWord(6, 1))
	}, "§9.2: RdmaRdCompl without a SrcAvail", ""},
	{"Zero copy: §9.2, of a SrcAvail", "RdmaRdCompl after SendSm", func(v *victim) {
		v.writes()
		v.say(hostileMessage{mid: 4})
		v.hears(0xFF)
		require.NoError(v.t, <-v.write)
		v.say(hostileWord(6, 1))
	}, "§9.2: RdmaRdCompl without a SrcAvail", ""},
	{"Zero copy: §9.2, after all that SendSm has asked for", "RdmaRdCompl before what SendSm has asked for", func(v *victim) {
		v.writes()
		// Without credit none of it can come.
		v.say(hostileMessage{mid: 4, bufs: -1}, hostileMessage{mid: 6, extension: []byte{0, 0, 0, 1}, bufs: -1})
	}, "§9.2: RdmaRdCompl before the data that SendSm requested", ""},
	{"Zero copy: §9.5.2, one for a SrcAvail", "SendSm twice", func(v *victim) {
		v.writes()
		v.say(hostileMessage{mid: 4}, hostileMessage{mid: 4})
	}, "§9.5.2: SendSm without a SrcAvail", ""},
	{"Zero copy: §9.2, after the last byte", "RdmaRdCompl for a part invalidates", func(v *victim) {
		v.writes()
		v.say(revokes(hostileWord(6, 1), v.src.STag))
	}, "§9.2: RdmaRdCompl for 1 of 99936 bytes invalidates STag", ""},
	{"Zero copy: §9.2, the STag of the SrcAvail", "RdmaRdCompl invalidates the SinkAvail", func(v *victim) {
		v.reads()
		v.writes()
		v.say(revokes(hostileWord(6, v.src.Len-zcopy.Ride), v.sink.STag))
	}, "§9.2: RdmaRdCompl invalidates STag", ""},
	{"Zero copy: §9.3, the STag of the SinkAvail", "RdmaWrCompl invalidates the SrcAvail", func(v *victim) {
		v.reads()
		v.writes()
		v.say(revokes(hostileWord(5, v.sink.Len), v.src.STag))
	}, "§9.3: RdmaWrCompl invalidates STag", ""},
	{"Zero copy: §9.2, RdmaRdCompl and RdmaWrCompl alone", "Data invalidates", func(v *victim) {
		v.writes()
		v.say(revokes(hostileData("x"), v.src.STag))
	}, "§9.2: Data invalidates STag", ""},
	{"Zero copy: RFC 5040 §5.3, what this end has given", "an STag invalidated that was never given", func(v *victim) {
		v.writes()
		v.say(revokes(hostileWord(6, v.src.Len-zcopy.Ride), v.src.STag+1))
	}, "to invalidate is not registered here", ""},
	{"Zero copy: RFC 5040 §5.2, within what is advertised", "RDMA Read past the end", func(v *victim) {
		v.writes()
		v.fetches(1, uint64(v.src.Len))
	}, "is past the 100000 bytes of STag", ""},
	{"Zero copy: RFC 5040 §5.2, within what is advertised", "RDMA Read longer than what is advertised", func(v *victim) {
		v.writes()
		v.fetches(int(v.src.Len)+1, 0)
	}, "is past the 100000 bytes of STag", ""},
	{"Zero copy: RFC 5040 §5.2, within what is advertised", "RDMA Read in front of what is advertised", func(v *victim) {
		v.writes()
		v.fetches(2, math.MaxUint64)
	}, "wraps around", ""},
	{"Zero copy: §9.2, as long as it is advertised", "RDMA Read after the Write", func(v *victim) {
		v.writes()
		v.say(hostileWord(6, v.src.Len-zcopy.Ride))
		require.NoError(v.t, <-v.write)
		v.fetches(1, 0)
	}, "is not registered here", ""},
	{"Zero copy: §9.5.2, as long as it is advertised", "RDMA Read after SendSm", func(v *victim) {
		v.writes()
		v.say(hostileMessage{mid: 4})
		require.NoError(v.t, <-v.write)
		v.fetches(1, 0)
	}, "is not registered here", ""},
	{"Zero copy: §9.5.4, as long as it is advertised", "RDMA Read after withdrawal", func(v *victim) {
		v.writes()
		cancel := v.gets(8)
		v.say(hostileMessage{mid: 4, ack: cancel.MSeq})
		require.NoError(v.t, <-v.write)
		v.fetches(1, 0)
	}, "is not registered here", ""},
	{"Zero copy: §9.2, to be read", "RDMA Write to a SrcAvail", func(v *victim) {
		v.writes()
		v.fills(v.src, 1, 0)
	}, "does not allow this access", ""},

	{"Zero copy: §9.3, no more than was advertised", "RdmaWrCompl for more than is advertised", func(v *victim) {
		v.reads()
		v.say(hostileWord(5, v.sink.Len+1))
	}, "§9.3: RdmaWrCompl for 100001 bytes of a SinkAvail of 100000", ""},
	{"Zero copy: §9.3, one for a SinkAvail", "RdmaWrCompl twice", func(v *victim) {
		v.reads()
		v.say(hostileWord(5, 1), hostileWord(5, 1))
	}, "§9.3: RdmaWrCompl without a SinkAvail", ""},
	{"Zero copy: One SinkCancelAck is accepted after such a part, or if it has crossed a DisConn", "SinkCancelAck after DisConn, twice", func(v *victim) {
		v.reads()
		require.NoError(v.t, v.c.SetReadDeadline(time.Now()))
		v.hears(9)
		v.sayAtOnce(hostileMessage{mid: 2}, hostileMessage{mid: 10}, hostileMessage{mid: 10})
		require.Error(v.t, <-v.read)
	}, "§9.5.5: SinkCancelAck without a SinkAvailCancel", ""},
	{"Zero copy: §11.3, SinkAvail in Pipelined mode", "RDMA Write without a SinkAvail", func(v *victim) {
		v.fills(wire.Advert{STag: 1}, 1, 0)
	}, "is not registered here", ""},
	{"Zero copy: §11.3, SrcAvail before it is read", "RDMA Read without a SrcAvail", func(v *victim) {
		v.src.STag = 1
		v.fetches(1, 0)
	}, "is not registered here", ""},
	{"Zero copy: §9.5.1, payload uses it up", "RdmaWrCompl after payload", func(v *victim) {
		v.reads()
		v.say(hostileData("x"), hostileWord(5, 1))
	}, "§9.3: RdmaWrCompl without a SinkAvail", ""},
	{"Zero copy: A change from Pipelined to Combined mode makes the source drop the SinkAvails", "RdmaWrCompl after Combined mode", func(v *victim) {
		v.reads()
		v.say(hostileMode(wire.ModeCombined), hostileWord(5, 1))
	}, "§9.3: RdmaWrCompl without a SinkAvail", ""},
	{"Zero copy: §9.5.5, for a SinkAvailCancel", "SinkCancelAck without a cancel", func(v *victim) {
		v.reads()
		v.say(hostileMessage{mid: 10})
	}, "§9.5.5: SinkCancelAck without a SinkAvailCancel", ""},
	{"Zero copy: RFC 5041 §5.3, within what is advertised", "RDMA Write past the end", func(v *victim) {
		v.reads()
		v.fills(v.sink, 2, uint64(v.sink.Len)-1)
	}, "is past the 100000 bytes of STag", ""},
	{"Zero copy: §9.3, as long as it is advertised", "RDMA Write after the Read", func(v *victim) {
		v.reads()
		v.say(hostileWord(5, 1))
		require.NoError(v.t, <-v.read)
		v.fills(v.sink, 1, 0)
	}, "is not registered here", ""},
	{"Zero copy: §9.5.5, as long as it is advertised", "RDMA Write after withdrawal", func(v *victim) {
		v.reads()
		require.NoError(v.t, v.c.SetReadDeadline(time.Now()))
		v.hears(9)
		v.say(hostileMessage{mid: 10})
		require.ErrorIs(v.t, <-v.read, os.ErrDeadlineExceeded)
		require.NoError(v.t, v.c.SetReadDeadline(time.Time{}))
		v.fills(v.sink, 1, 0)
	}, "is not registered here", ""},

	{"Zero copy: §9.5.1, larger than a private buffer", "SinkAvail not larger than a buffer", func(v *victim) {
		v.pipelined()
		v.say(hostileSinkAvail(recvSize, uint32(v.payloads)))
	}, "§9.5.1: SinkAvail of 16384 bytes, private buffers have 16384", ""},
	{"Zero copy: §9.5.1, NonDiscards", "SinkAvail that has seen too much", func(v *victim) {
		v.pipelined()
		v.say(hostileSinkAvail(hostileSize, uint32(v.payloads)+1))
	}, "§9.5.1: SinkAvail with NonDiscards 2, at most 1 possible", ""},
	{"Zero copy: MaxAdverts limits both kinds together", "more SinkAvails than MaxAdverts", func(v *victim) {
		v.pipelined()
		for range maxAdverts + 1 {
			v.say(hostileSinkAvail(hostileSize, uint32(v.payloads)))
		}
	}, "§6.2.1: more than 16 advertisements", ""},
	{"Zero copy: §9.3, memory that there is", "SinkAvail of memory that there is not", func(v *victim) {
		v.pipelined()
		v.say(hostileSinkAvail(hostileSize, uint32(v.payloads)))
		v.say(hostileData("x")) // after which it has arrived
		_, err := v.c.Read(make([]byte, 1))
		require.NoError(v.t, err)
		v.poll() // its device answers
		if _, err = v.c.Write(make([]byte, hostileSize)); err != nil {
			// It is told meanwhile.
			require.ErrorContains(v.t, err, "peer terminated the stream")
		}
	}, "peer terminated the stream", ""},
	{"Zero copy: §9.2, memory that there is", "SrcAvail of memory that there is not", func(v *victim) {
		v.say(hostileSrcAvail(hostileSize, "before"))
		v.poll()
		_, err := v.c.Read(make([]byte, hostileSize)) // which fetches what follows
		require.NoError(v.t, err)
	}, "peer terminated the stream", ""},
}

// fetches reads n bytes of the victim's Write, at offset off.
func (v *victim) fetches(n int, off uint64) {
	v.t.Helper()
	require.NoError(v.t, v.qp.PostRead(rdma.ReadWR{
		ID: 1, Local: make([]byte, n), STag: rdma.STag(v.src.STag), VA: v.src.VA + off,
	}))
}

// fills writes n bytes to memory of the victim's.
func (v *victim) fills(a wire.Advert, n int, off uint64) {
	v.t.Helper()
	require.NoError(v.t, v.qp.PostWrite(rdma.WriteWR{
		ID: 1, Local: make([]byte, n), STag: rdma.STag(a.STag), VA: a.VA + off,
	}))
}

// TestHostileTransfers has connections end with each violation, and the calls
// whose memory it was about.
func TestHostileTransfers(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	for _, r := range transferRules {
		for _, side := range hostileSides {
			t.Run(r.name+"/"+side, func(t *testing.T) {
				p, nc := hostileAs(t, side, house.ln)
				defer p.qp.Close()
				defer nc.Close()
				v := &victim{t: t, hostilePeer: p, c: engineOf(t, nc), write: make(chan error, 1), read: make(chan error, 1)}
				asksEarly(v.c)
				watchdog := time.AfterFunc(soon, func() { p.qp.Abort() })
				defer watchdog.Stop()
				r.act(v)
				v.c.SetReadDeadline(time.Now().Add(soon))
				// With Reads so small that none of them is advertised: it would have room for
				// what has none.
				err := readAtATime(v.c, io.Discard, recvSize)
				require.Error(t, err)
				assert.ErrorContains(t, err, r.error)
				_, writeErr := v.c.Write([]byte("x"))
				assert.Error(t, writeErr)
				v.c.Close()
				if v.over == nil {
					v.poll()
				}
				assert.Error(t, <-v.over)
			})
		}
		hostileExchange(t, house.good, house.served)
	}
	house.goesOn(t)
}

// TestCancelsForNothingAreIgnored also while the victim has advertised something:
// they are for what the peer has.
func TestCancelsForNothingAreIgnored(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	p, c := hostilePair(t, ln)
	v := &victim{t: t, hostilePeer: p, c: engineOf(t, c), write: make(chan error, 1)}
	asksEarly(v.c)
	v.writes()
	p.say(hostileMessage{mid: 8}, hostileMessage{mid: 9}, hostileWord(6, v.src.Len-zcopy.Ride))
	assert.NoError(t, <-v.write)
	assert.NoError(t, c.Close())
	p.qp.Close()
}

// TestPeerCancelsSeveralAdvertisements while the victim fills the first: the peer releases the
// memory of all at SinkCancelAck, so that comes after the RdmaWrCompl (§9.5.5).
func TestPeerCancelsSeveralAdvertisements(t *testing.T) {
	const size = 32 << 20 // more than the kernel holds while the peer does not poll
	t.Setenv(thresholdVariable, "1")
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	p, nc := hostilePair(t, ln)
	defer nc.Close()
	defer p.qp.Abort()
	v := &victim{t: t, hostilePeer: p, c: engineOf(t, nc), write: make(chan error, 1)}
	asksEarly(v.c)
	neverOverdue(v.c)
	v.pipelined()
	for range 2 {
		region, err := p.qp.Register(make([]byte, size), rdma.RemoteWrite)
		require.NoError(t, err)
		m := hostileSinkAvail(size, uint32(v.payloads))
		binary.BigEndian.PutUint32(m.extension[4:], uint32(region.STag))
		binary.BigEndian.PutUint64(m.extension[8:], region.VA)
		p.say(m)
	}
	p.say(hostileData("x")) // after which they have arrived
	_, err = v.c.Read(make([]byte, 1))
	require.NoError(t, err)
	go func() {
		_, err := v.c.Write(make([]byte, size))
		v.write <- err
	}()
	during := func(what func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			v.c.mu.Lock()
			defer v.c.mu.Unlock()
			return what()
		}, soon, time.Millisecond)
	}
	during(func() bool { return v.c.zcopy.writes > 0 && v.c.poll.inRoom })
	p.say(hostileMessage{mid: 9})
	during(func() bool { return v.c.session.Parts().ZSource.Unwanted() })
	v.c.out.sendDue() // whatever may be sent now
	var order []wire.MID
	for len(order) < 2 {
		if m := p.next(); m.MID == wire.MIDRdmaWrCompl || m.MID == wire.MIDSinkCancelAck {
			order = append(order, m.MID)
		}
	}
	assert.Equal(t, []wire.MID{wire.MIDRdmaWrCompl, wire.MIDSinkCancelAck}, order)
	p.qp.Abort()
	assert.Error(t, await(t, v.write, soon), "the rest was not sent")
}
