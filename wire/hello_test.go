package wire

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gosdp/gosdp/test/watchdog"
)

const (
	helloHex    = "00 00 0040 00000020 00000000 00000000  11 00 0008 00010000 00008000 0010 0020"
	helloAckHex = "01 00 0004 0000001c 00000000 00000000  11 00 ffff 00000025 0001 0002"
)

var (
	helloVector = Hello{Bufs: 64, MaxAdverts: 8, DesRemRcvSz: 65536, LocalRcvSz: 32768, IRD: 16, ORD: 32, MinV: 1}
	ackVector   = Hello{Bufs: 4, MaxAdverts: 65535, LocalRcvSz: MinBuffer, IRD: 1, ORD: 2, MinV: 1}
)

func TestHelloVectors(t *testing.T) {
	hello, ack := unhex(t, helloHex), unhex(t, helloAckHex)
	if len(hello) != HelloLen || len(ack) != HelloAckLen {
		t.Fatalf("vectors of %d and %d bytes", len(hello), len(ack))
	}
	if got := helloVector.AppendHello(nil); !bytes.Equal(got, hello) {
		t.Errorf("Hello is\n%x, want\n%x", got, hello)
	}
	if got := ackVector.AppendHelloAck(nil); !bytes.Equal(got, ack) {
		t.Errorf("HelloAck is\n%x, want\n%x", got, ack)
	}
	if got, err := ParseHello(hello); err != nil || got != helloVector {
		t.Errorf("Hello is %+v, %v, want %+v", got, err, helloVector)
	}
	if got, err := ParseHelloAck(ack); err != nil || got != ackVector {
		t.Errorf("HelloAck is %+v, %v, want %+v", got, err, ackVector)
	}
}

func TestHelloToleratesWhatTheDraftDoes(t *testing.T) {
	for _, v := range []struct {
		name string
		at   int
		b    []byte
		want func(*Hello)
	}{
		{"junk after it", HelloLen, []byte("junk"), func(*Hello) {}},
		{"another minor version", 16, []byte{0x1F}, func(h *Hello) { h.MinV = 15 }},
		{"reserved byte", 17, []byte{0xFF}, func(*Hello) {}},
		{"no wish for the remote size", 20, []byte{0, 0, 0, 0}, func(h *Hello) { h.DesRemRcvSz = 0 }},
	} {
		t.Run(v.name, func(t *testing.T) {
			want := helloVector
			v.want(&want)
			b := unhex(t, helloHex)
			b = append(b[:v.at], append(v.b, b[min(len(b), v.at+len(v.b)):]...)...)
			if got, err := ParseHello(b); err != nil || got != want {
				t.Errorf("Hello is %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestHelloRejects(t *testing.T) {
	for _, v := range []struct {
		name  string
		at    int
		b     []byte
		field string
	}{
		{"another message", 0, []byte{0x01}, "MID"},
		{"Bufs 3", 2, []byte{0, 3}, "Bufs"},
		{"Len of a HelloAck", 4, []byte{0, 0, 0, 28}, "Len"},
		{"Len of more than came", 4, []byte{0, 0, 1, 0}, "Len"},
		{"MSeq", 8, []byte{0, 0, 0, 1}, "MSeq"},
		{"MSeqAck", 12, []byte{0, 0, 0, 1}, "MSeqAck"},
		{"major version 0", 16, []byte{0x01}, "MajV"},
		{"ib_sdp's version", 16, []byte{0x22}, "MajV"},
		{"MaxAdverts", 18, []byte{0, 0}, "MaxAdverts"},
		{"DesRemRcvSz small", 20, []byte{0, 0, 0, 36}, "DesRemRcvSz"},
		{"DesRemRcvSz large", 20, []byte{0x80, 0, 0, 1}, "DesRemRcvSz"},
		{"LocalRcvSz 0", 24, []byte{0, 0, 0, 0}, "LocalRcvSz"},
		{"LocalRcvSz small", 24, []byte{0, 0, 0, 36}, "LocalRcvSz"},
		{"LocalRcvSz large", 24, []byte{0xFF, 0xFF, 0xFF, 0xFF}, "LocalRcvSz"},
		{"LocIRD", 28, []byte{0, 0}, "LocIRD"},
		{"LocORD", 30, []byte{0, 0}, "LocORD"},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := unhex(t, helloHex)
			copy(b[v.at:], v.b)
			_, err := ParseHello(b)
			wantField(t, err, v.field)
		})
	}
	for n := range HelloLen {
		_, err := ParseHello(unhex(t, helloHex)[:n])
		wantField(t, err, "Len")
	}
}

func TestHelloAckRejects(t *testing.T) {
	for _, v := range []struct {
		name  string
		at    int
		b     []byte
		field string
	}{
		{"another message", 0, []byte{0x00}, "MID"},
		{"Bufs 3", 2, []byte{0, 3}, "Bufs"},
		{"Len of a Hello", 4, []byte{0, 0, 0, 32}, "Len"},
		{"major version", 16, []byte{0x21}, "MajV"},
		{"MaxAdverts", 18, []byte{0, 0}, "MaxAdverts"},
		{"ActRcvSz", 20, []byte{0, 0, 0, 36}, "ActRcvSz"},
		{"LocIRD", 24, []byte{0, 0}, "LocIRD"},
		{"LocORD", 26, []byte{0, 0}, "LocORD"},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := unhex(t, helloAckHex)
			copy(b[v.at:], v.b)
			_, err := ParseHelloAck(b)
			wantField(t, err, v.field)
		})
	}
	for n := range HelloAckLen {
		_, err := ParseHelloAck(unhex(t, helloAckHex)[:n])
		wantField(t, err, "Len")
	}
}

func TestAllocsOfHello(t *testing.T) {
	b, ack := unhex(t, helloHex), unhex(t, helloAckHex)
	buf := make([]byte, 0, HelloLen)
	if n := testing.AllocsPerRun(100, func() {
		h, _ := ParseHello(b)
		h.AppendHello(buf)
		h, _ = ParseHelloAck(ack)
		h.AppendHelloAck(buf)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(unhex(f, helloHex))
	f.Add(unhex(f, helloAckHex))
	f.Add(slices.Concat(unhex(f, helloHex), []byte("junk")))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		if h, err := ParseHello(b); err == nil {
			checkHello(t, b[:HelloLen], h.AppendHello(nil))
		}
		if h, err := ParseHelloAck(b); err == nil {
			checkHello(t, b[:HelloAckLen], h.AppendHelloAck(nil))
		}
	})
}

// checkHello compares but for what is not taken over: flags, MinV and the
// reserved byte.
func checkHello(t *testing.T, b, got []byte) {
	t.Helper()
	want := bytes.Clone(b)
	want[1], want[16], want[17] = 0, 0x11, 0
	if !bytes.Equal(got, want) {
		t.Errorf("%x came back as %x", want, got)
	}
}
