package engine

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// A setUpRule is one of docs/protocol.md's about how a connection comes up, with
// bytes that break it. What breaks the rules of MPA's stream, of DDP and of RDMAP
// is in rdma/iwarp.
type setUpRule struct {
	rule   string // section of the page, and its words: see TestRulesStandOnThePage
	name   string
	says   []byte // up to where the other end is to speak
	want   string // one of the outcomes below, or the error
	silent bool   // the peer does not close afterwards
}

// The ways on from what is no violation, or one that costs the peer SDP alone.
const (
	goesUp     = "the connection comes up"
	goesPlain  = "plain TCP, with every byte"
	plainAfter = "plain TCP, from the byte after the Reply"
)

// hostileFrame is an MPA frame.
func hostileFrame(key string, flags, revision byte, private ...byte) []byte {
	b := append([]byte(key), flags, revision)
	b = binary.BigEndian.AppendUint16(b, uint16(len(private)))
	return append(b, private...)
}

const hostileReplyKey = "MPA ID Rep Frame"

// hostileItem is an item of offers or choice, whose value is zero.
func hostileItem(kind byte, n int) []byte { return append([]byte{kind, byte(n)}, make([]byte, n)...) }

// hostileOffers are offers of these items, with a length that is right, and a Hello.
func hostileOffers(items ...[]byte) []byte {
	all := slices.Concat(items...)
	b := append([]byte("\r\n\r\nSDP\x01"), byte(9+len(all)))
	return append(append(b, all...), hostileHello(false)...)
}

// hostileChoice is a choice of a device, with these items, and a HelloAck.
func hostileChoice(device byte, items ...[]byte) []byte {
	all := slices.Concat(items...)
	b := append([]byte("SDP\x01"), byte(6+len(all)), device)
	return append(append(b, all...), hostileHello(true)...)
}

// spoilt is b with other bytes at one place.
func spoilt(b []byte, at int, to ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], to)
	return b
}

// hostileFPDU is a message in a Send, the n-th, with CRC.
func hostileFPDU(n uint32, m wire.Message) []byte {
	ulpdu := []byte{0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0}
	ulpdu = binary.BigEndian.AppendUint32(ulpdu, n)
	ulpdu = m.AppendHeader(append(ulpdu, 0, 0, 0, 0))
	return hostileULPDU(append(ulpdu, m.Payload...))
}

func hostileULPDU(ulpdu []byte) []byte {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu))), ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// hostileSession are the messages of a connection that is up: the decision, if
// the sender has to make one, "hello", and the end.
func hostileSession(decides bool) (b []byte) {
	n := uint32(1)
	say := func(mid wire.MID, payload string) {
		b = append(b, hostileFPDU(n, wire.Message{Header: wire.Header{MID: mid, Bufs: 64, MSeq: n}, Payload: []byte(payload)})...)
		n++
	}
	if decides {
		say(wire.MIDData, "")
	}
	say(wire.MIDData, "hello")
	say(wire.MIDDisConn, "")
	return b
}

// helloRule is a Hello or a HelloAck that is not right, or is and looks odd.
type helloRule struct {
	rule, name string
	at         int // in both, or in a Hello; HelloAck has its second half four bytes before
	to         []byte
	cut        int    // bytes of it that come, if positive; none, if negative
	want       string // goesUp, or after the message's name
	ack, hello bool   // only in that one
}

var helloRules = []helloRule{
	{rule: "MID 0 or 1", name: "MID", to: []byte{2}, want: "MID: is DisConn"},
	{rule: "MID 0 or 1", name: "MID of a HelloAck", to: []byte{1}, want: "MID: is HelloAck", hello: true},
	{rule: "MID 0 or 1", name: "MID of a Hello", to: []byte{0}, want: "MID: is Hello", ack: true},
	{rule: "Bufs is at least 4", name: "Bufs 0", at: 2, to: []byte{0, 0}, want: "Bufs: is 0"},
	{rule: "Bufs is at least 4", name: "Bufs 3", at: 2, to: []byte{0, 3}, want: "Bufs: is 3"},
	{rule: "Len 32 or 28", name: "Len", at: 4, to: []byte{0, 0, 0, 33}, want: "Len: is 33, not "},
	{rule: "An MSeq or MSeqAck other than 0 in Hello or HelloAck is refused", name: "MSeq", at: 8, to: []byte{0, 0, 0, 1}, want: "MSeq: is 1, not 0"},
	{rule: "An MSeq or MSeqAck other than 0 in Hello or HelloAck is refused", name: "MSeqAck", at: 12, to: []byte{0, 0, 0, 1}, want: "MSeqAck: is 1, not 0"},
	{rule: "Another MajV ends the attempt", name: "major version", at: 16, to: []byte{0x21}, want: "MajV: is 2, expected 1"},
	{rule: "Another MajV ends the attempt", name: "version 0", at: 16, to: []byte{0}, want: "MajV: is 0, expected 1"},
	{rule: "another MinV does not", name: "minor version", at: 16, to: []byte{0x1F}, want: goesUp},
	{rule: "17 | 17 | 1 | | ignored", name: "the byte that is ignored", at: 17, to: []byte{0xFF}, want: goesUp},
	{rule: "MaxAdverts | not 0", name: "MaxAdverts 0", at: 18, to: []byte{0, 0}, want: "MaxAdverts: is 0"},
	{rule: "DesRemRcvSz | 37 to 2³¹, or 0 for no wish", name: "DesRemRcvSz 36", at: 20, to: []byte{0, 0, 0, 36}, want: "DesRemRcvSz: is 36", hello: true},
	{rule: "DesRemRcvSz | 37 to 2³¹, or 0 for no wish", name: "DesRemRcvSz 2³¹+1", at: 20, to: []byte{0x80, 0, 0, 1}, want: "DesRemRcvSz: is 2147483649", hello: true},
	{rule: "DesRemRcvSz | 37 to 2³¹, or 0 for no wish", name: "DesRemRcvSz 37", at: 20, to: []byte{0, 0, 0, 37}, want: goesUp, hello: true},
	{rule: "LocalRcvSz, ActRcvSz | 37 to 2³¹", name: "RcvSz 0", at: 24, to: []byte{0, 0, 0, 0}, want: "RcvSz: is 0"},
	{rule: "LocalRcvSz, ActRcvSz | 37 to 2³¹", name: "RcvSz 36", at: 24, to: []byte{0, 0, 0, 36}, want: "RcvSz: is 36"},
	{rule: "LocalRcvSz, ActRcvSz | 37 to 2³¹", name: "RcvSz 2³²-1", at: 24, to: []byte{255, 255, 255, 255}, want: "RcvSz: is 4294967295"},
	{rule: "LocalRcvSz, ActRcvSz | 37 to 2³¹", name: "RcvSz 2³¹", at: 24, to: []byte{0x80, 0, 0, 0}, want: goesUp},
	{rule: "LocIRD | not 0", name: "LocIRD 0", at: 28, to: []byte{0, 0}, want: "LocIRD: is 0"},
	{rule: "LocORD | not 0", name: "LocORD 0", at: 30, to: []byte{0, 0}, want: "LocORD: is 0"},
	{rule: "end where their own Len says", name: "cut short", cut: 27, want: "Len: 27 of "},
	{rule: "end where their own Len says", name: "cut in the header", cut: 15, want: "Len: 15 of "},
	{rule: "end where their own Len says", name: "missing", cut: -1, want: "Len: 0 of "},
}

// of returns the message, and what it is to come to.
func (r *helloRule) of(ack bool) (b []byte, want string) {
	b, at, name := hostileHello(ack), r.at, "Hello: "
	if ack {
		name = "HelloAck: "
		if at > 20 {
			at -= 4
		}
	}
	copy(b[at:], r.to)
	if r.cut != 0 {
		b = b[:max(r.cut, 0)]
	}
	switch {
	case r.want == goesUp:
		return b, goesUp
	case strings.HasPrefix(r.want, "RcvSz") && ack:
		name += "Act"
	case strings.HasPrefix(r.want, "RcvSz"):
		name += "Local"
	}
	return b, name + r.want
}

// requestRules are broken by a client.
func requestRules() []setUpRule {
	iwarpOnly, tuple := []byte{1, 1, 1}, hostileItem(3, 36)
	good := hostileOffers(iwarpOnly)
	request := func(private []byte) []byte { return hostileFrame(mpa.RequestKey, 0x40, 1, private...) }
	long := append([]byte(mpa.RequestKey), 0x40, 1, 2, 1) // and 513 bytes of private data
	all := []setUpRule{
		{rule: "Setting up a connection: A byte that differs", name: "another first byte", says: []byte("GET / HTTP/1.1\r\n\r\n"), want: goesPlain},
		{rule: "Setting up a connection: A byte that differs", name: "another last byte", says: spoilt(request(good), 15, 'E'), want: goesPlain},
		{rule: "Setting up a connection: an end of file", name: "an end in the key", says: []byte("MPA ID R"), want: goesPlain},
		{rule: "Setting up a connection: an end of file", name: "an end", want: goesPlain},
		{rule: "Setting up a connection: an end of file or silence means plain TCP", name: "silence in the key", says: []byte("MPA ID R"), want: goesPlain, silent: true},
		{rule: "Setting up a connection: an end of file or silence means plain TCP", name: "silence", want: goesPlain, silent: true},
		{rule: "Setting up a connection: and sends nothing else until it has the Reply", name: "FPDUs after the Request", says: append(request(good), hostileSession(true)...), want: goesUp},
		{rule: "Setting up a connection: says so with its first message", name: "an end after the Request", says: request(good), want: "read client's decision"},
		{rule: "Setting up a connection: A server that wants to stay on TCP answers with a rejection", name: "devices that the server has not", says: request(hostileOffers([]byte{1, 2, 3, 9})), want: plainAfter},
		{rule: "Setting up a connection: The server chooses the first of its own devices that the client offers", name: "device 0", says: request(hostileOffers([]byte{1, 1, 0})), want: plainAfter},

		{rule: "MPA: M | refused | refused", name: "markers", says: hostileFrame(mpa.RequestKey, 0xC0, 1, good...), want: "markers are required"},
		{rule: "MPA: a reserved flag; S in revision 1 | ignored | ignored", name: "reserved flags", says: hostileFrame(mpa.RequestKey, 0x5F, 1, good...), want: goesUp},
		{rule: "MPA: CRC: in use if either end set C", name: "CRC not asked for", says: hostileFrame(mpa.RequestKey, 0, 1, good...), want: goesUp},
		{rule: "MPA: another revision | refused | refused", name: "revision 0", says: hostileFrame(mpa.RequestKey, 0x40, 0, good...), want: "MPA revision 0"},
		{rule: "MPA: another revision | refused | refused", name: "revision 3", says: hostileFrame(mpa.RequestKey, 0x40, 3, good...), want: "MPA revision 3"},
		{rule: "MPA: 256 to 512 bytes of private data | accepted", name: "256 bytes of private data", says: request(append(good, make([]byte, 256-len(good))...)), want: goesUp},
		{rule: "MPA: more private data | refused | refused", name: "513 bytes of private data", says: long, want: "513 bytes of private data"},
		{rule: "MPA: length of the private data", name: "65,535 bytes of private data that do not come", says: spoilt(long, 18, 255, 255), want: "65535 bytes of private data", silent: true},
		{rule: "MPA: length of the private data", name: "private data cut short", says: request(good)[:40], want: "MPA frame truncated after 40 of"},
		{rule: "MPA: length of the private data", name: "silence in the private data", says: request(good)[:40], want: "MPA frame truncated after 40 of", silent: true},

		{rule: "Offers: magic", name: "no private data", says: request(nil), want: "offers: magic: is missing"},
		{rule: "Offers: magic", name: "another protocol's private data", says: request([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")), want: "offers: magic: is missing"},
		{rule: "Offers: magic", name: "another magic", says: request(spoilt(good, 6, 'Q')), want: "offers: magic: is missing"},
		{rule: "Offers: Offers of another version are answered with a rejection", name: "another version", says: request(spoilt(good, 7, 2)), want: plainAfter},
		{rule: "Offers: of the offers from byte 0, 9 or more", name: "a length that is too long", says: request(spoilt(good, 8, 255)), want: "offers: length: is 255 in 44 bytes"},
		{rule: "Offers: of the offers from byte 0, 9 or more", name: "a length that is too short", says: request(spoilt(good, 8, 8)), want: "offers: length: is 8 in 44 bytes"},
		{rule: "Offers: a value past the end", name: "a value past the end", says: request(hostileOffers([]byte{1, 9, 1})), want: "offers: devices: runs past the end"},
		{rule: "Offers: a value past the end", name: "an item without a length", says: request(hostileOffers(iwarpOnly, []byte{3})), want: "offers: tuple: runs past the end"},
		{rule: "Offers: a value past the end", name: "an unknown item past the end", says: request(hostileOffers(iwarpOnly, []byte{77, 1})), want: "offers: item 77: runs past the end"},
		{rule: "Offers: no devices", name: "no items", says: request(hostileOffers()), want: "offers: devices: are missing"},
		{rule: "Offers: no devices", name: "no devices among the items", says: request(hostileOffers(tuple)), want: "offers: devices: are missing"},
		{rule: "Offers: one code each, the best first, at least one", name: "an empty list of devices", says: request(hostileOffers([]byte{1, 0})), want: "offers: devices: there are none"},
		{rule: "Offers: Unknown codes are skipped", name: "unknown devices", says: request(hostileOffers([]byte{1, 4, 0, 77, 255, 1})), want: goesUp},
		{rule: "Offers: Items come in any order", name: "devices last", says: request(hostileOffers(tuple, iwarpOnly)), want: goesUp},
		{rule: "Offers: one of an unknown type is skipped", name: "unknown items, twice", says: request(hostileOffers(hostileItem(0, 0), iwarpOnly, hostileItem(77, 3), hostileItem(77, 3))), want: goesUp},
		{rule: "Offers: Types 2 and 4 to 7 are reserved", name: "GIDs", says: request(hostileOffers(iwarpOnly, hostileItem(4, 31))), want: goesUp},
	}
	for _, v := range []struct {
		words, name string
		kind        byte
		n           int
	}{
		{"host |", "host", 8, 32},
		{"tuple | 36 bytes", "tuple", 3, 36},
	} {
		item := hostileItem(v.kind, v.n)
		all = append(all, setUpRule{rule: "Offers: a known type twice", name: v.name + " twice", says: request(hostileOffers(iwarpOnly, item, item)), want: "offers: " + v.name + ": is listed twice"})
		for _, n := range []int{v.n - 1, v.n + 1} {
			all = append(all, setUpRule{rule: "Offers: " + v.words, name: v.name + " of another length", says: request(hostileOffers(iwarpOnly, hostileItem(v.kind, n))), want: "offers: " + v.name + ": has "})
		}
	}
	all = append(all, setUpRule{rule: "Offers: a known type twice", name: "devices twice", says: request(hostileOffers(iwarpOnly, iwarpOnly)), want: "offers: devices: is listed twice"})
	offers := good[:len(good)-wire.HelloLen]
	for _, h := range helloRules {
		if !h.ack {
			hello, want := h.of(false)
			all = append(all, setUpRule{rule: "Hello and HelloAck: " + h.rule, name: "Hello: " + h.name, says: request(slices.Concat(offers, hello)), want: want})
		}
	}
	return append(all, setUpRule{rule: "Hello and HelloAck: what follows is ignored", name: "Hello: junk after it", says: request(append(good, "junk"...)), want: goesUp})
}

// replyRules are broken by a server.
func replyRules() []setUpRule {
	const rejected = 0x20
	good := hostileChoice(1)
	reply := func(private []byte) []byte { return hostileFrame(hostileReplyKey, 0x40, 1, private...) }
	rejection := func(private []byte) []byte { return hostileFrame(hostileReplyKey, rejected, 1, private...) }
	none := hostileChoice(0)[:6]
	all := []setUpRule{
		{rule: "Setting up a connection: Since MPA forbids a responder to send the first FPDU", name: "FPDUs after the Reply", says: append(reply(good), hostileSession(false)...), want: goesUp},
		{rule: "Setting up a connection: a choice of device 0 alone as private data", name: "a rejection", says: rejection(none), want: plainAfter},
		{rule: "Choice: A rejection is recognised whatever its version is", name: "a rejection of another version", says: rejection(spoilt(none, 3, 2)), want: plainAfter},
		{rule: "Setting up a connection: A rejection with other private data, or none", name: "a rejection without a choice", says: rejection(nil), want: "MPA Request rejected"},
		{rule: "Setting up a connection: A rejection with other private data, or none", name: "a rejection that chooses iwarp", says: rejection(good[:6]), want: "MPA Request rejected"},
		{rule: "Setting up a connection: A rejection with other private data, or none", name: "a rejection with a HelloAck", says: rejection(hostileChoice(0)), want: "MPA Request rejected"},
		{rule: "Setting up a connection: A rejection with other private data, or none", name: "a rejection with a token", says: rejection(hostileChoice(0, hostileItem(1, 16))[:24]), want: "MPA Request rejected"},
		{rule: "Setting up a connection: A rejection with other private data, or none", name: "a rejection with garbage", says: rejection([]byte("garbage")), want: "MPA Request rejected"},
		{rule: "Setting up a connection: A client that gets anything but an MPA Reply", name: "an MPA Request", says: hostileFrame(mpa.RequestKey, 0x40, 1, hostileOffers([]byte{1, 1, 1})...), want: `answered "MPA ID Req Frame"`},

		{rule: "MPA: M | refused | refused", name: "markers", says: hostileFrame(hostileReplyKey, 0xC0, 1, good...), want: "markers are required"},
		{rule: "MPA: a reserved flag; S in revision 1 | ignored | ignored", name: "reserved flags", says: hostileFrame(hostileReplyKey, 0x5F, 1, good...), want: goesUp},
		{rule: "MPA: another revision | refused | refused", name: "revision 0", says: hostileFrame(hostileReplyKey, 0x40, 0, good...), want: "MPA revision 0"},
		{rule: "MPA: answered in the same way | refused", name: "revision 2", says: hostileFrame(hostileReplyKey, 0x40, 2, good...), want: "Reply has MPA revision 2"},
		{rule: "MPA: more private data | refused | refused", name: "513 bytes of private data", says: spoilt(reply(nil), 18, 2, 1), want: "513 bytes of private data"},
		{rule: "MPA: length of the private data", name: "65,535 bytes of private data that do not come", says: spoilt(reply(nil), 18, 255, 255), want: "65535 bytes of private data", silent: true},
		{rule: "MPA: length of the private data", name: "silence in the private data", says: reply(good)[:30], want: "no MPA Reply within", silent: true},

		{rule: "Choice: magic", name: "no private data", says: reply(nil), want: "choice: magic: is missing"},
		{rule: "Choice: magic", name: "garbage", says: reply([]byte("garbage")), want: "choice: magic: is missing"},
		{rule: "Choice: version | 1", name: "another version", says: reply(spoilt(good, 3, 2)), want: "choice: version: is 2, expected 1"},
		{rule: "Choice: of the choice from byte 0, 6 or more", name: "a length that is too long", says: reply(spoilt(good, 4, 255)), want: "choice: length: is 255 in 34 bytes"},
		{rule: "Choice: of the choice from byte 0, 6 or more", name: "a length that is too short", says: reply(spoilt(good, 4, 5)), want: "choice: length: is 5 in 34 bytes"},
		{rule: "Choice: one that was offered, or 0", name: "verbs, which was not offered", says: reply(hostileChoice(byte(wire.DeviceVerbs), hostileItem(1, 16), hostileItem(2, 8))), want: "peer chose verbs, which was not offered"},
		{rule: "Choice: one that was offered, or 0", name: "an unknown device", says: reply(hostileChoice(77)), want: "peer chose device 77, which was not offered"},
		{rule: "Choice: one that was offered, or 0", name: "device 0 without a rejection", says: reply(hostileChoice(0)), want: "peer chose none, which was not offered"},
		{rule: "Choice: token | 16 random bytes", name: "half a token", says: reply(hostileChoice(1, hostileItem(1, 8))), want: "choice: token: has 8 bytes, not 16"},
		{rule: "Choice: Types 2 and 4 are reserved", name: "a name", says: reply(hostileChoice(1, hostileItem(2, 10))), want: goesUp},
		{rule: "Choice: port | 2 bytes, not 0", name: "port 0", says: reply(hostileChoice(1, hostileItem(3, 2))), want: "choice: port: is not a port: 0000"},
		{rule: "Choice: port | 2 bytes, not 0", name: "half a port", says: reply(hostileChoice(1, []byte{3, 1, 1})), want: "choice: port: is not a port: 01"},
		{rule: "Choice: items | as in the offers", name: "a token twice", says: reply(hostileChoice(1, hostileItem(1, 16), hostileItem(1, 16))), want: "choice: token: is listed twice"},
		{rule: "Choice: items | as in the offers", name: "an item past the end", says: reply(hostileChoice(1, []byte{3, 9})), want: "choice: port: runs past the end"},
		{rule: "Choice: items | as in the offers", name: "unknown items", says: reply(hostileChoice(1, hostileItem(77, 3), hostileItem(0, 0))), want: goesUp},
		{rule: "Choice: iwarp needs no item", name: "a token and a port that nobody needs", says: reply(hostileChoice(1, hostileItem(1, 16), []byte{3, 2, 0, 80})), want: goesUp},
	}
	choice := good[:6]
	for _, h := range helloRules {
		if !h.hello {
			ack, want := h.of(true)
			all = append(all, setUpRule{rule: "Hello and HelloAck: " + h.rule, name: "HelloAck: " + h.name, says: reply(slices.Concat(choice, ack)), want: want})
		}
	}
	return append(all, setUpRule{rule: "Hello and HelloAck: what follows is ignored", name: "HelloAck: junk after it", says: reply(append(good, "junk"...)), want: goesUp})
}

// TestHostileRequests has each end of what a client may send as it should, and
// leave nothing.
func TestHostileRequests(t *testing.T) {
	defer hostileLeavesNothing(t)()
	for _, r := range requestRules() {
		t.Run(r.name, func(t *testing.T) {
			config := &Config{HandshakeTimeout: time.Minute}
			switch {
			case r.silent && r.want == goesPlain:
				config.HandshakeTimeout = 20 * time.Millisecond
			case r.silent:
				config.HandshakeTimeout = 500 * time.Millisecond
			}
			client, served := hostileClient(t, config)
			defer client.Close()
			client.SetDeadline(time.Now().Add(soon))
			client.Write(r.says) // to an end that may have gone
			switch r.want {
			case goesUp:
				flags, _ := readReply(t, client)
				require.Zero(t, flags&0x20)
				if !bytes.HasSuffix(r.says, hostileSession(true)) {
					client.Write(hostileSession(true))
				}
			case plainAfter:
				flags, private := readReply(t, client)
				require.NotZero(t, flags&0x20)
				require.Equal(t, "SDP\x01\x06\x00", string(private))
				io.WriteString(client, "plain")
				client.(*net.TCPConn).CloseWrite()
			default:
				if !r.silent {
					client.(*net.TCPConn).CloseWrite()
				}
			}
			up := <-served
			if up.err != nil {
				require.ErrorContains(t, up.err, r.want)
				return
			}
			defer up.Close()
			require.NoError(t, up.SetDeadline(time.Now().Add(soon)))
			if r.silent {
				client.(*net.TCPConn).CloseWrite()
			}
			got, err := io.ReadAll(up)
			require.NoError(t, err)
			c, sdp := up.Conn.(*Conn)
			switch r.want {
			case goesUp:
				require.True(t, sdp)
				assert.Equal(t, "iwarp", c.Device())
				assert.Equal(t, "hello", string(got))
			case plainAfter:
				assert.False(t, sdp)
				assert.Equal(t, "plain", string(got))
			case goesPlain:
				assert.False(t, sdp)
				assert.Equal(t, string(r.says), string(got))
			default:
				t.Errorf("no error, but %q", got)
			}
		})
	}
}

// readReply reads an MPA Reply: its flags and its private data.
func readReply(t *testing.T, c net.Conn) (flags byte, private []byte) {
	t.Helper()
	flags, private, err := readFrame(c, hostileReplyKey)
	require.NoError(t, err)
	return flags, private
}

// readFrame reads an MPA frame.
func readFrame(c net.Conn, key string) (flags byte, private []byte, err error) {
	head := make([]byte, mpa.KeyLen+4)
	if _, err = io.ReadFull(c, head); err == nil && string(head[:mpa.KeyLen]) != key {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, nil, err
	}
	private = make([]byte, binary.BigEndian.Uint16(head[mpa.KeyLen+2:]))
	_, err = io.ReadFull(c, private)
	return head[mpa.KeyLen], private, err
}

// TestHostileReplies has a Dial end as it should, whatever the server answers.
func TestHostileReplies(t *testing.T) {
	defer hostileLeavesNothing(t)()
	for _, r := range replyRules() {
		t.Run(r.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			served := make(chan struct{})
			go func() {
				defer close(served)
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, _, err := readFrame(c, mpa.RequestKey); err != nil {
					return
				}
				c.Write(r.says)
				switch {
				case r.want == plainAfter:
					io.WriteString(c, "plain")
					c.(*net.TCPConn).CloseWrite()
				case r.want == goesUp && !bytes.HasSuffix(r.says, hostileSession(false)):
					io.ReadFull(c, make([]byte, 40)) // the decision
					c.Write(hostileSession(false))
				}
				io.Copy(io.Discard, c) // up to the client's end
			}()
			config := &Config{Probe: loopback, ReplyTimeout: soon}
			if r.silent {
				config.ReplyTimeout = 100 * time.Millisecond
			}
			network := "sdp"
			if r.want == plainAfter {
				network = "tcp"
			}
			c, err := (&Dialer{Config: config}).Dial(network, ln.Addr().String())
			defer func() { <-served }()
			if r.want != goesUp && r.want != plainAfter {
				if err == nil {
					c.Close()
				}
				require.ErrorContains(t, err, r.want)
				return
			}
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			if r.want == goesUp {
				require.IsType(t, (*Conn)(nil), c)
				assert.Equal(t, "hello", string(got))
			} else {
				require.IsType(t, (*net.TCPConn)(nil), c)
				assert.Equal(t, "plain", string(got))
			}
		})
	}
}
