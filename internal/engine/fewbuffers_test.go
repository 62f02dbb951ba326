package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

// TestPeerWithFewBuffers: a stream flows to a peer that has as few buffers as a Hello may announce,
// and grants credit as docs/protocol.md says and no sooner.
func TestPeerWithFewBuffers(t *testing.T) {
	t.Setenv(thresholdVariable, "-1") // everything is in messages
	const messages = 200
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	accepted := accept1(ln)
	hello := wire.Hello{Bufs: wire.MinBufs, MaxAdverts: 4, LocalRcvSz: wire.MinBuffer, IRD: 4, ORD: 4}
	p, err := hostileDial(t, ln.Addr().String(), hostilePrivate(t, hello.AppendHello(nil)))
	require.NoError(t, err)
	defer p.qp.Close()
	p.qp.ProvideReceive(wire.MinBufs, wire.MinBuffer) // one more message would be a violation
	p.say(hostileMessage{mid: 0xFF, bufs: wire.MinBufs})
	c := <-accepted
	defer c.Close()
	watchdog := time.AfterFunc(soon, func() { p.qp.Abort() })
	defer watchdog.Stop()
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, messages*(wire.MinBuffer-wire.HeaderLen)))
		written <- err
	}()
	for granted := uint32(wire.MinBufs); p.payloads < messages; {
		m := p.next() // whose buffer is posted again at once
		credit, gain := granted-m.MSeq, m.MSeq+wire.MinBufs-granted
		if credit <= 1 && gain > 0 || credit <= 3 && gain >= 2 {
			p.say(hostileMessage{mid: 0xFF, ack: m.MSeq, bufs: wire.MinBufs})
			granted = m.MSeq + wire.MinBufs
		}
	}
	assert.NoError(t, await(t, written, soon))
}
