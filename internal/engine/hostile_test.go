package engine

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// hostilePeer speaks SDP as the test wants it, over a queue pair that is right.
type hostilePeer struct {
	t    *testing.T
	tcp  net.Conn // below qp; nil at a server
	qp   rdma.QueuePair
	mseq uint32

	payloads int // messages with payload that it has heard
}

// hostileMessage is a message, with its header written by hand: what is zero in
// it is as it should be.
type hostileMessage struct {
	mid       byte
	extension []byte
	payload   string
	mseq      uint32
	ack       uint32
	longer    int // by how much Len says too much
	bufs      int // 64 if 0, none if negative

	flags      byte
	invalidate rdma.STag // the victim's
}

// say sends messages.
func (p *hostilePeer) say(messages ...hostileMessage) {
	p.t.Helper()
	for _, m := range messages {
		p.post(p.request(m))
	}
}

// sayAtOnce sends messages between which the victim cannot answer: they come in
// one segment of TCP.
func (p *hostilePeer) sayAtOnce(messages ...hostileMessage) {
	p.t.Helper()
	var wrs []rdma.SendWR
	for _, m := range messages {
		wrs = append(wrs, p.request(m))
	}
	p.post(wrs...)
}

func (p *hostilePeer) post(wrs ...rdma.SendWR) {
	for len(wrs) > 0 {
		n, err := p.qp.PostSend(wrs)
		wrs = wrs[n:]
		if err != nil && err != rdma.ErrNoRoom {
			return // what the victim has ended takes nothing more
		}
		if len(wrs) > 0 && p.qp.WaitRoom() != nil {
			return
		}
	}
}

// request is the message as it goes, with the next MSeq.
func (p *hostilePeer) request(m hostileMessage) rdma.SendWR {
	p.mseq++
	if m.mseq == 0 {
		m.mseq = p.mseq
	}
	if m.bufs == 0 {
		m.bufs = 64
	}
	h := []byte{m.mid, m.flags, 0, byte(max(0, m.bufs))}
	h = binary.BigEndian.AppendUint32(h, uint32(wire.HeaderLen+len(m.extension)+len(m.payload)+m.longer))
	h = binary.BigEndian.AppendUint32(h, m.mseq)
	h = binary.BigEndian.AppendUint32(h, m.ack)
	h = append(h, m.extension...)
	return rdma.SendWR{Header: h, Payload: []byte(m.payload), Invalidate: m.invalidate}
}

// ended waits until the victim has ended the channel, and returns how.
func (p *hostilePeer) ended() error {
	var wcs [4]rdma.Completion
	for {
		n, err := p.qp.Wait(wcs[:])
		for _, wc := range wcs[:n] {
			if wc.Op == rdma.OpReceive {
				wc.Buffer.Release()
			}
		}
		if err != nil {
			return err
		}
	}
}

// hears waits for a message with this MID and returns its MSeq.
func (p *hostilePeer) hears(mid byte) uint32 {
	p.t.Helper()
	return p.gets(mid).MSeq
}

// gets is hears that returns the message, without its payload.
func (p *hostilePeer) gets(mid byte) wire.Message {
	p.t.Helper()
	for {
		if m := p.next(); m.MID == wire.MID(mid) {
			return m
		}
	}
}

// next waits for a message, and returns it without its payload.
func (p *hostilePeer) next() (m wire.Message) {
	p.t.Helper()
	var wcs [1]rdma.Completion
	for {
		n, err := p.qp.Wait(wcs[:])
		require.NoError(p.t, err)
		if n == 0 || wcs[0].Op != rdma.OpReceive {
			continue
		}
		err = m.Parse(wcs[0].Buffer.Bytes)
		p.payloads += min(len(m.Payload), 1)
		m.Payload = nil
		wcs[0].Buffer.Release()
		require.NoError(p.t, err)
		return m
	}
}

func hostileData(payload string) hostileMessage { return hostileMessage{mid: 0xFF, payload: payload} }

// hostileWord is an extension of one word.
func hostileWord(mid byte, x uint32) hostileMessage {
	return hostileMessage{mid: mid, extension: binary.BigEndian.AppendUint32(nil, x)}
}

func hostileSrcAvail(size uint32, payload string) hostileMessage {
	return hostileMessage{mid: 0xFE, extension: append(binary.BigEndian.AppendUint32(nil, size), make([]byte, 12)...), payload: payload}
}

// hostileHello is a good Hello, or a HelloAck if ack.
func hostileHello(ack bool) []byte {
	h := wire.Hello{Bufs: 64, MaxAdverts: 4, LocalRcvSz: 16 << 10, IRD: 4, ORD: 4}
	if ack {
		return h.AppendHelloAck(nil)
	}
	return h.AppendHello(nil)
}

// hostilePrivate is a Request's private data with this Hello.
func hostilePrivate(t *testing.T, hello []byte) []byte {
	t.Helper()
	b, err := (&wire.Offers{Devices: []wire.Device{wire.DeviceIWARP}}).Append(nil)
	require.NoError(t, err)
	return append(b, hello...)
}

// hostileDial connects to a listener with this private data.
func hostileDial(t *testing.T, address string, private []byte) (*hostilePeer, error) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	c.SetDeadline(time.Now().Add(soon))
	qp, _, err := iwarp.Connect(c, iwarp.Config{IRD: 4, ORD: 4}, private)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	qp.ProvideReceive(64, 16<<10)
	return &hostilePeer{t: t, tcp: c, qp: qp}, nil
}

// hostileHouse is a listener with a good connection beside the hostile ones.
type hostileHouse struct {
	ln           net.Listener
	good, served net.Conn
}

func newHostileHouse(t *testing.T) *hostileHouse {
	t.Helper()
	ln, err := engineListen()
	require.NoError(t, err)
	h := &hostileHouse{ln: ln}
	h.good, h.served, err = bothEnds(ln, engineDial)
	require.NoError(t, err)
	return h
}

// goesOn checks that the good connection and the listener do.
func (h *hostileHouse) goesOn(t *testing.T) {
	t.Helper()
	hostileExchange(t, h.good, h.served)
	c, s, err := bothEnds(h.ln, engineDial)
	require.NoError(t, err)
	defer c.Close()
	defer s.Close()
	hostileExchange(t, c, s)
}

func hostileExchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, ends := range [][2]net.Conn{{a, b}, {b, a}} {
		_, err := io.WriteString(ends[0], "hello")
		require.NoError(t, err)
		got := make([]byte, 5)
		ends[1].SetReadDeadline(time.Now().Add(soon))
		_, err = io.ReadFull(ends[1], got)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
	}
}

func (h *hostileHouse) close() {
	h.good.Close()
	h.served.Close()
	h.ln.Close()
}

// hostileHeap is how much more the heap may hold after a table of violations: what
// the tests themselves have left, and buffers that the pools keep. A connection
// that is kept costs more than 10 KB, and a table has a hundred of them and more.
const hostileHeap = 1 << 20

// hostileLeavesNothing returns a function that checks that there are as many
// goroutines, descriptors and bytes on the heap as there are now.
func hostileLeavesNothing(t *testing.T) func() {
	count := func() (goroutines, descriptors int) {
		open, _ := os.ReadDir("/proc/self/fd") // 0 where there is no such thing
		return runtime.NumGoroutine(), len(open)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the runtime's own descriptors stay, once there
	require.NoError(t, err)
	ln.Close()
	goroutines, descriptors := count()
	heap := heapLeft()
	return func() {
		t.Helper()
		var g, d, h int
		for end := time.Now().Add(soon); time.Now().Before(end); runtime.Gosched() {
			if g, d = count(); g > goroutines || d > descriptors {
				continue
			}
			if h = heapLeft(); h <= heap+hostileHeap {
				return
			}
		}
		t.Errorf("%d goroutines were %d, %d descriptors were %d, %d bytes on the heap were %d", g, goroutines, d, descriptors, h, heap)
	}
}

// heapLeft is how many bytes are reachable on the heap. What a sync.Pool has
// survives one collection.
func heapLeft() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// hostileSays is an act that consists of messages.
func hostileSays(messages ...hostileMessage) func(v *victim) {
	return func(v *victim) { v.say(messages...) }
}

// hostileSaysAtOnce is one that leaves the victim no time to answer.
func hostileSaysAtOnce(messages ...hostileMessage) func(v *victim) {
	return func(v *victim) { v.sayAtOnce(messages...) }
}

// hostileSaysUnread is one that leaves the victim's program no time to Read either,
// which might use up an advertisement before the message after it is looked at.
func hostileSaysUnread(messages ...hostileMessage) func(v *victim) {
	return func(v *victim) {
		v.sayAtOnce(messages...)
		awaitOver(v.t, v.c)
	}
}

// hostilePair connects a hostile peer, as the client of a real listener.
func hostilePair(t *testing.T, ln net.Listener) (*hostilePeer, net.Conn) {
	t.Helper()
	accepted := accept1(ln)
	p, err := hostileDial(t, ln.Addr().String(), hostilePrivate(t, hostileHello(false)))
	require.NoError(t, err)
	p.say(hostileData(""))
	return p, <-accepted
}

// hostileServer connects a hostile peer, as the server of a real Dial, with this
// private data in its Reply.
func hostileServer(t *testing.T, private []byte) (*hostilePeer, net.Conn, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	up := make(chan *hostilePeer, 1)
	go func() {
		defer close(up)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		if request, err := iwarp.ReadRequest(c); err == nil {
			if qp, err := request.Accept(iwarp.Config{NoCRC: true}, private); err == nil {
				qp.ProvideReceive(64, 16<<10)
				up <- &hostilePeer{t: t, qp: qp}
				return
			}
		}
		c.Close()
	}()
	c, err := engineDial(ln.Addr().String())
	p := <-up
	require.NotNil(t, p)
	return p, c, err
}

// hostileReply is a Reply's private data: the choice of iwarp and a HelloAck.
func hostileReply(t *testing.T, ack []byte) []byte {
	t.Helper()
	b, err := (&wire.Choice{Device: wire.DeviceIWARP}).Append(nil)
	require.NoError(t, err)
	return append(b, ack...)
}

// TestHostilePeerMayAdvertise: a legal SrcAvail is answered by SendSm, and the
// Data that follows comes in order. The peer's cancel needs no answer then.
func TestHostilePeerMayAdvertise(t *testing.T) {
	t.Setenv(thresholdVariable, "-1") // it answers at once, and fetches nothing
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	p, c := hostilePair(t, house.ln)
	p.say(hostileData("one "), hostileSrcAvail(11, "two "))
	p.hears(4)
	p.say(hostileMessage{mid: 8}, hostileData("three "), hostileData("4"))
	p.say(hostileData(" five "), hostileSrcAvail(9, "six "))
	p.hears(4)
	p.say(hostileData("seven"), hostileMessage{mid: 2})
	c.SetDeadline(time.Now().Add(soon))
	got, err := io.ReadAll(c)
	assert.NoError(t, err)
	assert.Equal(t, "one two three 4 five six seven", string(got))
	c.Close()
	p.ended()
	p.qp.Close()
	house.goesOn(t)
}

// TestResetAfterTheEnd: Reads do not notice an AbortConn, because all bytes have arrived, and
// Writes fail as a kernel's do that has received a FIN and a reset.
func TestResetAfterTheEnd(t *testing.T) {
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	for _, side := range hostileSides {
		t.Run(side, func(t *testing.T) {
			p, conn := hostileAs(t, side, house.ln)
			defer p.qp.Close()
			c := engineOf(t, conn)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
			p.sayAtOnce(hostileData("all"), hostileMessage{mid: 2}, hostileMessage{mid: 3})
			awaitOver(t, c)
			got, err := io.ReadAll(c)
			assert.NoError(t, err)
			assert.Equal(t, "all", string(got))
			for range 2 {
				n, err := c.Write([]byte("x"))
				assert.ErrorIs(t, err, syscall.EPIPE)
				assert.Zero(t, n)
			}
			assert.ErrorIs(t, c.CloseWrite(), syscall.ENOTCONN)
			assert.ErrorIs(t, c.CloseRead(), syscall.ENOTCONN)
		})
	}
	house.goesOn(t)
}

// TestResetWakesAWrite that waits for room, because the peer does not read.
func TestResetWakesAWrite(t *testing.T) {
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	p, conn := hostileAs(t, hostileSides[0], house.ln)
	defer p.qp.Close()
	c := engineOf(t, conn)
	defer c.Close()
	p.say(hostileMessage{mid: 0xFF, bufs: 255})
	done := blockedPost.start(t, c)
	p.sayAtOnce(hostileMessage{mid: 2}, hostileMessage{mid: 3})
	assert.ErrorIs(t, await(t, done, soon), syscall.EPIPE)
	house.goesOn(t)
}

// TestMessagesWithoutPayloadGiveTheirBuffersBack: the reserved credits stand for
// them, and nobody reads them.
func TestMessagesWithoutPayloadGiveTheirBuffersBack(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	p, c := hostilePair(t, ln)
	watchdog := time.AfterFunc(soon, func() { p.qp.Abort() })
	defer watchdog.Stop()
	for range 5 {
		for range RecvBuffers * 2 / 3 {
			p.say(hostileData(""))
		}
		p.hears(0xFF) // there is credit again
	}
	p.say(hostileData("x"))
	got := make([]byte, 1)
	_, err = c.Read(got)
	assert.NoError(t, err)
	assert.Equal(t, "x", string(got))
	p.qp.Close()
	c.Close()
}
