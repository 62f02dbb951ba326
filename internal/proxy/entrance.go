package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

const (
	// drainWait is how long a listener that stops waits for another connection from
	// the kernel's queue, and drainMost how many it accepts at most.
	drainWait = 20 * time.Millisecond
	drainMost = 4096
)

// An entrance is a listening socket with the counters of its connections.
type entrance struct {
	proxy *Proxy
	key   string
	ln    net.Listener
	from  *entrance // whose socket ln is a copy of; nil: none
	route atomic.Pointer[Route]
	gate  gate

	stopping   atomic.Bool
	stopped    chan struct{} // closed by stop
	handedOver atomic.Bool   // another entrance has the socket
	late       int           // connections that were accepted since, by serve
	drainedAt  uint64        // of accepted, when drained was asked last
	ended      chan struct{} // closed when nothing is accepted any more

	clients atomic.Int64 // that are relayed, or wait in this process for room

	accepted, failed atomic.Uint64 // connections; those without a target
	complaints       complaints

	mu       sync.Mutex
	relays   map[*relay]struct{}
	up, down int64 // bytes of relays that have ended
}

// enterLocked opens the entrance of a route. It accepts nothing before serve.
func (p *Proxy) enterLocked(route *Route) (*entrance, error) {
	ln, err := p.listen(route.Listen)
	from := p.atLocked(route.Listen)
	if errors.Is(err, syscall.EADDRINUSE) && from != nil {
		ln, err = p.takeOver(route.Listen.Network, from)
	}
	if err != nil {
		return nil, err
	}
	e := &entrance{
		proxy: p, key: route.Listen.String(), ln: ln, from: from,
		stopped: make(chan struct{}), ended: make(chan struct{}), relays: make(map[*relay]struct{}),
	}
	e.set(route)
	return e, nil
}

// set makes the connections that are accepted from now on use the route.
func (e *entrance) set(route *Route) {
	e.route.Store(route)
	e.gate.setLimit(route.Limit)
}

func (p *Proxy) listen(at Endpoint) (net.Listener, error) {
	if name, ok := at.inherited(); ok {
		return p.inherit(at.Network, name)
	}
	switch at.Network {
	case TCP:
		return net.Listen("tcp", at.Address)
	case SDP:
		lc := sdp.ListenConfig{Config: p.config()}
		return lc.Listen(context.Background(), "sdp", at.Address)
	}
	lc := sdp.ListenConfig{Config: p.config()}
	return lc.Listen(context.Background(), "tcp", at.Address)
}

// inherit listens on a socket that systemd has passed.
func (p *Proxy) inherit(network, name string) (net.Listener, error) {
	f := p.inherited[name]
	if f == nil {
		return nil, fmt.Errorf("no socket named %q in LISTEN_FDNAMES", name)
	}
	return p.listenOn(f, network)
}

// listenOn returns a listener on a copy of a listening socket.
func (p *Proxy) listenOn(f *os.File, network string) (net.Listener, error) {
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if _, ok := ln.(*net.TCPListener); !ok {
		ln.Close()
		return nil, fmt.Errorf("not a TCP socket: %s %s", ln.Addr().Network(), ln.Addr())
	}
	if network == TCP {
		return ln, nil
	}
	served, err := sdp.NewListener(ln, p.config())
	if err != nil {
		ln.Close()
		return nil, err
	}
	return served, nil
}

// takeOver listens with another protocol on the socket of an entrance that is about to stop. The new
// entrance gets the connections that wait in the kernel's queue.
func (p *Proxy) takeOver(network string, old *entrance) (net.Listener, error) {
	if network == SDP {
		return nil, errors.New("route cannot change to sdp:// while the proxy listens at the address")
	}
	filer, ok := old.ln.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("%T cannot be shared", old.ln)
	}
	f, err := filer.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return p.listenOn(f, network)
}

// serve relays every connection until stop, each in a goroutine of relays.
func (e *entrance) serve(cut context.Context, relays *sync.WaitGroup) {
	defer close(e.ended)
	admitted := make(chan struct{}) // closed when the client that was accepted last no longer waits
	close(admitted)
	for {
		c, err := e.ln.Accept()
		switch {
		case err == nil:
			client := c.(conn)
			e.accepted.Add(1)
			if e.stopping.Load() {
				if e.late++; e.late == drainMost {
					e.close()
				}
			}
			if err := e.proxy.loops.check(client); err != nil {
				e.failed.Add(1)
				e.complain("proxy loop, client reset", err)
				reset(client)
				continue
			}
			before, now := admitted, make(chan struct{})
			admitted = now
			e.clients.Add(1)
			e.proxy.clients.Add(1)
			relays.Go(func() {
				defer e.proxy.clients.Add(-1)
				defer e.clients.Add(-1)
				<-before
				inside := e.enter(cut)
				close(now)
				if !inside {
					reset(client) // the proxy was stopped while it waited
					return
				}
				defer e.leave()
				e.relay(cut, client)
			})
			e.await(admitted)
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // stop has set it
			if e.drained() {
				e.close()
			}
		default: // the process has no descriptor left, most likely
			e.complain("accept failed", err)
			collectDescriptors()
			pause(cut, descriptorPause)
			if cut.Err() != nil {
				e.close()
			}
		}
	}
}

// enter waits until there is room for another client. It returns false if cut is done first.
func (e *entrance) enter(cut context.Context) bool {
	if !e.gate.enter(cut) {
		return false
	}
	if !e.proxy.gate.enter(cut) {
		e.gate.leave()
		return false
	}
	return true
}

func (e *entrance) leave() {
	e.gate.leave()
	e.proxy.gate.leave()
}

// await returns when the client that was accepted last is admitted. Until then other clients wait in
// the kernel's queue. An entrance that stops takes them out of it, so that it can close the listener
// without a reset, and they wait in this process, as far as there are descriptors for them.
func (e *entrance) await(admitted chan struct{}) {
	select {
	case <-admitted:
		return
	case <-e.stopped:
	}
	if !e.proxy.mayWait() {
		<-admitted
	}
}

func (e *entrance) relay(cut context.Context, client conn) {
	r := newRelay(e, client)
	e.mu.Lock()
	e.relays[r] = struct{}{}
	e.mu.Unlock()
	defer func() {
		up, down := r.carried()
		e.mu.Lock()
		delete(e.relays, r)
		e.up += up
		e.down += down
		e.mu.Unlock()
	}()
	if err := r.run(cut, e.route.Load()); err != nil {
		e.failed.Add(1)
		e.complain("target unreachable, client reset", fmt.Errorf("%v: %w", client.RemoteAddr(), err))
	}
}

// stop ends the listening. It still accepts clients that the kernel has connected already, because
// closing the listener would reset them. If another entrance has the socket, that one
// accepts them.
func (e *entrance) stop() {
	if !e.stopping.CompareAndSwap(false, true) {
		return
	}
	defer close(e.stopped)
	if e.handedOver.Load() {
		e.ln.Close()
		return
	}
	if !e.acceptFor(drainWait) {
		e.ln.Close()
	}
}

// drained reports whether a listener that stops has no further connections: none arrived since the
// last call.
func (e *entrance) drained() bool {
	now := e.accepted.Load()
	if e.drainedAt == now {
		return true
	}
	e.drainedAt = now
	return !e.acceptFor(drainWait)
}

// acceptFor limits how long serve waits for another connection, and reports whether that is possible.
// serve then closes the listener. One of SDP still hands out what is on its way up.
func (e *entrance) acceptFor(d time.Duration) bool {
	ln, ok := e.ln.(interface{ SetDeadline(time.Time) error })
	return ok && ln.SetDeadline(time.Now().Add(d)) == nil
}

// close closes the listener, whose Accept may take its time for what is on its way up.
func (e *entrance) close() {
	if ln, ok := e.ln.(interface{ SetDeadline(time.Time) error }); ok {
		ln.SetDeadline(time.Time{})
	}
	e.ln.Close()
}

// complain logs errors of this entrance's connections, each kind at most a few times a minute.
func (e *entrance) complain(what string, err error) {
	more, now := e.complaints.next(what, time.Now())
	if !now {
		return
	}
	args := []any{"listen", e.key, "error", err}
	if more > 0 {
		args = append(args, "not logged", more)
	}
	e.proxy.log.Warn(what, args...)
}

// complaints limits how much clients can make the process log. Each kind has a limit of its own,
// so that a frequent one does not hide the others. The zero value is ready to use.
type complaints struct {
	mu    sync.Mutex
	kinds map[string]*complaint
}

type complaint struct {
	since  time.Time
	logged int
	more   int // that were not logged
}

const (
	complaintsTime = time.Minute
	complaintsMost = 10
)

// next reports whether to log an error of a kind, and how many were not logged before it.
func (c *complaints) next(kind string, now time.Time) (more int, log bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[kind]
	if k == nil {
		k = new(complaint)
		if c.kinds == nil {
			c.kinds = make(map[string]*complaint)
		}
		c.kinds[kind] = k
	}
	if now.Sub(k.since) >= complaintsTime {
		k.since, k.logged = now, 0
	}
	if k.logged == complaintsMost {
		k.more++
		return 0, false
	}
	k.logged++
	more, k.more = k.more, 0
	return more, true
}
