package engine

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/gosdp/gosdp/internal/netname"
)

// tcpMonitor watches the TCP connection of a device that does not notice when the peer's
// host disappears.
type tcpMonitor struct {
	quiet time.Duration // probeTime
	stop  chan struct{} // closed by Close, before it closes the TCP connection
	done  chan struct{} // closed when the monitor has ended
}

// probeTime is how long a channel without a TCP connection is idle before the library sends
// a message, so that the device notices if the host is gone.
const probeTime = 15 * time.Second

var errMonitorData = errors.New("sdp: unexpected data from peer on the TCP connection after StepUp")

// monitorTCP ends the connection when TCP's keepalive finds that the peer's host is gone, if
// the device does not notice that itself.
func (c *Conn) monitorTCP() {
	if !c.qp.Limits().NeedsKeepalive {
		return
	}
	c.tcpMonitor = &tcpMonitor{quiet: probeTime, stop: make(chan struct{}), done: make(chan struct{})}
	go c.tcpMonitor.run(c)
}

func (m *tcpMonitor) run(c *Conn) {
	defer close(m.done)
	for {
		var b [1]byte
		n, err := c.tcp.Read(b[:])
		switch {
		case n > 0:
			c.qp.Lost(errMonitorData)
		case err == io.EOF:
			m.probe(c)
		case errors.Is(err, os.ErrDeadlineExceeded) && m.wait(): // the program may set deadlines on its own connection
			continue
		case !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded):
			// Keepalive got no answer, or a router or the host itself reported that the
			// peer is gone.
			c.qp.Lost(netname.Cause(err))
		}
		return
	}
}

// probe replaces keepalive after the peer, or a proxy, has closed the TCP connection: when
// the channel is idle it sends a message without payload now and then, so that the device
// notices if the host is gone. The channel continues, because data that the peer sent before
// it closed the TCP connection may arrive after TCP's FIN.
func (m *tcpMonitor) probe(c *Conn) {
	c.mu.Lock()
	before := c.poll.activity
	c.mu.Unlock()
	for m.wait() {
		c.mu.Lock()
		if c.sendErr != nil {
			c.mu.Unlock()
			return
		}
		if c.poll.activity == before {
			c.session.Update()
			c.out.due.Store(true)
		}
		before = c.poll.activity
		c.mu.Unlock()
		c.out.sendDue()
	}
}

// wait waits for m.quiet. It reports false if the monitor must end.
func (m *tcpMonitor) wait() bool {
	timer := time.NewTimer(m.quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.stop:
		return false
	}
}

// end ends the monitor. The TCP connection must be closed.
func (m *tcpMonitor) end() {
	close(m.stop)
	<-m.done
}
