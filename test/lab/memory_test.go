package lab_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/test/lab"
)

// region and advert decode and encode rping's message: VA, STag and size.
func region(message []byte) rdma.Region {
	return rdma.Region{
		VA:   binary.BigEndian.Uint64(message),
		STag: rdma.STag(binary.BigEndian.Uint32(message[8:])),
	}
}

func advert(r rdma.Region, size int) []byte {
	b := binary.BigEndian.AppendUint64(nil, r.VA)
	b = binary.BigEndian.AppendUint32(b, uint32(r.STag))
	return binary.BigEndian.AppendUint32(b, uint32(size))
}

// sizes returns all short lengths, those around the payload of one FPDU of siw (an Ethernet
// segment), those around powers of two, and the longest.
func sizes(longest int) []int {
	var all []int
	for n := 1; n <= 70; n++ {
		all = append(all, n)
	}
	for n := 1420; n <= 1450; n++ {
		all = append(all, n)
	}
	for n := 128; n < longest; n *= 2 {
		all = append(all, n-1, n, n+1)
	}
	return append(all, longest)
}

// stripes returns a pattern that depends on the position of each byte and on the round.
func stripes(round, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*131 + i>>8*17 + round*59)
	}
	return b
}

// testMemory writes to siw's memory, reads it back, and compares. It also makes siw read and
// write memory of this library.
func testMemory(t *testing.T, m *lab.Machine) {
	const longest = 65535 // rping's longest ping
	for _, cfg := range []iwarp.Config{{}, {NoCRC: true}, {MaxULPDU: mpa.SoftwareULPDU}} {
		t.Run(fmt.Sprintf("ours,crc=%t,ulpdu=%d", !cfg.NoCRC, cfg.MaxULPDU), func(t *testing.T) {
			e, theirs, client := rpingClient(t, m, cfg, longest)
			defer client.Kill()
			back := make([]byte, longest)
			for round, n := range sizes(longest) {
				bytes := stripes(round, n)
				at := theirs
				at.VA += uint64(longest - n) // up to the last byte of the region
				e.write(bytes, at)
				e.read(back[:n], at)
				require.Equal(t, bytes, back[:n], "%d bytes", n)
			}
		})
	}
	// siw's server reads the memory that a client advertises. It writes the data, up to and
	// including the first zero byte, into the second buffer.
	t.Run("siw", func(t *testing.T) {
		e, server := rpingServer(t, m, iwarp.Config{Revision: 2})
		ping, echo := make([]byte, longest), make([]byte, longest)
		source, err := e.Register(ping, rdma.RemoteRead)
		require.NoError(t, err)
		sink, err := e.Register(echo, rdma.RemoteWrite)
		require.NoError(t, err)
		for round, n := range sizes(longest) {
			want := stripes(round, n)
			for i, b := range want {
				want[i] = b | 1
			}
			want[n-1] = 0
			copy(ping, want)
			clear(echo)
			echo[n-1] = 0xFF
			e.send(advert(source, n))
			e.receive()
			e.send(advert(sink, n))
			e.receive()
			require.Equal(t, want, echo[:n], "%d bytes", n)
			require.Equal(t, make([]byte, longest-n), echo[n:], "%d bytes", n)
		}
		require.NoError(t, e.Close())
		require.Contains(t, server.Wait().Output, "DISCONNECT EVENT")
	})
}

// testSends exchanges messages with rdma-core's ucmatose. Its server sends first, which
// requires the peer-to-peer mode.
func testSends(t *testing.T, m *lab.Machine) {
	m.Siw(t, "siw-strict")
	const count = 3
	for _, size := range []int{1, 3, 1449, 65536} {
		message := stripes(size, size)
		t.Run(fmt.Sprintf("client/%d", size), func(t *testing.T) {
			at, accept := listen(t, iwarp.Config{})
			client := m.Start(t, fmt.Sprintf("timeout 60 ucmatose -s %s -p %d -S %d -C %d", lab.Host, at, size, count))
			e := accept()
			received := e.receiving() // receives siw's RTR message, before which this end must not send
			for range count {
				e.send(message)
			}
			for range count {
				require.Equal(t, message, <-received) // ucmatose echoes
			}
			require.NoError(t, e.Close())
			result := client.Wait()
			require.Zero(t, result.Status, result.Output)
		})
		t.Run(fmt.Sprintf("server/%d", size), func(t *testing.T) {
			server := m.Start(t, fmt.Sprintf("timeout 60 ucmatose -b %s -p %d -S %d -C %d", lab.Guest, port, size, count))
			m.Listening(t, port)
			e := dial(t, m.Address(port), iwarp.Config{Revision: 2, PeerToPeer: true})
			for range count {
				require.Len(t, e.receive(), size)
			}
			for range count {
				e.send(message)
			}
			require.Error(t, e.failure()) // ucmatose disconnects
			require.NoError(t, e.Close())
			result := server.Wait()
			require.Zero(t, result.Status, result.Output)
		})
	}
	m.Siw(t, "siw")
}
