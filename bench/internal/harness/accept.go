package harness

import (
	"net"
	"sync"
)

// A sessionListener is the net.Listener of a library whose connections come out
// of sessions: a goroutine for each session hands them over.
type sessionListener struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	close   func() error
	once    sync.Once
}

func newSessionListener(address net.Addr, close func() error) *sessionListener {
	return &sessionListener{
		address: address,
		conns:   make(chan net.Conn),
		closed:  make(chan struct{}),
		close:   close,
	}
}

// deliver hands a connection to Accept; it says false if there is no listener
// any more.
func (l *sessionListener) deliver(conn net.Conn) bool {
	select {
	case l.conns <- conn:
		return true
	case <-l.closed:
		conn.Close()
		return false
	}
}

func (l *sessionListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *sessionListener) Addr() net.Addr { return l.address }

func (l *sessionListener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.close()
	})
	return err
}
