package sdp

import (
	"context"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/local"
)

// meets returns the TCP connection if its two ends may be on this host, and no program has wrapped it.
func (s *settings) meets(conn net.Conn) (*net.TCPConn, bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || !s.shm || adopted.Settled(conn) {
		return nil, false
	}
	return tcp, s.Dir != "" || local.OneHost(conn)
}

// local returns a connection between two programs of this host.
func (s *settings) local(tcp *net.TCPConn, dialled bool) *local.Conn {
	return local.New(tcp, s.moves, s.network, dialled)
}

// open makes the connection the program's.
func (s *settings) open(l *local.Conn, dialled bool) *Conn {
	l.Open(dialled, s.Logger)
	return publish(l)
}

// onHost returns the Conn for a TCP connection between two programs of this host, and nil for another one.
func (s *settings) onHost(conn net.Conn, dialled bool) *Conn {
	tcp, ok := s.meets(conn)
	if !ok {
		return nil
	}
	l := s.local(tcp, dialled)
	if !dialled && !bubble.Inside() {
		l.Expect()
	}
	return s.open(l, dialled)
}

// inherit is onHost for a connection that another process has begun.
func (s *settings) inherit(conn net.Conn) *Conn {
	if tcp, ok := s.meets(conn); ok {
		return s.open(local.Continue(tcp, s.moves, s.network), false)
	}
	return nil
}

// meet returns the Conn for a TCP connection whose peer is met in shared memory at once. With an error the
// caller has the connection, as it was. Without a peer that could be met it returns nil and no error.
func (s *settings) meet(ctx context.Context, conn net.Conn, limit time.Duration) (*Conn, error) {
	tcp, ok := s.meets(conn)
	if !ok || bubble.Inside() {
		return nil, nil
	}
	l := s.local(tcp, true)
	if err := l.Meet(ctx, limit); err != nil {
		return nil, err
	}
	return s.open(l, true), nil
}

// meeting returns nil if the client of an accepted connection cannot be met in shared memory.
func (s *settings) meeting(conn net.Conn) handshake.Meeting {
	tcp, ok := s.meets(conn)
	if !ok || bubble.Inside() {
		return nil
	}
	return &acceptee{s.local(tcp, false), s}
}

// acceptee is an accepted connection that the program does not have yet.
type acceptee struct {
	l *local.Conn
	s *settings
}

func (a *acceptee) Try() (net.Conn, error) {
	if met, err := a.l.TryMeet(); err != nil || !met {
		return nil, err
	}
	return a.Plain(), nil
}

func (a *acceptee) Plain() net.Conn { return a.s.open(a.l, false) }
