package listener

import (
	"errors"
	"net"
	"os"
	"time"
)

const (
	// How long a client keeps its place when others want it: as long as its
	// first bytes may well be on their way, and, once it has shown that it speaks
	// MPA, as long as an honest one may take, on a busy machine that 3,000 others dial.
	silentPatience = 100 * time.Millisecond
	patience       = 2 * time.Second
	// roomCheck is how often it is looked for one that has lost it.
	roomCheck = time.Millisecond
)

// run is the accepting goroutine.
func (l *Listener) run() {
	var err error
	for err == nil && l.mayAccept() {
		var c net.Conn
		c, err = l.ln.Accept()
		l.returned()
		switch {
		case err == nil:
			l.admit(c)
		case !errors.Is(err, net.ErrClosed):
			l.report(err)
			err = nil
		}
	}
	l.mu.Lock()
	l.err, l.stopped = err, true
	l.changed.Broadcast()
	l.mu.Unlock()
}

// mayAccept waits until the next connection is to be accepted: there is room in the
// queue to Accept, for more than a few only while Accept waits, and for any only then if
// the listener is one on demand. It returns false when the listener is
// closed.
func (l *Listener) mayAccept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.full() && !l.closed {
		l.changed.Wait()
	}
	l.unhold()
	l.below = true
	return !l.closed
}

// full reports that nothing more is to be accepted now. Called with mu held.
func (l *Listener) full() bool {
	switch {
	case l.onDemand && l.ready >= l.waiting:
		return true
	case l.onDemand: // one for each Accept, unless that one is silent
		young := 0
		for _, h := range l.queue {
			if h.in == nil && time.Since(h.accepted) < silentPatience {
				young++
			}
		}
		if l.ready+young < l.waiting {
			return false
		}
		l.wakeIn(silentPatience)
		return true
	case l.cfg.SDPOnly:
		return l.ready >= maxReady
	case l.waiting == 0:
		return len(l.queue) >= maxAhead
	case l.ready >= maxAhead && l.next() != nil: // Accept is about to take one
		return true
	}
	return l.ready >= maxReady
}

// returned notes that the listener below has returned from its Accept.
func (l *Listener) returned() {
	l.mu.Lock()
	l.below = false
	if l.held {
		l.changed.Broadcast()
	}
	l.mu.Unlock()
}

// report has one Accept return err, and waits until it has: what becomes of it is for
// the program to say, as with package net. That hold has interrupted the listener below
// is no error.
func (l *Listener) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held && errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	l.failure = err
	l.changed.Broadcast()
	for l.failure != nil && !l.closed {
		l.changed.Wait()
	}
}

// admit starts the handshake on c when there is a place for it. What is plain TCP needs
// none.
func (l *Listener) admit(c net.Conn) {
	h := &handshake{l: l, conn: c, accepted: time.Now(), expected: expects(c, &l.cfg)}
	if h.held = l.claimed(c); h.held != nil {
		h.expected = certain
	}
	l.mu.Lock()
	l.queue = append(l.queue, h)
	l.mu.Unlock()
	if h.expected == nothing {
		if in := h.unexpected(); in != nil {
			l.settle(h, in, nil)
			return
		}
	}
	h.placed = l.place()
	if !h.placed {
		l.settle(h, nil, net.ErrClosed)
		c.Close()
		return
	}
	if in, err := h.prompt(); in != nil || err != nil {
		l.settle(h, in, err)
		return
	}
	h.begin(l.ctx)
	l.workers.Go(func() {
		in, err := h.run()
		h.cancel()
		l.settle(h, in, err)
	})
}

// place waits for a place; false: the listener is closed.
func (l *Listener) place() bool {
	select {
	case l.slots <- struct{}{}: // the usual case, without a clock
		return true
	default:
	}
	tick := time.NewTicker(roomCheck)
	defer tick.Stop()
	for {
		select {
		case l.slots <- struct{}{}:
			return true
		default:
			l.giveWay()
		}
		select {
		case l.slots <- struct{}{}:
			return true
		case <-tick.C:
		case <-l.ctx.Done():
			return false
		}
	}
}

// settle ends the handshake. in goes to Accept, if there is one.
func (l *Listener) settle(h *handshake, in *Incoming, err error) {
	h.over(in)
	h.releaseClaims()
	l.failed(h.conn, err)
	l.mu.Lock()
	ended := l.ended
	switch {
	case ended:
	case in == nil:
		l.leave(h)
	default:
		h.in = in
		l.ready++
	}
	if h.placed {
		<-l.slots // under mu, so that giveWay sees the place free or h leaving
	}
	l.drained()
	l.changed.Broadcast()
	l.mu.Unlock()
	if ended && in != nil {
		in.discard()
	}
}

// failed logs why the connection did not come up, if err says so: that is the
// client's to find out, and the operator's to look for.
func (l *Listener) failed(c net.Conn, err error) {
	if err != nil {
		l.cfg.Logger.Debug("sdp: a connection did not come up", "client", c.RemoteAddr(), "error", err)
	}
}

// giveWay ends a handshake for the sake of another: the oldest one whose client
// is silent; if there is none, the oldest of all. Neither may be so young that it
// is perhaps about to go on.
func (l *Listener) giveWay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var victim *handshake
	for _, h := range l.queue {
		if h.in != nil || h.cancel == nil {
			continue // has no place, or needs it for no time
		}
		if h.leaving {
			return // its place is about to be free
		}
		if time.Since(h.since) < h.patience() {
			continue
		}
		if victim == nil || victim.heard && !h.heard {
			victim = h
		}
	}
	if victim != nil {
		victim.leaving = true
		victim.giveWay()
	}
}

// patience is how long h keeps its place. Called with l.mu held.
func (h *handshake) patience() time.Duration {
	if h.heard {
		return patience
	}
	return silentPatience
}
