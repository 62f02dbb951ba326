package parity

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
}
