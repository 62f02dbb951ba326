package parity

import (
	"time"
)

var lingerScripts = []script{
	{name: "linger 0", run: func(r *run) {
		c, s := r.pair()
		_, err := c.Write(bytesOf(1000))
		check(err)
		got, err := readTo(s, 0, 1000)
		check(err)
		r.note("the peer has", amount(got, 1000))
		check(c.SetLinger(0))
		r.note("Close", timed(c.Close))
		r.note("the peer's Read", describeCall(s.Read))
		r.note("the peer's Close", timed(s.Close))
	}},
	{name: "linger 0 with a full connection", run: func(r *run) {
		c, s := r.pair()
		taken, err := fill(c)
		check(err)
		check(c.SetLinger(0))
		r.note("Close", timed(c.Close))
		_, err = readTo(s, 0, taken+1)
		r.note("the peer's last Read", describe(err))
	}},
	{name: "linger 1 while the peer reads", run: func(r *run) {
		c, s := r.pair()
		end := make(chan string, 1)
		go func() { end <- readAll(s, 100_000) }()
		_, err := c.Write(bytesOf(100_000))
		check(err)
		check(c.SetLinger(1))
		r.note("Close", timed(c.Close))
		r.note("the peer reads", <-end)
	}},
	{name: "linger 1 with a full connection", run: func(r *run) {
		c, s := r.pair()
		taken, err := fill(c)
		check(err)
		check(c.SetLinger(1))
		r.note("Close", timed(c.Close))
		r.wait(time.Second)
		r.note("the peer reads", readAll(s, taken))
	}},
}
