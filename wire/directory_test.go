package wire

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"
)

// dirOffersHex is written by hand from docs/protocol.md: items of 2+1, 2+48 and 2+16 bytes, 0x50 in all.
// The proof of the directory "dir" was computed elsewhere:
//
//	printf dir | openssl dgst -sha256 -mac hmac -macopt hexkey:000102030405060708090a0b0c0d0e0f
const dirOffersHex = `0d0a0d0a 534450 01 50
	01 01 07
	02 30 000102030405060708090a0b0c0d0e0f 10101010101010101010101010101010 20202020202020202020202020202020
	07 10 2b3b0fac756452ead1e830fe43561a10`

func TestOffersOfADirectory(t *testing.T) {
	o := Offers{Devices: []Device{DeviceSHM}, Host: offersVector.Host, HasHost: true}
	o.MeetIn("dir")
	want := unhex(t, dirOffersHex)
	got, err := o.Append(nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("offers are\n%s, %v, want\n%x", hex.EncodeToString(got), err, want)
	}
	parsed, _, err := ParseOffers(want)
	if err != nil || !reflect.DeepEqual(parsed, o) {
		t.Errorf("parsed\n%+v, %v, want\n%+v", parsed, err, o)
	}
	if !parsed.SameDir("dir") || parsed.SameDir("another") {
		t.Error("the directory is not told from another one")
	}
	without := Offers{Devices: o.Devices, Host: o.Host, HasHost: true}
	if without.SameDir("dir") {
		t.Error("offers without a directory name one")
	}
	if parsed.HasHost = false; parsed.SameDir("dir") {
		t.Error("a proof without its salt counts")
	}
	_, _, err = ParseOffers(unhex(t, "0d0a0d0a 534450 01 0f  01 01 06  07 01 00"))
	wantField(t, err, "directory")
}
