package sdp

import (
	"errors"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// under watches the TCP connection beneath a device that would not notice that the
// peer's host is gone.
type under struct {
	stop chan struct{} // closed by Close, before it closes the TCP connection
	done chan struct{} // closed when nobody watches any more
}

// underTime is how long a channel may go on when the peer has closed the TCP
// connection beneath it, which is the last that an end does: the device tells
// of the end of the channel, if its host is still there.
const underTime = time.Second

var errUnderSpeaks = errors.New("sdp: bytes came on the TCP connection behind the StepUp")

// watchUnder has the connection end when TCP's keepalive, on the connection
// underneath, finds the peer's host gone, if the device would not notice; or when
// nobody could find that any more, because the peer has ended that connection and
// kept this one.
func (c *Conn) watchUnder() {
	distant, ok := c.qp.(rdma.Distant)
	if !ok {
		return
	}
	c.under = &under{stop: make(chan struct{}), done: make(chan struct{})}
	go c.under.watch(c, distant)
}

func (u *under) watch(c *Conn, distant rdma.Distant) {
	defer close(u.done)
	var b [1]byte
	n, err := c.tcp.Read(b[:])
	switch {
	case n > 0:
		distant.Lost(errUnderSpeaks)
	case err == io.EOF:
		timer := time.NewTimer(underTime)
		defer timer.Stop()
		select {
		case <-timer.C:
			distant.Lost(syscall.ECONNRESET)
		case <-u.stop:
		}
	case saysHostIsGone(err):
		distant.Lost(cause(err))
	}
}

// end has nobody watch any more. The TCP connection is closed.
func (u *under) end() {
	close(u.stop)
	<-u.done
}

// saysHostIsGone reports that err is what keepalive ends with: nobody answers,
// nobody leads there any more, or the host knows nothing of the connection because
// it has been down meanwhile.
func saysHostIsGone(err error) bool {
	return slices.ContainsFunc([]error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNRESET},
		func(gone error) bool { return errors.Is(err, gone) })
}
