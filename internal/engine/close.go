package engine

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/observe"
)

const (
	// closeTime is how long Close waits for bytes that are still in this process.
	closeTime = time.Second
	// graceTime is how long Close waits for a peer on this host to receive everything. A
	// peer that is not busy has received it by then, and nothing is left for the background:
	// a program that counts its descriptors after Close finds none.
	graceTime = 100 * time.Microsecond
	// drainAlone is how long the device drains before the background poller is started.
	drainAlone = 5 * time.Millisecond
)

// CloseRead closes the direction from the peer. Reads no longer wait.
func (c *Conn) CloseRead() error {
	return c.opError("close", c.closeRead())
}

func (c *Conn) closeRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.poll.receiveArrivedReleasing() // a kernel knows of a reset that no call has returned
	switch {
	case c.phase.closed():
		return errClosed
	case c.overLocked():
		return syscall.ENOTCONN
	}
	c.phase.closeRead()
	c.refuseAdvertsLocked()
	c.poll.wakeAllLocked()
	return nil
}

// overLocked reports whether a kernel would have no connection any more: both directions have ended, or
// it was reset, which is also the answer to the first Write after the peer's Close.
func (c *Conn) overLocked() bool {
	ended := c.phase.writeClosed() && (c.recvErr == io.EOF || c.session.PeerEnded())
	return ended || isReset(c.recvErr) || isReset(c.sendErr) || c.lost
}

// refuseAdvertsLocked makes the peer send everything that it advertises as Data.
func (c *Conn) refuseAdvertsLocked() {
	if c.session.RefuseAdverts() {
		c.out.due.Store(true)
	}
}

// CloseWrite closes the direction to the peer, which sees an end of the stream.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	c.poll.receiveArrivedReleasing()
	if c.phase.closed() {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	over := c.overLocked()
	c.phase.closeWrite()
	c.poll.wakeAllLocked()
	c.mu.Unlock()
	c.writeMu.Lock() // a Write in progress returns soon
	defer c.writeMu.Unlock()
	c.mu.Lock()
	err := c.sendErr
	switch {
	case over || c.lost || isReset(err) || isReset(c.recvErr):
		err = syscall.ENOTCONN
	case c.recvErr == io.EOF:
		err = nil // that the peer has closed does not prevent it
	}
	c.endWritesLocked()
	c.mu.Unlock()
	c.dumpEnd(false)
	c.out.sendDue()
	return c.opError("close", err)
}

// endWritesLocked makes the DisConn due. No Write may be in progress or begin.
func (c *Conn) endWritesLocked() {
	if c.sendErr == nil && c.session.EndWrites() {
		c.out.due.Store(true)
	}
}

// Close ends the connection in these steps:
//
//  1. It marks the connection closed and wakes all calls, which return net.ErrClosed.
//  2. It waits for the Write and the leading goroutine to return, and receives what has
//     arrived. If there is unread payload, it resets the connection, as TCP does, and
//     returns.
//  3. It sends the DisConn.
//  4. It ends the channel (closer.conclude) when nothing that was sent can be lost any
//     more. If that takes longer than a moment, the connection is left to the background
//     (linger.go).
//
// It does not take readMu: a Read that waits returns because of step 1, and one that copies
// needs neither the peer nor the device.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.phase.closed() {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	c.phase.close()
	d := c.decoy
	c.decoy = decoy{}
	c.refuseAdvertsLocked()
	c.read.stop()
	c.write.stop()
	idleMonitor.removeLocked(c)
	k := &c.closer
	k.reset = k.reset || k.linger == 0 || c.session.Unread() > 0
	c.poll.wakeAllLocked()
	c.mu.Unlock()
	d.close()

	onThisHost := handshake.OnThisHost(c.tcp)
	c.writeMu.Lock()
	c.mu.Lock()
	for c.poll.leader != nobody || c.zcopy.inRead() {
		c.poll.followReleasing()
	}
	over, reset := k.stepReleasing()
	wait := k.waitTimeLocked(onThisHost)
	c.dumpEnd(k.reset)
	c.mu.Unlock()
	c.writeMu.Unlock()

	switch {
	case over:
	case wait == graceTime:
		over, reset = k.tryAgain()
	case wait > 0:
		over, reset = k.await(wait)
	}
	if over {
		k.conclude(reset)
	} else {
		k.lingerOn()
	}
	return nil
}

// closer finishes a connection for which Close was called; conn.phase has its state. Guarded by
// Conn.mu.
type closer struct {
	conn *Conn

	linger   int32 // SetLinger, in seconds
	reset    bool  // the peer must see a reset: SetLinger(0), payload that nobody will read, or drop
	finished bool  // the device's sending half has ended
}

// waitTimeLocked returns how long Close itself waits.
func (k *closer) waitTimeLocked(onThisHost bool) time.Duration {
	asks := k.conn.qp.Limits().Finishes
	switch {
	case k.linger > 0:
		return time.Duration(k.linger) * time.Second
	case !asks, bubble.Inside():
		// What is still in this process ends with it; and nothing may outlive the test of
		// a bubble.
		return closeTime
	case onThisHost:
		return graceTime
	}
	return 0
}

// stepReleasing does what can be done for a closed connection now, without waiting. It reports
// whether the channel can be ended, and whether by a reset. The connection must be stepping. It
// releases mu in between.
func (k *closer) stepReleasing() (over, reset bool) {
	c := k.conn
	c.poll.receiveReadyReleasing() // credit for the DisConn, among other things
	if !k.reset && !c.session.WritesEnded() {
		c.endWritesLocked()
	}
	if over, reset = k.overLocked(); over {
		return over, reset
	}
	c.out.due.Store(true)
	c.mu.Unlock()
	c.out.sendDue()
	c.qp.Flush()
	c.mu.Lock()
	if c.session.EndSent() && k.finishLocked() {
		// A kernel resets a connection that is closed before everything was received from
		// it. That is right for payload, and wrong for control messages.
		c.poll.receiveReadyReleasing()
		if over, reset = k.overLocked(); !over {
			over = true
		}
	}
	return over, reset
}

// finishLocked has the device finish, and reports whether that is done. From when the sending
// half has ended, no message is sent: credit that this end's last receptions made due would
// fail, and look as if the connection had. What becomes due while this holds out.mu is left to
// the next step. A device that cannot be asked is never done.
func (k *closer) finishLocked() (done bool) {
	out := &k.conn.out
	if !out.mu.TryLock() {
		return false // a message is being posted; the next step tries again
	}
	defer out.mu.Unlock()
	k.finished, done = k.conn.qp.Finish()
	return done
}

// overLocked reports whether there is nothing left to wait for, and whether the peer must
// see a reset. It does not release mu.
func (k *closer) overLocked() (over, reset bool) {
	c := k.conn
	switch {
	case c.recvErr == io.EOF:
		return true, false // there is no peer to see a reset
	case k.reset, c.sendErr != nil:
		return true, true
	}
	return c.recvErr != nil, c.recvErr != nil
}

// tryAgain repeats stepReleasing once after graceTime, if that may help.
func (k *closer) tryAgain() (over, reset bool) {
	bubble.Sleep(graceTime)
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session.EndSent() && !k.finishLocked() {
		return false, false
	}
	return k.stepReleasing()
}

// await repeats stepReleasing for up to d of the real clock, or lets the device wait.
func (k *closer) await(d time.Duration) (over, reset bool) {
	c := k.conn
	if !c.qp.Limits().Finishes {
		return k.drain(d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for pause := 50 * time.Microsecond; d > 0 && !over; pause = min(3*pause, 10*time.Millisecond) {
		pause = min(pause, d)
		c.mu.Unlock()
		bubble.Sleep(pause)
		c.mu.Lock()
		d -= pause
		over, reset = k.stepReleasing()
	}
	return over, reset
}

// drain is await for a device that cannot be asked whether it has finished, but can wait.
func (k *closer) drain(d time.Duration) (over, reset bool) {
	c := k.conn
	until := clock() + d
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := time.AfterFunc(d, func() {
		c.mu.Lock()
		c.poll.wakeAllLocked()
		c.mu.Unlock()
	})
	defer timer.Stop()
	for !c.session.EndSent() {
		if over, reset = k.overLocked(); over || clock() >= until {
			return over, reset
		}
		c.out.due.Store(true)
		c.mu.Unlock()
		c.out.sendDue()
		c.mu.Lock()
		// Nothing would wake this call for what happened while mu was released.
		if over, _ := k.overLocked(); !over && !c.session.EndSent() && clock() < until {
			c.poll.waitReleasing()
		}
	}
	c.phase.drain()
	c.mu.Unlock()
	// The peer may be waiting for this end to read, as this end waits for the peer.
	background := time.AfterFunc(drainAlone, func() {
		c.mu.Lock()
		c.poll.startBackgroundLocked()
		c.mu.Unlock()
	})
	err := c.qp.Drain(until - clock())
	background.Stop()
	c.mu.Lock()
	c.phase.drained()
	c.poll.wakeAllLocked()
	for c.poll.background != absent || c.poll.leader != nobody {
		c.poll.followReleasing()
	}
	c.poll.receiveReadyReleasing()
	if over, reset = k.overLocked(); over {
		return over, reset
	}
	switch {
	case err == nil:
		return true, false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, false
	}
	return true, true
}

// conclude ends the channel. The connection must be stepping.
func (k *closer) conclude(reset bool) {
	c := k.conn
	c.mu.Lock()
	c.phase.conclude()
	if reset && c.session.Abort() {
		c.out.due.Store(true)
	}
	c.mu.Unlock()
	c.out.sendDue() // the AbortConn
	if reset {
		c.qp.Abort()
	} else {
		c.qp.Close()
	}
	c.mu.Lock()
	c.promise.end()
	violation, err := c.health == violated, c.recvErr
	c.mu.Unlock()
	observe.Ended(c, violation, err)
	c.mu.Lock()
	c.awaitWorkersReleasing()
	c.mu.Unlock()
	if tcp, ok := c.tcp.(interface{ SetLinger(int) error }); ok && reset {
		tcp.SetLinger(0) // a connection of TCP that is reset does not occupy its port any longer
	}
	c.tcp.Close()
	if c.tcpMonitor != nil {
		c.tcpMonitor.end()
	}
}
