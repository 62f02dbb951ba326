package listener

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/timing"
)

// arrival is an accepted connection until Accept returns it.
type arrival struct {
	*handshake.Incoming
	conn     net.Conn
	accepted time.Time
	slot     bool // the handshake has one of the listener's slots

	// Guarded by Listener.mu.
	up        *handshake.Connection // nil: the handshake has not ended
	overtaken bool                  // later connections no longer wait for this one
}

// run is the accepting goroutine.
func (l *Listener) run() {
	var err error
	for err == nil && l.mayAccept() {
		var conn net.Conn
		conn, err = l.ln.Accept()
		l.left()
		switch {
		case err == nil:
			l.admit(conn)
		case !errors.Is(err, net.ErrClosed):
			l.report(err)
			err = nil
		}
	}
	l.mu.Lock()
	l.err, l.state = err, l.state.after(exit)
	l.changed.Broadcast()
	l.mu.Unlock()
}

// mayAccept waits until the next connection may be accepted: until an Accept waits for which none is set
// up. The others stay in the kernel, which counts them, and for processes that share the socket. It
// returns false if the listener is closed.
func (l *Listener) mayAccept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ready >= l.waiting && !l.state.closed() {
		l.changed.Wait(&l.mu)
	}
	if l.state.closed() {
		return false
	}
	if l.state == returned {
		l.kernel.SetDeadline(time.Time{})
	}
	l.state = l.state.after(enter)
	return true
}

// left notes that Accept of the underlying listener has returned.
func (l *Listener) left() {
	l.mu.Lock()
	if l.state = l.state.after(leave); l.state == returned {
		l.changed.Broadcast()
	}
	l.mu.Unlock()
}

// report hands err to one Accept, and waits until that has returned it: as with package net,
// the program decides what to do about it. If the system is short of something, a silent client gives way, and
// if no Accept waits, the next one tries again. An error that interruptLocked or Close has caused is ignored.
func (l *Listener) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.closed() || l.state == returned && errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if isShortage(err) {
		l.giveWayLocked()
	}
	if l.waiting == 0 && isShortage(err) {
		for l.waiting == 0 && !l.state.closed() {
			l.changed.Wait(&l.mu)
		}
		return
	}
	l.failure = err
	l.changed.Broadcast()
	for l.failure != nil && !l.state.closed() {
		l.changed.Wait(&l.mu)
	}
}

// isShortage reports whether err says that the process or the system has no room for another
// connection at present.
func isShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// admit starts the handshake on conn, which has a slot and a goroutine, unless conn is certainly
// plain TCP.
func (l *Listener) admit(conn net.Conn) {
	a := &arrival{Incoming: l.server.Accepted(conn), conn: conn, accepted: time.Now()}
	l.mu.Lock()
	l.queue = append(l.queue, a)
	l.mu.Unlock()
	if up := a.Plain(); up != nil {
		l.conclude(a, up, nil)
		return
	}
	if a.slot = l.takeSlot(); !a.slot {
		l.conclude(a, nil, nil)
		handshake.Abort(conn)
		return
	}
	l.workers.Go(func() {
		up, err := a.Run(l.ctx)
		l.conclude(a, up, err)
	})
}

// takeSlot waits for a slot. It returns false when the listener is closed.
func (l *Listener) takeSlot() bool {
	select {
	case l.slots <- struct{}{}: // the usual case needs no timer
		return true
	default:
	}
	tick := time.NewTicker(timing.SlotCheck)
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
		case <-l.closed:
			return false
		}
	}
}

// conclude notes how the handshake has ended. If up is not nil, Accept will return it.
func (l *Listener) conclude(a *arrival, up *handshake.Connection, err error) {
	if err != nil {
		l.logger.Debug("sdp: handshake failed", "client", a.conn.RemoteAddr(), "error", err)
	}
	l.mu.Lock()
	gone := l.state == ended
	switch {
	case gone:
	case up == nil:
		l.leaveLocked(a)
	default:
		a.up = up
		l.ready++
	}
	if a.slot {
		<-l.slots // with mu held: giveWay sees either the free slot or the leaving handshake
	}
	l.drainedLocked()
	l.changed.Broadcast()
	l.mu.Unlock()
	if gone && up != nil {
		up.Discard()
	}
}

// giveWay ends the oldest handshake whose client is silent, or else the oldest of all, so
// that another one gets its slot. It spares those that may be about to continue.
func (l *Listener) giveWay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveWayLocked()
}

func (l *Listener) giveWayLocked() {
	var victim *arrival
	heard := true
	for _, a := range l.queue {
		p := a.Progress()
		if a.up != nil || p.State == handshake.Accepted {
			continue // has no slot
		}
		if p.State.Ending() {
			return // its slot is about to be free
		}
		keep := l.limits.silent
		if p.State.Heard() {
			keep = l.limits.patience
		}
		if time.Since(p.Since) < keep {
			continue
		}
		if victim == nil || heard && !p.State.Heard() {
			victim, heard = a, p.State.Heard()
		}
	}
	if victim != nil {
		victim.GiveWay()
	}
}
