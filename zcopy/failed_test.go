package zcopy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

// TestSinkFailed: RDMA Reads fail after others have succeeded. The completion reports those, and
// everything else is asked for as Data, also what is advertised later.
func TestSinkFailed(t *testing.T) {
	s := NewSink(SinkConfig{OurAdverts: 1, PeerAdvert: 1, Worth: 1})
	require.NoError(t, s.SrcAvail(wire.Advert{Len: 1001, STag: 7, VA: 10}, 1))
	s.Payload(1, false)
	for _, n := range []int{500, 400, 100} {
		_, _, _, ok := s.Fetch(n)
		require.True(t, ok)
	}
	s.Fetched(500)
	s.Failed(400)
	_, _, _, ok := s.Fetch(400)
	assert.False(t, ok, "no more is fetched")
	s.Failed(100)
	assert.Equal(t, held{stag: 7, left: 500, va: 511, come: 500}, s.held[0])

	m, stag, ok := s.Due()
	require.True(t, ok)
	assert.Equal(t, wire.MIDRdmaRdCompl, m.MID)
	assert.EqualValues(t, 500, m.Size)
	assert.Zero(t, stag)
	s.Took(&m)
	m, _, ok = s.Due()
	require.True(t, ok)
	assert.Equal(t, wire.MIDSendSm, m.MID)
	s.Took(&m)
	assert.False(t, s.Bars(500))
	s.Payload(500, true)

	require.NoError(t, s.SrcAvail(wire.Advert{Len: 1001, STag: 8, VA: 10}, 1))
	s.Payload(1, false)
	assert.False(t, s.Suits(1000))
	m, _, _ = s.Due()
	assert.Equal(t, wire.MIDSendSm, m.MID)
}

// TestSecondSinkFailed: the RDMA Read that fails is of the second SrcAvail, and the first one keeps what it has.
func TestSecondSinkFailed(t *testing.T) {
	s := NewSink(SinkConfig{OurAdverts: 2, PeerAdvert: 2, Worth: 1})
	require.NoError(t, perform(t, &s, toPipelined, srcAvail(200, 0), srcAvail(300, 0), fetch(200), fetched(200), fetch(300)))
	first := s.held[0]
	s.Failed(300)
	assert.Equal(t, first, s.held[0])
	assert.Equal(t, held{stag: 7, left: 300, va: 1000}, s.held[1])
}
