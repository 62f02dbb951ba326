package harness

import (
	"errors"
	"net"
	"sync"
)

// A connection of SDP begins on TCP, moves to shared memory after some traffic, and comes home after a second of
// silence. Cases about bytes measure it in shared memory: before each turn, exchanges make it move.

// shared is what Conn.Device returns in shared memory.
const shared = "shm"

// deviceOf returns what carries the connection's bytes now, or "" if the connection does not tell.
func deviceOf(conn net.Conn) string {
	if c, ok := conn.(interface{ Device() string }); ok {
		return c.Device()
	}
	return ""
}

var errNotMoved = errors.New("connection has not moved to shared memory")

const (
	mostExchanges  = 5000 // in which a connection must move
	exchangesAfter = 8    // in which the other direction follows
)

// settle makes the link's connection move, if it can.
func (l *link) settle() error {
	if !l.moves {
		return nil
	}
	ignored := new(times).shard(0)
	for range mostExchanges {
		if deviceOf(l.conn) == shared {
			return l.roundTrips(1, exchangesAfter, 0, ignored)
		}
		if err := l.roundTrips(1, 1, 0, ignored); err != nil {
			return err
		}
	}
	return errNotMoved
}

func settleAll(links []*link) error {
	for _, l := range links {
		if err := l.settle(); err != nil {
			return err
		}
	}
	return nil
}

// pool remembers the connections that a library has dialled.
type pool struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (p *pool) add(conn net.Conn, err error) (net.Conn, error) {
	if err == nil {
		p.mu.Lock()
		p.conns = append(p.conns, conn)
		p.mu.Unlock()
	}
	return conn, err
}

func (p *pool) moved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if deviceOf(c) != shared {
			return false
		}
	}
	return len(p.conns) > 0
}

// settle runs a load in small parts until all connections have moved.
func (p *pool) settle(run func(n int, times *times) error, part int) error {
	for range mostExchanges / 10 {
		if err := run(part, new(times)); err != nil || p.moved() {
			return err
		}
	}
	return errNotMoved
}
