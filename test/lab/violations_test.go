package lab_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/test/lab"
)

// testViolations breaks rules towards siw, and makes siw break rules.
//
// siw swaps the layer and the error type of a Terminate, because the bit-fields of its struct
// begin at the lowest bit. So the tests expect them swapped in what siw sends, and in what siw
// logs of received ones.
func testViolations(t *testing.T, m *lab.Machine) {
	for _, v := range []struct {
		name string
		post func(e *end, theirs rdma.Region) error
		rfc  rdma.TerminateError // as RFC 5040 §4.8 has it
	}{
		{
			name: "Write to no STag",
			post: func(e *end, theirs rdma.Region) error {
				return e.PostWrite(rdma.WriteWR{Local: make([]byte, 8), STag: theirs.STag ^ 0x10000, VA: theirs.VA})
			},
			rfc: rdma.TerminateError{Layer: 1, Type: 1, Code: 0},
		},
		{
			name: "Write past the end",
			post: func(e *end, theirs rdma.Region) error {
				return e.PostWrite(rdma.WriteWR{Local: make([]byte, 8), STag: theirs.STag, VA: theirs.VA + 60})
			},
			rfc: rdma.TerminateError{Layer: 1, Type: 1, Code: 1},
		},
		{
			name: "Read of no STag",
			post: func(e *end, theirs rdma.Region) error {
				return e.PostRead(rdma.ReadWR{Local: make([]byte, 8), STag: theirs.STag ^ 0x10000, VA: theirs.VA})
			},
			rfc: rdma.TerminateError{Layer: 0, Type: 1, Code: 0},
		},
		{
			name: "Read past the end",
			post: func(e *end, theirs rdma.Region) error {
				return e.PostRead(rdma.ReadWR{Local: make([]byte, 8), STag: theirs.STag, VA: theirs.VA + 60})
			},
			rfc: rdma.TerminateError{Layer: 0, Type: 1, Code: 1},
		},
	} {
		t.Run("ours/"+v.name, func(t *testing.T) {
			// siw sends no Terminate while it is still sending its own last message. If the
			// violation arrives then, it only closes the connection. So this is repeated.
			var err error
			for range 10 {
				e, theirs, client := rpingClient(t, m, iwarp.Config{}, 64)
				require.NoError(t, v.post(e, theirs))
				e.Flush()
				err = e.failure()
				client.Kill()
				if err != io.EOF {
					break
				}
			}
			var terminate *rdma.TerminateError
			require.ErrorAs(t, err, &terminate)
			require.Equal(t, rdma.TerminateError{Layer: v.rfc.Type, Type: v.rfc.Layer, Code: v.rfc.Code}, *terminate)
		})
	}
	for _, v := range []struct {
		name   string
		ping   func(r rdma.Region) (rdma.Region, int) // the advertised ping
		echo   func(r rdma.Region) rdma.Region        // the advertised buffer for the echo
		rule   string
		logged string
	}{
		{
			name:   "Read of no STag",
			ping:   func(r rdma.Region) (rdma.Region, int) { r.STag++; return r, 64 },
			rule:   "RFC 5040 §5.2",
			logged: "layer 1, type 0, code 0",
		},
		{
			name:   "Read past the end",
			ping:   func(r rdma.Region) (rdma.Region, int) { return r, 65 },
			rule:   "RFC 5040 §5.2",
			logged: "layer 1, type 0, code 1",
		},
		{
			name:   "Write to no STag",
			echo:   func(r rdma.Region) rdma.Region { r.STag++; return r },
			rule:   "RFC 5041 §5.3",
			logged: "layer 1, type 1, code 0",
		},
		{
			name:   "Write past the end",
			echo:   func(r rdma.Region) rdma.Region { r.VA += 60; return r },
			rule:   "RFC 5041 §5.3",
			logged: "layer 1, type 1, code 1",
		},
	} {
		t.Run("siw/"+v.name, func(t *testing.T) {
			m.Run(t, "dmesg -c >/dev/null")
			e, server := rpingServer(t, m, iwarp.Config{Revision: 2})
			defer server.Kill()
			b := make([]byte, 64)
			copy(b, "a ping of some bytes")
			r, err := e.Register(b, rdma.RemoteRead|rdma.RemoteWrite)
			require.NoError(t, err)
			source, n := r, len(b)
			if v.ping != nil {
				source, n = v.ping(r)
			}
			e.send(advert(source, n))
			if v.echo != nil {
				e.receive()
				e.send(advert(v.echo(r), len(b)))
			}
			var violation *rdma.ProtocolError
			require.ErrorAs(t, e.failure(), &violation)
			require.Equal(t, v.rule, violation.Rule)
			require.NoError(t, e.Abort()) // after the Terminate
			server.Wait()
			require.Contains(t, m.Run(t, "dmesg"), "siw: got TERMINATE. "+v.logged)
		})
	}
}

// testCorruption changes one byte of a message in transit.
func testCorruption(t *testing.T, m *lab.Machine) {
	// The client sends an MPA frame of 20 bytes and its first message in an FPDU of 40 bytes.
	// Then it sends the data that the server reads, after headers of 16 bytes.
	const inMessage, inPing = 20 + 30, 20 + 40 + 16 + 30
	change := func(which int) func(bool, int, []byte) {
		return func(up bool, offset int, b []byte) {
			if at := which - offset; up && at >= 0 && at < len(b) {
				b[at] ^= 1
			}
		}
	}
	t.Run("noticed by siw", func(t *testing.T) {
		server := m.Start(t, rpingScript(fmt.Sprintf("rping -s -q -a %s -p %d", lab.Guest, port)))
		defer server.Kill()
		m.Listening(t, port)
		e := dial(t, newTap(t, m.Address(port), change(inMessage)).address, iwarp.Config{Revision: 1})
		e.send(advert(rdma.Region{}, 0))
		var terminate *rdma.TerminateError
		require.ErrorAs(t, e.failure(), &terminate)
		require.Equal(t, rdma.TerminateError{Layer: 0, Type: 2, Code: 2}, *terminate) // MPA, CRC: swapped
	})
	t.Run("noticed by us", func(t *testing.T) {
		m.Siw(t, "siw-revision1")
		defer m.Siw(t, "siw")
		m.Run(t, "dmesg -c >/dev/null")
		at, accept := listen(t, iwarp.Config{})
		tap := newTap(t, fmt.Sprintf("127.0.0.1:%d", at), change(inPing))
		_, through, err := net.SplitHostPort(tap.address)
		require.NoError(t, err)
		client := m.Start(t, rpingScript(fmt.Sprintf("rping -c -a %s -p %s -C 1", lab.Host, through)))
		e := accept()
		ping := region(e.receive())
		require.NoError(t, e.PostRead(rdma.ReadWR{Local: make([]byte, 64), STag: ping.STag, VA: ping.VA}))
		var violation *rdma.ProtocolError
		require.ErrorAs(t, e.failure(), &violation)
		require.Equal(t, "RFC 5044 §4.4", violation.Rule)
		require.NoError(t, e.Abort())
		client.Wait()
		require.Contains(t, m.Run(t, "dmesg"), "siw: got TERMINATE. layer 0, type 2, code 2")
	})
}

// TestHandWrittenPeer needs no lab. A peer that is written in bytes uses a wrong STag and
// checks every byte of this library's Terminate.
func TestHandWrittenPeer(t *testing.T) {
	for _, v := range []struct{ name, fpdu, terminate string }{
		{
			name:      "Write",
			fpdu:      "0012 c140 deadbeef 0000000000000010 01020304",
			terminate: "0026 4147 00000000 00000002 00000001 00000000  11 00 c0 00 0012 c140 deadbeef 0000000000000010",
		},
		{
			name: "Read Request",
			fpdu: "002e 4141 00000000 00000001 00000001 00000000 00000007 0000000000000000 00000008 deadbeef 0000000000000010",
			terminate: "0046 4147 00000000 00000002 00000001 00000000  01 00 e0 00 002e" +
				"4141 00000000 00000001 00000001 00000000 00000007 0000000000000000 00000008 deadbeef 0000000000000010",
		},
	} {
		t.Run(v.name, func(t *testing.T) {
			port, accept := listen(t, iwarp.Config{})
			done := make(chan error, 1)
			go func() { done <- accept().failure() }()
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write(unhex("4d504120494420526571204672616d65 40 01 0000"))
			require.NoError(t, err)
			reply := make([]byte, 20)
			_, err = io.ReadFull(conn, reply)
			require.NoError(t, err)
			require.Equal(t, unhex("4d50412049442052657020 4672616d65 40 01 0000"), reply)
			_, err = conn.Write(sealed(unhex(v.fpdu)))
			require.NoError(t, err)
			got, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, sealed(unhex(v.terminate)), got)
			var violation *rdma.ProtocolError
			require.ErrorAs(t, <-done, &violation)
		})
	}
}

// unhex decodes hexadecimal with spaces.
func unhex(s string) []byte {
	var b []byte
	if _, err := fmt.Sscanf(strings.ReplaceAll(s, " ", ""), "%x", &b); err != nil {
		panic(err)
	}
	return b
}

// sealed appends the CRC of RFC 5044 §4.4 to an FPDU that needs no padding.
func sealed(fpdu []byte) []byte {
	return binary.LittleEndian.AppendUint32(fpdu, crc32.Checksum(fpdu, crc32.MakeTable(crc32.Castagnoli)))
}
