package shmdir

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// claim is a dialler's announcement of a connection, at the listener's end. The Announcer's
// lock guards it.
type claim struct {
	fd    int
	since time.Time
	kept  bool // the socket has served an earlier claim
	read  bool // claimed is set
	claimed

	ports  []uint16 // the answers that the dialler has not reacted to yet, in order
	opened bool     // the claim is for the connection from port
	port   uint16
	taken  bool // by that connection, which closes it
	closed bool
	spent  bool // a connection that it may be for has sent its Request: no other one is answered
}

// Claimed answers the claims that may be for a connection that was accepted from there. It
// returns nil if there are none.
func (a *Announcer) Claimed(from netip.AddrPort) *Held {
	from = bare(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return nil
	}
	a.takeLocked()
	if len(a.claims) == 0 {
		return nil
	}
	h := &Held{a: a, port: from.Port(), since: time.Now()}
	vain := time.Now().Before(a.vain)
	for _, c := range a.claims {
		switch {
		case !c.read || c.opened || c.spent || !c.fits(from):
		case vain:
			c.settle() // so that the dialler does not wait
		case c.answer(from.Port()):
			h.claims = append(h.claims, c)
		}
	}
	if len(h.claims) == 0 {
		return nil
	}
	a.held++
	return h
}

// takeLocked takes in the claims that have come, and ends those that are old.
func (a *Announcer) takeLocked() {
	if len(a.claims) > mostClaims-mostAtOnce {
		a.dropLeftLocked()
	}
	for range mostAtOnce {
		if heldUp() {
			break
		}
		fd, _, err := unix.Accept4(a.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != nil {
			break
		}
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || MayMeet(int(cred.Uid), os.Geteuid(), a.uids) != nil || len(a.claims) == mostClaims {
			discard(fd)
			continue
		}
		a.claims = append(a.claims, &claim{fd: fd, since: time.Now()})
	}
	a.hearLocked()
	a.claims = slices.DeleteFunc(a.claims, func(c *claim) bool {
		switch age := time.Since(c.since); {
		case c.taken:
		case age > limits.claim && !c.opened, age > openedTime:
			c.settle()
		}
		return c.closed || c.taken
	})
}

// dropLeftLocked makes room: it drops the claims of diallers that have left, because another listener has
// accepted their connections, say.
func (a *Announcer) dropLeftLocked() {
	a.claims = slices.DeleteFunc(a.claims, func(c *claim) bool {
		if !c.closed && !c.opened && !c.stands() {
			c.close()
		}
		return c.closed
	})
}

// hearLocked reads the claims that have come, and closes the sockets of those that make no sense.
func (a *Announcer) hearLocked() {
	var room [mostKept]unix.PollFd
	fds := room[:0]
	for _, c := range a.claims {
		if !c.read {
			fds = append(fds, unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN})
		}
	}
	if len(fds) == 0 {
		return
	}
	if n, err := poll(fds); n == 0 || err != nil {
		return // they are about to come
	}
	for _, c := range a.claims {
		if c.read {
			continue
		}
		if fds[0].Revents != 0 && !c.hearClaim() {
			c.close()
		}
		fds = fds[1:]
	}
}

// hearClaim reads what the dialler claims. It returns false if that makes no sense.
func (c *claim) hearClaim() bool {
	var b [claimLen + 1]byte
	n, err := receive(c.fd, b[:])
	if err == unix.EAGAIN {
		return true
	}
	if err == nil {
		c.claimed, c.read = parseClaim(b[:n])
		c.since = time.Now() // on a socket that was kept it is a new one
	}
	return c.read
}

// answer tells the dialler the port.
func (c *claim) answer(port uint16) bool {
	var b [answerLen]byte
	binary.BigEndian.PutUint16(b[:], port)
	if say(c.fd, b[:]) != nil {
		return false
	}
	c.ports = append(c.ports, port)
	return true
}

// hear reads what the dialler says to the answers: an opening, or a zero byte if the port is not
// its own. Anything else ends the claim.
func (c *claim) hear() {
	for !c.closed && !c.opened && len(c.ports) > 0 {
		var b [keyLen + 1]byte
		n, err := receive(c.fd, b[:])
		if err == unix.EAGAIN {
			return
		}
		port := c.ports[0]
		c.ports = c.ports[1:]
		switch {
		case err == nil && n == 1 && b[0] == 0:
		case err == nil && n == keyLen && c.commitment.opens(key(b[:keyLen]), port):
			c.opened, c.port = true, port
		default:
			c.close()
		}
	}
}

// settle ends the claim, unless it was opened: then it is for the connection that it was opened
// for to end it. From here on no opening can be sent; one that was sent before counts.
func (c *claim) settle() {
	if c.closed || c.opened && time.Since(c.since) <= openedTime {
		return
	}
	unix.Shutdown(c.fd, unix.SHUT_RD)
	c.hear()
	if !c.opened || time.Since(c.since) > openedTime {
		c.close()
	}
}

// waits reports that the dialler has still to react to the answer.
func (c *claim) waits(port uint16) bool {
	return !c.closed && !c.opened && slices.Contains(c.ports, port)
}

// stands reports that the dialler has not taken the claim back.
func (c *claim) stands() bool {
	fds := []unix.PollFd{{Fd: int32(c.fd)}}
	_, err := poll(fds)
	return err == nil && fds[0].Revents&unix.POLLHUP == 0
}

// poll looks at the sockets without waiting. A signal, such as those by which the runtime preempts
// goroutines, makes poll(2) return EINTR even then.
func poll(fds []unix.PollFd) (n int, err error) {
	for {
		if n, err = unix.Poll(fds, 0); err != unix.EINTR {
			return n, err
		}
	}
}

func (c *claim) close() {
	if !c.closed {
		c.closed = true
		discard(c.fd)
	}
}

// Held is a connection that was accepted, and that one of some claims may be for. One
// goroutine at a time uses it. Release must follow.
type Held struct {
	a      *Announcer
	port   uint16
	since  time.Time
	claims []*claim // that were answered
	opened *claim   // the one that is for the connection; nil: none is yet
}

// Expected reports that the client will send a Request, or is still to say whether it will.
// After it has returned false the client sends none. It waits for nothing.
func (h *Held) Expected() bool {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	h.lookLocked()
	if h.opened != nil {
		return h.opened.stands()
	}
	waited := time.Since(h.since)
	if len(h.claims) > 0 && waited < limits.hold {
		return true
	}
	for _, c := range h.claims {
		c.settle()
	}
	h.lookLocked()
	if h.opened == nil && waited > limits.hold/4 {
		h.a.inVainLocked(waited)
	}
	return h.opened != nil
}

// inVainLocked has no claim answered for a time, because a connection has waited for one in vain.
func (a *Announcer) inVainLocked(waited time.Duration) {
	if until := time.Now().Add(VainTimes * waited); until.After(a.vain) {
		a.vain = until
	}
}

// lookLocked finds out whether one of the claims was opened for this connection, and which may
// still be.
func (h *Held) lookLocked() {
	for _, c := range h.claims {
		c.hear()
		if c.opened && c.port == h.port && !c.taken {
			c.taken, h.opened = true, c
		}
	}
	h.claims = slices.DeleteFunc(h.claims, func(c *claim) bool { return !c.waits(h.port) })
}

// Release ends it. Claims that fitted may still be opened for other connections that were
// answered. The socket of the claim that was opened serves another one, so Release must precede the
// Reply. If the client has asked, that is sent its Request, and a process in between holds back the
// opening, its claim is spent: the dialler would take the answer for another connection as one to
// its next claim.
func (h *Held) Release(asked bool) {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	h.lookLocked()
	if h.opened != nil {
		if waited := time.Since(h.since); !asked && waited > limits.hold { // a guess has opened it
			h.a.inVainLocked(waited)
		}
		h.a.keepLocked(h.opened)
	}
	for _, c := range h.claims {
		c.spent = c.spent || asked && h.opened == nil
		if h.a.fd < 0 {
			c.settle()
		}
	}
	h.claims = nil
	h.a.held--
	h.a.endLocked()
}

// keepLocked has the socket of a claim that was opened wait for the dialler's next claim, unless
// others do already, or the dialler has still to react to an answer that came too late.
func (a *Announcer) keepLocked(c *claim) {
	waiting := 0
	for _, other := range a.claims {
		if other.kept && !other.read {
			waiting++
		}
	}
	if a.fd < 0 || a.suspended || c.closed || len(c.ports) > 0 || waiting >= mostKept || len(a.claims) >= mostClaims {
		c.close()
		return
	}
	a.claims = append(a.claims, &claim{fd: c.fd, since: time.Now(), kept: true})
	c.closed = true // the socket is not this claim's any more
}

var errLeft = errors.New("peer closed the socket")

// say sends a message. It waits for nothing.
func say(fd int, b []byte) error { return unix.Send(fd, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }

// receive reads a message, and leaves it unread if a descriptor comes with it. EAGAIN: there is
// none.
func receive(fd int, b []byte) (n int, err error) {
	flags := 0
	if takesRights.Load() {
		_, _, flags, _, err = unix.Recvmsg(fd, b, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}
	switch {
	case err != nil:
	case flags&unix.MSG_CTRUNC != 0:
		return 0, errors.New("unexpected descriptor")
	default:
		n, err = unix.Read(fd, b)
	}
	switch {
	case err == unix.EINTR:
		return 0, unix.EAGAIN
	case err == nil && n == 0:
		return 0, errLeft
	}
	return n, err
}
