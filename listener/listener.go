// Package listener accepts connections for package sdp. It runs the handshakes (package
// internal/handshake) concurrently, so that a slow, silent or faulty client delays no other
// one, and limits their number. accept.go takes connections from the underlying
// listener while the program waits in Accept, and listener.go hands out those that are set up, in
// order of arrival as far as none waits for earlier ones for long.
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
)

const (
	// maxPlaces limits the handshakes that run at the same time.
	maxPlaces = 1024
	// orderPause is how long after a wait in vain no connection waits.
	orderPause = 100 * time.Millisecond
)

// times are a Listener's time limits, which are variables for tests alone.
type times struct {
	// order is how long a connection waits for an earlier one that is in its handshake, so that Accept
	// keeps the order of arrival.
	order time.Duration
	// If others need its place, a handshake keeps it for silent until the client has sent a Request, and
	// for patience after that. The first is enough for bytes in flight, and the second for an honest
	// client of a machine that 3,000 others dial.
	silent, patience time.Duration
	// acceptGrace is how long connections that are set up wait for an Accept after Close, and closeGrace
	// how long handshakes may still take.
	acceptGrace, closeGrace time.Duration
}

var defaultTimes = times{
	order:       2 * time.Millisecond,
	silent:      100 * time.Millisecond,
	patience:    2 * time.Second,
	acceptGrace: 200 * time.Millisecond,
	closeGrace:  time.Second,
}

// Listener accepts connections of SDP and of plain TCP. Its methods are safe for concurrent
// use.
type Listener struct {
	ln     net.Listener                              // the underlying listener
	kernel interface{ SetDeadline(time.Time) error } // ln, if that is the kernel's socket; see holdLocked
	server *handshake.Server
	logger *slog.Logger

	ctx       context.Context // done when the listener has ended
	cancel    context.CancelFunc
	closing   chan struct{} // closed by Close
	times     times
	accepting sync.WaitGroup // the accepting goroutine
	workers   sync.WaitGroup // the handshakes
	places    chan struct{}  // holds one element for each handshake that has a place
	end       sync.Once

	mu       sync.Mutex
	changed  bubble.Cond // signalled when the fields below change
	queue    []*arrival  // in order of arrival
	ready    int         // how many of queue are set up
	failure  error       // of the underlying listener, for one Accept
	err      error       // why no more connections will arrive
	closed   bool        // no more are accepted
	ended    bool        // Accept returns no more connections
	stopped  bool        // the accepting goroutine has ended
	held     bool        // a deadline of the underlying listener ends its Accept
	inAccept bool        // the accepting goroutine is in Accept of the underlying listener
	waiting  int         // calls of Accept that wait
	deadline time.Time   // of Accept; zero: none
	late     alarm       // wakes Accept at the deadline
	overdue  alarm       // wakes Accept at wakeAt
	wakeAt   time.Time
	vain     time.Time // when a wait of order was last in vain
	grace    alarm     // ends the closed listener
}

// New returns a Listener that accepts from ln, which it owns from now on. It runs until
// Close.
func New(ln net.Listener, cfg handshake.Config) *Listener {
	return prepare(ln, cfg, maxPlaces).start()
}

// prepare returns a Listener that start has yet to start.
func prepare(ln net.Listener, cfg handshake.Config, places int) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		ln:      ln,
		server:  handshake.NewServer(cfg),
		logger:  cfg.Logger,
		ctx:     ctx,
		cancel:  cancel,
		closing: make(chan struct{}),
		places:  make(chan struct{}, places),
		times:   defaultTimes,
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
	l.waiting++
	if !l.inAccept {
		l.changed.Broadcast() // the accepting goroutine may have waited for it
	}
	next := l.nextLocked()
	for next == nil && l.failure == nil && !l.exhaustedLocked() && !l.lateLocked() {
		l.changed.Wait(&l.mu)
		next = l.nextLocked()
	}
	l.waiting--
	if l.ended || l.lateLocked() {
		next = nil
	}
	if next != nil { // another Accept must not take it
		l.leaveLocked(next)
		l.ready--
		l.drainedLocked()
	}
	l.changed.Broadcast()
	l.holdLocked()
	l.awaitHeldLocked()
	switch {
	case next != nil:
		return next.up, nil
	case l.ended:
		return nil, net.ErrClosed
	case l.lateLocked():
		return nil, os.ErrDeadlineExceeded
	case l.failure != nil:
		err := l.failure
		l.failure = nil
		l.changed.Broadcast()
		return nil, err
	case l.closed:
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
		if time.Since(l.vain) < orderPause {
			continue
		}
		if wait := l.times.order - time.Since(a.accepted); wait > 0 {
			l.wakeLocked(wait)
			return nil
		}
		if !a.passed {
			a.passed, l.vain = true, time.Now()
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
	return l.ended || l.stopped && len(l.queue) == 0
}

// holdLocked keeps the accepting goroutine from accepting until Accept waits again: the socket may be
// shared with other processes, to which the connections may belong. It does nothing if the program has
// wrapped the socket, because the wrapper may wait for something else than the kernel.
func (l *Listener) holdLocked() {
	if l.kernel != nil && l.inAccept && l.waiting == 0 && !l.held && !l.closed {
		l.held = true
		l.kernel.SetDeadline(past)
	}
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// awaitHeldLocked waits, after holdLocked, until Accept of the underlying listener has
// returned. Until then that may still take a connection meant for others.
func (l *Listener) awaitHeldLocked() {
	for l.held && l.inAccept && l.waiting == 0 && !l.closed {
		l.changed.Wait(&l.mu)
	}
}

// resumeLocked ends the effect of holdLocked.
func (l *Listener) resumeLocked() {
	if l.held {
		l.held = false
		l.kernel.SetDeadline(time.Time{})
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
	if l.closed {
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

// Underlying returns the listener from which connections are accepted.
func (l *Listener) Underlying() net.Listener { return l.ln }

// Close closes the underlying listener and returns its error. Connections in the kernel's
// backlog stay there for other processes that have the socket. Accept still returns those
// that were accepted: connections in their handshake for up to 1 s, and those that are set
// up for up to 0.2 s; then they are closed. If there are none, no goroutine of the listener
// is left when Close returns.
func (l *Listener) Close() error {
	l.mu.Lock()
	again := l.closed
	if l.closed = true; !again {
		close(l.closing)
	}
	l.changed.Broadcast()
	l.mu.Unlock()
	err := l.ln.Close()
	l.accepting.Wait()
	l.mu.Lock()
	if !again && !l.exhaustedLocked() {
		l.grace.set(l.times.acceptGrace, func() { l.finishIdle(l.times.closeGrace - l.times.acceptGrace) })
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
	if l.closed && l.exhaustedLocked() && l.grace.stop() {
		go l.finish()
	}
}

// finishIdle calls finish, after d if there are handshakes that have not ended.
func (l *Listener) finishIdle(d time.Duration) {
	l.mu.Lock()
	if len(l.queue) > l.ready && !l.ended {
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
		l.ended = true
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
