package iwarp

import (
	"errors"
	"net"
)

// Detach ends the queue pair and returns the open connection. It tells the peer nothing: both
// ends have agreed to continue on another channel. The kernel must have accepted everything that
// was posted, and no other call may be in progress. Detach fails, and the queue pair stays
// usable, if something is unread or unsent, or if the transport does not work on a socket.
func (q *QueuePair) Detach() (net.Conn, error) {
	t, ok := q.t.(interface{ detach() net.Conn })
	if !ok {
		return nil, errors.New("iwarp: detach: connection is not a socket")
	}
	q.tx.Lock()
	defer q.tx.Unlock()
	switch {
	case q.tx.Err != nil:
		return nil, q.tx.Err
	case q.tx.pendingLocked() || q.tx.Carrying:
		return nil, errors.New("iwarp: detach: unsent messages")
	case q.rx.tail > q.rx.head:
		return nil, errors.New("iwarp: detach: unread messages")
	}
	var c net.Conn
	q.closed.Do(func() {
		q.sendFailedLocked(net.ErrClosed)
		if q.rx.cur != nil {
			q.rx.cur.Drop()
			q.rx.cur = nil
		}
		q.rx.err = net.ErrClosed
		q.regions.Close()
		c = t.detach()
	})
	if c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}
