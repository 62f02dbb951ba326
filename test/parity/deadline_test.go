package parity

import "time"

var deadlineScripts = []script{
	{name: "deadlines in the past", run: func(r *run) {
		c, s := r.pair()
		past := time.Now().Add(-time.Second)
		_, err := s.Write(bytesOf(10))
		check(err)
		check(c.SetDeadline(past))
		for _, call := range []string{"first", "second"} {
			r.note(call+" Read", timed(func() error { return readByte(c) }))
			n, err := c.Write(bytesOf(10))
			r.note(call+" Write", describe(err))
			r.must(call+" Write wrote nothing", n == 0)
		}
		check(c.SetDeadline(time.Time{}))
		got, err := readTo(c, 0, 10)
		r.note("Read without a deadline", amount(got, 10)+" "+describe(err))
		_, err = c.Write(bytesOf(10))
		r.note("Write without a deadline", describe(err))
		got, err = readTo(s, 0, 10)
		r.note("the peer reads", amount(got, 10)+" "+describe(err))
	}},
	{name: "a deadline passes and is moved", run: func(r *run) {
		c, s := r.pair()
		check(c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)))
		r.note("Read", timed(func() error { return readByte(c) }))
		r.note("a further Read", timed(func() error { return readByte(c) }))
		check(c.SetReadDeadline(time.Time{}))
		_, err := s.Write(bytesOf(10))
		check(err)
		got, err := readTo(c, 0, 10)
		r.note("Read without a deadline", amount(got, 10)+" "+describe(err))
		r.note("Close", timed(c.Close))
	}},
	{name: "a write deadline on a full connection", run: func(r *run) {
		c, s := r.pair()
		taken, err := fill(c)
		check(err)
		b := pattern(make([]byte, blocking), taken)
		check(c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)))
		n, err := c.Write(b)
		r.note("Write", describe(err))
		check(c.SetWriteDeadline(time.Time{}))
		end := make(chan string, 1)
		go func() { end <- readAll(s, taken+n+1000) }()
		_, err = c.Write(pattern(make([]byte, 1000), taken+n))
		r.note("Write without a deadline", describe(err))
		r.note("Close", timed(c.Close))
		r.note("the peer reads", <-end)
	}},
}
