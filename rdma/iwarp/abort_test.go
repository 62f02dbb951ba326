package iwarp

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// TestNothingLandsAfterAbort: after Abort has returned, nothing is written to the memory of an
// RDMA Read, although its bytes have arrived.
func TestNothingLandsAfterAbort(t *testing.T) {
	client, server := tcpPair(t)
	a, b := connect(t, client, server, Config{NoCRC: true, IRD: 4, ORD: 4, MaxULPDU: mpa.SoftwareULPDU})
	defer b.Abort()
	region, err := b.Register(bytes.Repeat([]byte{1}, 100), rdma.RemoteRead)
	require.NoError(t, err)
	var first, second [100]byte
	for i, local := range [][]byte{first[:], second[:]} {
		require.NoError(t, a.PostRead(rdma.ReadWR{ID: uint64(i), Local: local, STag: region.STag, VA: region.VA}))
	}
	require.NoError(t, a.Drain(time.Minute))
	var wcs [1]rdma.Completion
	_, err = b.Poll(wcs[:])
	require.NoError(t, err)
	require.NoError(t, b.Drain(time.Minute))
	n, err := a.Wait(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, a.Abort())
	n, err = a.Poll(wcs[:])
	assert.Zero(t, n)
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.Equal(t, [100]byte{}, second)
}
