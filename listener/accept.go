package listener

import (
	"errors"
	"net"
	"slices"
	"time"
)

const (
	// The pause after a temporary failure to accept, doubled from one to the
	// next: as long as the process has no descriptor free, say.
	minPause = 5 * time.Millisecond
	maxPause = time.Second

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
	var pause time.Duration
	for l.awaitQueue() {
		c, err := l.ln.Accept()
		switch {
		case err == nil:
			pause = 0
			l.admit(c)
		case temporary(err):
			pause = min(max(2*pause, minPause), maxPause)
			l.sleep(pause)
		default:
			l.mu.Lock()
			l.err = err
			l.changed.Broadcast()
			l.mu.Unlock()
			return
		}
	}
}

// temporary reports that accepting may work again. Nothing has replaced the
// method, which is deprecated for being vague; net/http uses it too.
func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// sleep returns after d, or when the listener is closed.
func (l *Listener) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
}

// awaitQueue waits until there is room in the queue to Accept. It returns false
// when the listener is closed.
func (l *Listener) awaitQueue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ready) >= maxReady && !l.closed {
		l.changed.Wait()
	}
	return !l.closed
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
		l.mu.Lock()
		i := slices.Index(l.underway, h)
		l.underway = slices.Delete(l.underway, i, i+1)
		<-l.slots // under mu, so that giveWay sees the place free or h leaving
		l.mu.Unlock()
		if in != nil {
			l.deliver(in)
		}
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
