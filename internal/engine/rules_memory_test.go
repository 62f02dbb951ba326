package engine

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// promisedBytes is how many bytes a connection promises its peer at its start.
const promisedBytes = RecvBuffers * recvSize

// holding returns a function that checks that the heap holds no more than most
// bytes beside what it holds now.
func holding(t *testing.T, most int) func() {
	t.Helper()
	before := heapLeft()
	return func() {
		t.Helper()
		held := heapLeft() - before
		t.Logf("%d KB", held>>10)
		assert.Less(t, held, most, "bytes held for a hostile peer")
	}
}

// hostileUp returns the client's end of a connection that is up, in bytes, and
// the victim, whose program reads nothing.
func hostileUp(t *testing.T) (net.Conn, *Conn) {
	t.Helper()
	client, served := hostileClient(t, &Config{HandshakeTimeout: time.Minute})
	client.SetDeadline(time.Now().Add(2 * soon))
	_, err := client.Write(hostileFrame(mpa.RequestKey, 0x40, 1, hostileOffers([]byte{1, 1, 1})...))
	require.NoError(t, err)
	readReply(t, client)
	client.Write(hostileFPDU(1, wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: 64, MSeq: 1}}))
	up := <-served
	require.NoError(t, up.err)
	return client, engineOf(t, up.Conn)
}

// TestUnreadMessagesHoldNoMoreThanPromised: between two messages the peer sends
// what is not kept, so that each of them lies alone in what one read has brought.
func TestUnreadMessagesHoldNoMoreThanPromised(t *testing.T) {
	defer hostileLeavesNothing(t)()
	for _, v := range []struct {
		name string
		size int // of each message's payload
	}{
		{"too long to be gathered", 2049},
		{"whole buffers", recvSize - wire.HeaderLen},
	} {
		t.Run(v.name, func(t *testing.T) {
			if testing.Short() && v.size == 2049 {
				t.Skip("missing: time, because -short is set; the other sizes are checked")
			}
			client, c := hostileUp(t)
			defer client.Close()
			defer c.Close()
			// What lies in the chunks that one read has filled, and in as many bytes again
			// the messages that are lent by themselves from then on.
			check := holding(t, promisedBytes*5/2)
			// RDMA Writes of nothing.
			nothing := bytes.Repeat(hostileULPDU(append([]byte{0xC1, 0x40}, make([]byte, 12)...)), 256<<10/20)
			messages := 5 * promisedBytes >> 18 // which would hold five times what is promised
			if testing.Short() {
				messages = 3 * promisedBytes >> 18
			}
			for i := range uint32(messages) {
				m := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: 64, MSeq: i + 2}, Payload: make([]byte, v.size)}
				_, err := client.Write(append(hostileFPDU(i+2, m), nothing...))
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.session.Unread() == messages*v.size
			}, soon, time.Millisecond)
			check()
			_, err := readZeros(c, messages*v.size)
			assert.NoError(t, err)
		})
	}
}

// readZeros reads n bytes, which are all 0.
func readZeros(c net.Conn, n int) (int, error) {
	b := make([]byte, 64<<10)
	for got := 0; got < n; {
		k, err := c.Read(b)
		if err == nil && !bytes.Equal(b[:k], make([]byte, k)) {
			err = fmt.Errorf("not what was sent, after %d bytes", got)
		}
		if got += k; err != nil {
			return got, err
		}
	}
	return n, nil
}

// TestAdvertisementsHoldNothing of a peer's, though it makes ten thousand of them:
// as many as it may at a time, which it withdraws.
func TestAdvertisementsHoldNothing(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	defer hostileLeavesNothing(t)()
	rounds := 10_000 / maxAdverts
	if testing.Short() {
		rounds /= 5
	}
	for _, v := range []struct {
		name   string
		begin  func(v *victim)
		advert func(v *victim) hostileMessage
		cancel byte
		answer byte
	}{
		{"SrcAvail", func(v *victim) { v.say(hostileMode(wire.ModePipelined)) }, func(*victim) hostileMessage { return hostileSrcAvail(1<<31, "") }, 8, 4},
		{"SinkAvail", (*victim).pipelined, func(v *victim) hostileMessage { return hostileSinkAvail(1<<31, uint32(v.payloads)) }, 9, 10},
	} {
		t.Run(v.name, func(t *testing.T) {
			ln, err := engineListen()
			require.NoError(t, err)
			defer ln.Close()
			p, c := hostilePair(t, ln)
			defer c.Close()
			defer p.qp.Close()
			victim := &victim{t: t, hostilePeer: p, c: engineOf(t, c), write: make(chan error, 1)}
			watchdog := time.AfterFunc(time.Minute, func() { p.qp.Abort() })
			defer watchdog.Stop()
			v.begin(victim)
			check := holding(t, 256<<10)
			ack := uint32(0)
			for range rounds {
				for range maxAdverts - 1 { // one may be answered at once, and need not
					p.say(hostileAck(v.advert(victim), ack))
				}
				p.say(hostileAck(hostileMessage{mid: v.cancel}, ack))
				ack = p.hears(v.answer)
			}
			check()
		})
	}
}

// TestHandshakesHoldLittle while their clients are silent in the private data that
// they have announced.
func TestHandshakesHoldLittle(t *testing.T) {
	defer hostileLeavesNothing(t)()
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	check := holding(t, 2<<20)
	for range 200 {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write(spoilt(hostileFrame(mpa.RequestKey, 0x40, 1, make([]byte, 100)...), 18, 2, 0))
		require.NoError(t, err)
	}
	c, s, err := bothEnds(ln, engineDial) // after them
	require.NoError(t, err)
	defer c.Close()
	defer s.Close()
	check()
}
