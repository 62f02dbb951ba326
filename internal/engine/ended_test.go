package engine

import (
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// outlivingPair is a queue pair in memory that delivers, or does not, what it has
// accepted when its process ends.
type outlivingPair struct {
	*memPair
	outlives bool
	sendErr  error // what PostSend says
}

func (p *outlivingPair) Limits() rdma.Limits {
	l := p.memPair.Limits()
	l.Outlives = p.outlives
	return l
}

func (p *outlivingPair) PostSend(wrs []rdma.SendWR) (int, error) {
	if p.sendErr != nil {
		return 0, p.sendErr
	}
	return p.memPair.PostSend(wrs)
}

// TestEndOfTheChannel is what it means to the program that the channel has ended, on
// devices of both kinds.
func TestEndOfTheChannel(t *testing.T) {
	reset, broken := os.NewSyscallError("read", syscall.ECONNRESET), os.NewSyscallError("write", syscall.EPIPE)
	for _, v := range []struct {
		name     string
		outlives bool
		disConn  bool  // the peer has sent one
		sent     error // what a Write before has met
		ends     error
		read     error // of the first Read
	}{
		{"an end", true, false, nil, io.EOF, io.EOF},
		{"an end in a message", true, false, nil, io.ErrUnexpectedEOF, syscall.ECONNRESET},
		{"an end, after a Write met one", true, false, broken, io.EOF, io.EOF},
		{"an end, after a Write met a reset", true, false, os.NewSyscallError("write", syscall.ECONNRESET), io.EOF, syscall.ECONNRESET},
		{"a reset", true, false, nil, reset, syscall.ECONNRESET},
		{"a reset after a DisConn", true, true, nil, reset, io.EOF},
		{"an end, and bytes may be missing", false, false, nil, io.EOF, syscall.ECONNRESET},
		{"an end in a message, and bytes may be missing", false, false, nil, io.ErrUnexpectedEOF, syscall.ECONNRESET},
		{"an end after a DisConn, and none can be missing", false, true, nil, io.EOF, io.EOF},
	} {
		t.Run(v.name, func(t *testing.T) {
			qp := &outlivingPair{memPair: newMemPair(t, RecvBuffers), outlives: v.outlives}
			c := memConn(t, qp, true, -1, RecvBuffers)
			defer c.Close()
			if v.sent != nil {
				qp.sendErr = v.sent
				_, err := c.Write([]byte("x"))
				require.ErrorIs(t, err, v.sent)
			}
			data := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: RecvBuffers, MSeq: 1}, Payload: []byte("all")}
			qp.deliver(append(data.AppendHeader(nil), data.Payload...), 0)
			if v.disConn {
				m := wire.Message{Header: wire.Header{MID: wire.MIDDisConn, Bufs: RecvBuffers, MSeq: 2}}
				qp.deliver(m.AppendHeader(nil), 0)
			}
			qp.end(v.ends)
			awaitOver(t, c)
			b := make([]byte, 8)
			n, err := c.Read(b)
			assert.NoError(t, err)
			assert.Equal(t, "all", string(b[:n]))
			if v.read == io.EOF && v.sent == nil && v.ends != reset {
				n, err := c.Write(b)
				assert.Equal(t, len(b), n, "are lost, as over TCP")
				assert.NoError(t, err)
			}
			c.told.Store(false) // as if the library's own message had met it, and no call
			_, err = c.Read(b)
			assert.ErrorIs(t, err, v.read)
			for range 2 {
				_, err = c.Write(b)
				assert.ErrorIs(t, err, syscall.EPIPE)
				_, err = c.Read(b)
				assert.Equal(t, io.EOF, err)
			}
		})
	}
}

// awaitOver waits until the connection knows that nothing more comes.
func awaitOver(t *testing.T, c *Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.recvErr != nil
	}, soon, time.Millisecond)
}
