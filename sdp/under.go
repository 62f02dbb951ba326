package sdp

import (
	"errors"
	"slices"
	"syscall"

	"github.com/gosdp/gosdp/rdma"
)

// watchUnder has the connection end when TCP's keepalive, on the connection
// underneath, finds the peer's host gone, if the device would not notice. Nothing
// is said there any more, and its end in good order is no news: the device tells
// of the end of a peer that can still say something.
func (c *Conn) watchUnder() {
	distant, ok := c.qp.(rdma.Distant)
	if !ok {
		return
	}
	c.under = make(chan struct{})
	go func() {
		defer close(c.under)
		var b [1]byte
		if _, err := c.tcp.Read(b[:]); saysHostIsGone(err) {
			distant.Lost(cause(err))
		}
	}()
}

// saysHostIsGone reports that err is what keepalive ends with: nobody answers,
// nobody leads there any more, or the host knows nothing of the connection because
// it has been down meanwhile.
func saysHostIsGone(err error) bool {
	return slices.ContainsFunc([]error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNRESET},
		func(gone error) bool { return errors.Is(err, gone) })
}
