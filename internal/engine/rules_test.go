package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"

	"github.com/gosdp/gosdp/internal/netname"
)

// A rule of docs/protocol.md, or of the draft that it stands on, with an act of
// the peer's that breaks it, on a connection that is up and over a queue pair that
// is right.
type rule struct {
	rule  string // section of the page, and its words or where else it stands: see TestRulesStandOnThePage
	name  string // of the act
	act   func(v *victim)
	error string // that ends the connection; "": it goes on, as if nothing had been
	read  string // what the program still reads, besides "before"
}

// protocolRules are those that need no advertised memory. The rows of the malformed
// messages are many and alike. What is wrong only because of the message before it
// comes at once with that: the victim could have answered, or have closed.
var protocolRules = append(malformedRules(), []rule{
	{"Messages: it must be what arrived", "Len more than came", hostileSays(hostileMessage{mid: 0xFF, payload: "x", longer: 1}), "Data: Len: is 18 in a message of 17 bytes", ""},
	{"Messages: it must be what arrived", "Len less than came", hostileSays(hostileMessage{mid: 0xFF, payload: "x", longer: -1}), "Data: Len: is 16 in a message of 17 bytes", ""},
	{"Messages: it must be what arrived", "Len 2³²-1", hostileSays(hostileMessage{mid: 0xFF, longer: -17}), "Data: Len: is 4294967295", ""},
	{"Messages: offset | length | BSDH field", "half a header", func(v *victim) { v.qp.PostSend([]rdma.SendWR{{Header: make([]byte, 15)}}) }, "BSDH: has 15 of 16 bytes", ""},
	{"Messages: 0x04 REQ_PIPE; the rest ignored", "every flag", hostileSays(hostileMessage{mid: 0xFF, payload: "x", flags: 0xFF}), "", "x"},
	{"Messages: 0x02 OOB_PEND", "an out-of-band byte that does not come", hostileSays(hostileMessage{mid: 0xFF, flags: 2}), "", ""},
	{"Messages: like every MID that neither figure 3 nor this page names", "unknown MID", hostileSays(hostileMessage{mid: 0x80}), "MID 0x80: MID: is unknown", ""},
	{"Messages: like every MID that neither figure 3 nor this page names", "experimental MID", hostileSays(hostileMessage{mid: 0x7F}), "MID 0x7f: MID: is unknown", ""},
	{"Hello and HelloAck: the first message after them is 1", "Hello again", hostileSays(hostileMessage{mid: 0, extension: make([]byte, 16)}), "Hello: MID: belongs to connection set-up", ""},
	{"Hello and HelloAck: the first message after them is 1", "HelloAck", hostileSays(hostileMessage{mid: 1, extension: make([]byte, 12)}), "HelloAck: MID: belongs to connection set-up", ""},
	{"Messages: SuspComm and SuspCommAck (socket duplication, §13) are refused", "SuspComm", hostileSays(hostileMessage{mid: 0x0D, extension: make([]byte, 8)}), "SuspComm: MID: socket duplication is not supported", ""},
	{"Messages: SuspComm and SuspCommAck (socket duplication, §13) are refused", "SuspCommAck", hostileSays(hostileMessage{mid: 0x0E}), "SuspCommAck: MID: socket duplication is not supported", ""},
	{"Messages: It is the last message on the TCP connection", "StepUp", hostileSays(hostileMessage{mid: 0x40}), "sdp: StepUp after set-up", ""},

	{"Messages: It is the last message on the TCP connection", "Plain", hostileSays(hostileMessage{mid: 0x41}), "sdp: Plain after set-up", ""},

	{"Messages: A message that is malformed, out of sequence, or sent without credit", "MSeq again", hostileSays(hostileMessage{mid: 0xFF, payload: "x", mseq: 2}), "MSeq: is 2, expected 3", ""},
	{"Messages: A message that is malformed, out of sequence, or sent without credit", "MSeq left out", hostileSays(hostileMessage{mid: 0xFF, payload: "x", mseq: 4}), "MSeq: is 4, expected 3", ""},
	{"Messages: §6.1.6, of the last message received", "MSeqAck of what was not sent", hostileSays(hostileMessage{mid: 0xFF, ack: 1000}), "MSeqAck: is 1000, beyond the last message sent", ""},
	{"Messages: §6.1.6, of the last message received", "MSeqAck that goes back", hostileSays(hostileMessage{mid: 0xFF, ack: 1<<32 - 1}), "MSeqAck: is 4294967295, less than the previous 0", ""},

	{"Ending a connection: §8.2.1, no data comes after it", "DisConn twice", hostileSaysAtOnce(hostileMessage{mid: 2}, hostileMessage{mid: 2}), "§8.2.1: second DisConn", ""},
	{"Ending a connection: §8.2.1, no data comes after it", "Data after DisConn", hostileSaysAtOnce(hostileMessage{mid: 2}, hostileData("x")), "§8.2.1: Data with payload after DisConn", ""},
	{"Ending a connection: §8.2.1, no data comes after it", "SrcAvail after DisConn", hostileSaysAtOnce(hostileMessage{mid: 2}, hostileSrcAvail(10, "x")), "§8.2.1: SrcAvail with payload after DisConn", ""},
	{"Ending a connection: §8.2.1, no data comes after it", "SrcAvail after DisConn in Pipelined mode", hostileSaysAtOnce(hostileMode(wire.ModePipelined), hostileMessage{mid: 2}, hostileSrcAvail(10, "")), "§8.2.1: SrcAvail after DisConn", ""},
	{"Ending a connection: §8.2.1, no data comes after it", "SinkAvail with payload after DisConn", hostileSaysAtOnce(hostileMessage{mid: 2}, hostileMessage{mid: 0xFD, extension: hostileSinkAvail(hostileSize, 0).extension, payload: "x"}), "§8.2.1: SinkAvail with payload after DisConn", ""},
	{"Ending a connection: §8.2.1, after all that was advertised", "DisConn before all that was advertised", hostileSays(hostileSrcAvail(10, "x"), hostileMessage{mid: 2}), "§8.2.1: DisConn before the end of advertised data", "x"},
	{"Ending a connection: §8.2.2, after a DisConn alone", "AbortConn without DisConn", hostileSays(hostileMessage{mid: 3}), "§8.2.2: AbortConn without DisConn", ""},

	{"Credits: one whose MSeq is beyond every MSeqAck + Bufs", "more messages than buffers", func(v *victim) {
		// Unread, and too long to be gathered.
		for range 2 * RecvBuffers {
			v.say(hostileData(strings.Repeat("x", 4000)))
		}
		v.ended()
	}, "", strings.Repeat("x", 2*RecvBuffers*4000)},
	{"Credits: §10, no larger than the receiver's buffers", "Data longer than a buffer", hostileSays(hostileData(strings.Repeat("x", 64<<10))), "for a buffer of", ""},
	{"Credits: A posted buffer is not withdrawn", "buffers that are withdrawn, and there again", hostileSays(hostileMessage{mid: 0xFF, bufs: -1}, hostileMessage{mid: 0xFF, bufs: 3}, hostileMessage{mid: 0xFF, bufs: 2}), "", ""},

	{"Resizing private buffers: §10.6 applies", "ChRcvBufAck without a ChRcvBuf", hostileSays(hostileWord(0x0C, 1<<14)), "§10.6: ChRcvBufAck without ChRcvBuf", ""},
	{"Resizing private buffers: §10.6 applies", "ChRcvBufAck of less for more", func(v *victim) {
		v.say(hostileAck(hostileWord(0x0C, recvSize-1), v.wantsMore()))
	}, "§10.6: peer's buffers shrank to 16383", ""},
	{"Resizing private buffers: §10.6 applies", "ChRcvBufAck twice", func(v *victim) {
		ack := v.wantsMore()
		v.say(hostileAck(hostileWord(0x0C, recvSize), ack), hostileAck(hostileWord(0x0C, recvSize), ack))
	}, "§10.6: ChRcvBufAck without ChRcvBuf", ""},
	{"Resizing private buffers: both are answered", "ChRcvBuf before the last was answered", hostileSaysAtOnce(hostileWord(0x0B, 1<<15), hostileWord(0x0B, 1<<16), hostileWord(0x0B, 1<<15), hostileWord(0x0B, 1<<16)), "§10.6: ChRcvBuf before the previous one was acknowledged", ""},

	{"Zero copy: §9.2, of a SrcAvail", "RdmaRdCompl", hostileSays(hostileWord(6, 1)), "§9.2: RdmaRdCompl without a SrcAvail", ""},
	{"Zero copy: §9.3, of a SinkAvail", "RdmaWrCompl", hostileSays(hostileWord(5, 1)), "§9.3: RdmaWrCompl without a SinkAvail", ""},
	{"Zero copy: §9.5.2, for a SrcAvail", "SendSm", hostileSays(hostileMessage{mid: 4}), "§9.5.2: SendSm without a SrcAvail", ""},
	{"Zero copy: §9.5.5, for a SinkAvailCancel", "SinkCancelAck", hostileSays(hostileMessage{mid: 10}), "§9.5.5: SinkCancelAck without a SinkAvailCancel", ""},
	{"Zero copy: §9.5.4 and §9.5.5, for nothing they are ignored", "cancels for nothing", hostileSays(hostileMessage{mid: 8}, hostileMessage{mid: 9}, hostileMessage{mid: 8}, hostileMessage{mid: 9}), "", ""},
	{"Zero copy: §11.2, no SinkAvail", "SinkAvail in Combined mode", hostileSays(hostileSinkAvail(hostileSize, 0)), "§12: SinkAvail in mode 1", ""},

	{"Zero copy: A SrcAvail in Combined mode carries the first 64 bytes", "SrcAvail without payload", hostileSays(hostileSrcAvail(100, "")), "§11.2: SrcAvail without payload in Combined mode", ""},
	{"Zero copy: §11.2, one at a time", "two SrcAvails in Combined mode", hostileSays(hostileSrcAvail(9, "one"), hostileSrcAvail(9, "two")), "§11.2: second SrcAvail in Combined mode", "one"},
	{"Zero copy: §11.2, no payload until it is complete", "Data after a SrcAvail", hostileSaysUnread(hostileSrcAvail(9, "one"), hostileData("two")), "§11.2: Data with payload after SrcAvail", "one"},
	{"Zero copy: §11.3, no payload until all are complete", "Data after a SrcAvail in Pipelined mode", hostileSaysUnread(hostileMode(wire.ModePipelined), hostileSrcAvail(9, ""), hostileData("two")), "§11.2: Data with payload after SrcAvail", ""},
	{"Zero copy: §11.1, no SrcAvail", "SrcAvail in Buffered mode", hostileSays(hostileMode(wire.ModeBuffered), hostileSrcAvail(9, "x")), "§11.1: SrcAvail in Buffered mode", ""},
	{"Zero copy: §11.3, no payload in SrcAvail", "SrcAvail with payload in Pipelined mode", hostileSays(hostileMode(wire.ModePipelined), hostileSrcAvail(9, "x")), "§11.3: SrcAvail with payload in Pipelined mode", ""},
	{"Zero copy: MaxAdverts limits both kinds together", "more SrcAvails than MaxAdverts", func(v *victim) {
		v.say(hostileMode(wire.ModePipelined))
		for range maxAdverts + 2 { // the first is answered at once
			v.say(hostileSrcAvail(9, ""))
		}
	}, "§6.2.1: more than 16 advertisements", ""},
	{"Zero copy: §9.5.4, no SrcAvail until it is done", "SrcAvail after a SrcAvailCancel in Pipelined mode", hostileSaysUnread(hostileMode(wire.ModePipelined), hostileSrcAvail(9, ""), hostileMessage{mid: 8}, hostileSrcAvail(9, "")), "§9.5.4: SrcAvail after an unanswered SrcAvailCancel", ""},
	{"Zero copy: §9.5.4, one at a time", "SrcAvailCancel twice", hostileSaysUnread(hostileSrcAvail(9, "x"), hostileMessage{mid: 8}, hostileMessage{mid: 8}), "§9.5.4: SrcAvailCancel after an unanswered SrcAvailCancel", "x"},

	{"Zero copy: §12, not the current mode", "ModeChange to the present mode", hostileSays(hostileMode(wire.ModeCombined)), "§12: invalid mode change of the source from 1 to 1", ""},
	{"Zero copy: §12, not the current mode", "ModeChange from Pipelined to Pipelined", hostileSays(hostileMode(wire.ModePipelined), hostileMode(wire.ModePipelined)), "§12: invalid mode change of the source from 2 to 2", ""},
	{"Zero copy: §12, figure 26", "ModeChange from Pipelined to Buffered", hostileSays(hostileMode(wire.ModePipelined), hostileMode(wire.ModeBuffered)), "§12: invalid mode change of the source from 2 to 0", ""},
	{"Zero copy: §12, figure 26", "ModeChange from Buffered by the source", hostileSays(hostileMode(wire.ModeBuffered), hostileMode(wire.ModeCombined)), "§12: invalid mode change of the source from 0 to 1", ""},
	{"Zero copy: §12.1, after the SrcAvail", "ModeChange to Buffered before the SrcAvail is done", hostileSays(hostileSrcAvail(9, "x"), hostileMode(wire.ModeBuffered)), "§12.1: change to Buffered mode before the end of the SrcAvail", "x"},
	{"Zero copy: §12, figure 27", "ModeChange that is the sink's", hostileSays(hostileWord(7, 1<<31|1<<28)), "§12: invalid mode change of the sink from 1 to 1", ""},
	{"Zero copy: §12, figure 27", "ModeChange to Pipelined by the sink", hostileSays(hostileWord(7, 1<<31|2<<28)), "§12: invalid mode change of the sink from 1 to 2", ""},
	{"Zero copy: §12, figure 27", "ModeChange to Buffered by the sink", hostileSays(hostileWord(7, 1<<31)), "§12: invalid mode change of the sink from 1 to 0", ""},
}...)

// malformedRules have what is malformed in a single message, of every kind.
func malformedRules() (all []rule) {
	const section = "Messages: "
	add := func(words, name string, m hostileMessage, error string) {
		all = append(all, rule{section + words, name, hostileSays(m), error, ""})
	}
	extensions := map[byte]int{5: 4, 6: 4, 7: 4, 0x0B: 4, 0x0C: 4, 0xFD: 20, 0xFE: 16}
	for _, mid := range []byte{2, 3, 4, 5, 6, 7, 8, 9, 10, 0x0B, 0x0C, 0x40} {
		// It is malformed whatever else it says.
		add("if it has payload and its type must not", fmt.Sprintf("payload in %v", wire.MID(mid)),
			hostileMessage{mid: mid, extension: make([]byte, extensions[mid]), payload: "x"}, fmt.Sprintf("%v: payload: 1 bytes where none are allowed", wire.MID(mid)))
	}
	for _, mid := range []byte{5, 6, 7, 0x0B, 0x0C, 0xFD, 0xFE} {
		n := extensions[mid]
		add("if its extension is incomplete", fmt.Sprintf("%v that is cut short", wire.MID(mid)),
			hostileMessage{mid: mid, extension: make([]byte, n-1)}, fmt.Sprintf("has %d of %d bytes", n-1, n))
	}
	for _, v := range []struct {
		mid   byte
		words string
		field string
		size  uint32
	}{
		{5, "or a number of bytes moved, is above 2³¹", "RWCH Len", 1<<31 + 1},
		{6, "or a number of bytes moved, is above 2³¹", "RRCH Len", 1<<31 + 1},
		{0x0B, "if the size in a ChRcvBuf or ChRcvBufAck is below 37", "DesSz", 36},
		{0x0B, "if the size in a ChRcvBuf or ChRcvBufAck is below 37 or above 2³¹", "DesSz", 1<<31 + 1},
		{0x0C, "if the size in a ChRcvBuf or ChRcvBufAck is below 37", "ActSz", 36},
		{0x0C, "if the size in a ChRcvBuf or ChRcvBufAck is below 37 or above 2³¹", "ActSz", 1<<32 - 1},
		{0xFD, "if an advertised Len is 0", "SinkAH Len", 0},
		{0xFD, "if an advertised Len, or a number of bytes moved, is above 2³¹", "SinkAH Len", 1<<31 + 1},
		{0xFE, "if an advertised Len is 0", "SrcAH Len", 0},
		{0xFE, "if an advertised Len, or a number of bytes moved, is above 2³¹", "SrcAH Len", 1<<31 + 1},
	} {
		m := hostileMessage{mid: v.mid, extension: binary.BigEndian.AppendUint32(nil, v.size)}
		m.extension = append(m.extension, make([]byte, extensions[v.mid]-4)...)
		add(v.words, fmt.Sprintf("%v of %d", wire.MID(v.mid), v.size), m, fmt.Sprintf("%v: %s: ", wire.MID(v.mid), v.field))
	}
	add("if the payload of a SrcAvail is not shorter than its Len", "SrcAvail of all its payload", hostileSrcAvail(1, "x"), "SrcAvail: payload: 1 bytes of an advertised buffer of 1")
	for _, mode := range []wire.Mode{3, 7} {
		add("if Mode is 3 to 7", fmt.Sprint("ModeChange to ", mode), hostileMode(mode), fmt.Sprintf("ModeChange: Mode: is %d, a reserved value", mode))
	}
	return all
}

// hostileAck is m that acknowledges a message of the victim's.
func hostileAck(m hostileMessage, ack uint32) hostileMessage {
	m.ack = ack
	return m
}

// wantsMore has the victim write so much that it asks for larger buffers, and
// returns the number of that message.
func (v *victim) wantsMore() uint32 {
	v.t.Helper()
	go func() {
		_, err := v.c.Write(make([]byte, hostileSize))
		v.write <- err
	}()
	for {
		switch m := v.next(); m.MID {
		case wire.MIDSrcAvail:
			v.say(hostileMessage{mid: 4, ack: m.MSeq})
		case wire.MIDChRcvBuf:
			return m.MSeq
		}
	}
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
	for _, r := range protocolRules {
		for _, side := range hostileSides {
			t.Run(r.name+"/"+side, func(t *testing.T) {
				p, c := hostileAs(t, side, house.ln)
				defer p.qp.Close()
				defer c.Close()
				v := &victim{t: t, hostilePeer: p, c: engineOf(t, c), write: make(chan error, 1)}
				asksEarly(v.c)
				watchdog := time.AfterFunc(soon, func() { p.qp.Abort() })
				defer watchdog.Stop()
				p.say(hostileData("before"))
				r.act(v)
				flood := r.name == "more messages than buffers"
				want := "before" + r.read
				if r.error == "" && !flood {
					p.say(hostileData("after"), hostileMessage{mid: 2})
					want += "after"
				}
				c.SetDeadline(time.Now().Add(soon))
				got, err := io.ReadAll(c)
				if flood {
					assert.Greater(t, len(got), (RecvBuffers-8)*4000)
					want = want[:min(len(want), len(got))]
					// The credits or the device finds it first.
					assert.Regexp(t, "beyond the credit limit|has no buffer posted for it", err)
				}
				assert.True(t, want == string(got), "%.100q came", got)
				if r.error == "" && !flood {
					assert.NoError(t, err)
					c.Close()
					p.ended()
					return
				}
				require.Error(t, err)
				assert.ErrorContains(t, err, r.error)
				assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				_, again := c.Read(make([]byte, 1))
				if isReset(netname.Cause(err)) {
					assert.Equal(t, io.EOF, again)
				} else {
					assert.Equal(t, err, again)
				}
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

// hostileSides are where a hostile peer may be.
var hostileSides = []string{"client", "server"}

// hostileAs connects a hostile peer at one of the ends.
func hostileAs(t *testing.T, side string, ln net.Listener) (*hostilePeer, net.Conn) {
	t.Helper()
	if side == "client" {
		return hostilePair(t, ln)
	}
	p, c, err := hostileServer(t, hostileReply(t, hostileHello(true)))
	require.NoError(t, err)
	p.hears(0xFF)          // the decision; a responder may speak now
	p.say(hostileData("")) // so that both sides number alike
	return p, c
}

// decisionRules are broken by the first message of a client, or by none.
var decisionRules = []struct {
	rule, name string
	says       []hostileMessage
	error      string
}{
	{`Setting up a connection: which has MSeq 1: an empty Data message (stay on iwarp)`, "payload", []hostileMessage{hostileData("early")}, "Data: payload: is 5 bytes in the client's decision"},
	{"Setting up a connection: says so with its first message", "DisConn", []hostileMessage{{mid: 2}}, "DisConn: MID: is DisConn in the client's decision"},
	{"Setting up a connection: says so with its first message", "SrcAvail", []hostileMessage{hostileSrcAvail(100, "x")}, "SrcAvail: MID: is SrcAvail in the client's decision"},
	{"Setting up a connection: says so with its first message", "Hello", []hostileMessage{{mid: 0, extension: make([]byte, 16)}}, "Hello: MID: belongs to connection set-up"},
	{"Setting up a connection: says so with its first message", "unknown", []hostileMessage{{mid: 0x42}}, "MID 0x42: MID: is unknown"},
	{`Setting up a connection: StepUp (use the new channel)`, "StepUp", []hostileMessage{{mid: 0x40}}, "step up without invitation"},
	{`Setting up a connection: which has MSeq 1: an empty Data message (stay on iwarp)`, "MSeq 2³¹", []hostileMessage{{mid: 0xFF, mseq: 1 << 31}}, "Data: MSeq: is 2147483648 in the client's decision"},
	{`Setting up a connection: which has MSeq 1: an empty Data message (stay on iwarp)`, "MSeq 2", []hostileMessage{{mid: 0xFF, mseq: 2}}, "Data: MSeq: is 2 in the client's decision"},
	{"Hello and HelloAck: They count as MSeq 0, and the first message after them is 1", "MSeqAck 1", []hostileMessage{{mid: 0xFF, ack: 1}}, "Data: MSeqAck: is 1 in the client's decision"},
	{"Messages: it must be what arrived", "Len too long", []hostileMessage{{mid: 0xFF, longer: 1}}, "Data: Len: is 17 in a message of 16 bytes"},
	{"Setting up a connection: the server waits for it", "silence", nil, "no decision from client"},
}

// TestHostileDecision has a first message that is no decision: the connection
// does not come up.
func TestHostileDecision(t *testing.T) {
	defer hostileLeavesNothing(t)()
	house := newHostileHouse(t)
	defer house.close()
	for _, r := range decisionRules {
		t.Run(r.name, func(t *testing.T) {
			config := &Config{HandshakeTimeout: time.Minute}
			if r.says == nil {
				config.HandshakeTimeout = 2 * time.Second
			}
			client, served := hostileClient(t, config)
			qp, _, err := iwarp.Connect(client, iwarp.Config{IRD: 4, ORD: 4}, hostilePrivate(t, hostileHello(false)))
			require.NoError(t, err)
			p := &hostilePeer{t: t, qp: qp}
			p.say(r.says...)
			up := <-served
			assert.ErrorContains(t, up.err, r.error)
			if up.err == nil {
				up.Close()
			}
			assert.Error(t, p.ended())
			p.qp.Close()
		})
	}
	house.goesOn(t)
}

// servedConn is what Server has returned.
type servedConn struct {
	net.Conn
	err error
}

// hostileClient returns the client's end of a connection that Server serves, and
// where its result comes.
func hostileClient(t *testing.T, config *Config) (net.Conn, <-chan servedConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	c, err := ln.Accept()
	require.NoError(t, err)
	served := make(chan servedConn, 1)
	go func() {
		up, err := Server(context.Background(), c, config)
		served <- servedConn{up, err}
	}()
	return client, served
}
