package sdp

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/stream"
)

// moves says when the connections of a Dial or a Listen move.
type moves struct{ *stream.Policy }

// movesFor returns that of programs that meet in the policy's directory, if it has one, and allows its users
// besides the program's own.
func movesFor(policy *policy.Policy) moves {
	if policy.Dir == "" && len(policy.UIDs) == 0 {
		return moves{defaultPolicy()}
	}
	p := *defaultPolicy()
	p.Dir = policy.Dir
	if len(policy.UIDs) > 0 {
		p.Allow = func(uid uint32) bool { return slices.Contains(policy.UIDs, int(uid)) }
	}
	return moves{&p}
}

// meets returns the TCP connection if its two ends may be on this host, and no program has wrapped it.
func (s *settings) meets(conn net.Conn) (*net.TCPConn, bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || !s.shm || adopted.Settled(conn) {
		return nil, false
	}
	return tcp, s.Dir != "" || sameHost(conn)
}

// local returns a connection between two programs of this host.
func (s *settings) local(tcp *net.TCPConn, dialled, inherited bool) *local {
	l := &local{network: s.network}
	if inherited {
		l.Inherit(tcp)
	} else {
		l.Init(tcp)
	}
	if !bubble.Inside() { // what moves a connection outlives the test of a bubble
		filters()
		l.Move(dialled, s.moves.Policy)
	}
	return l
}

// open makes the connection the program's.
func (l *local) open(s *settings, dialled bool) *Conn {
	observe.Opened(l, dialled, s.Logger)
	return publish(l)
}

// onHost returns the Conn for a TCP connection between two programs of this host, and nil for another one.
func (s *settings) onHost(conn net.Conn, dialled bool) *Conn {
	tcp, ok := s.meets(conn)
	if !ok {
		return nil
	}
	l := s.local(tcp, dialled, false)
	if !dialled && !bubble.Inside() {
		l.Expect()
	}
	return l.open(s, dialled)
}

// inherit is onHost for a connection that another process has begun.
func (s *settings) inherit(conn net.Conn) *Conn {
	if tcp, ok := s.meets(conn); ok {
		return s.local(tcp, false, true).open(s, false)
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
	l := s.local(tcp, true, false)
	if err := l.Meet(ctx, limit); err != nil {
		return nil, err
	}
	return l.open(s, true), nil
}

// meeting returns nil if the client of an accepted connection cannot be met in shared memory.
func (s *settings) meeting(conn net.Conn) handshake.Meeting {
	tcp, ok := s.meets(conn)
	if !ok || bubble.Inside() {
		return nil
	}
	return &acceptee{s.local(tcp, false, false), s}
}

// acceptee is an accepted connection that the program does not have yet.
type acceptee struct {
	l *local
	s *settings
}

func (a *acceptee) Try() (net.Conn, error) {
	if met, err := a.l.TryMeet(); err != nil || !met {
		return nil, err
	}
	return a.Plain(), nil
}

func (a *acceptee) Plain() net.Conn { return a.l.open(a.s, false) }
