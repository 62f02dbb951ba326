package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

// conn has the methods that a relay needs. io.Copy uses ReadFrom and WriteTo to move the bytes
// without a buffer of its own; between two TCP connections the kernel splices them.
type conn interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
}

var _ = []conn{(*net.TCPConn)(nil), (*sdp.Conn)(nil)}

// descriptorPause is how long a relay or a listener waits before it tries again if the process has
// no descriptor left. Connections that end release some.
const descriptorPause = 100 * time.Millisecond

var errNotRedirected = errors.New("no original destination: connection was not redirected")

// A relay is one connection of a client with its connection to the target.
type relay struct {
	entrance *entrance
	client   conn
	up, down direction

	mu     sync.Mutex
	server conn // nil until it is dialled
}

func newRelay(e *entrance, client conn) *relay {
	return &relay{
		entrance: e, client: client,
		up: direction{ended: make(chan struct{})}, down: direction{ended: make(chan struct{})},
	}
}

// A direction is one of the two in which a relay copies.
type direction struct {
	bytes  atomic.Int64  // set at its end
	failed atomic.Bool   // the connection that it writes to takes nothing more
	ended  chan struct{} // closed when nothing is copied any more
}

// run dials the target and relays until both directions have ended. cut ends it early,
// with resets.
func (r *relay) run(cut context.Context, route *Route) error {
	tried := &attempt{loops: &r.entrance.proxy.loops}
	defer tried.end()
	dialled, err := r.dial(cut, route, tried)
	if err != nil {
		reset(r.client)
		return err
	}
	tried.connected()
	r.mu.Lock()
	r.server = dialled
	r.mu.Unlock()
	uncut := context.AfterFunc(cut, func() { reset(r.client, dialled) })
	defer uncut()

	var upward sync.WaitGroup
	upward.Go(func() { pass(dialled, r.client, &r.up, &r.down) })
	pass(r.client, dialled, &r.down, &r.up)
	upward.Wait()
	r.client.Close()
	dialled.Close()
	return nil
}

// If the SDP handshake with a target fails, the relay tries again after a growing pause: handshakes
// time out during a burst of connections, or on a busy machine.
const (
	dialTries      = 5
	firstDialPause = 100 * time.Millisecond
)

// descriptorPatience is how long a client without a target may hold a descriptor that another
// relay needs for its target.
const descriptorPatience = 2 * time.Second

// dial connects to the route's target. If the process has no descriptor left, it tries again for
// descriptorPatience.
func (r *relay) dial(ctx context.Context, route *Route, tried *attempt) (conn, error) {
	network, address := route.Dial.Network, route.Dial.Address
	if route.Dial.original() {
		to, err := original(r.client)
		if err != nil {
			return nil, err
		}
		address = to.String()
	}
	ctx, cancel := context.WithTimeout(ctx, route.DialTimeout)
	defer cancel()
	wait := firstDialPause
	start := time.Now()
	for tries := 1; ; {
		c, err := r.entrance.proxy.dial(ctx, tried, network, address, route.Mark)
		var not *sdp.NotSDPError
		switch {
		case err == nil:
			return c.(conn), nil
		case tried.looped.Load():
			return nil, err
		case outOfDescriptors(err) && time.Since(start) < descriptorPatience:
			collectDescriptors()
			wait = descriptorPause
		case errors.As(err, &not) && tries < dialTries:
			tries++
			wait = wait + rand.N(wait) // so that those that failed together do not meet again
		default:
			return nil, err
		}
		if !pause(ctx, wait) {
			return nil, err
		}
	}
}

// answerTime is how long a relay goes on after one of its connections has failed, so that the other
// gets what the failed one had delivered. A client that reads nothing does not keep it for longer.
const answerTime = time.Minute

// pass copies the direction d until its end. It passes on an end of file, after which the other
// direction, back, may continue. Any other end resets both connections.
//
// If to is the one that has failed, the other direction first passes on what to had delivered: a
// server that answers and closes with bytes unread resets the connection after its answer.
func pass(to, from conn, d, back *direction) {
	n, err := io.Copy(to, from)
	d.bytes.Store(n)
	if err == nil && !back.fails(from) { // an end after a failed Write is that of a reset
		err = to.CloseWrite()
	}
	if err == nil {
		close(d.ended)
		return
	}
	broken := dead(to)
	d.failed.Store(broken)
	close(d.ended)
	if broken {
		timer := time.NewTimer(answerTime)
		defer timer.Stop()
		select {
		case <-back.ended:
		case <-timer.C:
		}
	}
	reset(to, from)
}

// failTime is how long an end of file waits for a Write that is about to fail. Such a Write has only
// to return. If there is none, the end comes that much later.
const failTime = 200 * time.Millisecond

// fails reports whether the direction, which writes to c, has failed or is about to, when Read has
// returned the end of c. A connection tells of a reset once: if a Write has met it, a Read that waits
// returns an end of file, perhaps before the Write has returned. CloseRead does not wait for either,
// and fails if there is no connection any more.
func (d *direction) fails(c conn) bool {
	if !d.failed.Load() && c.CloseRead() != nil {
		timer := time.NewTimer(failTime)
		defer timer.Stop()
		select {
		case <-d.ended:
		case <-timer.C:
		}
	}
	return d.failed.Load()
}

// dead reports whether c no longer accepts bytes. io.Copy does not say which connection its error comes
// from. Only the direction that writes to c may call it, because another Write would delay it.
func dead(c conn) bool {
	_, err := c.Write(nil)
	return err != nil
}

// carried returns how many bytes were copied from the client to the target and back. Until a
// direction has ended, only an sdp.Conn has its number.
func (r *relay) carried() (up, down int64) {
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	if c, ok := r.client.(*sdp.Conn); ok {
		s := c.Stats()
		return int64(s.Received()), int64(s.Sent())
	}
	if c, ok := server.(*sdp.Conn); ok {
		s := c.Stats()
		return int64(s.Sent()), int64(s.Received())
	}
	return r.up.bytes.Load(), r.down.bytes.Load()
}

// reset closes connections so that their peers see a reset and no end of file.
func reset(conns ...conn) {
	for _, c := range conns {
		c.SetLinger(0)
		c.Close()
	}
}

// outOfDescriptors reports whether the process, or the machine, has no descriptor left.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// pause waits. It returns false if ctx is done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}
