package handshake

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/wire"
)

// TestDiscardWithdrawsThePromise, and not what is left of it on a channel that begins with less.
func TestDiscardWithdrawsThePromise(t *testing.T) {
	conn, _ := handshaketest.TCPPair(t)
	qp, _ := handshaketest.QueuePairs(t)
	promised, local := wire.Hello{Bufs: 64, LocalRcvSz: 4096}, wire.Hello{Bufs: 2, LocalRcvSz: 1024}
	var withdrawn []wire.Hello
	cfg := testConfig()
	cfg.Withdraw = func(h wire.Hello) { withdrawn = append(withdrawn, h) }
	up := Connection{Conn: conn, QP: qp, Local: local, Promised: promised, cfg: &cfg}
	up.Discard()
	assert.Equal(t, []wire.Hello{promised}, withdrawn)
}
