package wire

import (
	"bytes"
	"testing"

	"github.com/gosdp/gosdp/test/watchdog"
)

var choices = []struct {
	name string
	hex  string
	c    Choice
}{
	{"rejection", "534450 01 06 00", Choice{}},
	{"iwarp", "534450 01 06 01", Choice{Device: DeviceIWARP}},
	{"a token", "534450 01 18 03  01 10 000102030405060708090a0b0c0d0e0f",
		Choice{Device: DeviceVerbs, Token: offersVector.Host.Salt, HasToken: true}},
	{"verbs, and stay", "534450 01 1a 03  01 10 00000000000000000000000000000000  05 00",
		Choice{Device: DeviceVerbs, HasToken: true, Stay: true}},
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
	c := Choice{Device: DeviceVerbs, HasToken: true, Port: 1, Stay: true}
	b, err := c.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if b = ackVector.AppendHelloAck(b); len(b) > MaxPrivateData {
		t.Errorf("choice and HelloAck have %d bytes", len(b))
	}
}

func TestParseChoiceSkipsUnknown(t *testing.T) {
	if _, known := itemName(choiceItems, 6); known || len(choiceItems) != 6 {
		t.Error("06 is not the first unknown item")
	}
	c, rest, err := ParseChoice(unhex(t, "534450 01 14 09  09 01 00  02 03 616263  03 02 0001  06 00  77"))
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
		{"half a port", "534450 01 09 03  03 01 50", "port"},
		{"port 0", "534450 01 0a 03  03 02 0000", "port"},
		{"port twice", "534450 01 0e 03  03 02 0050  03 02 0050", "port"},
		{"stay twice", "534450 01 0a 03  05 00  05 00", "stay"},
		{"stay with a value", "534450 01 09 03  05 01 00", "stay"},
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
	for d, want := range map[Device]string{DeviceNone: "none", DeviceIWARP: "iwarp", DeviceVerbs: "verbs", 7: "device 7"} {
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
		defer watchdog.Start()()
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
