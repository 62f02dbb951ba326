//go:build linux

package stream

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/timing"
)

// Meet gives the connection a segment now. The peer must call Meet or TryMeet within the limit, or be an accepted
// connection that Move looks after. The error is that of ctx, or says why there is no segment: the connection is on TCP
// then, and may still move by itself. Move must have been called.
func (c *Conn) Meet(ctx context.Context, limit time.Duration) error {
	c.meetsNow(1)
	err := c.await(ctx, limit)
	c.meetsNow(-1)
	return err
}

// meetsNow counts the calls of Meet. With the last one a meeting ends that has not brought the ends together.
func (c *Conn) meetsNow(n int16) {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	if c.meets += n; c.meets == 0 {
		c.endMeeting()
		c.trigger.Cancel()
	}
}

func (c *Conn) await(ctx context.Context, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	timer := time.NewTimer(timing.MeetFirst)
	defer timer.Stop()
	for pause := timing.MeetFirst; ; pause = min(2*pause, timing.MeetMost) {
		met, err := c.TryMeet()
		if end := time.Now().Add(timing.Refused); end.Before(deadline) && c.nobody() != errNobody {
			deadline = end
		}
		late := !time.Now().Before(deadline)
		switch {
		case met:
			return nil
		case err != nil && (late || !errors.Is(err, meeting.ErrVanished)): // the peer may come again
			return err
		case late:
			return c.nobody()
		case pause == timing.MeetMost && !c.established():
			return errEnded
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// nobody returns why nobody has come to the meeting.
func (c *Conn) nobody() error {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	return c.nobodyLocked()
}

// nobodyLocked is nobody with stepMu.
func (c *Conn) nobodyLocked() error {
	if c.meeting != nil {
		if err := c.meeting.Refused(); err != nil {
			return refusal{err}
		}
	}
	if why := c.why.Load(); why != nil {
		if earlier, ok := (*why).(refusal); ok { // who was turned away does not come again
			return earlier
		}
	}
	return errNobody
}

// A refusal is why a dialler has turned away who came to a meeting.
type refusal struct{ error }

// established reports whether neither end has closed the TCP connection.
func (c *Conn) established() (yes bool) {
	raw, err := c.tcp.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			yes = err == nil && info.State == tcpEstablished
		})
	}
	return yes
}

var errEnded = errors.New("peer closed the connection")

// TryMeet takes the next step of a meeting without waiting, and reports whether the connection has a segment. It
// returns false and no error if the peer has not done its part.
func (c *Conn) TryMeet() (met bool, err error) {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	switch {
	case c.is(closed):
		return false, net.ErrClosed
	case c.linked.Load() != nil:
		return true, nil
	case c.policy == nil:
		return false, errNoPolicy
	case c.stays:
		return false, *c.why.Load()
	case c.meeting == nil:
		err = c.begin()
	}
	if err == nil && c.meeting != nil {
		err = c.meet()
	}
	if c.meeting != nil && c.meeting.Refused() != nil {
		var refused error = refusal{c.meeting.Refused()}
		c.why.Store(&refused)
	}
	if err != nil {
		c.endMeeting()
		c.trigger.Cancel()
		if err != meeting.ErrEarly { // not yet
			c.why.Store(&err)
		}
	}
	return c.linked.Load() != nil, err
}

// Met reports whether the connection has a segment.
func (c *Conn) Met() bool { return c.linked.Load() != nil }
