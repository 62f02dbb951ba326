package wire

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"

	"github.com/gosdp/gosdp/test/watchdog"
)

// offersHex is written by hand from docs/protocol.md: 9 bytes of header, then
// items of 2+3, 2+36 and 2+32 bytes, 0x56 in all.
const offersHex = `0d0a0d0a 534450 01 56
	01 03 090103
	03 24 00000000000000000000ffffc0000201 c001 20010db8000000000000000000000001 0050
	08 20 000102030405060708090a0b0c0d0e0f 10101010101010101010101010101010`

var offersVector = Offers{
	Devices: []Device{9, DeviceIWARP, DeviceVerbs},
	Host: HostID{
		Salt:  [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		Proof: [16]byte(bytes.Repeat([]byte{0x10}, 16)),
	},
	HasHost: true,
	Client:  netip.MustParseAddrPort("192.0.2.1:49153"),
	Server:  netip.MustParseAddrPort("[2001:db8::1]:80"),
}

func TestOffersVector(t *testing.T) {
	want := unhex(t, offersHex)
	got, err := offersVector.Append(nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("offers are\n%x, %v, want\n%x", got, err, want)
	}
	o, rest, err := ParseOffers(append(want, "Hello"...))
	if err != nil || string(rest) != "Hello" || !reflect.DeepEqual(o, offersVector) {
		t.Errorf("parsed\n%+v, %q, %v, want\n%+v", o, rest, err, offersVector)
	}
}

func TestOffersFitWithHello(t *testing.T) {
	o := offersVector
	o.Devices = make([]Device, 140)
	b, err := o.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if b = helloVector.AppendHello(b); len(b) > MaxPrivateData {
		t.Errorf("offers and Hello have %d bytes", len(b))
	}
}

func TestOffersAppendRejects(t *testing.T) {
	for _, v := range []struct {
		name, field string
		spoil       func(*Offers)
	}{
		{"no device", "devices", func(o *Offers) { o.Devices = nil }},
		{"no server", "tuple", func(o *Offers) { o.Server = netip.AddrPort{} }},
		{"no client", "tuple", func(o *Offers) { o.Client = netip.AddrPort{} }},
		{"too many devices", "length", func(o *Offers) { o.Devices = make([]Device, 300) }},
	} {
		t.Run(v.name, func(t *testing.T) {
			o := offersVector
			v.spoil(&o)
			_, err := o.Append(nil)
			wantField(t, err, v.field)
		})
	}
}

func TestParseOffersSkipsUnknown(t *testing.T) {
	o, rest, err := ParseOffers(unhex(t, "0d0a0d0a 534450 01 18  00 00  ff 02 abcd  01 02 0901  05 01 02  ff 00  77"))
	if want := (Offers{Devices: []Device{9, DeviceIWARP}}); err != nil || !reflect.DeepEqual(o, want) || len(rest) != 1 {
		t.Errorf("parsed %+v, %x, %v, want %+v", o, rest, err, want)
	}
}

func TestParseOffersRejects(t *testing.T) {
	const start = "0d0a0d0a 534450 01 "
	for _, v := range []struct{ name, hex, field string }{
		{"nothing", "", "magic"},
		{"half a header", "0d0a0d0a 534450 01", "magic"},
		{"a bare Hello", helloHex, "magic"},
		{"magic in lower case", "0d0a0d0a 536470 01 0c  01 01 01", "magic"},
		{"version 2", "0d0a0d0a 534450 02 0c  01 01 01", "version"},
		{"length less than the header", start + "08  01 01 01", "length"},
		{"length more than came", start + "0d  01 01 01", "length"},
		{"no items", start + "09", "devices"},
		{"no devices", start + "0d  ff 02 0000", "devices"},
		{"an empty list of devices", start + "0b  01 00", "devices"},
		{"devices twice", start + "0f  01 01 01  01 01 01", "devices"},
		{"devices past the end", start + "0c  01 02 01", "devices"},
		{"an item without length", start + "0d  01 01 01 08", "host"},
		{"an unknown item past the end", start + "0e  01 01 01 ff 01", "item 255"},
		{"host too short", start + "0f  01 01 01  08 01 00", "host"},
		{"tuple too short", start + "0f  01 01 01  03 01 00", "tuple"},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, _, err := ParseOffers(unhex(t, v.hex))
			wantField(t, err, v.field)
		})
	}
}

func TestSameTuple(t *testing.T) {
	for _, v := range []struct {
		name, client, server, seenClient, seenServer string
		same                                         bool
	}{
		{"equal", "192.0.2.1:1000", "192.0.2.2:80", "192.0.2.1:1000", "192.0.2.2:80", true},
		{"IPv4 on an IPv6 socket", "192.0.2.1:1000", "192.0.2.2:80", "[::ffff:192.0.2.1]:1000", "[::ffff:192.0.2.2]:80", true},
		{"zones of two hosts", "[fe80::1%eth0]:1000", "[fe80::2%eth0]:80", "[fe80::1%en1]:1000", "[fe80::2%en1]:80", true},
		{"port translated", "192.0.2.1:1000", "192.0.2.2:80", "192.0.2.1:1001", "192.0.2.2:80", false},
		{"port forwarded", "192.0.2.1:1000", "192.0.2.2:80", "192.0.2.1:1000", "192.0.2.2:8080", false},
		{"through a proxy", "192.0.2.1:1000", "192.0.2.2:80", "192.0.2.9:1000", "192.0.2.2:80", false},
	} {
		t.Run(v.name, func(t *testing.T) {
			o := Offers{Devices: []Device{DeviceIWARP}, Client: netip.MustParseAddrPort(v.client), Server: netip.MustParseAddrPort(v.server)}
			b, err := o.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if o, _, err = ParseOffers(b); err != nil {
				t.Fatal(err)
			}
			if got := o.SameTuple(netip.MustParseAddrPort(v.seenClient), netip.MustParseAddrPort(v.seenServer)); got != v.same {
				t.Errorf("SameTuple is %v, want %v", got, v.same)
			}
		})
	}
	if o := (Offers{}); o.SameTuple(netip.AddrPort{}, netip.AddrPort{}) {
		t.Error("a tuple that was not given is the same")
	}
}

func TestHostID(t *testing.T) {
	const host = "boot\x00net"
	h := NewHostID([16]byte{1}, host)
	if !h.SameHost(host) {
		t.Error("a host does not know itself")
	}
	if h.SameHost("boot\x00other") {
		t.Error("a host knows another")
	}
	if other := NewHostID([16]byte{2}, host); other.Proof == h.Proof {
		t.Error("two salts, one hash: it would fingerprint the host")
	}
}

// TestHostIDVector is computed with: printf 'boot\0net' | openssl dgst -sha256
// -mac HMAC -macopt hexkey:000102030405060708090a0b0c0d0e0f
func TestHostIDVector(t *testing.T) {
	h := NewHostID(offersVector.Host.Salt, "boot\x00net")
	if want := unhex(t, "abce5aa31dd341e2bf2297bcd4087313"); !bytes.Equal(h.Proof[:], want) {
		t.Errorf("proof %x, want %x", h.Proof, want)
	}
}

func FuzzOffers(f *testing.F) {
	f.Add(unhex(f, offersHex))
	f.Add(unhex(f, "0d0a0d0a 534450 01 15  00 00  ff 02 abcd  01 02 0901  ff 00  77"))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		o, _, err := ParseOffers(b)
		if err != nil {
			return
		}
		again, err := o.Append(nil)
		if err != nil {
			if o.length() <= MaxPrivateData-HelloLen {
				t.Fatal(err)
			}
			return
		}
		got, rest, err := ParseOffers(again)
		if err != nil || len(rest) != 0 || !reflect.DeepEqual(got, o) {
			t.Errorf("%+v came back as %+v, %x, %v", o, got, rest, err)
		}
	})
}
