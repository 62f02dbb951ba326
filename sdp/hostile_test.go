package sdp

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
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
	qp   *iwarp.QueuePair
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

	flags      byte
	invalidate rdma.STag // the victim's
}

// say sends messages.
func (p *hostilePeer) say(messages ...hostileMessage) {
	p.t.Helper()
	for _, m := range messages {
		p.mseq++
		if m.mseq == 0 {
			m.mseq = p.mseq
		}
		h := []byte{m.mid, m.flags, 0, 64}
		h = binary.BigEndian.AppendUint32(h, uint32(16+len(m.extension)+len(m.payload)+m.longer))
		h = binary.BigEndian.AppendUint32(h, m.mseq)
		h = binary.BigEndian.AppendUint32(h, m.ack)
		h = append(h, m.extension...)
		for {
			n, err := p.qp.PostSend([]rdma.SendWR{{Header: h, Payload: []byte(m.payload), Invalidate: m.invalidate}})
			if n == 1 || err != nil && err != rdma.ErrNoRoom {
				break // what the victim has ended takes nothing more
			}
			if p.qp.WaitRoom() != nil {
				break
			}
		}
	}
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
func (p *hostilePeer) gets(mid byte) (m wire.Message) {
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
		if m.MID == wire.MID(mid) {
			return m
		}
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
	c.SetDeadline(time.Now().Add(10 * time.Second))
	qp, _, err := iwarp.Connect(c, iwarp.Config{IRD: 4, ORD: 4}, private)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	qp.ProvideReceive(64, 16<<10)
	return &hostilePeer{t: t, qp: qp}, nil
}

// hostileHouse is a listener with a good connection beside the hostile ones.
type hostileHouse struct {
	ln           net.Listener
	good, served net.Conn
}

func newHostileHouse(t *testing.T) *hostileHouse {
	t.Helper()
	ln, err := Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &hostileHouse{ln: ln}
	h.good, err = Dial("sdp", ln.Addr().String())
	require.NoError(t, err)
	h.served, err = ln.Accept()
	require.NoError(t, err)
	return h
}

// goesOn checks that the good connection and the listener do.
func (h *hostileHouse) goesOn(t *testing.T) {
	t.Helper()
	hostileExchange(t, h.good, h.served)
	c, err := Dial("sdp", h.ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	s, err := h.ln.Accept()
	require.NoError(t, err)
	defer s.Close()
	hostileExchange(t, c, s)
}

func hostileExchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, ends := range [][2]net.Conn{{a, b}, {b, a}} {
		_, err := io.WriteString(ends[0], "hello")
		require.NoError(t, err)
		got := make([]byte, 5)
		ends[1].SetReadDeadline(time.Now().Add(10 * time.Second))
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

// hostileLeavesNothing returns a function that checks that as many goroutines
// and descriptors are left as there are now.
func hostileLeavesNothing(t *testing.T) func() {
	count := func() (goroutines, descriptors int) {
		open, _ := os.ReadDir("/proc/self/fd")
		return runtime.NumGoroutine(), len(open)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the runtime's own descriptors stay, once there
	require.NoError(t, err)
	ln.Close()
	goroutines, descriptors := count()
	return func() {
		t.Helper()
		var g, d int
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
			if g, d = count(); g <= goroutines && d <= descriptors {
				return
			}
		}
		t.Errorf("%d goroutines were %d, %d descriptors were %d", g, goroutines, d, descriptors)
	}
}

// TestHostileHello has Hellos that end the attempt, and nothing else.
func TestHostileHello(t *testing.T) {
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	for _, v := range []struct {
		name string
		at   int    // in the Hello
		to   []byte // what stands there
		cut  int    // bytes of the Hello that come, if not all
	}{
		{"MID", 0, []byte{1}, 0},
		{"Bufs 0", 2, []byte{0, 0}, 0},
		{"Bufs 2", 2, []byte{0, 2}, 0},
		{"Len", 4, []byte{0, 0, 0, 33}, 0},
		{"MSeq", 8, []byte{0, 0, 0, 1}, 0},
		{"MSeqAck", 12, []byte{0, 0, 0, 1}, 0},
		{"major version", 16, []byte{0x21}, 0},
		{"version 0", 16, []byte{0}, 0},
		{"MaxAdverts 0", 18, []byte{0, 0}, 0},
		{"DesRemRcvSz 36", 20, []byte{0, 0, 0, 36}, 0},
		{"DesRemRcvSz 2³¹+1", 20, []byte{0x80, 0, 0, 1}, 0},
		{"LocalRcvSz 0", 24, []byte{0, 0, 0, 0}, 0},
		{"LocalRcvSz 36", 24, []byte{0, 0, 0, 36}, 0},
		{"LocalRcvSz 2³²-1", 24, []byte{255, 255, 255, 255}, 0},
		{"LocIRD 0", 28, []byte{0, 0}, 0},
		{"LocORD 0", 30, []byte{0, 0}, 0},
		{"cut short", 0, nil, 31},
		{"cut in the header", 0, nil, 15},
		{"missing", 0, nil, -1},
	} {
		t.Run(v.name, func(t *testing.T) {
			hello := hostileHello(false)
			copy(hello[v.at:], v.to)
			if v.cut != 0 {
				hello = hello[:max(v.cut, 0)]
			}
			_, err := hostileDial(t, house.ln.Addr().String(), hostilePrivate(t, hello))
			var rejected *iwarp.RejectError
			assert.ErrorAs(t, err, &rejected)
		})
	}
	for name, private := range map[string]string{
		"nothing":          "",
		"garbage":          "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"other magic":      "\r\n\r\nSDQ\x01\x0c\x01\x01\x01",
		"other version":    "\r\n\r\nSDP\x02\x0c\x01\x01\x01",
		"length too long":  "\r\n\r\nSDP\x01\xff\x01\x01\x01",
		"length too short": "\r\n\r\nSDP\x01\x08\x01\x01\x01",
		"item past end":    "\r\n\r\nSDP\x01\x0c\x01\x09\x01",
		"devices twice":    "\r\n\r\nSDP\x01\x0f\x01\x01\x01\x01\x01\x01",
		"no devices":       "\r\n\r\nSDP\x01\x09",
	} {
		t.Run("offers: "+name, func(t *testing.T) {
			_, err := hostileDial(t, house.ln.Addr().String(), append([]byte(private), hostileHello(false)...))
			var rejected *iwarp.RejectError
			assert.ErrorAs(t, err, &rejected)
		})
	}
	house.goesOn(t)
}

// TestHostileDecision has a first message that is no decision: the connection is
// never accepted.
func TestHostileDecision(t *testing.T) {
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	for name, m := range map[string]hostileMessage{
		"payload":      hostileData("early"),
		"DisConn":      {mid: 2},
		"SrcAvail":     hostileSrcAvail(100, "x"),
		"Hello":        {mid: 0, extension: make([]byte, 16)},
		"unknown":      {mid: 0x41},
		"StepUp":       {mid: 0x40},
		"MSeq 0":       {mid: 0xFF, mseq: 1 << 31},
		"MSeq 2":       {mid: 0xFF, mseq: 2},
		"MSeqAck 1":    {mid: 0xFF, ack: 1},
		"Len too long": {mid: 0xFF, longer: 1},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := hostileDial(t, house.ln.Addr().String(), hostilePrivate(t, hostileHello(false)))
			require.NoError(t, err)
			p.say(m)
			assert.Error(t, p.ended())
			p.qp.Close()
		})
	}
	house.goesOn(t) // whose Accept would have found them
}

// hostileActs are violations on a connection that is up: the connection ends
// with the error, behind what had come before.
var hostileActs = []struct {
	name  string
	act   func(p *hostilePeer)
	error string
	read  string // besides "before"
}{
	{"Len more than came", hostileSays(hostileMessage{mid: 0xFF, payload: "x", longer: 1}), "Data: Len: is 18 in a message of 17 bytes", ""},
	{"Len less than came", hostileSays(hostileMessage{mid: 0xFF, payload: "x", longer: -1}), "Data: Len: is 16 in a message of 17 bytes", ""},
	{"Len 2³²-1", hostileSays(hostileMessage{mid: 0xFF, longer: -17}), "Data: Len: is 4294967295", ""},
	{"half a header", func(p *hostilePeer) { p.qp.PostSend([]rdma.SendWR{{Header: make([]byte, 15)}}) }, "BSDH: has 15 of 16 bytes", ""},
	{"extension cut short", hostileSays(hostileMessage{mid: 0xFE, extension: make([]byte, 15)}), "SrcAvail: SrcAH: has 15 of 16 bytes", ""},
	{"payload where none is allowed", hostileSays(hostileMessage{mid: 2, payload: "x"}), "DisConn: payload: 1 bytes", ""},
	{"unknown MID", hostileSays(hostileMessage{mid: 0x80}), "MID 0x80: MID: is unknown", ""},
	{"experimental MID", hostileSays(hostileMessage{mid: 0x7F}), "MID 0x7f: MID: is unknown", ""},
	{"Hello again", hostileSays(hostileMessage{mid: 0, extension: make([]byte, 16)}), "Hello: MID: belongs to connection set-up", ""},
	{"HelloAck", hostileSays(hostileMessage{mid: 1, extension: make([]byte, 12)}), "HelloAck: MID: belongs to connection set-up", ""},
	{"SuspComm", hostileSays(hostileMessage{mid: 0x0D, extension: make([]byte, 8)}), "SuspComm: MID: socket duplication is not supported", ""},
	{"SuspCommAck", hostileSays(hostileMessage{mid: 0x0E}), "SuspCommAck: MID: socket duplication is not supported", ""},
	{"StepUp", hostileSays(hostileMessage{mid: 0x40}), "§9: StepUp has no place here", ""},

	{"MSeq again", hostileSays(hostileMessage{mid: 0xFF, payload: "x", mseq: 2}), "MSeq: is 2 out of step, 3 is next", ""},
	{"MSeq left out", hostileSays(hostileMessage{mid: 0xFF, payload: "x", mseq: 4}), "MSeq: is 4 out of step, 3 is next", ""},
	{"MSeqAck of what was not sent", hostileSays(hostileMessage{mid: 0xFF, ack: 1000}), "MSeqAck: is 1000, but only", ""},
	{"MSeqAck that goes back", hostileSays(hostileMessage{mid: 0xFF, ack: 1<<32 - 1}), "MSeqAck: is 4294967295, back from 0", ""},

	{"Data longer than a buffer", hostileSays(hostileData(strings.Repeat("x", 64<<10))), "for a buffer of", ""},
	{"ChRcvBufAck without a request", hostileSays(hostileWord(0x0C, 1<<14)), "§10.6: ChRcvBufAck without a ChRcvBuf", ""},
	{"ChRcvBuf of 36 bytes", hostileSays(hostileWord(0x0B, 36)), "ChRcvBuf: DesSz: is 36", ""},
	{"ChRcvBuf of 2³²-1 bytes", hostileSays(hostileWord(0x0B, 1<<32-1)), "ChRcvBuf: DesSz: is 4294967295", ""},

	{"DisConn twice", hostileSays(hostileMessage{mid: 2}, hostileMessage{mid: 2}), "§8.2.1: a second DisConn", ""},
	{"Data after DisConn", hostileSays(hostileMessage{mid: 2}, hostileData("x")), "§8.2.1: Data with payload after DisConn", ""},
	{"SrcAvail after DisConn", hostileSays(hostileMessage{mid: 2}, hostileSrcAvail(10, "x")), "§8.2.1: SrcAvail with payload after DisConn", ""},
	{"AbortConn without DisConn", hostileSays(hostileMessage{mid: 3}), "§8.2.2: AbortConn without DisConn", ""},
	{"AbortConn after DisConn", hostileSays(hostileMessage{mid: 2}, hostileMessage{mid: 3}), syscall.ECONNRESET.Error(), ""},

	{"RdmaRdCompl", hostileSays(hostileWord(6, 1)), "§9.2: RdmaRdCompl without a SrcAvail", ""},
	{"RdmaWrCompl", hostileSays(hostileWord(5, 1)), "§9.3: RdmaWrCompl without a SinkAvail", ""},
	{"SendSm", hostileSays(hostileMessage{mid: 4}), "§9.5.2: SendSm without a SrcAvail", ""},
	{"SinkCancelAck", hostileSays(hostileMessage{mid: 10}), "§9.5.5: SinkCancelAck without a SinkAvailCancel", ""},
	{"SinkAvail in Combined mode", hostileSays(hostileMessage{mid: 0xFD, extension: append([]byte{0, 0, 255, 0}, make([]byte, 16)...)}), "SinkAvail", ""},

	{"SrcAvail without payload", hostileSays(hostileSrcAvail(100, "")), "§11.2: SrcAvail without payload in Combined mode", ""},
	{"SrcAvail of nothing", hostileSays(hostileSrcAvail(0, "")), "SrcAvail: SrcAH Len: is 0", ""},
	{"SrcAvail of all its payload", hostileSays(hostileSrcAvail(1, "x")), "SrcAvail: payload: 1 bytes of an advertised buffer of 1", ""},
	{"two SrcAvails in Combined mode", hostileSays(hostileSrcAvail(9, "one"), hostileSrcAvail(9, "two")), "§11.2: a second SrcAvail in Combined mode", "one"},
	{"SrcAvail in Buffered mode", hostileSays(hostileWord(7, 0), hostileSrcAvail(9, "x")), "§11.1: SrcAvail in Buffered mode", ""},
	{"SrcAvail with payload in Pipelined mode", hostileSays(hostileWord(7, 2<<28), hostileSrcAvail(9, "x")), "§11.3: SrcAvail with payload in Pipelined mode", ""},
	{"more SrcAvails than MaxAdverts", func(p *hostilePeer) {
		p.say(hostileWord(7, 2<<28))
		for range maxAdverts + 2 { // the first is answered at once
			p.say(hostileSrcAvail(9, ""))
		}
	}, "§6.2.1: more than 16 advertisements", ""},
	{"ModeChange to the present mode", hostileSays(hostileWord(7, 1<<28)), "§12: the source cannot go from mode 1 to 1", ""},
	{"ModeChange to a reserved mode", hostileSays(hostileWord(7, 3<<28)), "ModeChange: Mode: is 3, a reserved value", ""},
	{"ModeChange from Pipelined to Buffered", hostileSays(hostileWord(7, 2<<28), hostileWord(7, 0)), "§12: the source cannot go from mode 2 to 0", ""},
	{"ModeChange that is the sink's", hostileSays(hostileWord(7, 1<<31|1<<28)), "§12: the sink cannot go from mode 1 to 1", ""},

	{"more messages than buffers", func(p *hostilePeer) {
		// Of nobody's reading, and too long to be gathered.
		for range 2 * recvBuffers {
			p.say(hostileData(strings.Repeat("x", 4000)))
		}
		p.ended()
	}, "", strings.Repeat("x", 2*recvBuffers*4000)},
}

func hostileSays(messages ...hostileMessage) func(p *hostilePeer) {
	return func(p *hostilePeer) { p.say(messages...) }
}

// hostilePair connects a hostile peer, as the client of a real listener.
func hostilePair(t *testing.T, ln net.Listener) (*hostilePeer, net.Conn) {
	t.Helper()
	p, err := hostileDial(t, ln.Addr().String(), hostilePrivate(t, hostileHello(false)))
	require.NoError(t, err)
	p.say(hostileData(""))
	s, err := ln.Accept()
	require.NoError(t, err)
	return p, s
}

// hostileServer connects a hostile peer, as the server of a real Dial, with this
// private data in its Reply.
func hostileServer(t *testing.T, private []byte) (*hostilePeer, net.Conn, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	forget(ln.Addr().String())
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
	c, err := Dial("sdp", ln.Addr().String())
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

// TestHostileMessages has a connection that was accepted, and one that was
// dialled, end with each violation.
func TestHostileMessages(t *testing.T) {
	for _, threshold := range []string{"", "1"} {
		t.Run("threshold "+threshold, func(t *testing.T) {
			t.Setenv(thresholdVariable, threshold)
			hostileMessages(t)
		})
	}
}

func hostileMessages(t *testing.T) {
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	for _, v := range hostileActs {
		for _, side := range []string{"client", "server"} {
			t.Run(v.name+"/"+side, func(t *testing.T) {
				var p *hostilePeer
				var c net.Conn
				if side == "client" {
					p, c = hostilePair(t, house.ln)
				} else {
					var err error
					p, c, err = hostileServer(t, hostileReply(t, hostileHello(true)))
					require.NoError(t, err)
					p.hears(0xFF)          // the decision; a responder may speak now
					p.say(hostileData("")) // so that both sides number alike
				}
				defer p.qp.Close()
				defer c.Close()
				p.say(hostileData("before"))
				v.act(p)
				c.SetDeadline(time.Now().Add(10 * time.Second))
				got, err := io.ReadAll(c)
				want := "before" + v.read
				if v.name == "more messages than buffers" {
					assert.Greater(t, len(got), (recvBuffers-8)*4000)
					want = want[:min(len(want), len(got))]
					// The credits or the device finds it first.
					assert.Regexp(t, "without credit|has no buffer posted for it", err)
				}
				assert.True(t, want == string(got), "%.100q came", got)
				require.Error(t, err)
				assert.ErrorContains(t, err, v.error)
				assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				_, again := c.Read(make([]byte, 1))
				assert.Equal(t, err, again)
				_, err = c.Write([]byte("x"))
				assert.Error(t, err)
				c.Close()
				assert.Error(t, p.ended())
			})
		}
		hostileExchange(t, house.good, house.served)
	}
	house.goesOn(t)
}

// TestHostileReply has a Dial fail that gets another answer than a choice of
// iwarp and a good HelloAck.
func TestHostileReply(t *testing.T) {
	defer hostileLeavesNothing(t)()
	for _, v := range []struct {
		name  string
		at    int
		to    []byte
		cut   int
		error string
	}{
		{"Bufs 2", 2, []byte{0, 2}, 0, "HelloAck: Bufs: is 2"},
		{"major version", 16, []byte{0x21}, 0, "HelloAck: MajV: is 2, we speak 1"},
		{"MaxAdverts 0", 18, []byte{0, 0}, 0, "HelloAck: MaxAdverts: is 0"},
		{"ActRcvSz 36", 20, []byte{0, 0, 0, 36}, 0, "HelloAck: ActRcvSz: is 36"},
		{"LocIRD 0", 24, []byte{0, 0}, 0, "HelloAck: LocIRD: is 0"},
		{"LocORD 0", 26, []byte{0, 0}, 0, "HelloAck: LocORD: is 0"},
		{"cut short", 0, nil, 27, "HelloAck: Len: 27 bytes came of 28"},
		{"Hello", 0, []byte{0}, 0, "HelloAck: MID: is Hello"},
	} {
		t.Run(v.name, func(t *testing.T) {
			ack := hostileHello(true)
			copy(ack[v.at:], v.to)
			if v.cut > 0 {
				ack = ack[:v.cut]
			}
			p, _, err := hostileServer(t, hostileReply(t, ack))
			assert.ErrorContains(t, err, v.error)
			assert.Error(t, p.ended())
			p.qp.Close()
		})
	}
	for name, private := range map[string]string{"nothing": "", "garbage": "garbage", "another device": "SDP\x01\x06\x03"} {
		t.Run("choice: "+name, func(t *testing.T) {
			p, _, err := hostileServer(t, append([]byte(private), hostileHello(true)...))
			assert.Error(t, err)
			assert.Error(t, p.ended())
			p.qp.Close()
		})
	}
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
	c.SetDeadline(time.Now().Add(10 * time.Second))
	got, err := io.ReadAll(c)
	assert.NoError(t, err)
	assert.Equal(t, "one two three 4 five six seven", string(got))
	c.Close()
	p.ended()
	p.qp.Close()
	house.goesOn(t)
}

// TestMessagesWithoutPayloadGiveTheirBuffersBack: the reserved credits stand for
// them, and nobody reads them.
func TestMessagesWithoutPayloadGiveTheirBuffersBack(t *testing.T) {
	ln, err := Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	p, c := hostilePair(t, ln)
	watchdog := time.AfterFunc(10*time.Second, func() { p.qp.Abort() })
	defer watchdog.Stop()
	for range 5 {
		for range recvBuffers * 2 / 3 {
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
