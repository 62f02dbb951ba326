package parity

import (
	"fmt"
	"sync"
	"time"
)

var closeScripts = []script{
	{name: "both ends close", run: func(r *run) {
		c, s := r.pair()
		_, err := c.Write(bytesOf(100))
		check(err)
		_, err = readTo(s, 0, 100)
		check(err)
		var closing sync.WaitGroup
		results := make([]string, 2)
		for i, end := range []conn{c, s} {
			closing.Go(func() { results[i] = timed(end.Close) })
		}
		closing.Wait()
		r.note("Close of the client", results[0])
		r.note("Close of the server", results[1])
	}},
	{name: "close twice", run: func(r *run) {
		c, _ := r.pair()
		r.note("first Close", timed(c.Close))
		r.note("second Close", timed(c.Close))
		r.note("Read", describeCall(c.Read))
		r.note("Write", describeCall(c.Write))
		r.note("SetDeadline", describe(c.SetDeadline(time.Now())))
		r.note("CloseWrite", describe(c.CloseWrite()))
	}},
	{name: "close while the peer reads", run: func(r *run) {
		c, s := r.pair()
		end := make(chan string, 1)
		go func() { end <- readAll(s, 100_000) }()
		_, err := c.Write(bytesOf(100_000))
		check(err)
		r.note("Close", timed(c.Close))
		r.note("the peer reads", <-end)
	}},
	{name: "close with unread data", run: func(r *run) {
		c, s := r.pair()
		_, err := s.Write(bytesOf(1000))
		check(err)
		_, err = readTo(c, 0, 1)
		check(err)
		r.note("Close", timed(c.Close))
		_, err = s.Read(make([]byte, 1))
		r.note("the peer's Read", describe(err))
	}},
	{name: "the peer begins to read after close", run: func(r *run) {
		c, s := r.pair()
		for i := range 100 {
			_, err := c.Write(pattern(make([]byte, 4096), i*4096))
			check(err)
		}
		r.note("Close", timed(c.Close))
		r.wait(3 * time.Second)
		r.note("the peer reads", readAll(s, 100*4096))
	}},
	{name: "the peer begins to read after close of a full connection", run: func(r *run) {
		c, s := r.pair()
		taken, err := fill(c)
		check(err)
		r.note("Close", timed(c.Close))
		r.wait(3 * time.Second)
		r.note("the peer reads", readAll(s, taken))
	}},
	{name: "many small writes to a peer that does not read, then close", run: func(r *run) {
		c, s := r.pair()
		err := bounded(func() error { return writeSmall(c, smallBytes/64) })
		r.note("Write", describe(err))
		r.note("Close", timed(c.Close))
		r.note("the peer reads", readAll(s, smallBytes))
	}},
	{name: "close during a blocked write", run: func(r *run) {
		c, s := r.pair()
		taken, err := fill(c)
		check(err)
		more := 0
		b := pattern(make([]byte, blocking), taken)
		written := blocked(func() (err error) {
			more, err = c.Write(b)
			return err
		})
		r.note("Close", timed(c.Close))
		r.note("Write", timed(func() error { return <-written }))
		r.note("the peer reads", readAll(s, taken+more))
	}},
	{name: "close during a blocked read", run: func(r *run) {
		c, s := r.pair()
		read := blocked(func() error { return readByte(c) })
		r.note("Close", timed(c.Close))
		r.note("Read", timed(func() error { return <-read }))
		_, err := s.Read(make([]byte, 1))
		r.note("the peer's Read", describe(err))
	}},
	{name: "write after the peer's close", run: func(r *run) {
		c, s := r.pair()
		check(s.Close())
		_, err := c.Read(make([]byte, 1))
		r.note("Read", describe(err))
		r.note("first Write", describeCall(c.Write))
		r.note("a later Write", describe(writeUntilError(c)))
		r.note("Close", timed(c.Close))
	}},
	{name: "every call after a reset", run: func(r *run) {
		c, s := r.pair()
		check(s.SetLinger(0))
		check(s.Close())
		r.note("first Read", describeCall(c.Read))
		r.note("second Read", describeCall(c.Read))
		r.note("Write", describeCall(c.Write))
		r.note("Close", timed(c.Close))
	}},
	{name: "close and exit", run: func(r *run) { closeAndExit(r, 100, 64) }},
	{name: "close and exit after a megabyte", stacks: []string{"net", "shm"}, run: func(r *run) {
		closeAndExit(r, 1, 1<<20)
	}},
}

// smallBytes is what every connection buffers at least, whatever the size of the Writes.
const smallBytes = 256 << 10

// writeSmall makes the given number of Writes of 64 bytes.
func writeSmall(c conn, writes int) error {
	b := make([]byte, 64)
	for i := range writes {
		if _, err := c.Write(pattern(b, i*len(b))); err != nil {
			return err
		}
	}
	return nil
}

// describeCall describes the error of a Read or Write of one byte.
func describeCall(call func([]byte) (int, error)) string {
	_, err := call(make([]byte, 1))
	return describe(err)
}

// closeAndExit makes a process write, close and exit at once, five times.
func closeAndExit(r *run, writes, size int) {
	ln, err := r.Listen()
	check(err)
	for range 5 {
		p := startPeer("closer " + r.name + " " + fmt.Sprint(ln.Addr(), " ", writes, " ", size))
		s := r.accept(ln)
		r.note("Close", p.line())
		r.note("the peer reads", readAll(s, writes*size))
		p.cmd.Wait()
		s.Close()
	}
}
