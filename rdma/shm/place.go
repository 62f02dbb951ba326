//go:build linux

package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/handover"
	"github.com/gosdp/gosdp/rdma"
)

// place is an abstract Unix socket, which lives as long as its descriptor: there
// is nothing on the file system, and nothing to be left behind. Everybody in the
// network namespace can connect to it, so it asks who that is, and for a token.
type place struct {
	name    string
	cfg     rdma.StepConfig
	ln      *net.UnixListener
	workers sync.WaitGroup
	joining chan struct{} // holds one for each peer that is being heard
	links   pool

	mu      sync.Mutex
	invited map[[16]byte]*invitation
	heard   map[*net.UnixConn]struct{}
	closed  bool
}

const (
	// maxJoining bounds the peers that are heard at a time; more wait in the
	// kernel's backlog.
	maxJoining = 64
)

func listen(cfg rdma.StepConfig) (*place, error) {
	var random [16]byte
	rand.Read(random[:])
	name := "sdp-" + hex.EncodeToString(random[:])
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	p := &place{
		name:    name,
		cfg:     cfg,
		ln:      ln,
		joining: make(chan struct{}, maxJoining),
		invited: make(map[[16]byte]*invitation),
		heard:   make(map[*net.UnixConn]struct{}),
	}
	p.workers.Go(p.run)
	return p, nil
}

// lastLook is how long the byte that is last may still take when its time is over.
const lastLook = 100 * time.Millisecond

// invitation is for one peer.
type invitation struct {
	*handover.Slot
	place  *place
	token  [16]byte
	peer   rdma.Peer
	answer func([]byte) ([]byte, int, error)
}

// Invite lets one peer come.
func (p *place) Invite(peer rdma.Peer, answer func([]byte) ([]byte, int, error)) (rdma.Invitation, error) {
	i := &invitation{place: p, peer: peer, answer: answer, Slot: handover.New()}
	rand.Read(i.token[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	p.invited[i.token] = i
	return i, nil
}

// Address tells the peer where to come.
func (i *invitation) Address() rdma.Address {
	return rdma.Address{Token: i.token, Socket: i.place.name}
}

// Withdraw ends the invitation.
func (i *invitation) Withdraw() {
	i.place.forget(i.token)
	i.Slot.Withdraw()
}

// forget takes an invitation out: it is good for one peer.
func (p *place) forget(token [16]byte) *invitation {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.invited[token]
	delete(p.invited, token)
	return i
}

// run is the accepting goroutine.
func (p *place) run() {
	for {
		p.joining <- struct{}{}
		conn, err := p.ln.AcceptUnix()
		if err != nil {
			<-p.joining
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(time.Millisecond) // no descriptor is free, say
			continue
		}
		if !p.hear(conn) {
			<-p.joining
			conn.Close()
			return
		}
		p.workers.Go(func() {
			if !p.join(conn) {
				conn.Close()
			}
			p.unhear(conn)
			<-p.joining
		})
	}
}

// hear notes that conn is being heard; false when the place is closed.
func (p *place) hear(conn *net.UnixConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.heard[conn] = struct{}{}
	}
	return !p.closed
}

// over reports that the place is closed.
func (p *place) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *place) unhear(conn *net.UnixConn) {
	p.mu.Lock()
	delete(p.heard, conn)
	p.mu.Unlock()
}

// join hears one peer, and reports whether it has come to a channel, which owns
// conn.
func (p *place) join(conn *net.UnixConn) bool {
	conn.SetDeadline(time.Now().Add(p.cfg.Timeout))
	pid, uid, err := credentials(conn, p.cfg.UIDs)
	if err != nil {
		return false // strangers get no answer
	}
	o, err := readOpening(conn)
	if err != nil {
		return false
	}
	i := p.forget(o.token)
	if i == nil {
		unix.Close(o.file)
		refuse(conn, errors.New("the token is not good, or not any more"))
		return false
	}
	if i.peer.PID != 0 && pid != i.peer.PID {
		err = errors.New("shm: it is another process than the one that was invited")
		unix.Close(o.file)
		refuse(conn, err)
		i.Deliver(nil, err)
		return false
	}
	q, err := p.admit(conn, o, pid, uid, i.answer)
	if err != nil {
		refuse(conn, err)
		i.Deliver(nil, err)
		return false
	}
	p.mu.Lock()
	delete(p.heard, conn) // Close leaves the channel alone
	p.mu.Unlock()
	conn.SetDeadline(time.Time{})
	i.Deliver(q, nil)
	return true
}

// Close ends the place and every invitation to it.
func (p *place) Close() error {
	p.mu.Lock()
	p.closed = true
	left := p.invited
	p.invited = nil
	for conn := range p.heard {
		conn.SetDeadline(past)
	}
	p.mu.Unlock()
	for _, i := range left {
		i.Deliver(nil, net.ErrClosed)
	}
	err := p.ln.Close()
	p.links.close()
	p.workers.Wait()
	return err
}
