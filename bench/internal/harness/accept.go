package harness

import (
	"net"
	"sync"
)

// A sessionListener implements net.Listener for a library that accepts connections
// from sessions. One goroutine per session delivers them.
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

// deliver passes a connection to Accept. It returns false if the listener is closed.
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
