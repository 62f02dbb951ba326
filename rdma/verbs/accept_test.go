//go:build linux && cgo

package verbs

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// invite returns an acceptor, and an invitation to it. come makes the peer come.
func (f *fake) invite(cfg rdma.ChannelConfig, answer func([]byte) ([]byte, int, error)) (p *acceptor, i rdma.Invitation, come func()) {
	f.t.Helper()
	p, err := listen(cfg)
	require.NoError(f.t, err)
	i, err = p.Invite(toHere, answer)
	require.NoError(f.t, err)
	token := i.Address().Token
	return p, i, func() { f.order("request", hex.EncodeToString(append(token[:], "hello"...)), 0) }
}

// rejects waits until a peer has been rejected, and compares what it was told.
func (f *fake) rejects(want string) {
	f.t.Helper()
	until(f.t, "the peer is not rejected", func() bool { return f.get("rejections") == 1 })
	assert.Equal(f.t, want, f.order("reason", "-", 0))
}

// nodeRNIC is the type of an iWARP device.
const nodeRNIC = 4

// TestAdmitNeedsNoRTU: over InfiniBand and RoCE a client may believe that the channel is open when this
// end has accepted. The event that says so here may be late, or lost on the way.
func TestAdmitNeedsNoRTU(t *testing.T) {
	onFake(t, func(f *fake) {
		p, i, come := f.invite(config, func(said []byte) ([]byte, int, error) {
			assert.Equal(t, "hello", string(said))
			return []byte("answer"), 1, nil
		})
		defer p.Close()
		come()
		q, err := i.Take(t.Context())
		require.NoError(t, err)
		q.Abort()
	})
}

// TestAdmitWaitsForTheClient: on iWARP this end waits for the client's first message. Either process may
// be stopped meanwhile. This end waits as long as the client is invited.
func TestAdmitWaitsForTheClient(t *testing.T) {
	onFake(t, func(f *fake) {
		f.set("node_type", nodeRNIC)
		p, i, come := f.invite(config, func([]byte) ([]byte, int, error) { return []byte("answer"), 1, nil })
		defer p.Close()
		come()
		until(t, "the client is not accepted", func() bool { return f.get("connects") == 1 })
		f.order("establish", "accepted", 0)
		f.order("receive", "-", 0)
		q, err := i.Take(t.Context())
		require.NoError(t, err)
		q.Abort()
	})
}

// TestAdmitEndsWithTheInvitation: what the handshake does without is given up, although neither the
// client nor the kernel says anything.
func TestAdmitEndsWithTheInvitation(t *testing.T) {
	onFake(t, func(f *fake) {
		f.set("node_type", nodeRNIC)
		p, i, come := f.invite(config, func([]byte) ([]byte, int, error) { return []byte("answer"), 1, nil })
		defer p.Close()
		come()
		until(t, "the client is not accepted", func() bool { return f.get("connects") == 1 })
		i.Withdraw()
		until(t, "the queue pair remains", func() bool { return f.get("qps") == 0 })
	})
}

// TestReasonsStayHere: a peer that is not admitted is not told the internal reason, which Take returns.
func TestReasonsStayHere(t *testing.T) {
	onFake(t, func(f *fake) {
		secret := errors.New("what only this end must know")
		p, i, come := f.invite(config, func([]byte) ([]byte, int, error) { return nil, 0, secret })
		defer p.Close()
		come()
		_, err := i.Take(t.Context())
		assert.Equal(t, secret, err)
		f.rejects("server cannot open the channel")
	})
}

// TestMemoryStaysHere: neither is a peer told how much memory this process may lock.
func TestMemoryStaysHere(t *testing.T) {
	onFake(t, func(f *fake) {
		defer func(former func() int64) { buffers.limit = former }(buffers.limit)
		buffers.limit = func() int64 { return 0 }
		p, i, come := f.invite(config, func([]byte) ([]byte, int, error) { return nil, 1, nil })
		defer p.Close()
		come()
		_, err := i.Take(t.Context())
		assert.ErrorContains(t, err, "SDP_MEMORY")
		f.rejects("server cannot open the channel")
	})
}
