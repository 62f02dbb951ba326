package wire

import (
	"bytes"
	"strings"
	"testing"
)

var choices = []struct {
	name string
	hex  string
	c    Choice
}{
	{"rejection", "534450 01 06 00", Choice{}},
	{"iwarp", "534450 01 06 01", Choice{Device: DeviceIWARP}},
	{"shm", "534450 01 1d 05  01 10 000102030405060708090a0b0c0d0e0f  02 03 616263",
		Choice{Device: DeviceSHM, Token: offersVector.Host.Salt, HasToken: true, Socket: "abc"}},
	{"verbs", "534450 01 1c 03  01 10 00000000000000000000000000000000  03 02 4e20",
		Choice{Device: DeviceVerbs, HasToken: true, Port: 20000}},
}

func TestChoiceVectors(t *testing.T) {
	for _, v := range choices {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			got, err := v.c.Append([]byte("before"))
			if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Errorf("choice is\n%x, %v, want\n%x", got, err, want)
			}
			c, rest, err := ParseChoice(append(want, "HelloAck"...))
			if err != nil || string(rest) != "HelloAck" || c != v.c {
				t.Errorf("parsed %+v, %q, %v, want %+v", c, rest, err, v.c)
			}
		})
	}
}

func TestChoiceFitsWithHelloAck(t *testing.T) {
	c := Choice{Device: DeviceVerbs, HasToken: true, Socket: strings.Repeat("x", 64), Port: 1}
	b, err := c.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if b = ackVector.AppendHelloAck(b); len(b) > MaxPrivateData {
		t.Errorf("choice and HelloAck have %d bytes", len(b))
	}
	c.Socket += "x"
	_, err = c.Append(nil)
	wantField(t, err, "socket")
}

func TestParseChoiceSkipsUnknown(t *testing.T) {
	c, rest, err := ParseChoice(unhex(t, "534450 01 0d 09  09 01 00  03 02 0001  77"))
	if want := (Choice{Device: 9, Port: 1}); err != nil || c != want || len(rest) != 1 {
		t.Errorf("parsed %+v, %x, %v, want %+v", c, rest, err, want)
	}
}

func TestParseChoiceRejects(t *testing.T) {
	for _, v := range []struct{ name, hex, field string }{
		{"nothing", "", "magic"},
		{"half a header", "534450 01 06", "magic"},
		{"a bare HelloAck", helloAckHex, "magic"},
		{"version 2", "534450 02 06 01", "version"},
		{"length less than the header", "534450 01 05 01", "length"},
		{"length more than came", "534450 01 07 01", "length"},
		{"token too short", "534450 01 0b 02  01 03 000000", "token"},
		{"token past the end", "534450 01 0b 02  01 10 000000", "token"},
		{"no name", "534450 01 08 02  02 00", "socket"},
		{"name too long", "534450 01 49 02  02 41 " + strings.Repeat("61", 65), "socket"},
		{"half a port", "534450 01 09 03  03 01 50", "port"},
		{"port 0", "534450 01 0a 03  03 02 0000", "port"},
		{"port twice", "534450 01 0e 03  03 02 0050  03 02 0050", "port"},
		{"an item without length", "534450 01 07 03  03", "port"},
		{"an unknown item past the end", "534450 01 08 03  00 01", "item 0"},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, _, err := ParseChoice(unhex(t, v.hex))
			wantField(t, err, v.field)
		})
	}
}

func TestDeviceNames(t *testing.T) {
	for d, want := range map[Device]string{DeviceNone: "none", DeviceIWARP: "iwarp", DeviceSHM: "shm", DeviceVerbs: "verbs", 9: "device 9"} {
		if got := d.String(); got != want {
			t.Errorf("device %d is called %q, want %q", uint8(d), got, want)
		}
	}
}

func FuzzChoice(f *testing.F) {
	for _, v := range choices {
		f.Add(unhex(f, v.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, _, err := ParseChoice(b)
		if err != nil {
			return
		}
		again, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, rest, err := ParseChoice(again)
		if err != nil || len(rest) != 0 || got != c {
			t.Errorf("%+v came back as %+v, %x, %v", c, got, rest, err)
		}
	})
}
