package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// A Link is a connection to the peer process over one contender. One goroutine
// at a time may use it.
type Link struct {
	conn  net.Conn
	order [orderSize]byte
	buf   []byte
}

// orderSize is the length of what precedes each run and tells the peer its
// part: the pattern (1 byte), the size (4) and the number (8) of the messages.
const orderSize = 13

// Dial connects to the peer process over the contender.
func (p *Peer) Dial(ctx context.Context, c Contender) (*Link, error) {
	address, err := p.listen(c)
	if err != nil {
		return nil, fmt.Errorf("%s: listen: %w", c.Name, err)
	}
	conn, err := c.Dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s: dial: %w", c.Name, err)
	}
	return &Link{conn: conn}, nil
}

// Run has n messages of the case cross the link, and returns when all of them
// have arrived.
func (l *Link) Run(c Case, n int) error {
	l.order[0] = byte(c.Pattern)
	binary.BigEndian.PutUint32(l.order[1:], uint32(c.Size))
	binary.BigEndian.PutUint64(l.order[5:], uint64(n))
	if _, err := l.conn.Write(l.order[:]); err != nil {
		return err
	}
	l.buf = sized(l.buf, c.Size)
	return patterns[c.Pattern].measure(l.conn, l.buf, n)
}

// Close closes the connection.
func (l *Link) Close() error { return l.conn.Close() }

// answer is the peer's end of a link: it does its part of one run after the
// other until the measuring process closes the connection.
func answer(conn net.Conn) error {
	defer conn.Close()
	var order [orderSize]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(conn, order[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if int(order[0]) >= len(patterns) {
			return fmt.Errorf("no pattern %d", order[0])
		}
		buf = sized(buf, int(binary.BigEndian.Uint32(order[1:])))
		n := int(binary.BigEndian.Uint64(order[5:]))
		if err := patterns[order[0]].peer(conn, buf, n); err != nil {
			return err
		}
	}
}

// sized returns buf with that length, or a new one, for a half.
func sized(buf []byte, size int) []byte {
	if cap(buf) < max(size, readWindow) {
		return make([]byte, size, max(size, readWindow))
	}
	return buf[:size]
}
