package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// example returns the bytes of the block "```hex name" in docs/protocol.md.
func example(t *testing.T, name string) []byte {
	t.Helper()
	page, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	// A checkout on Windows may have made the line ends \r\n.
	_, block, found := strings.Cut(strings.ReplaceAll(string(page), "\r\n", "\n"), "```hex "+name+"\n")
	if !found {
		t.Fatalf("no example called %q", name)
	}
	block, _, _ = strings.Cut(block, "```")
	var digits strings.Builder
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(line)
	}
	return unhex(t, digits.String())
}

// mpa returns an MPA frame of revision 1 with CRC.
func mpa(key string, private []byte) []byte {
	b := append([]byte(key), 0x40, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(len(private)))
	return append(b, private...)
}

// fpdu returns the FPDU of an RDMAP Send, the msn-th.
func fpdu(msn byte, message []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(18+len(message)))
	b = append(b, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0)
	b = append(b, message...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// TestProtocolPageIsTrue makes the example of docs/protocol.md.
func TestProtocolPageIsTrue(t *testing.T) {
	offers := Offers{
		Devices: []Device{DeviceIWARP},
		Client:  netip.MustParseAddrPort("192.0.2.1:49153"),
		Server:  netip.MustParseAddrPort("192.0.2.2:80"),
	}
	hello := Hello{Bufs: 64, MaxAdverts: 8, DesRemRcvSz: 32768, LocalRcvSz: 32768, IRD: 16, ORD: 16}
	request, err := offers.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := (&Choice{Device: DeviceIWARP}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	stay := Message{Header: Header{MID: MIDData, Bufs: 64, MSeq: 1}}
	stepUp := Message{Header: Header{MID: MIDStepUp, Bufs: 64, MSeq: 1}}
	data := Message{Header: Header{MID: MIDData, Bufs: 64, MSeq: 2}, Payload: []byte("hello")}

	for name, want := range map[string][]byte{
		"request":  mpa("MPA ID Req Frame", hello.AppendHello(request)),
		"reply":    mpa("MPA ID Rep Frame", hello.AppendHelloAck(reply)),
		"decision": fpdu(1, stay.AppendHeader(nil)),
		"stepup":   stepUp.AppendHeader(nil),
		"data":     fpdu(2, append(data.AppendHeader(nil), data.Payload...)),
	} {
		if got := example(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s: the page has\n%x, but it is\n%x", name, got, want)
		}
	}
}
