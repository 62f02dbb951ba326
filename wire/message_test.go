package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gosdp/gosdp/test/watchdog"
)

// unhex reads hex digits, with spaces between them where they help the reader.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantField checks that err is an *Error that names the field.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want an *Error about %s", err, field)
	}
	if e.Field != field {
		t.Fatalf("error %q is about %q, want %q", e, e.Field, field)
	}
}

// vectors are written by hand from §6 and docs/protocol.md.
var vectors = []struct {
	name string
	hex  string
	m    Message
}{
	{"DisConn", "02 00 0040 00000010 00000001 00000000",
		Message{Header: Header{MID: MIDDisConn, Bufs: 64, MSeq: 1}}},
	{"AbortConn", "03 00 0003 00000010 00000002 00000001",
		Message{Header: Header{MID: MIDAbortConn, Bufs: 3, MSeq: 2, MSeqAck: 1}}},
	{"SendSm", "04 00 ffff 00000010 ffffffff 80000000",
		Message{Header: Header{MID: MIDSendSm, Bufs: 65535, MSeq: 1<<32 - 1, MSeqAck: 1 << 31}}},
	{"RdmaWrCompl", "05 04 0010 00000014 00000007 00000006  00100000",
		Message{Header: Header{MID: MIDRdmaWrCompl, Flags: FlagReqPipe, Bufs: 16, MSeq: 7, MSeqAck: 6}, Size: 1 << 20}},
	{"RdmaRdCompl of the largest", "06 00 0010 00000014 00000007 00000006  80000000",
		Message{Header: Header{MID: MIDRdmaRdCompl, Bufs: 16, MSeq: 7, MSeqAck: 6}, Size: MaxSize}},
	{"ModeChange: I send Pipelined", "07 00 0010 00000014 00000009 00000008  20000000",
		Message{Header: Header{MID: MIDModeChange, Bufs: 16, MSeq: 9, MSeqAck: 8}, Mode: ModePipelined}},
	{"ModeChange: send Combined", "07 00 0010 00000014 00000009 00000008  90000000",
		Message{Header: Header{MID: MIDModeChange, Bufs: 16, MSeq: 9, MSeqAck: 8}, Mode: ModeCombined, ModeOfSend: true}},
	{"ModeChange: I send Buffered", "07 00 0010 00000014 00000009 00000008  00000000",
		Message{Header: Header{MID: MIDModeChange, Bufs: 16, MSeq: 9, MSeqAck: 8}, Mode: ModeBuffered}},
	{"SrcAvailCancel", "08 00 0010 00000010 00000009 00000008",
		Message{Header: Header{MID: MIDSrcAvailCancel, Bufs: 16, MSeq: 9, MSeqAck: 8}}},
	{"SinkAvailCancel", "09 00 0010 00000010 00000009 00000008",
		Message{Header: Header{MID: MIDSinkAvailCancel, Bufs: 16, MSeq: 9, MSeqAck: 8}}},
	{"SinkCancelAck", "0a 00 0010 00000010 00000009 00000008",
		Message{Header: Header{MID: MIDSinkCancelAck, Bufs: 16, MSeq: 9, MSeqAck: 8}}},
	{"ChRcvBuf", "0b 00 0010 00000014 00000009 00000008  00010000",
		Message{Header: Header{MID: MIDChRcvBuf, Bufs: 16, MSeq: 9, MSeqAck: 8}, Size: 65536}},
	{"ChRcvBufAck of the smallest", "0c 00 0010 00000014 00000009 00000008  00000025",
		Message{Header: Header{MID: MIDChRcvBufAck, Bufs: 16, MSeq: 9, MSeqAck: 8}, Size: MinBuffer}},
	{"StepUp", "40 00 0010 00000010 00000001 00000000",
		Message{Header: Header{MID: MIDStepUp, Bufs: 16, MSeq: 1}}},
	{"SinkAvail", "fd 00 0010 00000024 00000009 00000008  00001000 deadbeef 0123456789abcdef 0000002a",
		Message{Header: Header{MID: MIDSinkAvail, Bufs: 16, MSeq: 9, MSeqAck: 8},
			Advert: Advert{Len: 4096, STag: 0xdeadbeef, VA: 0x0123456789abcdef, NonDiscards: 42}}},
	{"SinkAvail with payload", "fd 00 0010 00000027 00000009 00000008  00000001 deadbeef 0000000000000000 ffffffff  616263",
		Message{Header: Header{MID: MIDSinkAvail, Bufs: 16, MSeq: 9, MSeqAck: 8},
			Advert: Advert{Len: 1, STag: 0xdeadbeef, NonDiscards: 1<<32 - 1}, Payload: []byte("abc")}},
	{"SrcAvail in Pipelined Mode", "fe 00 0010 00000020 00000009 00000008  80000000 00000102 ffffffff80000000",
		Message{Header: Header{MID: MIDSrcAvail, Bufs: 16, MSeq: 9, MSeqAck: 8},
			Advert: Advert{Len: MaxSize, STag: 0x102, VA: 0xffffffff80000000}}},
	{"SrcAvail in Combined Mode", "fe 00 0010 00000022 00000009 00000008  00000003 00000102 0000000000000001  6869",
		Message{Header: Header{MID: MIDSrcAvail, Bufs: 16, MSeq: 9, MSeqAck: 8},
			Advert: Advert{Len: 3, STag: 0x102, VA: 1}, Payload: []byte("hi")}},
	{"Data", "ff 00 0040 00000015 00000001 00000000  68656c6c6f",
		Message{Header: Header{MID: MIDData, Bufs: 64, MSeq: 1}, Payload: []byte("hello")}},
	{"Data as credit update", "ff 00 0040 00000010 00000002 00000005",
		Message{Header: Header{MID: MIDData, Bufs: 64, MSeq: 2, MSeqAck: 5}}},
	{"Data out of band", "ff 03 0040 00000011 00000002 00000005  21",
		Message{Header: Header{MID: MIDData, Flags: FlagOOBPresent | FlagOOBPending, Bufs: 64, MSeq: 2, MSeqAck: 5}, Payload: []byte("!")}},
}

func TestMessageVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			m := v.m
			if got := append(m.AppendHeader(nil), m.Payload...); !bytes.Equal(got, want) {
				t.Errorf("appended\n%x, want\n%x", got, want)
			}
			if int(m.Len) != len(want) {
				t.Errorf("AppendHeader set Len to %d, want %d", m.Len, len(want))
			}
			parsed := Message{Size: 99, Mode: 7, Advert: Advert{STag: 99}, Payload: []byte("stale")}
			if err := parsed.Parse(want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(parsed, m) {
				t.Errorf("parsed\n%+v, want\n%+v", parsed, m)
			}
		})
	}
}

func TestParseIgnoresReservedBits(t *testing.T) {
	for _, v := range []struct{ reserved, clear string }{
		{"ff f8 0040 00000010 00000002 00000005", "ff 00 0040 00000010 00000002 00000005"},
		{"07 00 0010 00000014 00000009 00000008  9fffffff", "07 00 0010 00000014 00000009 00000008  90000000"},
	} {
		var got, want Message
		if err := got.Parse(unhex(t, v.reserved)); err != nil {
			t.Fatal(err)
		}
		if err := want.Parse(unhex(t, v.clear)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, want %+v", v.reserved, got, want)
		}
	}
}

func TestParsePayloadAliases(t *testing.T) {
	b := unhex(t, "ff 00 0040 00000012 00000001 00000000  6869")
	var m Message
	if err := m.Parse(b); err != nil {
		t.Fatal(err)
	}
	b[16] = 'H'
	if string(m.Payload) != "Hi" {
		t.Errorf("payload %q is a copy", m.Payload)
	}
}

func TestParseRejects(t *testing.T) {
	for _, v := range []struct{ name, hex, field string }{
		{"nothing", "", "BSDH"},
		{"a byte short of a header", "ff 00 0040 00000010 00000001 000000", "BSDH"},
		{"Len less than came", "ff 00 0040 00000010 00000001 00000000  00", "Len"},
		{"Len more than came", "ff 00 0040 00000012 00000001 00000000  00", "Len"},
		{"Len less than the header", "ff 00 0040 0000000f 00000001 00000000", "Len"},
		{"Len of 4 GB", "ff 00 0040 ffffffff 00000001 00000000", "Len"},
		{"Hello", "00 00 0040 00000020 00000000 00000000  11000008 00010000 00008000 00100010", "MID"},
		{"HelloAck", "01 00 0040 0000001c 00000000 00000000  11000008 00008000 00100010", "MID"},
		{"SuspComm", "0d 00 0040 00000018 00000001 00000000  00000000 00500001", "MID"},
		{"SuspCommAck", "0e 00 0040 00000010 00000001 00000000", "MID"},
		{"reserved MID", "0f 00 0040 00000010 00000001 00000000", "MID"},
		{"experimental MID not ours", "42 00 0040 00000010 00000001 00000000", "MID"},
		{"last reserved MID", "fc 00 0040 00000010 00000001 00000000", "MID"},
		{"no extension", "05 00 0040 00000010 00000001 00000000", "RWCH"},
		{"half an extension", "06 00 0040 00000012 00000001 00000000  0000", "RRCH"},
		{"SinkAvail with SrcAvail's extension", "fd 00 0010 00000020 00000009 00000008  00001000 deadbeef 0123456789abcdef", "SinkAH"},
		{"SrcAvail a byte short", "fe 00 0010 0000001f 00000009 00000008  00001000 deadbeef 0123456789abcd", "SrcAH"},
		{"ModeChange without", "07 00 0040 00000010 00000001 00000000", "MCH"},
		{"ChRcvBuf without", "0b 00 0040 00000010 00000001 00000000", "CRBH"},
		{"ChRcvBufAck without", "0c 00 0040 00000010 00000001 00000000", "CRBAH"},
		{"payload in DisConn", "02 00 0040 00000011 00000001 00000000  00", "payload"},
		{"payload in StepUp", "40 00 0040 00000011 00000001 00000000  00", "payload"},
		{"payload in RdmaRdCompl", "06 00 0040 00000015 00000001 00000000  00000001 00", "payload"},
		{"moved more than there can be", "06 00 0040 00000014 00000001 00000000  80000001", "RRCH Len"},
		{"advertised nothing", "fd 00 0010 00000024 00000009 00000008  00000000 deadbeef 0123456789abcdef 00000000", "SinkAH Len"},
		{"advertised too much", "fe 00 0010 00000020 00000009 00000008  80000001 deadbeef 0123456789abcdef", "SrcAH Len"},
		{"all of a SrcAvail rode along", "fe 00 0010 00000022 00000009 00000008  00000002 00000102 0000000000000001  6869", "payload"},
		{"mode 3", "07 00 0010 00000014 00000009 00000008  30000000", "Mode"},
		{"mode 7 to be sent in", "07 00 0010 00000014 00000009 00000008  f0000000", "Mode"},
		{"ChRcvBuf too small", "0b 00 0010 00000014 00000009 00000008  00000024", "DesSz"},
		{"ChRcvBuf too large", "0b 00 0010 00000014 00000009 00000008  80000001", "DesSz"},
		{"ChRcvBufAck too small", "0c 00 0010 00000014 00000009 00000008  00000000", "ActSz"},
	} {
		t.Run(v.name, func(t *testing.T) {
			var m Message
			wantField(t, m.Parse(unhex(t, v.hex)), v.field)
		})
	}
}

// TestParseAcceptsExtremes has the least and the greatest value of fields that have bounds.
func TestParseAcceptsExtremes(t *testing.T) {
	for _, v := range []struct{ name, hex string }{
		{"ChRcvBuf, least", "0b 00 0010 00000014 00000009 00000008  00000025"},
		{"ChRcvBuf, greatest", "0b 00 0010 00000014 00000009 00000008  80000000"},
		{"RdmaRdCompl, greatest", "06 00 0040 00000014 00000001 00000000  80000000"},
		{"SinkAvail, least", "fd 00 0010 00000024 00000009 00000008  00000001 deadbeef 0123456789abcdef 00000000"},
		{"SinkAvail, greatest", "fd 00 0010 00000024 00000009 00000008  80000000 deadbeef 0123456789abcdef 00000000"},
	} {
		t.Run(v.name, func(t *testing.T) {
			var m Message
			if err := m.Parse(unhex(t, v.hex)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMIDNames(t *testing.T) {
	for mid, want := range map[MID]string{MIDHello: "Hello", MIDSinkCancelAck: "SinkCancelAck", MIDData: "Data", 0x0F: "MID 0x0f"} {
		if got := mid.String(); got != want {
			t.Errorf("%#x is called %q, want %q", uint8(mid), got, want)
		}
	}
}

func TestErrorNamesMessageAndField(t *testing.T) {
	var m Message
	err := m.Parse(unhex(t, "02 00 0040 00000011 00000001 00000000  00"))
	if want := "wire: DisConn: payload: 1 bytes where none are allowed"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestAllocsOfMessages(t *testing.T) {
	buf := make([]byte, 0, MaxHeaderLen)
	for _, v := range vectors {
		b := unhex(t, v.hex)
		var m Message
		if n := testing.AllocsPerRun(100, func() {
			if err := m.Parse(b); err != nil {
				t.Fatal(err)
			}
			m.AppendHeader(buf)
		}); n != 0 {
			t.Errorf("%s: %v allocations", v.name, n)
		}
	}
}

func BenchmarkAppendHeader(b *testing.B) {
	m := Message{Header: Header{MID: MIDData, Bufs: 64}, Payload: make([]byte, 64)}
	buf := make([]byte, 0, MaxHeaderLen)
	b.ReportAllocs()
	for b.Loop() {
		m.MSeq++
		m.AppendHeader(buf)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, v := range vectors {
		if strings.Contains(v.name, " ") {
			continue
		}
		b.Run(v.name, func(b *testing.B) {
			buf := unhex(b, v.hex)
			var m Message
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Parse(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzMessage(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		var m Message
		if m.Parse(b) != nil {
			return
		}
		got := append(m.AppendHeader(nil), m.Payload...)
		want := bytes.Clone(b)
		want[1] &= byte(knownFlags)
		if m.MID == MIDModeChange {
			copy(want[16:], []byte{want[16] & 0xF0, 0, 0, 0})
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%x came back as %x", want, got)
		}
	})
}
