package parity

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

var halfScripts = []script{
	{name: "close write, then read, then close", run: func(r *run) {
		c, s := r.pair()
		end := make(chan string, 1)
		go func() {
			end <- readAll(s, 100_000)
			_, err := s.Write(bytesOf(50_000))
			check(err)
			check(s.Close())
		}()
		_, err := c.Write(bytesOf(100_000))
		check(err)
		r.note("CloseWrite", timed(c.CloseWrite))
		r.note("the peer reads", <-end)
		r.note("Write after CloseWrite", describeCall(c.Write))
		r.note("we read", readAll(c, 50_000))
		r.note("Close", timed(c.Close))
	}},
	{name: "read after the peer's close write", run: func(r *run) {
		c, s := r.pair()
		_, err := s.Write(bytesOf(100))
		check(err)
		check(s.CloseWrite())
		r.note("we read", readAll(c, 100))
		r.note("a further Read", describeCall(c.Read))
		_, err = c.Write(bytesOf(100_000))
		r.note("Write", describe(err))
		r.note("Close", timed(c.Close))
		r.note("the peer reads", readAll(s, 100_000))
		r.note("the peer's Close", timed(s.Close))
	}},
	{name: "close write after the peer's close", run: func(r *run) {
		c, s := r.pair()
		check(s.Close())
		r.note("Read", describeCall(c.Read))
		r.note("CloseWrite", timed(c.CloseWrite))
		r.note("Close", timed(c.Close))
	}},
	{name: "a reset after the peer's close write", run: func(r *run) {
		c, s := r.pair()
		_, err := s.Write(bytesOf(100))
		check(err)
		check(s.CloseWrite())
		_, err = c.Write(bytesOf(1000))
		check(err)
		_, err = readTo(s, 0, 1) // the rest has arrived too
		check(err)
		check(s.Close())
		r.note("we read", readAll(c, 100))
		r.note("a further Read", describeCall(c.Read))
		r.note("a later Write", describe(writeUntilError(c)))
		r.note("CloseRead finds no connection", fmt.Sprint(errors.Is(c.CloseRead(), syscall.ENOTCONN)))
		r.note("CloseWrite finds no connection", fmt.Sprint(errors.Is(c.CloseWrite(), syscall.ENOTCONN)))
		r.note("Close", timed(c.Close))
	}},
	{name: "a write of nothing after the peer's close", stacks: []string{"net", "shm"}, run: func(r *run) {
		c, s := r.pair()
		check(s.Close())
		r.note("Read", describeCall(c.Read))
		_, err := c.Write(nil)
		r.note("Write of nothing", describe(err))
		r.note("first Write", describeCall(c.Write))
		r.note("a later Write", describe(writeUntilError(c)))
		_, err = c.Write(nil)
		r.note("a later Write of nothing", describe(err))
		r.note("CloseRead finds no connection", fmt.Sprint(errors.Is(c.CloseRead(), syscall.ENOTCONN)))
		r.note("CloseWrite finds no connection", fmt.Sprint(errors.Is(c.CloseWrite(), syscall.ENOTCONN)))
	}},
	{name: "a long write after the peer's close", run: func(r *run) {
		c, s := r.pair()
		check(s.Close())
		r.note("Read", describeCall(c.Read))
		n, err := c.Write(make([]byte, blocking))
		r.must("some bytes are taken", n > 0)
		r.note("Write", describe(err))
	}},
	// Over iwarp the messages of an end that receives nothing are taken as long as it has credit.
	{name: "writes right after the peer's close", stacks: []string{"net", "shm"}, run: func(r *run) { writesToGone(r, 0, false) }},
	{name: "writes after the peer's close with much unread", stacks: []string{"net", "shm"}, run: func(r *run) { writesToGone(r, 50, false) }},
	{name: "writes right after the peer's reset", run: func(r *run) { writesToGone(r, 0, true) }},
	{name: "both close write, then close", run: func(r *run) {
		c, s := r.pair()
		check(c.CloseWrite())
		check(s.CloseWrite())
		r.note("Read", describeCall(c.Read))
		r.note("the peer's Read", describeCall(s.Read))
		r.note("Close", timed(c.Close))
		r.note("the peer's Close", timed(s.Close))
	}},
	{name: "close write of a full connection", run: func(r *run) {
		c, s := r.pair()
		taken, err := fill(c)
		check(err)
		r.note("CloseWrite", timed(c.CloseWrite))
		r.note("the peer reads", readAll(s, taken))
		r.note("Close", timed(c.Close))
	}},
	{name: "close read with unread data", run: func(r *run) {
		c, s := r.pair()
		_, err := s.Write(bytesOf(50_000))
		check(err)
		_, err = readTo(c, 0, 100) // the rest has arrived too
		check(err)
		r.note("CloseRead", timed(c.CloseRead))
		rest, err := io.ReadAll(c)
		r.note("we read", amount(len(rest), 49_900)+", "+describe(err))
		_, err = s.Write(bytesOf(1000))
		r.note("the peer writes more", describe(err))
		later, err := io.ReadAll(c)
		r.note("we read more", amount(len(later), 1000)+", "+describe(err))
		r.note("a further Read", describeCall(c.Read))
		_, err = c.Write(bytesOf(100_000))
		r.note("we write", describe(err))
		got, err := readTo(s, 0, 100_000)
		r.note("the peer reads", amount(got, 100_000)+", "+describe(err))
		r.note("Close", timed(c.Close))
		r.note("the peer's Read", timed(func() error { return readByte(s) }))
	}},
	{name: "close read during a Read", run: func(r *run) {
		c, s := r.pair()
		read := blocked(func() error { return readByte(c) })
		r.note("CloseRead", timed(c.CloseRead))
		r.note("Read", timed(func() error { return <-read }))
		_, err := s.Write([]byte("x"))
		check(err)
		r.note("Read of later data", timed(func() error { return readByte(c) }))
		r.note("a further Read", timed(func() error { return readByte(c) }))
		r.note("Close", timed(c.Close))
		r.note("the peer's Read", timed(func() error { return readByte(s) }))
	}},
	{name: "close read of a full connection", run: func(r *run) {
		c, s := r.pair()
		_, err := fill(s)
		check(err)
		r.note("CloseRead", timed(c.CloseRead))
		check(s.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)))
		_, err = s.Write(make([]byte, blocking))
		r.note("the peer writes", describe(err))
		r.note("Close with unread data", timed(c.Close))
		r.note("the peer's Read", timed(func() error { return readByte(s) }))
	}},
	{name: "payload after both directions were closed", run: func(r *run) { writesToClosedHalves(r, 0, false) }},
	{name: "payload after both directions were closed, then a write", run: func(r *run) { writesToClosedHalves(r, 0, true) }},
	{name: "payload after both directions were closed with unread data", run: func(r *run) { writesToClosedHalves(r, 1000, false) }},
	{name: "payload after both directions were closed with unread data, then a write", run: func(r *run) { writesToClosedHalves(r, 1000, true) }},
}

// writesToClosedHalves: s closes both directions and is not closed, and c writes. The reset that
// follows is returned by s's first call, which is a Read or a Write.
func writesToClosedHalves(r *run, unread int, writes bool) {
	c, s := r.pair()
	if unread > 0 {
		_, err := c.Write(bytesOf(unread + 1))
		check(err)
		_, err = readTo(s, 0, 1) // the rest has arrived too
		check(err)
	}
	check(s.CloseRead())
	check(s.CloseWrite())
	r.note("Read", describeCall(c.Read))
	r.note("Write", describeCall(c.Write))
	r.note("a later Write", describe(writeUntilError(c)))
	r.note("a further Read", describeCall(c.Read))
	if writes {
		r.note("the peer's first Write", describeCall(s.Write))
	}
	n, err := readTo(s, 1, unread)
	r.note("the peer reads", amount(n, unread)+", "+describe(err))
	r.note("the peer's Read", describeCall(s.Read))
	r.note("a further Read of the peer", describeCall(s.Read))
	r.note("the peer's Write", describeCall(s.Write))
	r.note("the peer finds no connection", fmt.Sprint(errors.Is(s.CloseRead(), syscall.ENOTCONN)))
	r.note("Close", timed(c.Close))
	r.note("the peer's Close", timed(s.Close))
}

// writesToGone writes to a peer that has just left, when nothing of this end waits for it, after messages
// that this end has not read.
func writesToGone(r *run, unread int, reset bool) {
	for _, size := range []int{10, 8000, 16_000} {
		c, s := r.pair()
		for range 20 { // then no goroutine of this end waits in the background
			_, err := c.Write(bytesOf(10))
			check(err)
			_, err = readTo(s, 0, 10)
			check(err)
			_, err = s.Write(bytesOf(10))
			check(err)
			_, err = readTo(c, 0, 10)
			check(err)
		}
		for range unread {
			_, err := c.Write(bytesOf(1))
			check(err)
			_, err = readTo(s, 0, 1) // after a Read, small Writes are messages of their own
			check(err)
			for range 4 {
				_, err := s.Write(bytesOf(10))
				check(err)
			}
		}
		if reset {
			check(s.SetLinger(0))
		}
		check(s.Close())
		var err error
		eventually(func() bool {
			_, err = c.Write(bytesOf(size))
			return err != nil
		})
		r.note("a later Write", describe(err))
		if unread > 0 {
			b, err := io.ReadAll(c)
			r.note("all that was unread can be read", fmt.Sprint(len(b) == unread*40, ", ", describe(err)))
		}
		check(c.Close())
	}
}
