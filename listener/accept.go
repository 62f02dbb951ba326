package listener

import (
	"errors"
	"net"
	"os"
	"slices"
	"time"
)

const (
	// How long a client keeps its place when others want it: as long as its
	// first bytes may well be on their way, and, once it has shown that it speaks
	// MPA, as long as the rest of the handshake may take across a continent.
	silentPatience = 10 * time.Millisecond
	patience       = 100 * time.Millisecond
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
// queue to Accept, and Accept waits if it is to. It returns false when the listener is
// closed.
func (l *Listener) mayAccept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for (len(l.ready) >= maxReady || l.onDemand && len(l.ready) >= l.waiting) && !l.closed {
		l.changed.Wait()
	}
	l.unhold()
	l.below = true
	return !l.closed
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

// admit starts the handshake on c when there is a place for it.
func (l *Listener) admit(c net.Conn) {
	select {
	case l.slots <- struct{}{}: // the usual case, without a clock
		l.start(c)
		return
	default:
	}
	tick := time.NewTicker(roomCheck)
	defer tick.Stop()
	for {
		select {
		case l.slots <- struct{}{}:
			l.start(c)
			return
		default:
			l.giveWay()
		}
		select {
		case l.slots <- struct{}{}:
			l.start(c)
			return
		case <-tick.C:
		case <-l.ctx.Done():
			c.Close()
			return
		}
	}
}

// start runs the handshake on c, which has a place: at once if it need not wait
// for anything, else in a goroutine.
func (l *Listener) start(c net.Conn) {
	if in, err := (&handshake{l: l, conn: c}).prompt(); in != nil || err != nil {
		l.failed(c, err)
		<-l.slots
		if in != nil {
			l.deliver(in)
		}
		return
	}
	h, done := l.handshake(l.ctx, c)
	l.mu.Lock()
	l.underway = append(l.underway, h)
	l.mu.Unlock()
	l.workers.Go(func() {
		in, err := h.run()
		done()
		l.failed(c, err)
		if in != nil {
			l.deliver(in)
		}
		l.mu.Lock()
		i := slices.Index(l.underway, h)
		l.underway = slices.Delete(l.underway, i, i+1)
		<-l.slots // under mu, so that giveWay sees the place free or h leaving
		if l.closed {
			l.drained()
			l.changed.Broadcast()
		}
		l.mu.Unlock()
	})
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
	for _, h := range l.underway {
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
