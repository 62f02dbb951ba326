package parity

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// stopScripts: a peer whose process is stopped does not read the data that the kernel, or
// shared memory, holds for it.
var stopScripts = []script{
	{name: "small writes to a stopped peer, then close", run: func(r *run) {
		toStopped(r, 200) // over iwarp, credit limits the number
	}},
	{name: "many small writes to a stopped peer, then close", stacks: []string{"net", "shm"}, run: func(r *run) {
		toStopped(r, smallBytes/64)
	}},
	{name: "dial a stopped server", run: func(r *run) {
		p := startPeer("peer " + r.name)
		address := p.line()
		check(p.cmd.Process.Signal(unix.SIGSTOP))
		if r.config != nil {
			// The signal stops one thread after the other, so the server may still have replied.
			r.config.ReplyTimeout, r.config.StepUpTimeout = time.Second, time.Second
		}
		r.note("Dial", describe(bounded(func() error { return r.dial(context.Background(), 0, address) })))
		p.kill()
	}},
	{name: "a stopped peer is killed with unread bytes of ours", run: func(r *run) {
		p, c := r.stoppedPeer()
		_, err := c.Write(bytesOf(1000))
		r.note("Write", describe(err))
		p.kill()
		r.note("Read", timed(func() error { return readByte(c) }))
		r.note("Close", timed(c.Close))
	}},
	{name: "a stopped peer is killed, and has read everything", run: func(r *run) {
		p, c := r.stoppedPeer()
		p.kill()
		r.note("Read", timed(func() error { return readByte(c) }))
		r.note("Close", timed(c.Close))
	}},
}

// stoppedPeer returns a peer whose process is stopped, and the connection to it.
func (r *run) stoppedPeer() (*peer, conn) {
	p, c := r.peer()
	r.note("the peer's Write", p.do("write 1"))
	check(readByte(c))
	check(p.cmd.Process.Signal(unix.SIGSTOP))
	return p, c
}

// toStopped makes the given number of Writes of 64 bytes to a stopped peer, and closes. Then
// the peer continues.
func toStopped(r *run, writes int) {
	p, c := r.stoppedPeer()
	r.note("Write", describe(bounded(func() error { return writeSmall(c, writes) })))
	r.note("Close", timed(c.Close))
	check(p.cmd.Process.Signal(unix.SIGCONT))
	r.note("the peer's Read", p.do(fmt.Sprint("read ", writes*64)))
	r.note("the peer's further Read", p.do("read 1"))
}
