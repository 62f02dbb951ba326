package engine

import (
	"errors"
	"io"
	"syscall"

	"github.com/gosdp/gosdp/internal/netname"
)

// rawSDP is what SyscallConn returns for an SDP connection.
type rawSDP struct {
	c   *Conn
	tcp syscall.RawConn // nil: the TCP connection has none
}

// SyscallConn returns a raw connection. Its Read shows what is unread on another socket; its Write fails.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	raw := &rawSDP{c: c}
	if sc, ok := c.tcp.(syscall.Conn); ok {
		rc, err := sc.SyscallConn()
		if err != nil {
			return nil, err
		}
		raw.tcp = rc
	}
	return raw, nil
}

var (
	errRawUnread = errors.New("unread data in the receive buffer; use Read")
	errRawWrite  = errors.New("socket carries RDMA messages; use Write")
)

func (r *rawSDP) Control(f func(fd uintptr)) error {
	c := r.c
	c.mu.Lock()
	closed := c.phase.closed()
	c.mu.Unlock()
	err := errors.ErrUnsupported
	switch {
	case closed: // the descriptor may be open for a while
		err = errClosed
	case r.tcp != nil:
		err = netname.Cause(r.tcp.Control(f))
	}
	return localOnly(c.opError("raw-control", err))
}

func (r *rawSDP) Read(f func(fd uintptr) (done bool)) error {
	c := r.c
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.mu.Lock()
	d := c.decoy
	c.decoy = decoy{}
	defer func() {
		c.mu.Lock()
		c.unlendLocked()       // if f has panicked
		if !c.phase.closed() { // otherwise Close does not find it
			c.decoy, d = d, decoy{}
		}
		c.mu.Unlock()
		d.close()
		c.out.sendDue()
	}()
	if c.poll.leader == nobody && !c.phase.closed() {
		c.poll.receiveReadyReleasing()
		idleMonitor.watchLocked(c)
	}
	for {
		head, err := c.lookReleasing()
		err = c.once(err, io.EOF)
		announced := c.session.Announced()
		c.lendAndUnlock()
		c.out.sendDue()
		if err != nil && err != io.EOF {
			c.dumpRead(nil, err)
			return c.opError("raw-read", err)
		}
		done, taken, ferr := d.show(head[:min(len(head), decoyBytes)], err == io.EOF, f)
		c.dumpRead(head[:taken], err)
		c.mu.Lock()
		c.unlendLocked()
		if taken > 0 {
			c.promise.consume(taken)
			c.out.checkDueLocked()
		}
		c.mu.Unlock()
		if taken > 0 {
			c.out.sendDue()
		}
		if ferr == nil && done && len(head) == 0 && announced {
			ferr = errRawUnread // the descriptor could not show them
		}
		if ferr != nil || done || err == io.EOF {
			return c.opError("raw-read", ferr)
		}
		c.mu.Lock()
		if taken > 0 {
			continue
		}
		if len(head) == 0 {
			c.awaitPayloadReleasing() // lookReleasing finds its error again
			continue
		}
		c.mu.Unlock()
		return c.opError("raw-read", errRawUnread)
	}
}

func (r *rawSDP) Write(func(fd uintptr) (done bool)) error {
	return r.c.opError("raw-write", errRawWrite)
}
