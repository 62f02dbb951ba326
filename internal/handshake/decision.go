package handshake

import (
	"context"
	"fmt"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// decision waits for the client's decision on qp, until ctx is done, and returns its header.
// The decision is the client's first message: an empty Data keeps the connection on iwarp,
// StepUp moves it to the new channel, and Plain makes it plain TCP. Messages after it stay in
// the queue pair.
func decision(ctx context.Context, qp rdma.QueuePair) (wire.Header, error) {
	defer interrupt.On(ctx, qp.Wake)()
	var wcs [1]rdma.Completion
	for {
		late := ctx.Err() != nil
		receive := qp.Wait
		if late {
			receive = qp.Poll // one last look
		}
		n, err := receive(wcs[:])
		switch {
		case err != nil:
			return wire.Header{}, fmt.Errorf("handshake: read client's decision: %w", err)
		case n == 1:
			return parseDecision(wcs[0])
		case late:
			return wire.Header{}, fmt.Errorf("handshake: no decision from client: %w", ctx.Err())
		}
	}
}

func parseDecision(wc rdma.Completion) (wire.Header, error) {
	if wc.Op != rdma.OpReceive {
		return wire.Header{}, fmt.Errorf("handshake: unexpected completion %d before client's decision", wc.Op)
	}
	defer wc.Buffer.Release()
	var m wire.Message
	if err := m.Parse(wc.Buffer.Bytes); err != nil {
		return wire.Header{}, err
	}
	switch {
	case m.MID != wire.MIDData && m.MID != wire.MIDStepUp && m.MID != wire.MIDPlain:
		return wire.Header{}, notDecision(&m, "MID", "%s", m.MID)
	case len(m.Payload) > 0:
		return wire.Header{}, notDecision(&m, "payload", "%d bytes", len(m.Payload))
	case m.MSeq != 1:
		return wire.Header{}, notDecision(&m, "MSeq", "%d", m.MSeq)
	case m.MSeqAck != 0:
		return wire.Header{}, notDecision(&m, "MSeqAck", "%d", m.MSeqAck)
	}
	return m.Header, nil
}

func notDecision(m *wire.Message, field, format string, args ...any) error {
	return &wire.Error{
		Message: m.MID.String(),
		Field:   field,
		What:    "is " + fmt.Sprintf(format, args...) + " in the client's decision",
	}
}
