package lab_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// tap relays one TCP connection and records how it begins, so that a test sees what the two
// ends have negotiated.
type tap struct {
	address  string // where the client connects to
	listener net.Listener
	ends     sync.WaitGroup

	mu       sync.Mutex
	up, down []byte // the first bytes of the client and of the server
	conns    []*net.TCPConn
}

// tapLen is the number of bytes recorded in each direction.
const tapLen = 256

// newTap relays to a server. If alter is not nil, it may change the data of the client (up)
// or the server; offset is the position of the data in its direction.
func newTap(t testing.TB, server string, alter func(up bool, offset int, b []byte)) *tap {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{address: listener.Addr().String(), listener: listener}
	p.ends.Go(func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		conn, err := net.Dial("tcp", server)
		if err != nil {
			client.Close()
			return
		}
		p.mu.Lock()
		p.conns = []*net.TCPConn{client.(*net.TCPConn), conn.(*net.TCPConn)}
		p.mu.Unlock()
		p.ends.Go(func() { p.relay(conn, client, true, alter) })
		p.relay(client, conn, false, alter)
	})
	t.Cleanup(p.reset)
	return p
}

func (p *tap) relay(to, from net.Conn, up bool, alter func(bool, int, []byte)) {
	kept := &p.down
	if up {
		kept = &p.up
	}
	b := make([]byte, 64<<10)
	for offset := 0; ; {
		n, err := from.Read(b)
		if n > 0 && alter != nil {
			alter(up, offset, b[:n])
		}
		offset += n
		p.mu.Lock()
		*kept = append(*kept, b[:min(n, tapLen-len(*kept))]...)
		p.mu.Unlock()
		if _, werr := to.Write(b[:n]); werr != nil {
			return
		}
		if err == io.EOF {
			to.(*net.TCPConn).CloseWrite()
			return
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// reset resets both connections and waits until the relay has stopped.
func (p *tap) reset() {
	p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.conns {
		conn.SetLinger(0)
		conn.Close()
	}
	p.mu.Unlock()
	p.ends.Wait()
}

// agreement is what the two MPA frames of a connection and the client's first FPDU contain.
type agreement struct {
	revision             int
	requestCRC, replyCRC bool
	first                string // the client's first message
}

// agreement decodes the recorded bytes by RFC 5044 §7.1.1 and RFC 6581 §9. It does so
// without package iwarp's parser, on purpose.
func (p *tap) agreement(t testing.TB) agreement {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Greater(t, len(p.up), 20)
	require.GreaterOrEqual(t, len(p.down), 20)
	require.Equal(t, "MPA ID Req Frame", string(p.up[:16]))
	require.Equal(t, "MPA ID Rep Frame", string(p.down[:16]))
	require.Equal(t, p.up[17], p.down[17], "the revision of the Reply")
	require.Zero(t, p.down[16]&0x20, "rejected")
	a := agreement{
		revision:   int(p.up[17]),
		requestCRC: p.up[16]&0x40 != 0,
		replyCRC:   p.down[16]&0x40 != 0,
	}
	fpdu := p.up[20+binary.BigEndian.Uint16(p.up[18:]):]
	require.Greater(t, len(fpdu), 4)
	a.first = map[byte]string{0: "Write", 1: "Read Request", 3: "Send"}[fpdu[3]&0x0F]
	return a
}
