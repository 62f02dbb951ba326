package sdp

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// under watches the TCP connection beneath a device that would not notice that the
// peer's host is gone.
type under struct {
	quiet time.Duration // askTime
	stop  chan struct{} // closed by Close, before it closes the TCP connection
	done  chan struct{} // closed when nobody watches any more
}

// askTime is how long nothing may move on a channel beneath which there is no TCP
// connection any more, before the device is asked.
const askTime = 15 * time.Second

var errUnderSpeaks = errors.New("sdp: bytes came on the TCP connection behind the StepUp")

// watchUnder has the connection end when TCP's keepalive, on the connection
// underneath, finds the peer's host gone, if the device would not notice.
func (c *conn) watchUnder() {
	distant, ok := c.qp.(rdma.PeerLossNotifier)
	if !ok {
		return
	}
	c.under = &under{quiet: askTime, stop: make(chan struct{}), done: make(chan struct{})}
	go c.under.watch(c, distant)
}

func (u *under) watch(c *conn, distant rdma.PeerLossNotifier) {
	defer close(u.done)
	for {
		var b [1]byte
		n, err := c.tcp.Read(b[:])
		switch {
		case n > 0:
			distant.Lost(errUnderSpeaks)
		case err == io.EOF:
			u.ask(c)
		case errors.Is(err, os.ErrDeadlineExceeded) && u.wait(): // a program's own connection may set some
			continue
		case !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded):
			// What keepalive ends with: that nobody answers, or whatever a router said
			// last, or that the host knows nothing of the connection.
			distant.Lost(cause(err))
		}
		return
	}
}

// ask is what remains when the peer, or a proxy, has closed the TCP connection, where
// keepalive would find the host gone: a message without payload now and then, when
// nothing moves, for the device to find it. A peer that closes leaves that connection
// last, but what it has sent may be on its way for longer than TCP's FIN, so the
// channel goes on.
func (u *under) ask(c *conn) {
	c.mu.Lock()
	before := c.activity
	c.mu.Unlock()
	for u.wait() {
		c.mu.Lock()
		if c.sendErr != nil {
			c.mu.Unlock()
			return
		}
		if c.activity == before {
			c.session.Update()
			c.due.Store(true)
		}
		before = c.activity
		c.mu.Unlock()
		c.control()
	}
}

// wait lets a while pass; false: nobody is to watch any more.
func (u *under) wait() bool {
	timer := time.NewTimer(u.quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-u.stop:
		return false
	}
}

// end has nobody watch any more. The TCP connection is closed.
func (u *under) end() {
	close(u.stop)
	<-u.done
}
