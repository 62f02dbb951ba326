// Package listener accepts connections for package sdp. It runs the handshakes (package
// internal/handshake) concurrently, so that a slow, silent or faulty client delays no other
// one, and limits their number. accept.go takes connections from the underlying
// listener while the program waits in Accept, and listener.go hands out those that are set up, in
// order of arrival as far as none waits for earlier ones for long.
//
// The states of a Listener (state.go):
//
//	waiting ──enter──▶ accepting ──leave──▶ waiting        an Accept waits; a connection has arrived
//	                       │
//	                   interrupt                           no Accept waits any more
//	                       ▼
//	                  interrupted ──leave──▶ returned ──enter──▶ accepting
//
//	these four ──shut──▶ closing ──exit──▶ draining ──finish──▶ ended
//	waiting, returned ──exit──▶ cut ──shut──▶ draining
//
// Programs use package sdp. This package can be imported only because of the layout of the module, and promises
// no compatibility.
package listener

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/timing"
)

// maxSlots limits the handshakes that run at the same time.
const maxSlots = 1024

// limits are a Listener's time limits (package timing), which are variables for tests alone.
type limits struct{ order, silent, patience, acceptGrace, closeGrace time.Duration }

var defaultLimits = limits{
	order:       timing.Order,
	silent:      timing.Silent,
	patience:    timing.Patience,
	acceptGrace: timing.AcceptGrace,
	closeGrace:  timing.CloseGrace,
}

// Listener accepts connections of SDP and of plain TCP. Its methods are safe for concurrent
// use.
type Listener struct {
	ln     net.Listener                              // the underlying listener
	kernel interface{ SetDeadline(time.Time) error } // ln, if that is the kernel's socket; see interruptLocked
	server *handshake.Server
	logger *slog.Logger

	ctx       context.Context // done when the listener has ended
	cancel    context.CancelFunc
	closed    chan struct{} // closed by Close
	limits    limits
	accepting sync.WaitGroup // the accepting goroutine
	workers   sync.WaitGroup // the handshakes
	slots     chan struct{}  // holds one element for each handshake that has a slot
	end       sync.Once

	mu       sync.Mutex
	changed  bubble.Cond // signalled when the fields below change
	state    state
	queue    []*arrival // in order of arrival
	ready    int        // how many of queue are set up
	failure  error      // of the underlying listener, for one Accept
	err      error      // why the accepting goroutine has ended
	waiting  int        // calls of Accept that wait
	deadline time.Time  // of Accept; zero: none
	late     alarm      // wakes Accept at the deadline
	overdue  alarm      // wakes Accept at wakeAt
	wakeAt   time.Time
	vain     time.Time // when a wait of order was last in vain
	grace    alarm     // ends the closed listener
}

// New returns a Listener that accepts from ln, which it owns from now on. It runs until
// Close.
func New(ln net.Listener, cfg handshake.Config) *Listener {
	return prepare(ln, cfg, maxSlots).start()
}

// prepare returns a Listener that start has yet to start.
func prepare(ln net.Listener, cfg handshake.Config, slots int) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		ln:     ln,
		server: handshake.NewServer(cfg),
		logger: cfg.Logger,
		ctx:    ctx,
		cancel: cancel,
		closed: make(chan struct{}),
		slots:  make(chan struct{}, slots),
		limits: defaultLimits,
		state:  waiting,
	}
	switch ln := ln.(type) {
	case *net.TCPListener:
		l.kernel = ln
	case *net.UnixListener:
		l.kernel = ln
	}
	l.changed.Make()
	return l
}

func (l *Listener) start() *Listener {
	l.accepting.Go(l.run)
	return l
}

// Accept waits for a connection that is set up, and returns it. An error of the underlying
// listener is returned by one Accept, and the next ones continue. After the deadline it returns
// os.ErrDeadlineExceeded. After Close, or after the underlying listener was closed, it returns
// the connections that were accepted before, and then net.ErrClosed. An error on a single connection ends
// that connection and is not returned.
func (l *Listener) Accept() (*handshake.Connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if up, err := l.acceptReleasing(); up != nil || err != nil {
			return up, err
		}
	}
}

// acceptReleasing is Accept with mu, which it releases while it waits. It returns nothing if another Accept has returned
// the failure that ended its wait.
func (l *Listener) acceptReleasing() (*handshake.Connection, error) {
	l.waiting++
	if !l.state.inAccept() {
		l.changed.Broadcast() // the accepting goroutine may have waited for it
	}
	next := l.nextLocked()
	for next == nil && l.failure == nil && !l.exhaustedLocked() && !l.lateLocked() {
		l.changed.Wait(&l.mu)
		next = l.nextLocked()
	}
	l.waiting--
	late := l.lateLocked() // the program may change the deadline as soon as mu is released
	if l.state == ended || late {
		next = nil
	}
	if next != nil { // another Accept must not take it
		l.leaveLocked(next)
		l.ready--
		l.drainedLocked()
	}
	l.changed.Broadcast()
	l.interruptLocked()
	l.awaitReturnedLocked()
	switch {
	case next != nil:
		return next.up, nil
	case l.state == ended:
		return nil, net.ErrClosed
	case late:
		return nil, os.ErrDeadlineExceeded
	case l.failure != nil:
		err := l.failure
		l.failure = nil
		l.changed.Broadcast()
		return nil, err
	case l.state.closed():
		return nil, net.ErrClosed
	}
	return nil, l.err
}

// nextLocked returns the connection that Accept is to return, and nil if there is none yet:
// the oldest one that is set up, unless an earlier one may still be set up in time.
func (l *Listener) nextLocked() *arrival {
	for _, a := range l.queue {
		switch {
		case l.ready == 0:
			return nil
		case a.up != nil:
			return a
		}
		if time.Since(l.vain) < timing.OrderPause {
			continue
		}
		if wait := l.limits.order - time.Since(a.accepted); wait > 0 {
			l.wakeLocked(wait)
			return nil
		}
		if !a.overtaken {
			a.overtaken, l.vain = true, time.Now()
		}
	}
	return nil
}

// wakeLocked makes Accept check again after d, or earlier if that was asked for.
func (l *Listener) wakeLocked(d time.Duration) {
	now := time.Now()
	if l.wakeAt.After(now) && l.wakeAt.Before(now.Add(d)) {
		return
	}
	l.wakeAt = now.Add(d)
	l.overdue.set(d, l.wake)
}

// wake makes Accept check again.
func (l *Listener) wake() {
	l.mu.Lock()
	l.changed.Broadcast()
	l.mu.Unlock()
}

// leaveLocked removes a from the queue, if it is there.
func (l *Listener) leaveLocked(a *arrival) {
	if i := slices.Index(l.queue, a); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

// exhaustedLocked reports whether Accept can return no more connections.
func (l *Listener) exhaustedLocked() bool {
	return l.state == ended || l.state.stopped() && len(l.queue) == 0
}

// interruptLocked keeps the accepting goroutine from accepting until Accept waits again: the socket may be
// shared with other processes, to which the connections may belong. It does nothing if the program has
// wrapped the socket, because the wrapper may wait for something else than the kernel.
func (l *Listener) interruptLocked() {
	if l.kernel != nil && l.state == accepting && l.waiting == 0 {
		l.state = l.state.after(interrupt)
		l.kernel.SetDeadline(past)
	}
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// awaitReturnedLocked waits, after interruptLocked, until Accept of the underlying listener has
// returned. Until then that may still take a connection meant for others.
func (l *Listener) awaitReturnedLocked() {
	for l.state == interrupted && l.waiting == 0 {
		l.changed.Wait(&l.mu)
	}
}

// lateLocked reports whether Accept's deadline has passed.
func (l *Listener) lateLocked() bool {
	return !l.deadline.IsZero() && !time.Now().Before(l.deadline)
}

// SetDeadline sets when Accept calls, including those in progress, fail with
// os.ErrDeadlineExceeded. The zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.closed() {
		return net.ErrClosed
	}
	l.late.stop()
	if l.deadline = t; !t.IsZero() {
		left := time.Until(t)
		l.deadline = time.Now().Add(left) // by the monotonic clock, which is never set back
		l.late.set(left, l.wake)
	}
	l.changed.Broadcast()
	return nil
}

// Close closes the underlying listener and returns its error. Connections in the kernel's
// backlog stay there for other processes that have the socket. Accept still returns those
// that were accepted: connections in their handshake for up to 1 s, and those that are set
// up for up to 0.2 s; then they are closed. If there are none, no goroutine of the listener
// is left when Close returns.
func (l *Listener) Close() error {
	l.mu.Lock()
	again := l.state.closed()
	if l.state = l.state.after(shut); !again {
		close(l.closed)
	}
	l.changed.Broadcast()
	l.mu.Unlock()
	err := l.ln.Close()
	l.accepting.Wait()
	l.mu.Lock()
	if !again && !l.exhaustedLocked() {
		l.grace.set(l.limits.acceptGrace, func() { l.finishIdle(l.limits.closeGrace - l.limits.acceptGrace) })
	}
	idle := l.exhaustedLocked()
	l.mu.Unlock()
	if idle {
		l.finish()
	}
	return err
}

// drainedLocked ends a closed listener from which Accept can return nothing more.
func (l *Listener) drainedLocked() {
	if l.state == draining && l.exhaustedLocked() && l.grace.stop() {
		go l.finish()
	}
}

// finishIdle calls finish, after d if there are handshakes that have not ended.
func (l *Listener) finishIdle(d time.Duration) {
	l.mu.Lock()
	if len(l.queue) > l.ready && l.state == draining {
		l.grace.set(d, l.finish)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.finish()
}

// finish ends all handshakes, and all connections that Accept has not returned.
func (l *Listener) finish() {
	l.end.Do(func() {
		l.mu.Lock()
		l.state = l.state.after(finish)
		abandoned := l.queue
		l.queue = nil
		for _, a := range []*alarm{&l.late, &l.overdue, &l.grace} {
			a.stop()
		}
		l.changed.Broadcast()
		l.mu.Unlock()
		l.cancel()
		for _, a := range abandoned {
			if a.up != nil {
				a.up.Discard()
			} else { // the program's own connection may know no deadline
				handshake.Abort(a.conn)
			}
		}
		l.workers.Wait()
		l.server.Close()
	})
}

// Addr returns the address of the underlying listener.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }
